"""TODO."""

import base64
import json
from collections.abc import Mapping
from typing import Any


def error_body(
    message: str, error_type: str, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error in OpenAI's shape. kind: its ``type``."""
    return {"error": {"message": message, "type": error_type, "param": param, "code": code}}


def model_body(model: str, created: int) -> dict[str, Any]:
    """One model. created: Unix seconds."""
    return {"id": model, "object": "model", "created": created, "owned_by": "vivavoce"}


def models_body(models: tuple[str, ...], created: int) -> dict[str, Any]:
    """The list of models."""
    return {"object": "list", "data": [model_body(model, created) for model in models]}


def audio_delta_event(audio: bytes) -> bytes:
    """A piece of audio."""
    return _server_sent_event(
        {"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode("ascii")}
    )


def audio_done_event(input_tokens: int, output_tokens: int) -> bytes:
    """The end, and what it took."""
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    return _server_sent_event({"type": "speech.audio.done", "usage": usage})


def audio_error_event(error: Mapping[str, Any]) -> bytes:
    """The end of a stream that failed; ``error``: as ``error_body`` has it. vLLM-Omni's event."""
    return _server_sent_event({"type": "speech.audio.error", **error})


def _server_sent_event(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
