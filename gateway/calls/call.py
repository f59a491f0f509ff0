"""One call: speech and listening on a leg, and their end.

A call knows no protocol. Its media, here or in another process, play the speech and report what was heard and
what the caller does; its leg reports the end of the connection.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from ...adapters.answerer import Answerer
from ...adapters.audio.dtmf import encode_dtmf
from ...adapters.media.call_media import CallMedia, MediaReport
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.metrics import Metrics
from .call_end import CallEnd
from .call_listening import CallListening
from .call_options import LEAD_S, UNKNOWN_CALLER, Caller, CallSpeechOptions
from .call_speech import CallSpeech
from .events import CallEvents, HoldChanged, HungUp, PlayoutReport, RecordingEnded
from .pressure.call_pressure import CallPressure, PlayoutCounters
from .recordings import CallRecording, CallRecordings, RecordingFailed
from .sounds.sound_files import SoundLibrary
from .transfers import CallTransfers

if TYPE_CHECKING:
    from ...tts_engine.speech_engine import SpeechEngine

KeySender = Callable[[str], Awaitable[None]]

_KEY_PAUSE_S: Final = 0.5
_DEFAULT_SPEECH: Final = CallSpeechOptions()


class Call:
    """One leg on which the engine speaks. All methods belong to the event loop's thread.

    Args:
        media: plays the speech; the call becomes its listener.
        close: takes a reason and ends the connection; must not block.
        transfers: of the caller; None: a call of this kind cannot be transferred.
        speech: used for utterances that bring no options of their own.
        recordings: makes the call's recorder; None: the call cannot be recorded.
        sounds: files that programs may play; None: there are none.
        lead_s: seconds of speech kept ready in the playout.
        linger_s: as of ``CallEnd``.
        pressure: takes the faults that the caller hears.

    Attributes:
        speech, listening, recording, end: the parts of the call.
        on_hold: whether the caller hears nothing, and the speech waits.
        answered_by: what answered a call of the gateway; None: not known, or not wanted.
        key_sender: takes keys, ``0-9 * # A-D``, and has the far end get them; None: they are sent as tones.
        is_taken_over: whether the caller decides what is spoken; an agent that speaks unasked then ends.
    """

    def __init__(
        self,
        call_id: str,
        *,
        engine: "SpeechEngine",
        media: CallMedia,
        close: Callable[[str], None],
        transfers: CallTransfers | None = None,
        caller: Caller = UNKNOWN_CALLER,
        recordings: CallRecordings | None = None,
        sounds: SoundLibrary | None = None,
        speech: CallSpeechOptions = _DEFAULT_SPEECH,
        lead_s: float = LEAD_S,
        linger_s: float = 0.0,
        pressure: CallPressure | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.call_id = call_id
        self.caller = caller
        self.media = media
        self.sounds = sounds or SoundLibrary()
        self.is_taken_over = False
        self.on_hold = False
        self.answered_by: Answerer | None = None
        self.key_sender: KeySender | None = None
        closed = asyncio.Event()
        self.listening = CallListening(call_id, media)
        self.events = events = self.listening.events
        self.speech = CallSpeech(
            call_id, engine, media, events, closed, options=speech, lead_s=lead_s, now=now
        )
        self.end = CallEnd(self.speech, closed, close, transfers, linger_s)
        # It does not refer to the call, which is freed at its end without the garbage collector.
        report_failed = partial(_report_failed_recording, engine.metrics, events, closed)
        self.recording = CallRecording(call_id, media, recordings, report_failed, closed)
        self._counters = PlayoutCounters(engine.metrics, pressure)
        self._now = now
        # As the listener of the media:
        self.on_words_heard = self.speech.on_words_heard
        self.on_played = self.speech.on_played
        self.on_discarded = self.speech.on_discarded
        self.on_caller_speech = self.listening.on_caller_speech
        self.on_caller_audio = self.listening.on_caller_audio
        self.on_key = self.listening.on_key
        self.on_recorded = self.recording.take
        media.set_listener(self)

    def set_hold(self, on_hold: bool) -> None:
        """Take that the caller put the call on hold, or is back. The speech waits, and goes on at a word."""
        if on_hold == self.on_hold:
            return
        self.on_hold = on_hold
        self.media.set_held(on_hold)
        self.speech.set_waiting(on_hold)
        self.listening.set_hold(on_hold)
        self.events.emit(HoldChanged(on_hold))

    async def send_keys(self, digits: str) -> None:
        """Press keys of the far end, after the utterance that is being spoken.

        Raises VivavoceError, as the way in does.

        Args:
            digits: ``0-9 * # A-D``, and ``w`` for half a second between two.
        """
        async with self.speech.silence():
            for keys in re.findall("w|[^w]+", digits):
                if keys == "w":
                    await asyncio.sleep(_KEY_PAUSE_S)
                elif self.key_sender is not None:
                    await self.key_sender(keys)
                else:
                    await self.speech.play_tones(encode_dtmf(keys, SAMPLE_RATE))

    def on_closed(self) -> None:
        """End everything of the call: its leg is gone."""
        self.recording.end()
        self.end.on_closed()
        self.speech.close()
        self._counters.count(self.media.report.stats, self._now())
        self.events.emit(HungUp())

    def on_report(self, report: MediaReport) -> None:
        """Count faults in the metrics, and emit the state of the playout."""
        stats = report.stats
        self._counters.count(stats, self._now())
        if self.events.has_listeners:
            self.events.emit(PlayoutReport(round(1000 * self.media.lead_s(self._now())), stats))


def _report_failed_recording(
    metrics: Metrics, events: CallEvents, closed: asyncio.Event, error: RecordingFailed
) -> None:
    metrics.recording_failures.inc()
    if not closed.is_set():
        events.emit(RecordingEnded(str(error)))
