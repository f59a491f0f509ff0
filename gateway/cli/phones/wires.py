"""The wires of ``vivavoce phone --over``, and what makes their phones; a wire is imported when it is used."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, Protocol
from uuid import UUID

from ..received_audio import ReceivedCall


class Phones(Protocol):
    """Simulated phones of one wire: ``dial`` them, ``run`` until a time, ``close``."""

    @property
    def open_calls(self) -> int:
        """Number of calls that have not ended."""

    def dial(self, *, digits: str = "") -> UUID:
        """Add a phone, which presses ``digits`` from one second after the connection on.

        Raises CallRefused if the gateway says that it takes no call now, PhoneFailed if it cannot be reached.
        """

    def run(self, until: float) -> None:
        """Send and receive until ``until`` (monotonic seconds), or until the last call has ended."""

    def close(self) -> None:
        """Hang up every call."""

    def require_protocol(self) -> None:
        """Raise a VivavoceError if the server answered in another protocol."""

    def received_calls(self) -> list[ReceivedCall]:
        """Return what each phone has heard so far, in the order of dialling."""


def _over_audiosocket(host: str, port: int) -> Phones:
    from .audiosocket_phones import PhoneSimulator

    return PhoneSimulator(host, port)


def _over_rtp(host: str, port: int) -> Phones:
    from .rtp_phones import RtpPhones

    return RtpPhones(host, port)


def _over_websocket(host: str, port: int) -> Phones:
    from .asterisk_peer import SimulatedAsterisk
    from .websocket_phones import WebSocketPhones

    return WebSocketPhones(f"ws://{host}:{port}", SimulatedAsterisk)


def _over_twilio(host: str, port: int) -> Phones:
    from .twilio_peer import SimulatedTwilio
    from .websocket_phones import WebSocketPhones

    return WebSocketPhones(f"ws://{host}:{port}", SimulatedTwilio)


AUDIOSOCKET: Final = "audiosocket"
MAKE_PHONES: Final[Mapping[str, Callable[[str, int], Phones]]] = MappingProxyType(
    {
        AUDIOSOCKET: _over_audiosocket,
        "rtp": _over_rtp,
        "websocket": _over_websocket,
        "twilio": _over_twilio,
    }
)
