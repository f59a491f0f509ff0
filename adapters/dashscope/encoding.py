"""TODO."""

import json
from collections.abc import Mapping
from typing import assert_never

from ...tts_engine.chunk import Word
from .events import (
    DashScopeServerEvent,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)


def encode(event: DashScopeServerEvent) -> str:
    """Return the text frame of one event. The payload is always an object: the Java SDK looks into it."""
    match event:
        case TaskStarted(task_id):
            return _server_frame(task_id, "task-started", {})
        case SentenceBegin() | SentenceSynthesis() | SentenceEnd():
            return _server_frame(event.task_id, "result-generated", sentence_payload(event))
        case TaskFinished(task_id, characters):
            payload = {"output": {"sentence": {"words": []}}, "usage": {"characters": characters}}
            return _server_frame(task_id, "task-finished", payload)
        case TaskFailed(task_id, code, message):
            header = {"error_code": str(code), "error_message": message}
            return _server_frame(task_id, "task-failed", {}, header)
        case _:
            assert_never(event)


def sentence_payload(event: SentenceBegin | SentenceSynthesis | SentenceEnd) -> dict[str, dict[str, object]]:
    """``output``, and ``usage`` where there is one, as on the socket and in the events over HTTP."""
    match event:
        case SentenceBegin(_, index, text):
            return {"output": _output("sentence-begin", index, original_text=text)}
        case SentenceSynthesis(_, index):
            return {"output": _output("sentence-synthesis", index)}
        case SentenceEnd(_, index, text, words, characters):
            output = _output("sentence-end", index, words, original_text=text)
            return {"output": output, "usage": {"characters": characters}}
        case _:
            assert_never(event)


def _server_frame(
    task_id: str, event: str, payload: Mapping[str, object], header: Mapping[str, str] | None = None
) -> str:
    head = {"task_id": task_id, "event": event, "attributes": {}, **(header or {})}
    return json.dumps({"header": head, "payload": payload}, separators=(",", ":"))


def _output(kind: str, index: int, words: tuple[Word, ...] = (), **more: object) -> dict[str, object]:
    return {"type": kind, **more, "sentence": {"index": index, "words": [_word(word) for word in words]}}


def _word(word: Word) -> dict[str, object]:
    return {
        "text": word.text,
        "begin_index": word.text_start,
        "end_index": word.text_stop,
        "begin_time": round(word.start_s * 1000),
        "end_time": round(word.stop_s * 1000),
    }
