"""One hostile connection or request of each wire; the peers leave without a farewell."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final
from uuid import UUID

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from hostile.carriers import carrier_conversation
from hostile.client_dialects import client_conversation
from hostile.corpus import AUDIO_KINDS, CONVERSATIONS, OFFERS, REQUESTS, speech_bodies
from hostile.messages import (
    audiosocket_messages,
    call_conversation,
    dashscope_conversation,
    json_body,
    raw_bytes,
    speech_body,
    stream_conversation,
)
from hostile.offers import changed_offer
from hostile.server import AttackedServer
from hostile.strangers_wire import (
    CROSS_SITE,
    costly_speech_body,
    disturb_rtp_call,
    forwarded_headers,
    nested_body,
    stay_silent,
)

_SPEAKING_URL: Final = "/tts_stream?text=Hello&speaker_wav=heart&language=en"
MAX_FINDINGS: Final = 50
_STAYS_S: Final = (0.005, 0.02, 0.05)  # for which a hostile peer reads before it leaves
_REQUEST_S: Final = 60.0
_INTERNAL_ERROR: Final = 1011  # close code of a WebSocket
_SIGNS_OF_A_FAULT: Final = ("inside the server", "InternalError", "Internal Server Error")
_ROUTES: Final = (
    ("POST", "/dev/captioned_speech"),
    ("POST", "/api/v1/services/audio/tts/SpeechSynthesizer"),
    ("POST", "/api/v1/services/audio/tts/customization"),
    ("GET", "/api/v1/services/audio/tts/results/x"),
    ("POST", "/v1/audio/voices"),
    ("DELETE", "/v1/audio/voices/x"),
    ("PATCH", "/api/offer"),
    ("POST", "/start"),
    ("POST", "/sessions/x/api/offer"),
    ("GET", "/v1/calls"),
    ("DELETE", "/v1/calls/x"),
    ("POST", "/v1/calls/x/speech"),
    ("POST", "/v1/calls/x/discard"),
    ("GET", "/v1/models/../x"),
    ("GET", "/page/..%2f..%2fserve.py"),
    ("BREW", "/v1/audio/speech"),
    ("POST", "/tts/bytes"),
    ("POST", "/tts/sse"),
    ("POST", "/v1/text-to-speech/heart"),
    ("POST", "/v1/text-to-speech/heart/stream/with-timestamps"),
    ("POST", "/v1/speak"),
    ("POST", "/tts/v1/voice:stream"),
    ("POST", "/jambonz/tts"),
    ("POST", "/api/v1/audio/speech"),
    ("POST", "/tts_stream"),
    ("POST", "/tts_to_audio"),
    ("POST", "/set_tts_settings"),
    ("GET", "/get_tts_settings"),
    ("POST", "/clone_speaker"),
    ("POST", "/v1/model/cosyvoice/batch"),
    ("POST", "/inference_sft"),
    ("POST", "/v1/media-streams/twilio/answer"),
    ("POST", "/v1/media-streams/x/y/answer"),
    ("GET", "/metrics"),
)

_HEADERS: Final[tuple[Mapping[str, str], ...]] = (
    *[{}] * 5,
    {"origin": "http://["},
    {"host": "["},
    {"cookie": "a=b; {"},
    {"authorization": "Basic %%%"},
)


@dataclass(slots=True)
class Attack:
    """The hostile peers of one server, and what they have seen."""

    server: AttackedServer
    client: httpx.AsyncClient
    offers: Sequence[str]  # valid ones, to be changed
    sent: Counter[str] = field(default_factory=Counter)  # messages by wire
    answers: Counter[int] = field(default_factory=Counter)  # HTTP statuses
    findings: list[str] = field(default_factory=list)  # at most MAX_FINDINGS
    tell: Callable[[str], None] = lambda finding: None  # gets each of them at once

    def wires(self) -> dict[str, Callable[[Random], Awaitable[None]]]:
        """Return what makes one connection or request, by the name of its wire."""
        return {
            "audiosocket": self.phone,
            "carriers": self.carrier,
            "dashscope": self.dashscope,
            "stream": self.stream,
            "clients": self.speech_client,
            "calls": self.program,
            "tcp": self.raw,
            "speech": self.speech,
            "offer": self.offer,
            "http": self.http,
            "strangers": self.strangers,
            "rtp": self.rtp,
            "crossing": self.crossing,
        }

    def report(self, finding: str) -> None:
        """Add a finding."""
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding[:1_000])
            self.tell(f"FOUND {finding[:1_000]}")

    async def corpus(self) -> None:
        """Send the messages that found a fault once."""
        for fields in speech_bodies():
            await self._request("speech", "POST", "/v1/audio/speech", json=fields)
        for method, path, headers, body in REQUESTS:
            content = b"" if body is None else json.dumps(body).encode()
            await self._request("http", method, path, content=content, headers=headers)
        for path, messages in CONVERSATIONS:
            await self._converse("clients", path, [json.dumps(message) for message in messages], 0.5)
        for sdp in OFFERS:
            await self._request("offer", "POST", "/api/offer", json={"type": "offer", "sdp": sdp})
        for kind in AUDIO_KINDS:
            call_id = b"\x01\x00\x10" + UUID(int=kind).bytes
            await self._phone([call_id, *[bytes((kind, 1, 64)) + bytes(320)] * 20], 0.5)

    async def phone(self, random: Random) -> None:
        """Call over AudioSocket."""
        await self._phone(audiosocket_messages(random, _call_id(random)), random.choice(_STAYS_S))

    async def dashscope(self, random: Random) -> None:
        """Speak as a client of DashScope."""
        messages, stays_s = dashscope_conversation(random), random.choice(_STAYS_S)
        await self._converse("dashscope", "/api-ws/v1/inference", messages, stays_s)

    async def stream(self, random: Random) -> None:
        """Speak over the native stream."""
        messages, stays_s = stream_conversation(random), random.choice(_STAYS_S)
        await self._converse("stream", "/v1/audio/speech/stream", messages, stays_s)

    async def carrier(self, random: Random) -> None:
        """Call as a carrier, and attach a program to the call, which may not exist."""
        call_id = _call_id(random)
        call = carrier_conversation(random, call_id)
        await asyncio.gather(
            self._converse("carriers", call.path, call.messages, 0.2, call.subprotocols),
            self._converse("calls", f"/v1/calls/{call_id}/socket", call_conversation(random), 0.1),
        )

    async def speech_client(self, random: Random) -> None:
        """Speak as a client of one of the other speech APIs."""
        path, messages = client_conversation(random)
        await self._converse("clients", path, messages, random.choice(_STAYS_S))

    async def program(self, random: Random) -> None:
        """Call, and attach a program to that call, to none or to one that does not exist."""
        call_id = _call_id(random)
        path = f"/v1/calls/{random.choice((call_id, call_id, call_id, 'x'))}/socket"
        query = random.choice(("", "?audio=in", "?audio=x"))
        messages = audiosocket_messages(random, call_id)
        await asyncio.gather(
            self._phone(messages, 0.2),
            self._converse("calls", path + query, call_conversation(random), random.choice(_STAYS_S)),
        )

    async def raw(self, random: Random) -> None:
        """Send bytes of no protocol to one of the ports."""
        address = random.choice((self.server.http, self.server.audiosocket))
        await self._send_bytes("tcp", address, [raw_bytes(random)], random.choice(_STAYS_S))

    async def speech(self, random: Random) -> None:
        """Ask for speech; some clients leave before the end."""
        hurried = random.random() < 0.3
        await self._request(
            "speech",
            "POST",
            "/v1/audio/speech",
            content=speech_body(random),
            leaves_after_s=0.05 if hurried else None,
        )

    async def offer(self, random: Random) -> None:
        """Offer a browser call."""
        body = {"type": "offer", "sdp": changed_offer(random.choice(self.offers), random)}
        await self._request("offer", "POST", "/api/offer", json=body)

    async def http(self, random: Random) -> None:
        """Send any body to any route."""
        method, path = random.choice(_ROUTES)
        body = random.choice((b"", json_body(random), speech_body(random), random.randbytes(50)))
        kind = random.choice(("application/json", "text/plain", "multipart/form-data; boundary=x", ""))
        headers = random.choice(_HEADERS)
        await self._request("http", method, path, content=body, content_type=kind, headers=headers)

    async def strangers(self, random: Random) -> None:
        """Connect to a listener several times, and say nothing or too little."""
        self.sent["strangers"] += await stay_silent(self.server, random, random.choice((*_STAYS_S, 1.0)))

    async def rtp(self, random: Random) -> None:
        """Call over RTP, with a stranger who sends packets and ends of his own."""
        self.sent["rtp"] += await disturb_rtp_call(self.client, random, self.report)

    async def crossing(self, random: Random) -> None:
        """Load something into another site's page, through a forged proxy, or send what is costly to read."""
        method, path = random.choice(_ROUTES)
        match random.randrange(4):
            case 0:
                await self._request("crossing", "GET", _SPEAKING_URL, headers=CROSS_SITE, refusal=403)
            case 1:
                await self._request("crossing", method, path, headers=forwarded_headers(random))
            case 2:
                body = costly_speech_body(random)
                await self._request("crossing", "POST", "/v1/audio/speech", content=body, leaves_after_s=0.05)
            case _:
                await self._request("crossing", method, path, content=nested_body(random))

    async def _request(
        self,
        wire: str,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        json: object = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] = MappingProxyType({}),
        leaves_after_s: float | None = None,
        refusal: int | None = None,
    ) -> None:
        self.sent[wire] += 1
        headers = {**headers, **({} if content is None else {"content-type": content_type})}
        try:
            async with asyncio.timeout(_REQUEST_S):
                # Its own timeout, because a cancelled request may leave its connection in the pool for ever.
                answer = await self.client.request(
                    method, path, content=content, json=json, headers=headers,
                    timeout=leaves_after_s or _REQUEST_S,
                )  # fmt: skip
        except TimeoutError:
            self.report(f"{method} {path} {content or json!r}: no answer within {_REQUEST_S:g} s")
            return
        except httpx.HTTPError as error:
            if leaves_after_s is not None and isinstance(error, httpx.TimeoutException):
                return
            self.report(f"{method} {path} {content or json!r}: {error!r}")
            return
        self.answers[answer.status_code] += 1
        if refusal is not None and answer.status_code != refusal:
            self.report(f"{method} {path} {headers}: {answer.status_code}, not {refusal}")
        if answer.status_code >= 500 and answer.status_code != 503:
            self.report(f"{method} {path} {content or json!r}: {answer.status_code} {answer.text[:300]}")

    async def _phone(self, messages: Sequence[bytes], stays_s: float) -> None:
        await self._send_bytes("audiosocket", self.server.audiosocket, messages, stays_s)

    async def _send_bytes(
        self, wire: str, address: tuple[str, int], messages: Sequence[bytes], stays_s: float
    ) -> None:
        with suppress(OSError):  # the server may end the connection at any time
            reader, writer = await asyncio.open_connection(*address)
            try:
                for message in messages:
                    self.sent[wire] += 1
                    writer.write(message)
                await writer.drain()
                with suppress(TimeoutError):
                    async with asyncio.timeout(stays_s):
                        while await reader.read(65_536):
                            pass
            finally:
                writer.transport.abort()

    async def _converse(
        self,
        wire: str,
        path: str,
        messages: Sequence[str | bytes],
        stays_s: float,
        subprotocols: Sequence[str] = (),
    ) -> None:
        with suppress(OSError, TimeoutError, WebSocketException):  # refused, or closed by the server
            async with asyncio.timeout(_REQUEST_S):
                socket = await connect(
                    f"ws://{self.server.url}{path}",
                    subprotocols=[Subprotocol(name) for name in subprotocols] or None,
                    proxy=None,
                )
            reading = asyncio.create_task(self._read(socket, path, messages))
            try:
                for message in messages:
                    self.sent[wire] += 1
                    await socket.send(message)
                await asyncio.wait({reading}, timeout=stays_s)
            finally:
                socket.transport.abort()
                reading.cancel()
                await asyncio.wait({reading})
                if socket.close_code == _INTERNAL_ERROR:
                    self.report(f"{path} {messages}: closed with 1011")

    async def _read(self, socket: ClientConnection, path: str, messages: Sequence[str | bytes]) -> None:
        with suppress(WebSocketException):
            async for message in socket:
                if isinstance(message, str) and any(sign in message for sign in _SIGNS_OF_A_FAULT):
                    self.report(f"{path} {messages}: {message[:300]}")


def _call_id(random: Random) -> UUID:
    return UUID(int=random.getrandbits(128), version=4)
