"""Word times in a Pipecat pipeline: when a word is heard, and which text counts as heard.

``Playhead`` computes when audio handed to the pipeline reaches the listener. ``ClauseSequencer`` lets words
into the conversation clause by clause.

Source: pipecat-ai 1.14.0, utils/context/*.py, read and measured.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

import math
import re
from collections.abc import Set
from typing import Any, Final

from pipecat.frames.frames import AggregatedTextFrame, AggregatedTextProgressFrame, Frame, TTSTextFrame
from pipecat.utils.context.aggregated_frame_sequencer import AggregatedFrameSequencer

NANOSECONDS_PER_S: Final = 1_000_000_000

_TOKEN_TEXT_TYPE: Final = "token"  # Pipecat's text type of an LLM token
_CLAUSE_ENDS: Final = (",", ";", ":")  # not a dash, which Pipecat would wait for as a word of its own
_CLAUSE_BREAK: Final = re.compile(r"(?<=[,;:])(?=\s)")
_SPOKEN_FRAMES: Final = (TTSTextFrame, AggregatedTextProgressFrame)


class Playhead:
    """Computes when audio is heard, assuming that the transport plays it without a pause.

    Times are nanoseconds of the pipeline's clock. Pipecat counts the words of a context from its first audio,
    or from the last word before it if that is later (``WordTimestampTracker``); ``word_time_s`` does the
    same.
    """

    def __init__(self) -> None:
        self._until_ns = 0  # end of the audio handed to the pipeline
        self._base_ns: int | None = None  # zero of the context's word times
        self._last_word_ns = 0

    def begin_context(self) -> None:
        """Note that another context is played from now on."""
        self._base_ns = None

    def discard(self) -> None:
        """Note that the transport has dropped its audio (an interruption)."""
        self._until_ns = self._last_word_ns = 0
        self._base_ns = None

    def play(self, now_ns: int, duration_s: float) -> int:
        """Queue audio after the queued audio; return the time at which its first sample is heard."""
        if self._base_ns is None:
            self._base_ns = max(self._last_word_ns, now_ns)
        starts_ns = max(now_ns, self._until_ns)
        self._until_ns = starts_ns + round(duration_s * NANOSECONDS_PER_S)
        return starts_ns

    def word_time_s(self, heard_ns: int) -> float:
        """Return a word's time as ``add_word_timestamps`` takes it; only after ``play``."""
        assert self._base_ns is not None
        self._last_word_ns = max(heard_ns, self._base_ns, self._last_word_ns)
        return (self._last_word_ns - self._base_ns) / NANOSECONDS_PER_S

    def lead_s(self, now_ns: int) -> float:
        """Return the seconds of audio that the transport has not played at ``now_ns``."""
        return max(0.0, (self._until_ns - now_ns) / NANOSECONDS_PER_S)


class ClauseSequencer(AggregatedFrameSequencer):
    """Decides which text counts as heard; differs from Pipecat's sequencer in two ways.

    Pipecat passes the words of a sentence on when the sentence is complete. Here speech starts with the first
    clause, and words heard before an interruption must not be lost because their sentence had no end yet.
    Pipecat also counts all text of a context as spoken when the context ends, which is wrong after a failure.

    Args:
        name: Name for the log.
        failed: Contexts that failed; the caller changes the set.
        streaming: Whether text arrives token by token.
    """

    def __init__(self, name: str, failed: Set[str], *, streaming: bool) -> None:
        super().__init__(name=name, streaming=streaming)
        self._vivavoce_streaming = streaming
        self._vivavoce_failed = failed
        self._vivavoce_clause_ended: set[str] = set()
        # Characters of each context: registered, and those whose words may be published.
        self._vivavoce_registered_characters: dict[str, int] = {}
        self._vivavoce_accepted: dict[str, int] = {}

    def accepted_characters(self, context_id: str) -> float:
        """Return the characters of a context's text whose words Pipecat accepts; ``math.inf`` for all.

        Pipecat would set a word aside that is published earlier, and deliver it after words that follow it.
        """
        return self._vivavoce_accepted.get(context_id, 0) if self._vivavoce_streaming else math.inf

    async def close_clause(self, context_id: str) -> list[Frame]:
        """Accept the words of all registered text; return the frames of the clause that this ends."""
        frames = await self.finalize(context_id)
        if context_id in self._vivavoce_registered_characters:
            self._vivavoce_accepted[context_id] = self._vivavoce_registered_characters[context_id]
        return frames

    async def register_spoken(
        self, frame: AggregatedTextFrame, context_id: str, tts_text: str, *args: Any, **kwargs: Any
    ) -> list[Frame]:
        """Register text; return Pipecat's frames and those of the clause that it completes."""
        frames: list[Frame] = []
        for part, text in _clauses(frame, tts_text):
            registered = self._vivavoce_registered_characters.get(context_id, 0)
            opened: list[Frame] = []
            # "," ends a clause only if a space follows: "4,000" is one word in two tokens.
            if context_id in self._vivavoce_clause_ended and text[:1].isspace():
                opened = await self.finalize(context_id)
            self._vivavoce_clause_ended.discard(context_id)
            if _is_token(frame) and text.endswith(_CLAUSE_ENDS):
                self._vivavoce_clause_ended.add(context_id)
            opened += await super().register_spoken(part, context_id, text, *args, **kwargs)
            if opened:
                self._vivavoce_accepted[context_id] = registered
            self._vivavoce_registered_characters[context_id] = registered + len(text)
            frames += opened
        return frames

    def force_complete(self, context_id: str, last_word_pts: int) -> list[Frame]:
        """End a context; its remaining text counts as spoken unless the context failed."""
        self._vivavoce_forget(context_id)
        frames = super().force_complete(context_id, last_word_pts)
        if context_id not in self._vivavoce_failed:
            return frames
        return [frame for frame in frames if not isinstance(frame, _SPOKEN_FRAMES)]

    def clear(self, **kwargs: Any) -> None:
        """Forget all contexts."""
        for context_id in tuple(self._vivavoce_registered_characters):
            self._vivavoce_forget(context_id)
        super().clear(**kwargs)

    def _vivavoce_forget(self, context_id: str) -> None:
        self._vivavoce_clause_ended.discard(context_id)
        self._vivavoce_registered_characters.pop(context_id, None)
        self._vivavoce_accepted.pop(context_id, None)


def _type_of(frame: AggregatedTextFrame) -> str:
    # text_type was called aggregated_by before Pipecat 1.13.
    return str(frame.text_type if hasattr(frame, "text_type") else frame.aggregated_by)


def _is_token(frame: AggregatedTextFrame) -> bool:
    return _type_of(frame) == _TOKEN_TEXT_TYPE


def _clauses(frame: AggregatedTextFrame, text: str) -> list[tuple[AggregatedTextFrame, str]]:
    # A token may end one clause and begin the next. Text that was rewritten for speech is not split, because
    # its parts cannot be aligned with those of the original.
    parts = _CLAUSE_BREAK.split(text)
    if len(parts) == 1 or not _is_token(frame) or not text == frame.text == frame.raw_text:
        return [(frame, text)]
    return [(AggregatedTextFrame(part, _type_of(frame), raw_text=part), part) for part in parts]
