"""The speech APIs of a server, each with the largest text that it takes in one request or conversation."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vivavoce.gateway.cli.bench.api_clients import SpeechApi, http_request

_Object = Mapping[str, Any]
_STREAM: Final = 199_000  # characters; a stream takes 200,000
_VOICE: Final = "heart"
_PCM: Final = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


@dataclass(frozen=True, slots=True)
class HttpTextApi:
    """A request for speech."""

    name: str
    max_characters: int
    request: Callable[[str], tuple[str, _Object]]  # path, fields of a text
    is_form: bool = False


@dataclass(frozen=True, slots=True)
class SocketTextApi:
    """A conversation on a WebSocket."""

    name: str
    max_characters: int
    max_message_characters: int
    path: str
    text: Callable[[str], _Object]  # the message of a piece
    before: tuple[_Object, ...] = ()
    after: tuple[_Object, ...] = ()

    def messages(self, text: str) -> Iterator[_Object]:
        """The messages that say a text."""
        yield from self.before
        size = self.max_message_characters
        yield from (self.text(text[begin : begin + size]) for begin in range(0, len(text), size))
        yield from self.after


def _streamed(api: SpeechApi, **fields: Any) -> Callable[[str], tuple[str, _Object]]:
    def request(text: str) -> tuple[str, _Object]:
        path, body = http_request(api, text, _VOICE)
        return path, {**body, **fields}

    return request


def _task(action: str, **payload: Any) -> _Object:
    header = {"action": action, "task_id": "0a" * 16, "streaming": "duplex"}
    return {"header": header, "payload": {"input": {}, **payload}}


def _dashscope_run() -> _Object:
    parameters = {"voice": _VOICE, "format": "pcm", "word_timestamp_enabled": True}
    return _task("run-task", model="cosyvoice-v3-flash", parameters=parameters)


HTTP_TEXT_APIS: Final = (
    HttpTextApi("OpenAI", 4_096, _streamed(SpeechApi.OPENAI)),
    HttpTextApi("OpenAI, normalized", 4_096, _streamed(SpeechApi.OPENAI, stream_format="sse")),
    HttpTextApi(
        "OpenAI, with captions",
        4_096,
        lambda text: (
            "/dev/captioned_speech",
            {"model": "tts-1", "input": text, "voice": _VOICE, "stream": True},
        ),
    ),
    HttpTextApi("Cartesia", 40_000, _streamed(SpeechApi.CARTESIA)),
    HttpTextApi(
        "Cartesia, events with words",
        40_000,
        lambda text: (
            "/tts/sse",
            {**http_request(SpeechApi.CARTESIA, text, _VOICE)[1], "add_timestamps": True},
        ),
    ),
    HttpTextApi("ElevenLabs", 40_000, _streamed(SpeechApi.ELEVENLABS)),
    HttpTextApi(
        "ElevenLabs, with characters",
        40_000,
        lambda text: (f"/v1/text-to-speech/{_VOICE}/stream/with-timestamps", {"text": text}),
    ),
    HttpTextApi("Deepgram", 40_000, _streamed(SpeechApi.DEEPGRAM)),
    HttpTextApi("Inworld", 40_000, _streamed(SpeechApi.INWORLD, timestampType="CHARACTER")),
    HttpTextApi("jambonz", 40_000, _streamed(SpeechApi.JAMBONZ)),
    HttpTextApi("PAI", 4_096, _streamed(SpeechApi.PAI)),
    HttpTextApi("Ray Serve", 4_096, _streamed(SpeechApi.RAY)),
    HttpTextApi("XTTS", 4_096, _streamed(SpeechApi.XTTS)),
    HttpTextApi(
        "CosyVoice's server",
        4_096,
        lambda text: ("/inference_sft", {"tts_text": text, "spk_id": _VOICE}),
        is_form=True,
    ),
    HttpTextApi(
        "DashScope",
        20_000,
        lambda text: (
            "/api/v1/services/audio/tts/SpeechSynthesizer",
            {"model": "cosyvoice-v3-flash", "input": {"text": text, "voice": _VOICE, "format": "pcm"}},
        ),
    ),
)

SOCKET_TEXT_APIS: Final = (
    SocketTextApi(
        "native",
        _STREAM,
        65_536,
        "/v1/audio/speech/stream",
        lambda text: {"type": "input.text", "text": text},
        ({"type": "session.config", "response_format": "pcm", "word_times": True},),
        ({"type": "input.done"},),
    ),
    SocketTextApi(
        "DashScope's socket",
        _STREAM,
        20_000,
        "/api-ws/v1/inference",
        lambda text: _task("continue-task", input={"text": text}),
        (_dashscope_run(),),
        (_task("finish-task"),),
    ),
    SocketTextApi(
        "PAI's socket",
        _STREAM,
        20_000,
        "/api-ws/v1/audio/speech",
        lambda text: _task("continue-task", input={"text": text}),
        (_task("run-task", parameters={}),),
        (_task("finish-task"),),
    ),
    SocketTextApi(
        "Cartesia's socket",
        _STREAM,
        40_000,
        "/tts/websocket",
        lambda text: {
            "context_id": "a",
            "transcript": text,
            "continue": True,
            "model_id": "sonic-3",
            "voice": {"mode": "id", "id": _VOICE},
            "output_format": _PCM,
            "add_timestamps": True,
        },
    ),
    SocketTextApi(
        "ElevenLabs' socket",
        _STREAM,
        40_000,
        f"/v1/text-to-speech/{_VOICE}/stream-input?output_format=pcm_24000&sync_alignment=true",
        lambda text: {"text": text},
        ({"text": " "},),
        ({"text": "", "flush": True},),
    ),
    SocketTextApi(
        "Deepgram's socket",
        _STREAM,
        40_000,
        "/v1/speak?encoding=linear16",
        lambda text: {"type": "Speak", "text": text},
        (),
        ({"type": "Flush"},),
    ),
    SocketTextApi(
        "Inworld's socket",
        _STREAM,
        40_000,
        "/tts/v1/voice:streamBidirectional",
        lambda text: {"send_text": {"text": text}, "contextId": "a"},
        (
            {
                "create": {"voiceId": _VOICE, "modelId": "inworld-tts-2", "timestampType": "CHARACTER"},
                "contextId": "a",
            },
        ),
        ({"flush_context": {}, "contextId": "a"},),
    ),
    SocketTextApi(
        "jambonz' socket",
        40_000,  # its pieces are whole words
        40_000,
        f"/jambonz/tts?voice={_VOICE}&language=en-US&sampleRate=8000",
        lambda text: {"type": "stream", "text": text},
        (),
        ({"type": "flush"},),
    ),
    SocketTextApi(
        "calls API",
        _STREAM,
        65_536,
        "/v1/calls/{call}/socket",
        lambda text: {"type": "text", "text": text},
        (),
        ({"type": "end"},),
    ),
)
