"""The OpenAPI document's bodies by name: what is read by hand is told by hand, the rest as pydantic has it.

Limits and choices are those of the code that holds them.
"""

from typing import Any, Final, get_args

from pydantic.json_schema import models_json_schema

from ....adapters.audio.encoders import SAMPLE_RATE_OF_KIND, Codec
from ...apis.dashscope.models import (
    DEFAULT_PROMPT_S,
    MAX_PAGE_SIZE,
    MAX_PROMPT_S,
    MIN_PROMPT_S,
    PREFIX_PATTERN,
    TARGET_MODEL_PATTERN,
)
from ...apis.dashscope.parameters import (
    CODECS,
    MAX_INSTRUCTION_CHARACTERS,
    MAX_SEED,
    MAX_TEXT_CHARACTERS,
    MAX_VOICE_CHARACTERS,
)
from ...apis.dashscope.parameters import SAMPLE_RATES as DASHSCOPE_RATES
from ...browser.offers import Candidates, Offer
from ...calls.call import UtteranceOutcome

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """A schema of here, by its name."""
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: str = "", /, **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _text(about: str = "", **more: Any) -> Schema:
    return {"type": "string", **({"description": about} if about else {}), **more}


def _nullable(kind: str, about: str = "", **more: Any) -> Schema:
    """A field that may be null, too."""
    return {"type": [kind, "null"], **({"description": about} if about else {}), **more}


_STRING: Final[Schema] = {"type": "string"}
_INTEGER: Final[Schema] = {"type": "integer"}
_ID_AND_NAME: Final = {"id": _STRING, "name": _STRING}

_OPENAI: Final[dict[str, Schema]] = {
    "Error": _object(
        "error",
        error=_object(
            "message type param code",
            message=_STRING,
            type=_STRING,
            param=_nullable("string"),
            code=_nullable("string"),
        ),
    ),
    "CreateSpeechRequest": {
        "description": "Fields that are not here are ignored; null is the same as none.",
        **_object(
            "input",
            input=_text(
                "The text; how long it may be is the server's setting, 4096 characters unless changed.",
                minLength=1,
                examples=["Good morning."],
            ),
            model=_nullable(
                "string",
                "vivavoce, tts-1, tts-1-hd or gpt-4o-mini-tts; all speak with the voice that is loaded.",
                maxLength=256,
                examples=["tts-1"],
            ),
            voice={
                "description": "A voice's id or name, or one of OpenAI's names.",
                "anyOf": [_nullable("string", maxLength=256), _object("id", id=_text(maxLength=256))],
                "examples": ["alloy"],
            },
            response_format={"enum": [*get_args(Codec), None], "default": "mp3"},
            sample_rate={"enum": [*SAMPLE_RATE_OF_KIND, None], "default": 24_000},
            speed=_nullable("number", minimum=0.25, maximum=4, default=1),
            volume_multiplier=_nullable("number", minimum=0, maximum=10, default=1),
            instructions=_nullable("string", "How to say it, where the voice can follow it.", maxLength=4096),
            language=_nullable("string", "BCP 47.", maxLength=256),
            ref_audio=_nullable(
                "string",
                "A recording to speak like, not kept, as an http or data URL; needs the scope enrol.",
            ),
            ref_text=_nullable("string", "What is said in it.", maxLength=4096),
            seed=_nullable("integer", minimum=-(2**63), maximum=2**63 - 1),
            stream_format={"enum": ["audio", "sse", None], "default": "audio"},
        ),
    },
    "Model": _object(
        "id object created owned_by",
        id=_STRING,
        object={"const": "model"},
        created=_INTEGER,
        owned_by=_STRING,
    ),
    "Models": _object("object data", object={"const": "list"}, data=_list(ref("Model"))),
    "Voice": _object(
        "id name",
        **_ID_AND_NAME,
        language=_STRING,
        description=_STRING,
        object={"const": "audio.voice"},
        type=_STRING,
        created_at=_INTEGER,
    ),
    "UploadedVoice": {
        "description": "What was told with the recording is shown to whoever told it.",
        **_object(
            "id name created_at", **_ID_AND_NAME, created_at=_INTEGER, consent=_STRING, ref_text=_STRING
        ),
    },
    "Voices": _object(
        "object voices uploaded_voices",
        object={"const": "list"},
        voices=_list(ref("Voice")),
        uploaded_voices=_list(ref("UploadedVoice")),
    ),
    "NewVoice": _object(
        "audio_sample name consent",
        audio_sample=_text("A sound file.", format="binary"),
        name=_text(minLength=1),
        consent=_text("What the speaker agreed to.", minLength=1),
        ref_text=_text("What is said in the recording."),
        language=_STRING,
    ),
    "MadeVoice": {
        "allOf": [
            ref("Voice"),
            _object("success voice", success={"const": True}, voice=ref("UploadedVoice")),
        ]
    },
    "RemovedVoice": _object(
        "id object deleted success",
        id=_STRING,
        object={"const": "audio.voice.deleted"},
        deleted={"const": True},
        success={"const": True},
    ),
}

