"""The OpenAPI document's operations: what each route takes, and every answer that it has.

A refusal is told in the words of its API: OpenAI's, DashScope's, or the house's own, which are two, as the
page's calls are refused as FastAPI refuses.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from ...adapters.encoders import AudioFormat, Codec
from .openapi_schemas import Schema, ref

Answers = dict[str, Schema]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}
_OPENAI, _DASHSCOPE, _HOUSE, _FASTAPI = "Error", "DashScopeError", "Refused", "Detail"
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


def responses() -> dict[str, Schema]:
    """The refusals in the words of each, and those that say when to come again."""
    request_id = {"x-request-id": {"schema": {"type": "string"}}}
    retry_after = {"retry-after": {"description": "Seconds.", "schema": {"type": "integer"}}}
    found = {}
    for words, headers in ((_OPENAI, request_id), (_DASHSCOPE, {}), (_HOUSE, {}), (_FASTAPI, {})):
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


def _of_path(*names: str) -> Sequence[Schema]:
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


_AUDIO: Final = {AudioFormat(codec).content_type.partition(";")[0]: _BINARY for codec in get_args(Codec)}
_SSE: Final = {
    "name": "X-DashScope-SSE",
    "in": "header",
    "description": "'enable' for events with the audio in base64, while it is made.",
    "schema": {"type": "string", "examples": ["enable"]},
}

_OPENAI_PATHS: Final[dict[str, Schema]] = {
    "/v1/audio/speech": {
        "post": _operation(
            "speak",
            "Speak a text.",
            {
                "200": {
                    "description": "Audio of the format asked for, or events.",
                    "headers": {"x-request-id": {"schema": {"type": "string"}}},
                    "content": {**_AUDIO, _EVENTS: {}},
                }
            },
            _refused(_OPENAI, {400: "A field is wrong; 'param' says which."}, _DOOR, {404: "No such model."}),
            _refused(_OPENAI, _TOO_LONG, _ON_SPEECH),
            about="The audio comes while it is made. 'sse' sends it in base64, in events speech.audio.delta, "
            "then speech.audio.done with what was used, or speech.audio.error.",
            requestBody=_body("SpeechRequest"),
        )
    },
    "/v1/models": {
        "get": _operation(
            "listModels", "List the names that 'model' may have.", _json("Models"), _refused(_OPENAI, _DOOR)
        )
    },
    "/v1/models/{model}": {
        "parameters": _of_path("model"),
        "get": _operation(
            "getModel",
            "Look a model up.",
            _json("Model"),
            _refused(_OPENAI, _DOOR, {404: "No such model."}),
        ),
    },
    "/v1/audio/voices": {
        "get": _operation(
            "listVoices",
            "List the voices that the key may use.",
            _json("Voices", links=_links("voice_id", "/uploaded_voices/0/id", "deleteVoice")),
            _refused(_OPENAI, _DOOR),
        ),
        "post": _operation(
            "createVoice",
            "Make a voice of a recording.",
            _json("MadeVoice"),
            _refused(
                _OPENAI,
                {400: "The form or the recording cannot be used, or the loaded voice clones nobody."},
                _DOOR,
                _TOO_LONG,
                _TOO_MUCH,
                {503: "Too many recordings wait, or the disk is full."},
            ),
            about="Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices.",
            requestBody=_body("NewVoice", "multipart/form-data"),
        ),
    },
    "/v1/audio/voices/{voice_id}": {
        "parameters": _of_path("voice_id"),
        "delete": _operation(
            "deleteVoice",
            "Remove a voice of the key's.",
            _json("RemovedVoice"),
            _refused(
                _OPENAI,
                {400: "The voice is the operator's."},
                _DOOR,
                {404: "No such voice was enrolled.", 503: "The disk is full."},
            ),
            about="Needs the scope 'enrol'.",
        ),
    },
}

_WRONG_FIELD: Final = {400: "A field is wrong, or the body is too long."}
_KEPT: Final = {
    "200": {"description": "The audio.", "content": {**_AUDIO}},
    "206": {"description": "The part of it that a Range header asks for.", "content": {**_AUDIO}},
    "400": {"description": "The Range header cannot be read.", "content": {"text/plain": {}}},
    **_json("DashScopeMissing", 404, "There is none, or its day is over."),
    "416": {"description": "It has no such part.", "content": {"text/plain": {}}},
}

_DASHSCOPE_PATHS: Final[dict[str, Schema]] = {
    "/api/v1/services/audio/tts/SpeechSynthesizer": {
        "post": _operation(
            "synthesize",
            "Speak a text, for clients of DashScope.",
            _content(
                "A link to the audio, or events, of which the last has it.",
                **{_JSON: {"schema": ref("Synthesized")}, _EVENTS: {}},
            ),
            _refused(_DASHSCOPE, _WRONG_FIELD, _DOOR, {404: "No such model."}, _ON_SPEECH),
            parameters=[_SSE],
            requestBody=_body("Synthesis"),
        )
    },
    "/api/v1/services/audio/tts/results/{id}": {
        "parameters": _of_path("id"),
        "get": _operation("getAudio", "Fetch what a link of SpeechSynthesizer leads to.", _KEPT, security=[]),
        "head": _operation(
            "headAudio",
            "Ask for its length and kind.",
            {status: {"description": answer["description"]} for status, answer in _KEPT.items()},
            security=[],
        ),
    },
    "/api/v1/services/audio/tts/customization": {
        "post": _operation(
            "customize",
            "Enrol, list, look up, replace and delete voices, for clients of DashScope.",
            _json("Customized"),
            _refused(
                _DASHSCOPE,
                {400: "A field is wrong, no such voice, or the recording cannot be fetched or used."},
                _DOOR,
                {404: "No such model."},
                _TOO_MUCH,
                {503: "Shutting down."},
            ),
            about="Needs the scope 'enrol', and a server of CosyVoice 2 or 3 with a folder for voices.",
            requestBody=_body("Customization"),
        )
    },
}

_NO_CALL: Final = {404: "No such call is up."}

_CALL_PATHS: Final[dict[str, Schema]] = {
    "/v1/calls": {
        "get": _operation(
            "listCalls",
            "List the calls that are up.",
            _json(
                "Calls", links=_links("call_id", "/calls/0/call", "getCall", "discard", "sayOnCall", "hangUp")
            ),
            _refused(_HOUSE, _DOOR),
        )
    },
    "/v1/calls/{call_id}": {
        "parameters": _of_path("call_id"),
        "get": _operation("getCall", "Look a call up.", _json("Call"), _refused(_HOUSE, _DOOR, _NO_CALL)),
        "delete": _operation("hangUp", "Hang up.", _json("HungUp"), _refused(_HOUSE, _DOOR, _NO_CALL)),
    },
    "/v1/calls/{call_id}/discard": {
        "parameters": _of_path("call_id"),
        "post": _operation(
            "discard", "Interrupt what is said.", _json("Discarded"), _refused(_HOUSE, _DOOR, _NO_CALL)
        ),
    },
    "/v1/calls/{call_id}/speech": {
        "parameters": _of_path("call_id"),
        "post": _operation(
            "sayOnCall",
            "Speak the body as it arrives; the answer comes when it has been heard.",
            _json("Spoken"),
            _refused(_HOUSE, _DOOR, _NO_CALL, {409: "Somebody holds the call."}),
            requestBody={"content": {"text/plain": {"schema": {"type": "string"}}}},
        ),
    },
}

_NO_JSON: Final = {400: "It cannot be used.", 413: "The body is too long.", 415: "The body is not JSON."}
_NO_OFFER: Final = {**_NO_JSON, 422: "A field is wrong.", 503: "The call does not fit now."}
_NO_CANDIDATES: Final = {**_NO_JSON, 404: "No such call is up.", 422: "A field is wrong."}
_NOT_STARTED: Final = {404: "No such session was started."}


def _offers(name: str, where: str, *more: Mapping[int, str]) -> Schema:
    return {
        "post": _operation(
            f"offer{name}",
            f"Call from a browser{where}: a WebRTC offer for an answer.",
            _json("Answer"),
            _refused(_HOUSE, _DOOR),
            _refused(_FASTAPI, _NO_OFFER, *more),
            requestBody=_body("Offer"),
        ),
        "patch": _operation(
            f"trickle{name}",
            f"Add ICE candidates to a call{where}.",
            _json("Status"),
            _refused(_HOUSE, _DOOR),
            _refused(_FASTAPI, _NO_CANDIDATES, *more),
            requestBody=_body("Candidates"),
        ),
    }


_BROWSER_PATHS: Final[dict[str, Schema]] = {
    "/": {
        "get": _operation("page", "The page.", _content("HTML", **{"text/html": {}}), _refused(_HOUSE, _DOOR))
    },
    "/page/{name}": {
        "parameters": _of_path("name"),
        "get": _operation(
            "pageFile",
            "A file of the page's.",
            _content("The file.", **{"text/javascript": {}, "text/css": {}, "text/html": {}}),
            _refused(_HOUSE, _DOOR),
            _refused(_FASTAPI, {404: "No such file."}),
        ),
    },
    "/status": {
        "get": _operation(
            "startable", "What a browser can start.", _json("Startable"), _refused(_HOUSE, _DOOR)
        )
    },
    "/start": {
        "post": _operation(
            "start",
            "Begin a session, as Pipecat's clients do.",
            _json("Started", links=_links("session_id", "/sessionId", "offerInSession", "trickleInSession")),
            _refused(_HOUSE, _DOOR),
            _refused(_FASTAPI, _NO_JSON),
            requestBody=_body("Start"),
        )
    },
    "/api/offer": _offers("", ""),
    "/sessions/{session_id}/api/offer": {
        "parameters": _of_path("session_id"),
        **_offers("InSession", " in a session", _NOT_STARTED),
    },
}


def _open(operation_id: str, summary: str, *answers: Answers) -> Schema:
    """What nobody needs a key for."""
    return {"get": _operation(operation_id, summary, *answers, security=[])}


_OPERATOR_PATHS: Final[dict[str, Schema]] = {
    "/healthz": _open("health", "Whether the process is alive.", _json("Status")),
    "/readyz": _open(
        "readiness", "Whether a call may come.", _json("Status"), _json("Status", 503, "Not now.")
    ),
    "/metrics": {
        "get": _operation(
            "metrics",
            "Numbers for Prometheus.",
            _content("Prometheus's text format.", **{"text/plain": {}}),
            _refused(_HOUSE, _DOOR),
            about="Needs the scope 'admin'.",
        )
    },
    "/openapi.json": _open("document", "This document.", _content("OpenAPI 3.1.", **{_JSON: {}})),
    "/docs": _open("docs", "This document, to read.", _content("HTML", **{"text/html": {}})),
}

PATHS: Final = {**_OPENAI_PATHS, **_DASHSCOPE_PATHS, **_CALL_PATHS, **_BROWSER_PATHS, **_OPERATOR_PATHS}
