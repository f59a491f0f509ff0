"""The OpenAPI document's operations: what each route takes, and every answer that it has.

A refusal is told in the words of its API: OpenAI's, DashScope's, or the house's own.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, get_args

from ....adapters.audio.encoders import AudioFormat, Codec
from .schemas import Schema, ref

Responses = dict[str, Schema]

_JSON: Final = "application/json"
_EVENT_STREAM: Final = "text/event-stream"
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_OPENAI, _DASHSCOPE, _NATIVE = "Error", "DashScopeError", "Refused"
_ACCESS_ERRORS: Final = {
    401: "No key, or one that is not good.",
    403: "The key lacks the scope, or the page's origin is not allowed.",
}
_RATE_LIMITED: Final = {429: "The key asks for too much."}
_BODY_TOO_LONG: Final = {413: "The body is too long."}
_SPEECH_ERRORS: Final = {
    **_RATE_LIMITED,
    500: "The voice failed.",
    503: "The house is full, or shutting down.",
}
_RETRYABLE_STATUSES: Final = (429, 503)
_NO_MODEL: Final = {404: "No such model."}
_NO_CALL: Final = {404: "No such call is up."}
_ENROLLMENT_NOTE: Final = (
    "Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices."
)


def responses() -> dict[str, Schema]:
    """The refusals in the words of each, and those that say when to come again."""
    request_id = {"x-request-id": {"schema": {"type": "string"}}}
    retry_after = {"retry-after": {"description": "Seconds.", "schema": {"type": "integer"}}}
    found = {}
    for dialect, headers in ((_OPENAI, request_id), (_DASHSCOPE, {}), (_NATIVE, {})):
        content = {_JSON: {"schema": ref(dialect)}}
        found[dialect] = {"description": "Refused.", "headers": headers, "content": content}
        found[f"{dialect}Later"] = found[dialect] | {"headers": headers | retry_after}
    return found


def _error_responses(dialect: str, *errors: Mapping[int, str]) -> Responses:
    return {
        str(status): {
            "$ref": f"#/components/responses/{dialect}{'Later' if status in _RETRYABLE_STATUSES else ''}",
            "description": sentence,
        }
        for one in errors
        for status, sentence in one.items()
    }


def _json_response(
    schema: str, status: int = 200, description: str = "OK", links: Mapping[str, Schema] | None = None
) -> Responses:
    content = {_JSON: {"schema": ref(schema)}}
    return {
        str(status): {"description": description, "content": content, **({"links": links} if links else {})}
    }


def _links(name: str, at: str, *operations: str) -> dict[str, Schema]:
    """Operations whose parameter of that name is somewhere in the answer."""
    return {
        operation: {"operationId": operation, "parameters": {name: f"$response.body#{at}"}}
        for operation in operations
    }


def _content_response(description: str, **content: Schema) -> Responses:
    return {"200": {"description": description, "content": content}}


def _body(schema: str, content_type: str = _JSON) -> Schema:
    return {"required": True, "content": {content_type: {"schema": ref(schema)}}}


def _operation(operation_id: str, summary: str, *answers: Responses, about: str = "", **more: Any) -> Schema:
    operation = {"operationId": operation_id, "summary": summary, **({"description": about} if about else {})}
    return {
        **operation,
        **more,
        "responses": {status: one for some in answers for status, one in some.items()},
    }


def _authorized_operation(
    dialect: str, operation_id: str, summary: str, answer: Responses, *errors: Mapping[int, str], **more: Any
) -> Schema:
    """An operation that a key is needed for. why: what else it is refused for, in the words of its API."""
    return _operation(
        operation_id, summary, answer, _error_responses(dialect, _ACCESS_ERRORS, *errors), **more
    )


_openai, _dashscope, _native = (
    partial(_authorized_operation, dialect) for dialect in (_OPENAI, _DASHSCOPE, _NATIVE)
)


def _public_operation(operation_id: str, summary: str, *answers: Responses) -> Schema:
    """What nobody needs a key for."""
    return _operation(operation_id, summary, *answers, security=[])


def _parameters(path: str) -> Schema:
    """Those that a path's own text names in braces."""
    found = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    return {"parameters": found} if found else {}