_LISTED_VOICE_PROPERTIES: Final = {
    "voice_id": _STRING,
    "gmt_create": _STRING,
    "gmt_modified": _STRING,
    "status": {"const": "OK"},
}
_RECORDING_PROPERTIES: Final = {
    "url": _text("Of the recording: http, https or data.", minLength=1),
    "language_hints": _nullable("array", "The first counts.", items=_text(maxLength=16)),
    "max_prompt_audio_length": _nullable(
        "number",
        "Seconds of the recording that are used.",
        default=DEFAULT_PROMPT_S,
        minimum=MIN_PROMPT_S,
        maximum=MAX_PROMPT_S,
    ),
    "transcript": _nullable("string", "What is said in it; a field of ours.", maxLength=1000),
    "consent": _nullable("string", "What the speaker agreed to; a field of ours.", maxLength=2000),
}


def _action(name: str, required: str = "", /, **fields: Schema) -> Schema:
    return _object(f"action {required}", action={"const": name}, **fields)


_DASHSCOPE: Final[dict[str, Schema]] = {
    "DashScopeError": _object("request_id code message", request_id=_STRING, code=_STRING, message=_STRING),
    "DashScopeMissing": _object("code message", code=_STRING, message=_STRING),
    "Synthesis": _object(
        "model input",
        model=_text("Any cosyvoice-*.", minLength=1, examples=["cosyvoice-v3-flash"]),
        input=_object(
            "text voice",
            text=_text(
                "Or a document of SSML.",
                minLength=1,
                maxLength=MAX_TEXT_CHARACTERS,
                examples=["Good morning."],
            ),
            voice=_text(minLength=1, maxLength=MAX_VOICE_CHARACTERS, examples=["longanyang"]),
            format={"enum": ["Default", *CODECS, None], "default": "wav"},
            sample_rate={"enum": [0, *DASHSCOPE_RATES, None], "default": 24_000},
            bit_rate=_nullable("integer", "Of opus, in kbit/s up to 512 and in bit/s beyond."),
            volume=_nullable("number", minimum=0, maximum=100, default=50),
            rate=_nullable("number", minimum=0.5, maximum=2, default=1),
            pitch=_nullable("number", minimum=0.5, maximum=2, default=1),
            seed=_nullable("integer", minimum=0, maximum=MAX_SEED, default=0),
            instruction=_nullable("string", maxLength=MAX_INSTRUCTION_CHARACTERS),
            language_hints=_nullable("array", "The first counts.", items=_text(maxLength=16)),
            word_timestamp_enabled=_nullable("boolean"),
            enable_ssml=_nullable("boolean"),
            text_type={"enum": ["PlainText", "SSML", None], "default": "PlainText"},
        ),
    ),
    "Synthesized": _object(
        "request_id output usage",
        request_id=_STRING,
        output=_object(
            "finish_reason audio",
            finish_reason={"const": "stop"},
            audio=_object(
                "id url data expires_at",
                id=_STRING,
                url=_STRING,
                data={"const": ""},
                expires_at=_INTEGER,
            ),
        ),
        usage=_object("characters", characters=_INTEGER),
    ),
    "Customization": _object(
        "input",
        model=_text(examples=["voice-enrollment"]),
        input={
            "anyOf": [
                _action(
                    "create_voice",
                    "target_model prefix url",
                    target_model=_text(pattern=f"^{TARGET_MODEL_PATTERN}$", examples=["cosyvoice-v3-flash"]),
                    prefix=_text(pattern=f"^{PREFIX_PATTERN}$"),
                    **_RECORDING_PROPERTIES,
                ),
                _action(
                    "list_voice",
                    prefix=_nullable("string", pattern=f"^{PREFIX_PATTERN}$"),
                    page_index=_nullable("integer", minimum=0, maximum=1_000_000, default=0),
                    page_size=_nullable("integer", minimum=1, maximum=MAX_PAGE_SIZE, default=10),
                ),
                _action("query_voice", "voice_id", voice_id=_text(minLength=1)),
                _action("update_voice", "voice_id url", voice_id=_text(minLength=1), **_RECORDING_PROPERTIES),
                _action("delete_voice", "voice_id", voice_id=_text(minLength=1)),
            ]
        },
    ),
    "Customized": _object(
        "request_id output usage",
        request_id=_STRING,
        output={
            "description": "Of create, list and query; empty for the others.",
            **_object(
                voice_id=_STRING,
                voice_list=_list(_object(" ".join(_LISTED_VOICE_PROPERTIES), **_LISTED_VOICE_PROPERTIES)),
                target_model=_STRING,
                resource_link={"const": ""},
                **{name: schema for name, schema in _LISTED_VOICE_PROPERTIES.items() if name != "voice_id"},
            ),
        },
        usage=_object("count", count={"const": 1}),
    ),
}

