"""Hostile conversations on the sockets of the other speech APIs."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from hostile.messages import TEXTS, conversation, text_count, with_fields

_Object = dict[str, Any]

_CONTEXTS: Final = ("a", "b", "a", "b", "\ud800")


def client_conversation(random: Random) -> tuple[str, list[str | bytes]]:
    """Return the path of a socket, with its query, and messages of a client."""
    path = random.choice(sorted(_DIALECTS))
    return path, conversation(_DIALECTS[path](random), random)


def _texts(random: Random) -> list[str]:
    return [random.choice(TEXTS) for _ in range(1 + text_count(random))]


def _cartesia(random: Random) -> list[_Object]:
    output = with_fields({"container": "raw", "encoding": "pcm_s16le", "sample_rate": 16_000}, random)
    common = {"model_id": "sonic-3", "voice": {"mode": "id", "id": "heart"}, "output_format": output}
    contexts = [random.choice(_CONTEXTS) for _ in range(2)]
    spoken = [
        {**common, "context_id": random.choice(contexts), "transcript": text, "continue": True}
        for text in _texts(random)
    ]
    ends = [{**common, "context_id": "a", "transcript": "", "continue": False}]
    return [*spoken, *random.choice((ends, [{"context_id": contexts[0], "cancel": True}]))]


def _elevenlabs(random: Random) -> list[_Object]:
    settings: _Object = {"text": " ", "voice_settings": {"speed": random.choice((0.7, 1.0, 9))}}
    texts: list[_Object] = [{"text": text, "flush": random.random() < 0.3} for text in _texts(random)]
    return [settings, *texts, {"text": ""}]


def _elevenlabs_contexts(random: Random) -> list[_Object]:
    texts: list[_Object] = [{"text": text, "context_id": random.choice(_CONTEXTS)} for text in _texts(random)]
    closing = {"context_id": "a", "close_context": True}
    return [*texts, {"context_id": "b", "flush": True}, closing, {"close_socket": True}]


def _deepgram(random: Random) -> list[_Object]:
    texts = [{"type": "Speak", "text": text} for text in _texts(random)]
    commands = [{"type": random.choice(("Flush", "Clear", "Close", "Flush"))} for _ in range(3)]
    return [*texts, *commands]


def _flux(random: Random) -> list[_Object]:
    interrupt = {
        "type": "Interrupt",
        "playback_offset": {"type": "time_ms", "value": random.randrange(2_000)},
    }
    configure = {"type": "Configure", "speed": random.choice((0.7, 1.2, 7))}
    return [configure, *_deepgram(random), interrupt, {"type": "Speak", "text": "Once more."}]


def _inworld(random: Random) -> list[_Object]:
    audio = {"audioEncoding": "PCM", "sampleRateHertz": random.choice((8_000, 24_000, 1))}
    create = {"voiceId": "heart", "modelId": "inworld-tts-2", "audioConfig": audio, "timestampType": "WORD"}
    contexts = [{"create": create, "contextId": name} for name in "ab"]
    texts = [{"send_text": {"text": text}, "contextId": random.choice(_CONTEXTS)} for text in _texts(random)]
    commands = ("flush_context", "close_context", "cancel_context", "keep_alive")
    ends = [{random.choice(commands): {}, "contextId": random.choice("abc")} for _ in range(3)]
    return [*contexts, *texts, *ends]


def _jambonz(random: Random) -> list[_Object]:
    texts: list[_Object] = [{"type": "stream", "text": text} for text in _texts(random)]
    return [*texts, {"type": "flush"}, {"type": "keepalive"}, {"type": random.choice(("stop", "flush", "x"))}]


def _realtime(random: Random) -> list[_Object]:
    items: list[_Object] = [
        {
            "id": random.choice("abc"),
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": text}],
        }
        for text in _texts(random)
    ]
    output = {"voice": "heart", "format": {"type": "audio/pcm", "rate": random.choice((24_000, 8_000, 1))}}
    settings = {"type": "realtime", "audio": {"output": output}}
    kinds = ("retrieve", "delete", "truncate")
    ends = [
        {
            "type": f"conversation.item.{random.choice(kinds)}",
            "item_id": random.choice("abc"),
            "audio_end_ms": 1,
        }
        for _ in range(3)
    ]
    return [
        {"type": "session.update", "session": settings},
        *({"type": "conversation.item.create", "item": item} for item in items),
        {"type": "response.create", "response": {"input": random.choice((items, [], None))}},
        {"type": random.choice(("response.cancel", "response.create", "input_audio_buffer.commit"))},
        *ends,
    ]


def _pai(random: Random) -> list[_Object]:
    def frame(action: str, **payload: Any) -> _Object:
        return {"header": {"action": action, "task_id": "a"}, "payload": {"input": {}, **payload}}

    texts = [frame("continue-task", input={"text": text}) for text in _texts(random)]
    end = frame("finish-task", input=random.choice(({}, {"directive": "cancel"})))
    return [frame("run-task", parameters=with_fields({}, random)), *texts, end]


_DIALECTS: Final[Mapping[str, Callable[[Random], list[_Object]]]] = {
    "/tts/websocket": _cartesia,
    "/v1/text-to-speech/heart/stream-input": _elevenlabs,
    "/v1/text-to-speech/heart/stream-input?output_format=mp3_44100_128&auto_mode=true": _elevenlabs,
    "/v1/text-to-speech/heart/multi-stream-input": _elevenlabs_contexts,
    "/v1/speak?encoding=linear16&sample_rate=8000": _deepgram,
    "/v2/speak": _flux,
    "/tts/v1/voice:streamBidirectional": _inworld,
    "/jambonz/tts?voice=heart&language=en-US&sampleRate=8000": _jambonz,
    "/api-ws/v1/audio/speech": _pai,
    "/v1/realtime?model=gpt-realtime": _realtime,
}