_AUDIO: Final = {AudioFormat(codec).content_type.partition(";")[0]: _BINARY for codec in get_args(Codec)}
_SSE_HEADER: Final = {
    "name": "X-DashScope-SSE",
    "in": "header",
    "description": "'enable' for events with the audio in base64, while it is made.",
    "schema": {"type": "string", "examples": ["enable"]},
}

_OPENAI_PATHS: Final[dict[str, Schema]] = {
    "/v1/audio/speech": {
        "post": _openai(
            "speak",
            "Speak a text.",
            {
                "200": {
                    "description": "Audio of the format asked for, or events.",
                    "headers": {"x-request-id": {"schema": {"type": "string"}}},
                    "content": {**_AUDIO, _EVENT_STREAM: {}},
                }
            },
            {400: "A field is wrong; 'param' says which."},
            _NO_MODEL,
            _BODY_TOO_LONG,
            _SPEECH_ERRORS,
            about="The audio comes while it is made. 'sse' sends it in base64, in events speech.audio.delta, "
            "then speech.audio.done with what was used, or speech.audio.error.",
            requestBody=_body("CreateSpeechRequest"),
        )
    },
    "/v1/models": {
        "get": _openai("listModels", "List the names that 'model' may have.", _json_response("Models"))
    },
    "/v1/models/{model}": {
        "get": _openai("getModel", "Look a model up.", _json_response("Model"), _NO_MODEL)
    },
    "/v1/audio/voices": {
        "get": _openai(
            "listVoices",
            "List the voices that the key may use.",
            _json_response("Voices", links=_links("voice_id", "/uploaded_voices/0/id", "deleteVoice")),
        ),
        "post": _openai(
            "createVoice",
            "Make a voice of a recording.",
            _json_response("MadeVoice"),
            {400: "The form or the recording cannot be used, or the loaded voice clones nobody."},
            _BODY_TOO_LONG,
            _RATE_LIMITED,
            {503: "Too many recordings wait, or the disk is full."},
            about=_ENROLLMENT_NOTE,
            requestBody=_body("NewVoice", "multipart/form-data"),
        ),
    },
    "/v1/audio/voices/{voice_id}": {
        "delete": _openai(
            "deleteVoice",
            "Remove a voice of the key's.",
            _json_response("RemovedVoice"),
            {
                400: "The voice is the operator's.",
                404: "No such voice was enrolled.",
                503: "The disk is full.",
            },
            about="Needs the scope 'enrol'.",
        ),
    },
}

_STORED_AUDIO_RESPONSES: Final = {
    "200": {"description": "The audio.", "content": {**_AUDIO}},
    "206": {"description": "The part of it that a Range header asks for.", "content": {**_AUDIO}},
    "400": {"description": "The Range header cannot be read.", "content": {"text/plain": {}}},
    **_json_response("DashScopeMissing", 404, "There is none, or its day is over."),
    "416": {"description": "It has no such part.", "content": {"text/plain": {}}},
}

_DASHSCOPE_PATHS: Final[dict[str, Schema]] = {
    "/api/v1/services/audio/tts/SpeechSynthesizer": {
        "post": _dashscope(
            "synthesize",
            "Speak a text, for clients of DashScope.",
            _content_response(
                "A link to the audio, or events, of which the last has it.",
                **{_JSON: {"schema": ref("Synthesized")}, _EVENT_STREAM: {}},
            ),
            {400: "A field is wrong, or the body is too long."},
            _NO_MODEL,
            _SPEECH_ERRORS,
            parameters=[_SSE_HEADER],
            requestBody=_body("Synthesis"),
        )
    },
    "/api/v1/services/audio/tts/results/{id}": {
        "get": _public_operation(
            "getAudio", "Fetch what a link of SpeechSynthesizer leads to.", _STORED_AUDIO_RESPONSES
        ),
        "head": _public_operation(
            "headAudio",
            "Ask for its length and kind.",
            {
                status: {"description": answer["description"]}
                for status, answer in _STORED_AUDIO_RESPONSES.items()
            },
        ),
    },
    "/api/v1/services/audio/tts/customization": {
        "post": _dashscope(
            "customize",
            "Enrol, list, look up, replace and delete voices, for clients of DashScope.",
            _json_response("Customized"),
            {400: "A field is wrong, no such voice, or the recording cannot be fetched or used."},
            _NO_MODEL,
            _RATE_LIMITED,
            {503: "Shutting down."},
            about=_ENROLLMENT_NOTE,
            requestBody=_body("Customization"),
        )
    },
}

