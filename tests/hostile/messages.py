"""Hostile messages of every wire, drawn from a seeded generator: valid ones, changed ones and garbage."""

import json
import struct
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any, Final
from uuid import UUID

TEXTS: Final = (
    "Hello there.",
    "One, two",
    "",
    " ",
    "\ufeff",
    "\x00",
    "-" * 60,
    "...",
    "é\u0301\u202e\u200b",
    "😀😀",
    "你好，世界。",
    "0417 $127.50",
    '<speak rate="9">',
    '<speak pitch="2">Hi <break time="9s"/></speak>',
    "<speak><speak>",
    '<speak><prosody volume="+6200dB">Hi</prosody></speak>',
    "<speak>\ud800</speak>",
    "\ud800",
)
_FIELDS: Final = {
    "voice": ("alloy", "no such voice", "longanyang"),
    "speed": (0.25, 0.5, 1, 2, 4, 4.1, -1, 1e300),
    "rate": (0.5, 1, 2, 9),
    "pitch": (0.5, 1, 2, 9),
    "volume": (0, 50, 100, 101),
    "response_format": ("pcm", "wav", "mp3", "opus", "aac", "flac", "ulaw", "alaw", "gsm"),
    "format": ("pcm", "wav", "mp3", "opus"),
    "sample_rate": (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 1),
    "stream_format": ("audio", "sse", "x"),
    "stream": (True, False),
}
_VALUES: Final[tuple[Any, ...]] = (
    None, True, 0, -1, 2**70, 1e308, float("nan"), "", "x", "y" * 5_000, [], {}, [[[]]], {"a": {"b": 1}},
)  # fmt: skip


def speech_body(random: Random) -> bytes:
    """Return a body of ``POST /v1/audio/speech``."""
    fields = {"model": "tts-1", "input": random.choice(TEXTS), "voice": "alloy"}
    return _encoded(with_fields(fields, random), random)


def json_body(random: Random) -> bytes:
    """Return a body of any other route."""
    return _encoded(
        random.choice(({"type": "offer", "sdp": "v=0"}, {"pc_id": "x", "candidates": []})), random
    )


def dashscope_conversation(random: Random) -> list[str | bytes]:
    """Return messages of a DashScope client."""
    task_id = random.randbytes(16).hex()

    def frame(action: str, **payload: Any) -> dict[str, Any]:
        header = {"action": action, "task_id": task_id, "streaming": "duplex"}
        return {"header": header, "payload": {"input": {}, **payload}}

    parameters = with_fields({"voice": "longanyang"}, random)
    task = {"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer"}
    run = frame("run-task", model="cosyvoice-v2", parameters=parameters, **task)
    text: Callable[[], dict[str, Any]] = lambda: frame("continue-task", input={"text": random.choice(TEXTS)})  # noqa: E731
    return conversation([run, *(text() for _ in range(text_count(random))), frame("finish-task")], random)


def stream_conversation(random: Random) -> list[str | bytes]:
    """Return messages of a client of the native stream."""
    config = {"type": "session.config", **with_fields({}, random)}
    texts = [{"type": "input.text", "text": random.choice(TEXTS)} for _ in range(text_count(random))]
    commands = [{"type": random.choice(("input.flush", "input.done", "input.cancel"))} for _ in range(3)]
    return conversation([config, *texts, *commands, {"type": "input.done"}], random)


def call_conversation(random: Random) -> list[str | bytes]:
    """Return messages of a program that is attached to a call."""
    messages: list[dict[str, Any]] = [
        {"type": "text", "text": random.choice(TEXTS)},
        {"type": "speech", "voice": None, "speed": random.choice((0.5, 1.0, 2.0, 3.0, -1))},
        {"type": "on_speech", "action": random.choice(("tell", "discard", "x"))},
        {"type": "dtmf", "digit": "5"},
        {"type": "ask", "text": "x"},
        {"type": random.choice(("flush", "end", "discard", "end", "flush", "hang_up"))},
    ]
    return conversation(random.choices(messages, k=2 + 3 * text_count(random)), random)


def audiosocket_messages(random: Random, call_id: UUID) -> list[bytes]:
    """Return messages of a phone, usually after its call id."""
    messages = [] if random.random() < 0.1 else [_audiosocket(0x01, call_id.bytes)]
    kind = random.randrange(0x10, 0x19)  # audio at any rate; most phones keep to one
    for _ in range(random.randrange(40)):
        match random.randrange(12):
            case 0:
                messages.append(_audiosocket(random.randrange(256), random.randbytes(random.randrange(40))))
            case 1:
                messages.append(_audiosocket(0x03, random.choice(b"0123456789*#x").to_bytes(1, "big")))
            case 2:
                kind = random.randrange(0x10, 0x19)
            case 3:
                messages.append(
                    _audiosocket(kind, random.randbytes(2 * random.choice((0, 1, 80, 160, 2_000))))
                )
            case _:
                messages.append(_audiosocket(kind, random.randbytes(320)))
    if random.random() < 0.2:
        messages.append(random.randbytes(random.randrange(1, 20)))
    return messages


def raw_bytes(random: Random) -> bytes:
    """Return what is neither HTTP nor AudioSocket, or only its beginning."""
    return random.choice(
        (
            random.randbytes(random.randrange(1, 400)),
            b"GET / HTTP/1.1\r\nHost: x\r\n",
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n{",
            b"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /v1/calls/x/socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",  # TLS
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x01\x00\x10",
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Filler: " + b"a" * 200_000,
            b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 30_000,
        )
    )


def text_count(random: Random) -> int:
    """Return how many texts a client sends: few, or one in ten times up to a hundred."""
    return random.randrange(4) if random.random() < 0.9 else random.randrange(100)


def _audiosocket(kind: int, payload: bytes) -> bytes:
    return struct.pack("!BH", kind, len(payload)) + payload


def with_fields(fields: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return the fields with up to three of the usual ones, of any value."""
    names = random.sample(sorted(_FIELDS), random.randrange(4))
    return fields | {name: random.choice(_FIELDS[name]) for name in names}


def conversation(messages: Sequence[dict[str, Any]], random: Random) -> list[str | bytes]:
    """Return the messages as JSON, some changed, cut, in binary or in another order."""
    encoded = [_encoded(message, random) for message in messages]
    if random.random() < 0.2:
        random.shuffle(encoded)
    return [data if random.random() < 0.05 else data.decode("utf-8", "replace") for data in encoded]


def _encoded(message: dict[str, Any], random: Random) -> bytes:
    message = json.loads(json.dumps(message))
    for _ in range(random.choice((0, 0, 0, 1, 2))):
        _change(message, random)
    data = json.dumps(message).encode()
    if random.random() < 0.05:
        return data[: random.randrange(len(data))]
    if random.random() < 0.05:
        return random.choice((b"[" * 5_000, b"\xff" * 30, b"null", b"", data * 3))
    return data


def _change(fields: dict[str, Any], random: Random) -> None:
    """Change a field of the object or of an object in it."""
    if not fields:
        fields["x"] = deepcopy(random.choice(_VALUES))
        return
    name = random.choice(sorted(fields))
    if isinstance(fields[name], dict) and random.random() < 0.7:
        _change(fields[name], random)
    elif random.random() < 0.3:
        del fields[name]
    else:
        fields[random.choice((name, name, "extra"))] = deepcopy(random.choice(_VALUES))