_NATIVE: Final[dict[str, Schema]] = {
    "Refused": _object("error", error=_STRING),
    "Status": _object("status", status=_STRING, reason=_STRING),
    "Call": _object(
        "call kind peer opened_at held sample_rate",
        call=_STRING,
        kind=_text("Of a phone or a browser."),
        peer=_text("Who calls."),
        opened_at={"type": "number", "description": "Unix seconds."},
        held={"type": "boolean", "description": "Whether a program holds it."},
        sample_rate=_INTEGER,
    ),
    "Calls": _object("calls", calls=_list(ref("Call"))),
    "HungUp": _object("call status", call=_STRING, status={"const": "hung up"}),
    "Discarded": _object(
        "cut_ms heard words",
        cut_ms={"type": "number", "description": "Speech that was dropped."},
        heard=_text("The text up to the last word heard."),
        words=_list(_STRING),
    ),
    "Spoken": _object(
        "call outcome", call=_STRING, outcome={"enum": [outcome.value for outcome in UtteranceOutcome]}
    ),
    "Answer": _object("sdp type pc_id", sdp=_STRING, type={"const": "answer"}, pc_id=_STRING),
    "Start": _object(transport=_text(default="webrtc", examples=["webrtc"])),
    "Started": _object("sessionId", sessionId=_STRING),
    "Startable": _object(
        "status transports voices",
        status={"const": "ready"},
        transports=_list(_STRING),
        voices=_list(ref("Voice")),
    ),
}


def schemas() -> dict[str, Schema]:
    """All of them, by name."""
    _, generated = models_json_schema(
        [(Offer, "validation"), (Candidates, "validation")], ref_template="#/components/schemas/{model}"
    )
    return {**_OPENAI, **_DASHSCOPE, **_NATIVE, **generated["$defs"]}