_CALL_PATHS: Final[dict[str, Schema]] = {
    "/v1/calls": {
        "get": _native(
            "listCalls",
            "List the calls that are up.",
            _json_response(
                "Calls", links=_links("call_id", "/calls/0/call", "getCall", "discard", "sayOnCall", "hangUp")
            ),
        )
    },
    "/v1/calls/{call_id}": {
        "get": _native("getCall", "Look a call up.", _json_response("Call"), _NO_CALL),
        "delete": _native("hangUp", "Hang up.", _json_response("HungUp"), _NO_CALL),
    },
    "/v1/calls/{call_id}/discard": {
        "post": _native("discard", "Interrupt what is said.", _json_response("Discarded"), _NO_CALL),
    },
    "/v1/calls/{call_id}/speech": {
        "post": _native(
            "sayOnCall",
            "Speak the body as it arrives; the answer comes when it has been heard.",
            _json_response("Spoken"),
            _NO_CALL,
            {409: "Somebody holds the call."},
            {429: "The key asks for too much; what came of the text before that is spoken."},
            requestBody={"content": {"text/plain": {"schema": {"type": "string"}}}},
        ),
    },
}

_BAD_BODY: Final = {400: "It cannot be used.", 413: "The body is too long.", 415: "The body is not JSON."}
_INVALID_FIELD: Final = {422: "A field is wrong."}
_NO_SUCH_SESSION: Final = {404: "No such session was started."}


def _offer_operations(name: str, where: str, *more: Mapping[int, str]) -> Schema:
    return {
        "post": _native(
            f"offer{name}",
            f"Call from a browser{where}: a WebRTC offer for an answer.",
            _json_response("Answer"),
            _BAD_BODY,
            _INVALID_FIELD,
            {503: "The call does not fit now."},
            *more,
            requestBody=_body("Offer"),
        ),
        "patch": _native(
            f"trickle{name}",
            f"Add ICE candidates to a call{where}.",
            _json_response("Status"),
            _BAD_BODY,
            _INVALID_FIELD,
            _NO_CALL,
            *more,
            requestBody=_body("Candidates"),
        ),
    }


_BROWSER_PATHS: Final[dict[str, Schema]] = {
    "/": {"get": _native("page", "The page.", _content_response("HTML", **{"text/html": {}}))},
    "/page/{name}": {
        "get": _native(
            "pageFile",
            "A file of the page's.",
            _content_response("The file.", **{"text/javascript": {}, "text/css": {}, "text/html": {}}),
            {404: "No such file."},
        ),
    },
    "/status": {"get": _native("startable", "What a browser can start.", _json_response("Startable"))},
    "/start": {
        "post": _native(
            "start",
            "Begin a session, as Pipecat's clients do.",
            _json_response(
                "Started", links=_links("session_id", "/sessionId", "offerInSession", "trickleInSession")
            ),
            _BAD_BODY,
            requestBody=_body("Start"),
        )
    },
    "/api/offer": _offer_operations("", ""),
    "/sessions/{session_id}/api/offer": _offer_operations("InSession", " in a session", _NO_SUCH_SESSION),
}

_OPERATOR_PATHS: Final[dict[str, Schema]] = {
    "/healthz": {
        "get": _public_operation("health", "Whether the process is alive.", _json_response("Status"))
    },
    "/readyz": {
        "get": _public_operation(
            "readiness",
            "Whether a call may come.",
            _json_response("Status"),
            _json_response("Status", 503, "Not now."),
        )
    },
    "/metrics": {
        "get": _native(
            "metrics",
            "Numbers for Prometheus.",
            _content_response("Prometheus's text format.", **{"text/plain": {}}),
            about="Needs the scope 'admin'.",
        )
    },
    "/openapi.json": {
        "get": _public_operation(
            "document", "This document.", _content_response("OpenAPI 3.1.", **{_JSON: {}})
        )
    },
    "/docs": {
        "get": _public_operation(
            "docs", "This document, to read.", _content_response("HTML", **{"text/html": {}})
        )
    },
}

PATHS: Final[dict[str, Schema]] = {
    path: _parameters(path) | methods
    for paths in (_OPENAI_PATHS, _DASHSCOPE_PATHS, _CALL_PATHS, _BROWSER_PATHS, _OPERATOR_PATHS)
    for path, methods in paths.items()
}
