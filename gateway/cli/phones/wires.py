"""The wires of ``vivavoce phone --over``, and what makes their phones; a wire is imported when it is used."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from .received_audio import ReceivedCall


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

    def received_calls(self) -> "list[ReceivedCall]":
        """Return what each phone has heard so far, in the order of dialling."""


MakePhones = Callable[[str, int], Phones]  # takes host and port of the gateway


def _over_audiosocket(host: str, port: int) -> Phones:
    from .audiosocket_phones import PhoneSimulator

    return PhoneSimulator(host, port)


def _over_rtp(host: str, port: int) -> Phones:
    from .rtp_phones import RtpPhones

    return RtpPhones(host, port)


AUDIOSOCKET: Final = "audiosocket"
MAKE_PHONES: Final[Mapping[str, MakePhones]] = MappingProxyType(
    {AUDIOSOCKET: _over_audiosocket, "rtp": _over_rtp}
)
