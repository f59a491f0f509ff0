"""``vivavoce serve`` whose event loop is timed: ``python -m benches.api_texts.server FLAGS``.

Each line on standard input is answered with a JSON line: the longest callback since the line before.
"""

import gc
import json
import sys
import threading
import time
from asyncio import events
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Final
from unittest.mock import patch

import vivavoce
from benches.mix.server import callback_name
from vivavoce.gateway import engine_opening
from vivavoce.gateway.cli.main import main

_PACKAGE: Final = str(Path(vivavoce.__file__).parent)
_SAMPLE_S: Final = 0.001
_FRAMES: Final = 3  # of a sample


@dataclass(slots=True)
class LongestCallback:
    """The longest callback since some time; processor time of the loop's thread, in ms."""

    ms: float = 0.0
    name: str = ""
    collection_ms: float = 0.0  # of garbage, in it
    function: str = ""  # of this package, in which it was most often seen


@dataclass(slots=True)
class _RunningCallback:
    number: int = 0  # 0: none runs
    seen: Counter[str] = field(default_factory=Counter)


class CallbackTimer:
    """Times every callback of the main thread's loop, and the garbage collections in it."""

    def __init__(self) -> None:
        self._longest = LongestCallback()
        self._number = 0
        self._running = _RunningCallback()
        self._collected_ms = 0.0  # on the loop's thread, so far
        self._collection_begin = 0.0
        self._loop_thread = threading.main_thread()

    def install(self) -> None:
        """Begin."""
        run = events.Handle._run

        def run_timed(handle: events.Handle) -> None:
            if threading.current_thread() is not self._loop_thread:
                run(handle)
                return
            self._number += 1
            self._running = running = _RunningCallback(self._number)
            collected, begin = self._collected_ms, time.thread_time()
            run(handle)
            taken_ms = 1000 * (time.thread_time() - begin)
            self._running = _RunningCallback()
            if taken_ms > self._longest.ms:
                seen = running.seen.most_common(1)
                self._longest = LongestCallback(
                    taken_ms,
                    callback_name(handle),
                    self._collected_ms - collected,
                    seen[0][0] if seen else "",
                )

        events.Handle._run = run_timed  # type: ignore[method-assign,assignment]
        gc.callbacks.append(self._time_collection)
        threading.Thread(target=self._sample, daemon=True).start()

    def take(self) -> LongestCallback:
        """Return the longest callback and begin again."""
        longest, self._longest = self._longest, LongestCallback()
        return longest

    def _sample(self) -> None:
        """See now and then which function runs."""
        before = 0
        while True:
            time.sleep(_SAMPLE_S)
            running = self._running
            if running.number and running.number == before:
                running.seen[_innermost(sys._current_frames()[self._loop_thread.ident or 0])] += 1
            before = running.number

    def _time_collection(self, phase: str, _details: dict[str, int]) -> None:
        if threading.current_thread() is not self._loop_thread:
            return
        if phase == "start":
            self._collection_begin = time.thread_time()
        else:
            self._collected_ms += 1000 * (time.thread_time() - self._collection_begin)


def _innermost(frame: FrameType | None) -> str:
    """The innermost functions of this package."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES:
        if frame.f_code.co_filename.startswith(_PACKAGE) and "/tests/" not in frame.f_code.co_filename:
            names.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)


def _answer_lines(timer: CallbackTimer) -> None:
    for _ in sys.stdin:
        print(json.dumps(asdict(timer.take())), flush=True)


if __name__ == "__main__":
    installed = CallbackTimer()
    installed.install()
    threading.Thread(target=_answer_lines, args=(installed,), daemon=True).start()
    sys.argv[1:1] = ["serve"]
    with patch.object(engine_opening, "KEPT_SPEECH_BYTES", 0):  # every request is rendered anew
        main()
