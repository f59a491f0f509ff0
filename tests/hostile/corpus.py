"""Messages that found a fault once; every run begins with them."""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final

_TRANSPORT: Final = (
    "a=ice-ufrag:abcd\r\na=ice-pwd:0123456789abcdefghijkl\r\na=setup:actpass\r\n"
    "a=fingerprint:sha-256 " + ":".join(["AB"] * 32) + "\r\n"
)
_AUDIO: Final = (
    "m=audio 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:0\r\na=recvonly\r\na=rtcp-mux\r\n"
    "a=rtpmap:96 opus/48000/2\r\n" + _TRANSPORT
)
_DATA: Final = (
    "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:1\r\na=sctp-port:5000\r\n"
)
_TEXT: Final = "m=text 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=mid:t\r\n"


def _sdp(*parts: str) -> str:
    return "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n" + "".join(parts)


OFFERS: Final = (
    _sdp(_AUDIO, _DATA),
    _sdp("a=group:BUNDLE absent 1\r\n", _AUDIO, _DATA, _TRANSPORT),  # closing aiortc's connection raised
    _sdp("a=group:BUNDLE absent 0\r\n", _AUDIO),
    _sdp(_AUDIO, "a=fmtp:97 apt=96\r\n"),  # StopIteration inside a coroutine
    _sdp(_AUDIO.replace("a=setup:actpass", "a=setup")),
    _sdp(_AUDIO, _AUDIO),
    # aiortc made no transport for the first section of the group, and its connection could not be closed.
    _sdp("a=group:BUNDLE t 0 1\r\n", _AUDIO, _DATA, _TRANSPORT, _TEXT, _TRANSPORT),
    _sdp(_AUDIO, "a=candidate:1 1 udp 1 127.0.0.1 999999999999 typ host\r\n"),  # OverflowError in sendto
)
# Kinds of AudioSocket audio whose rates voice activity detection could not read: 12, 44.1, 96 and 192 kHz.
AUDIO_KINDS: Final = (0x11, 0x15, 0x17, 0x18)


# Requests: method, path, headers, fields of the body
REQUESTS: Final[tuple[tuple[str, str, dict[str, str], dict[str, Any] | None], ...]] = (
    ("GET", "/v1/voices", {"origin": "http://["}, None),
    ("GET", "/v1/voices", {"host": "["}, None),
    ("GET", "/v1/voices", {"cookie": 'prefs={"a":1}; x'}, None),
    ("POST", "/v1/audio/speech", {}, {"input": '<speak><prosody volume="+6200dB">Hi</prosody></speak>'}),
    ("POST", "/v1/model/cosyvoice/batch", {}, {"items": [{"text": "a", "mode": []}, {"text": "b"}]}),
    ("POST", "/v1/model/cosyvoice", {}, {"text": "<speak>\ud800</speak>"}),
    ("POST", "/set_tts_settings", {}, {"length_penalty": float("inf")}),
    ("GET", "/get_tts_settings", {}, None),
    ("POST", "/api/offer", {}, {"type": "offer", "sdp": _sdp(_AUDIO.replace("mid:0", "mid:\ud800"))}),
)
# Messages of sockets, by path
CONVERSATIONS: Final[tuple[tuple[str, tuple[dict[str, Any], ...]], ...]] = (
    ("/tts/websocket", ({"context_id": "\ud800", "transcript": "x"},)),
    ("/v1/text-to-speech/heart/multi-stream-input", ({"context_id": "\ud800", "text": "x"},)),
    ("/tts/v1/voice:streamBidirectional", ({"contextId": "\ud800", "send_text": {"text": "x"}},)),
    ("/v1/speak", ({"type": "Speak", "text": "One two three. " * 100}, *[{"type": "Flush"}] * 2_000)),
    ("/v1/audio/speech/stream", tuple([{"type": "input.done"}, {"type": "input.cancel"}] * 1_000)),
    ("/v1/text-to-speech/heart/multi-stream-input", tuple([{"text": ""}] * 5_000)),
)


def speech_bodies() -> Iterator[dict[str, Any]]:
    """Yield requests for speech with hardly any sound."""
    texts = ("\ufeff", '<speak rate="9">', "-" * 60)
    for text, speed, codec, rate in product(texts, (0.25, 4.0), ("alaw", "aac", "flac"), (8_000, 24_000)):
        fields = {"response_format": codec, "speed": speed, "sample_rate": rate}
        yield {"model": "tts-1", "voice": "alloy", "input": text, **fields}
