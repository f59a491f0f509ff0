"""The simulated peers by the name of their wire; each takes the id of a call."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from .asterisk import SimulatedAsterisk
from .exotel import SimulatedExotel
from .freeswitch import SimulatedAudioFork, SimulatedAudioStream
from .jambonz import SimulatedJambonz
from .peer import SimulatedPeer
from .plivo import SimulatedPlivo
from .telnyx import SimulatedTelnyx
from .twilio import SimulatedTwilio
from .vonage import SimulatedVonage

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
