"""TODO."""

import json
from collections.abc import Mapping
from typing import Any, assert_never

from ...tts_engine.chunk import Word
from .events import (
    AudioDone,
    AudioStart,
    AudioWords,
    NativeStreamServerEvent,
    StreamErrorReport,
    UtteranceDone,
)


def encode(event: NativeStreamServerEvent) -> str:
    """The text message that tells an event."""
    return json.dumps(_message_fields(event), separators=(",", ":"))


def _message_fields(event: NativeStreamServerEvent) -> Mapping[str, Any]:
    match event:
        case AudioStart():
            return {
                "type": "audio.start",
                "utterance_index": event.utterance,
                "sentence_index": 0,
                "sentence_text": event.text,
                "format": event.audio_format,
                "sample_rate": event.sample_rate,
                "channels": 1,
            }
        case AudioWords(utterance, words):
            return {"type": "audio.words", "utterance_index": utterance, "words": [*map(_word_fields, words)]}
        case AudioDone(utterance, total_bytes, failed):
            return {
                "type": "audio.done",
                "utterance_index": utterance,
                "sentence_index": 0,
                "total_bytes": total_bytes,
                "error": failed,
            }
        case UtteranceDone(utterance, sentences, cancelled):
            return {
                "type": "session.done",
                "utterance_index": utterance,
                "total_sentences": sentences,
                "cancelled": cancelled,
            }
        case StreamErrorReport():
            optional_fields = {
                "code": event.code,
                "param": event.param,
                "utterance_index": event.utterance,
                "retry_after_s": event.retry_after_s,
            }
            present_fields = {name: value for name, value in optional_fields.items() if value is not None}
            return {"type": "error", "message": event.message, **present_fields}
        case _:
            assert_never(event)


def _word_fields(word: Word) -> Mapping[str, Any]:
    return {
        "word": word.text,
        "start_ms": round(1_000 * word.start_s),
        "end_ms": round(1_000 * word.stop_s),
        "text_start": word.text_start,
        "text_end": word.text_stop,
    }
