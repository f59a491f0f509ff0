"""The OpenAPI document's operations: what each route takes, and every answer that it has.

A refusal is told in the words of its API: OpenAI's, DashScope's, or the house's own.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, get_args

from ...adapters.encoders import AudioFormat, Codec
from .openapi_schemas import Schema, ref

Answers = dict[str, Schema]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_OPENAI, _DASHSCOPE, _HOUSE = "Error", "DashScopeError", "Refused"
_DOOR: Final = {
    401: "No key, or one that is not good.",
    403: "The key lacks the scope, or the page's origin is not allowed.",
}
_TOO_MUCH: Final = {429: "The key asks for too much."}
_TOO_LONG: Final = {413: "The body is too long."}
_ON_SPEECH: Final = {
    **_TOO_MUCH,
    500: "The voice failed.",
    503: "The house is full, or shutting down.",
}
_LATER: Final = (429, 503)
_NO_MODEL: Final = {404: "No such model."}
_NO_CALL: Final = {404: "No such call is up."}
_CLONING: Final = "Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices."


def responses() -> dict[str, Schema]:
    """The refusals in the words of each, and those that say when to come again."""
    request_id = {"x-request-id": {"schema": {"type": "string"}}}
    retry_after = {"retry-after": {"description": "Seconds.", "schema": {"type": "integer"}}}
    found = {}
    for words, headers in ((_OPENAI, request_id), (_DASHSCOPE, {}), (_HOUSE, {})):
        content = {_JSON: {"schema": ref(words)}}
        found[words] = {"description": "Refused.", "headers": headers, "content": content}
        found[f"{words}Later"] = found[words] | {"headers": headers | retry_after}
    return found


def _refused(words: str, *why: Mapping[int, str]) -> Answers:
    return {
        str(status): {
            "$ref": f"#/components/responses/{words}{'Later' if status in _LATER else ''}",
            "description": sentence,
        }
        for one in why
        for status, sentence in one.items()
    }


def _json(
    schema: str, status: int = 200, description: str = "OK", links: Mapping[str, Schema] | None = None
) -> Answers:
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


def _content(description: str, **content: Schema) -> Answers:
    return {"200": {"description": description, "content": content}}


def _body(schema: str, content_type: str = _JSON) -> Schema:
    return {"required": True, "content": {content_type: {"schema": ref(schema)}}}


def _operation(operation_id: str, summary: str, *answers: Answers, about: str = "", **more: Any) -> Schema:
    told = {"operationId": operation_id, "summary": summary, **({"description": about} if about else {})}
    return {**told, **more, "responses": {status: one for some in answers for status, one in some.items()}}


def _guarded(
    words: str, operation_id: str, summary: str, answer: Answers, *why: Mapping[int, str], **more: Any
) -> Schema:
    """An operation that a key is needed for. why: what else it is refused for, in the words of its API."""
    return _operation(operation_id, summary, answer, _refused(words, _DOOR, *why), **more)


_openai, _dashscope, _house = (partial(_guarded, words) for words in (_OPENAI, _DASHSCOPE, _HOUSE))


def _open(operation_id: str, summary: str, *answers: Answers) -> Schema:
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
_SSE: Final = {
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
                    "content": {**_AUDIO, _EVENTS: {}},
                }
            },
            {400: "A field is wrong; 'param' says which."},
            _NO_MODEL,
            _TOO_LONG,
            _ON_SPEECH,
            about="The audio comes while it is made. 'sse' sends it in base64, in events speech.audio.delta, "
            "then speech.audio.done with what was used, or speech.audio.error.",
            requestBody=_body("SpeechRequest"),
        )
    },
    "/v1/models": {"get": _openai("listModels", "List the names that 'model' may have.", _json("Models"))},
    "/v1/models/{model}": {"get": _openai("getModel", "Look a model up.", _json("Model"), _NO_MODEL)},
    "/v1/audio/voices": {
        "get": _openai(
            "listVoices",
            "List the voices that the key may use.",
            _json("Voices", links=_links("voice_id", "/uploaded_voices/0/id", "deleteVoice")),
        ),
        "post": _openai(
            "createVoice",
            "Make a voice of a recording.",
            _json("MadeVoice"),
            {400: "The form or the recording cannot be used, or the loaded voice clones nobody."},
            _TOO_LONG,
            _TOO_MUCH,
            {503: "Too many recordings wait, or the disk is full."},
            about=_CLONING,
            requestBody=_body("NewVoice", "multipart/form-data"),
        ),
    },
    "/v1/audio/voices/{voice_id}": {
        "delete": _openai(
            "deleteVoice",
            "Remove a voice of the key's.",
            _json("RemovedVoice"),
            {
                400: "The voice is the operator's.",
                404: "No such voice was enrolled.",
                503: "The disk is full.",
            },
            about="Needs the scope 'enrol'.",
        ),
    },
}

_KEPT: Final = {
    "200": {"description": "The audio.", "content": {**_AUDIO}},
    "206": {"description": "The part of it that a Range header asks for.", "content": {**_AUDIO}},
    "400": {"description": "The Range header cannot be read.", "content": {"text/plain": {}}},
    **_json("DashScopeMissing", 404, "There is none, or its day is over."),
    "416": {"description": "It has no such part.", "content": {"text/plain": {}}},
}

_DASHSCOPE_PATHS: Final[dict[str, Schema]] = {
    "/api/v1/services/audio/tts/SpeechSynthesizer": {
        "post": _dashscope(
            "synthesize",
            "Speak a text, for clients of DashScope.",
            _content(
                "A link to the audio, or events, of which the last has it.",
                **{_JSON: {"schema": ref("Synthesized")}, _EVENTS: {}},
            ),
            {400: "A field is wrong, or the body is too long."},
            _NO_MODEL,
            _ON_SPEECH,
            parameters=[_SSE],
            requestBody=_body("Synthesis"),
        )
    },
    "/api/v1/services/audio/tts/results/{id}": {
        "get": _open("getAudio", "Fetch what a link of SpeechSynthesizer leads to.", _KEPT),
        "head": _open(
            "headAudio",
            "Ask for its length and kind.",
            {status: {"description": answer["description"]} for status, answer in _KEPT.items()},
        ),
    },
    "/api/v1/services/audio/tts/customization": {
        "post": _dashscope(
            "customize",
            "Enrol, list, look up, replace and delete voices, for clients of DashScope.",
            _json("Customized"),
            {400: "A field is wrong, no such voice, or the recording cannot be fetched or used."},
            _NO_MODEL,
            _TOO_MUCH,
            {503: "Shutting down."},
            about=_CLONING,
            requestBody=_body("Customization"),
        )
    },
}

_CALL_PATHS: Final[dict[str, Schema]] = {
    "/v1/calls": {
        "get": _house(
            "listCalls",
            "List the calls that are up.",
            _json(
                "Calls", links=_links("call_id", "/calls/0/call", "getCall", "discard", "sayOnCall", "hangUp")
            ),
        )
    },
    "/v1/calls/{call_id}": {
        "get": _house("getCall", "Look a call up.", _json("Call"), _NO_CALL),
        "delete": _house("hangUp", "Hang up.", _json("HungUp"), _NO_CALL),
    },
    "/v1/calls/{call_id}/discard": {
        "post": _house("discard", "Interrupt what is said.", _json("Discarded"), _NO_CALL),
    },
    "/v1/calls/{call_id}/speech": {
        "post": _house(
            "sayOnCall",
            "Speak the body as it arrives; the answer comes when it has been heard.",
            _json("Spoken"),
            _NO_CALL,
            {409: "Somebody holds the call."},
            {429: "The key asks for too much; what came of the text before that is spoken."},
            requestBody={"content": {"text/plain": {"schema": {"type": "string"}}}},
        ),
    },
}

_NO_JSON: Final = {400: "It cannot be used.", 413: "The body is too long.", 415: "The body is not JSON."}
_NO_FIELD: Final = {422: "A field is wrong."}
_NOT_STARTED: Final = {404: "No such session was started."}


def _offers(name: str, where: str, *more: Mapping[int, str]) -> Schema:
    return {
        "post": _house(
            f"offer{name}",
            f"Call from a browser{where}: a WebRTC offer for an answer.",
            _json("Answer"),
            _NO_JSON,
            _NO_FIELD,
            {503: "The call does not fit now."},
            *more,
            requestBody=_body("Offer"),
        ),
        "patch": _house(
            f"trickle{name}",
            f"Add ICE candidates to a call{where}.",
            _json("Status"),
            _NO_JSON,
            _NO_FIELD,
            _NO_CALL,
            *more,
            requestBody=_body("Candidates"),
        ),
    }


_BROWSER_PATHS: Final[dict[str, Schema]] = {
    "/": {"get": _house("page", "The page.", _content("HTML", **{"text/html": {}}))},
    "/page/{name}": {
        "get": _house(
            "pageFile",
            "A file of the page's.",
            _content("The file.", **{"text/javascript": {}, "text/css": {}, "text/html": {}}),
            {404: "No such file."},
        ),
    },
    "/status": {"get": _house("startable", "What a browser can start.", _json("Startable"))},
    "/start": {
        "post": _house(
            "start",
            "Begin a session, as Pipecat's clients do.",
            _json("Started", links=_links("session_id", "/sessionId", "offerInSession", "trickleInSession")),
            _NO_JSON,
            requestBody=_body("Start"),
        )
    },
    "/api/offer": _offers("", ""),
    "/sessions/{session_id}/api/offer": _offers("InSession", " in a session", _NOT_STARTED),
}

_OPERATOR_PATHS: Final[dict[str, Schema]] = {
    "/healthz": {"get": _open("health", "Whether the process is alive.", _json("Status"))},
    "/readyz": {
        "get": _open(
            "readiness", "Whether a call may come.", _json("Status"), _json("Status", 503, "Not now.")
        )
    },
    "/metrics": {
        "get": _house(
            "metrics",
            "Numbers for Prometheus.",
            _content("Prometheus's text format.", **{"text/plain": {}}),
            about="Needs the scope 'admin'.",
        )
    },
    "/openapi.json": {"get": _open("document", "This document.", _content("OpenAPI 3.1.", **{_JSON: {}}))},
    "/docs": {"get": _open("docs", "This document, to read.", _content("HTML", **{"text/html": {}}))},
}

PATHS: Final[dict[str, Schema]] = {
    path: _parameters(path) | methods
    for paths in (_OPENAI_PATHS, _DASHSCOPE_PATHS, _CALL_PATHS, _BROWSER_PATHS, _OPERATOR_PATHS)
    for path, methods in paths.items()
}
