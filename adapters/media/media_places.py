"""The places where the media of phone calls are played: processes, or a thread, where nothing else runs."""

from collections.abc import Callable, Sequence

from ..playback.background import BackgroundSounds
from .paced_media import SpeechDetector
from .phone_media import PhoneMedia
from .servers.media_servers import NO_SOUNDS, MediaServers


def make_phone_media(
    processes: int | None,
    make_detector: Callable[[], SpeechDetector | None] = lambda: None,
    *,
    wire_modules: Sequence[str] = (),
    sounds: BackgroundSounds = NO_SOUNDS,
) -> PhoneMedia:
    """Media servers, not yet started.

    processes: their number, each a process; 0: one, a thread of this process. None: 1 with more than one
    processor core, else 0. make_detector: makes a call's detector of the caller's speech, in a thread; a
    process has its own. wire_modules: imported by a process before it takes calls; others are at their first
    call. sounds: under the speech of every call.
    """
    return MediaServers(processes, make_detector, wire_modules, sounds)
