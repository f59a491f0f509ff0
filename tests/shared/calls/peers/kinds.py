"""The simulated peers by the name of their wire; each takes the id of a call."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from shared.calls.peers.asterisk import SimulatedAsterisk
from shared.calls.peers.exotel import SimulatedExotel
from shared.calls.peers.freeswitch import SimulatedAudioFork, SimulatedAudioStream
from shared.calls.peers.jambonz import SimulatedJambonz
from shared.calls.peers.peer import SimulatedPeer
from shared.calls.peers.plivo import SimulatedPlivo
from shared.calls.peers.telnyx import SimulatedTelnyx
from shared.calls.peers.twilio import SimulatedTwilio
from shared.calls.peers.vonage import SimulatedVonage

MAKE_PEER: Final[Mapping[str, Callable[[str], SimulatedPeer]]] = MappingProxyType(
    {
        "websocket": SimulatedAsterisk,
        "twilio": SimulatedTwilio,
        "telnyx": SimulatedTelnyx,
        "plivo": SimulatedPlivo,
        "vonage": SimulatedVonage,
        "exotel": SimulatedExotel,
        "jambonz": SimulatedJambonz,
        "mod_audio_fork": SimulatedAudioFork,
        "mod_audio_stream": SimulatedAudioStream,
    }
)
