"""Messages between a call's control and a media server. Times are monotonic seconds of one machine.

    control --CallMedia, PhoneCallControl--> media server
            <--PhoneCallEvents--

A message of a call names a method of these interfaces, which the other end runs, and the number that control
gave the call. Control pushes speech ahead; the media server plays it and reports. A call ends with
``on_closed``, after which its number is not used again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol

from ....tts_engine.chunk import AudioChunk
from ...playback.background import BackgroundSounds
from ..call_media import MediaListener, MediaReport
from ..phone_media import PhoneCallCommands, PhoneCallOptions, WireOpening

READY_PERIOD_S: Final = 0.2

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True, slots=True)
class SetSounds:
    """To media: have the calls that are opened later play these sounds. Sent before any call is opened."""

    sounds: BackgroundSounds


@dataclass(frozen=True, slots=True)
class OpenPhoneCall:
    """To media: serve a call, whose socket's descriptor comes with the message."""

    call: int
    wire: WireOpening
    options: PhoneCallOptions
    socket: tuple[int, int]  # ``link.socket_identity`` of the call's; a descriptor of another one is refused


@dataclass(frozen=True, slots=True)
class MediaReady:
    """To control: the media server takes calls; again every READY_PERIOD_S while it has calls."""


class MediaMessage(NamedTuple):
    """A method that the other end of a call runs; made by ``message_to``."""

    call: int
    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def run_on(self, receiver: object) -> None:
        """Run the method of the receiver."""
        getattr(receiver, self.method)(*self.arguments, **self.options)


def message_to(
    call: int,
    method: Callable[Concatenate[Any, Arguments], None],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> MediaMessage:
    """The message that runs a method with these arguments: ``message_to(7, CallMedia.set_held, True)``."""
    return MediaMessage(call, method.__name__, arguments, options)


class PhoneCallControl(PhoneCallCommands, Protocol):
    """The methods of a phone call that control runs, besides those of ``CallMedia``."""

    def push_speech(self, chunk: AudioChunk, utterance: int, known_discards: int) -> None:
        """Play a chunk after the speech that is queued.

        known_discards: by the media server that control knew of; with fewer than there were it is dropped.
        """


class PhoneCallEvents(MediaListener, Protocol):
    """The methods of control's side of a phone call that the media server runs."""

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        """Something for the log: an error of the caller's program, or of this one (with its traceback)."""

    def on_closed(self, reason: str, report: MediaReport) -> None:
        """The call is over."""


ControlMessage = SetSounds | OpenPhoneCall | MediaMessage
