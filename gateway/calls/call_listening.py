"""The caller of one call: keys, speech and audio, as far as somebody listens to them."""

import asyncio
import logging

from ...adapters.media.call_media import CallerAudioOptions, CallMedia
from ..background_tasks import wait_at_most
from .call_options import CallerSpeechAction
from .events import CallerAudio, CallerSilent, CallerSpeaking, CallEvents, KeyPressed

logger = logging.getLogger(__name__)

_MAX_WAITING_KEYS = 64  # later ones are dropped


class CallListening:
    """What the caller of one call does, and what the call does when the caller speaks."""

    def __init__(self, call_id: str, media: CallMedia) -> None:
        self.events = CallEvents(on_listeners_changed=self._set_caller_audio)
        self.takes_media_keys = True  # else keys that the media report are ignored: they come twice
        self._call_id = call_id
        self._media = media
        self._keys: asyncio.Queue[str] = asyncio.Queue(_MAX_WAITING_KEYS)
        self._caller_speech_action = CallerSpeechAction.TELL
        self._on_hold = False
        self._silent = asyncio.Event()
        self._silent.set()

    @property
    def caller_speech_action(self) -> CallerSpeechAction:
        """What the call does when its caller begins to speak."""
        return self._caller_speech_action

    @caller_speech_action.setter
    def caller_speech_action(self, action: CallerSpeechAction) -> None:
        self._caller_speech_action = action
        self._set_caller_audio()

    def set_hold(self, on_hold: bool) -> None:
        """Listen to the caller, or not: on hold a telephone system plays music."""
        self._on_hold = on_hold
        self._set_caller_audio()

    async def wait_caller_silent(self, timeout_s: float) -> None:
        """Wait until the caller does not speak; return at once if speech is not detected on this call."""
        await wait_at_most(self._silent, timeout_s)

    def press(self, digit: str) -> None:
        """Take a key that the caller pressed: one of ``0-9 * # A-D``."""
        self.events.emit(KeyPressed(digit))
        try:
            self._keys.put_nowait(digit)
        except asyncio.QueueFull:
            logger.debug("Call %s: key dropped, %d are waiting", self._call_id, _MAX_WAITING_KEYS)

    async def next_key(self) -> str:
        """Wait for the next key that the caller presses: one of ``0-9 * # A-D``."""
        return await self._keys.get()

    # Called by the media

    def on_caller_speech(self, speaking: bool) -> None:
        """Emit that the caller began or stopped to speak."""
        if speaking:
            self._silent.clear()
        else:
            self._silent.set()
        self.events.emit(CallerSpeaking() if speaking else CallerSilent())

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Emit audio of the caller, s16le mono."""
        self.events.emit(CallerAudio(pcm, sample_rate))

    def on_key(self, digit: str) -> None:
        """Take a key that the caller pressed."""
        if self.takes_media_keys:
            self.press(digit)

    def _set_caller_audio(self) -> None:
        discards = self._caller_speech_action is CallerSpeechAction.DISCARD
        reacts = discards or self.events.has_listeners  # something does, to the caller's speech
        detects = reacts and not self._on_hold
        forwards = self.events.wants_caller_audio and not self._on_hold
        if not detects:
            self._silent.set()  # an earlier "speaking" would never end
        self._media.set_caller_audio(CallerAudioOptions(detects, discards, forwards))
