"""A listener who plays one stream in real time, for the benches of a cluster."""

import asyncio
import time

from vivavoce.tts_engine.errors import VivavoceError
from vivavoce.tts_engine.speech_engine import SpeechEngine, SpeechStream

_LEAD_S = 0.6  # of speech that a listener keeps
_GAP_S = 0.06  # of nothing inside speech, above which it is an underrun


def text_of(words: int) -> str:
    """A text of that many words; the stand-in voice speaks each in 0.2 s."""
    return " ".join(f"word{'abcdefghij'[number % 10]}," for number in range(words))


class StreamListener:
    """Plays one stream. Raises Overloaded if the engine refuses it.

    Attributes:
        underruns: gaps so far.
        error: that ended the stream; None without one.
        failed_at: its time, monotonic s.
    """

    def __init__(self, engine: SpeechEngine, text: str) -> None:
        self._stream: SpeechStream = engine.stream()
        self._text = text
        self._words: list[str] = []
        self._heard_at: list[float] = []
        self.underruns = 0
        self.error: VivavoceError | None = None
        self.failed_at: float | None = None

    @property
    def tried(self) -> set[str]:
        """The replicas that spoke."""
        return set(getattr(self._stream, "tried", ()))

    @property
    def has_heard(self) -> bool:
        """Whether speech has come."""
        return bool(self._heard_at)

    @property
    def is_complete(self) -> bool:
        """Whether each word was heard once, in order."""
        return self._words == [word.strip(",") for word in self._text.split()]

    def seconds_to_news(self, since: float) -> float:
        """Seconds until the next chunk or the error."""
        times = [*self._heard_at, *([self.failed_at] if self.failed_at else [])]
        return min((each for each in times if each > since), default=float("inf")) - since

    async def listen(self) -> None:
        """Play the stream to its end or its error."""
        runs_dry_at = 0.0
        async with self._stream as stream:
            stream.push_text(self._text)
            stream.end_input()
            try:
                async for chunk in stream:
                    now = time.monotonic()
                    self._heard_at.append(now)
                    self._words += [word.text for word in chunk.words]
                    self.underruns += bool(runs_dry_at) and now > runs_dry_at + _GAP_S
                    runs_dry_at = max(now, runs_dry_at) + chunk.seconds
                    stream.set_deadline(runs_dry_at)
                    await asyncio.sleep(max(0.0, runs_dry_at - time.monotonic() - _LEAD_S))
            except VivavoceError as error:
                self.error, self.failed_at = error, time.monotonic()
