"""Everything that a key can open on a whole gateway, and what is left of it once the key has ended."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import State

from shared.browser.fake_browser import OFFER, FakePeer
from shared.calls.call_server import Phone
from shared.calls.websocket_calls import patient_with_sockets
from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from shared.gateways.way_in_servers import browser_calls
from vivavoce.gateway import serve
from vivavoce.gateway.access.keys import ApiKey, KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.agents.kinds.script import SilentAgent
from vivavoce.gateway.calls.ways_in.browser.leg import BrowserLeg
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.web.app import Mount
from vivavoce.tts_engine.engine import Engine

SCOPES = (Scope.SPEAK, Scope.ENROLL, Scope.PAGE, Scope.CALLS_ALL, Scope.ORIGINATE)
PATH_PARAMETERS = {"voice_id": "tone-440", "carrier_name": "twilio"}
# Sockets that close by themselves soon, or are one more path to the same handler.
OTHER_PATHS = {"/v1/media-streams/{carrier_name}/{token}", "/api-ws/v1/inference/"}
LONG_TEXT = "one two three four five six seven eight nine ten. " * 80
CLOSE_CODES = {"/v1/calls/{call_id}/socket": 4401}
CLOSE_CODES_OF_MEDIA = {1000, 1005, 1006, 1008}


@dataclass(eq=False)
class OpenedThing:
    """Something that a key has opened."""

    name: str
    is_live: Callable[[], bool]
    ending: Callable[[], Any] = lambda: None  # how it ended


@dataclass(eq=False)
class KeyHolder:
    """A client with a key, and what it has opened."""

    key: str
    gateway: Gateway
    resources: AsyncExitStack
    opened: list[OpenedThing] = field(default_factory=list)
    phones: list[Phone] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    @property
    def address(self) -> str:
        return ":".join(map(str, self.gateway.addresses.http))

    @property
    def live(self) -> set[str]:
        return {thing.name for thing in self.opened if thing.is_live()}

    def add(self, name: str, is_live: Callable[[], bool], ending: Callable[[], Any] = lambda: None) -> None:
        self.opened.append(OpenedThing(name, is_live, ending))

    async def dial(self) -> Phone:
        """Return a phone whose call is up."""
        phone = Phone(*await asyncio.open_connection(*self.gateway.addresses.ways_in["audiosocket"]))
        self.phones.append(phone)
        self.resources.push_async_callback(phone.aclose)
        await until(lambda: phone.call_id in {one.call.call_id for one in self.gateway.calls.registry})
        return phone

    async def open_socket(self, name: str, path: str, headers: dict[str, str]) -> ClientConnection:
        url = f"ws://{self.address}{path}"
        socket = await self.resources.enter_async_context(connect(url, additional_headers=headers))
        self.add(name, lambda: socket.state is State.OPEN, lambda: socket.close_code)
        return socket

    async def open_request(self, name: str, head: str, body: bytes) -> None:
        """Send a request, and its body except for the end; read the answer slowly."""
        reader, writer = await asyncio.open_connection(*self.gateway.addresses.http, limit=1_000)
        self.resources.callback(writer.close)
        lines = [head, f"host: {self.address}", f"authorization: Bearer {self.key}"]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = bytearray()

        async def read_slowly() -> None:
            with suppress(ConnectionError):
                while data := await reader.read(1_000):
                    answer.extend(data)
                    if answer.startswith(b"HTTP/1.1 401"):
                        return
                    await asyncio.sleep(0.05)

        reading = asyncio.create_task(read_slowly())
        self.resources.callback(reading.cancel)
        self.add(name, lambda: not reading.done(), lambda: bytes(answer[:12]))


async def open_everything(holder: KeyHolder, mounts: list[Mount], client: httpx.AsyncClient) -> None:
    """Open one of everything that the key can open."""
    routes = [route for mount in mounts for route in mount.router.routes]
    sockets = {route.path for route in routes if "WebSocket" in type(route).__name__}  # type: ignore[attr-defined]
    for path in sorted(sockets - OTHER_PATHS):
        parameters = PATH_PARAMETERS | {"call_id": (await holder.dial()).call_id}
        await holder.open_socket(path, path.format(**parameters), holder.headers)
    page = await client.get("/", headers=holder.headers)
    cookie = {"cookie": page.headers["set-cookie"].partition(";")[0]}
    await holder.open_socket("socket of the page's cookie", "/v1/audio/speech/stream", cookie)
    await holder.open_socket("key in the URL", f"/tts/websocket?api_key={holder.key}", {})
    await open_calls(holder, client, cookie)
    await open_requests(holder)


async def open_calls(holder: KeyHolder, client: httpx.AsyncClient, cookie: dict[str, str]) -> None:
    """Open a browser call, a call over RTP, and a recording of a phone call."""
    registry = holder.gateway.calls.registry
    browser = await client.post("/api/offer", json=OFFER, headers=cookie)
    placed = await client.post("/v1/calls", json={"over": "rtp"}, headers=holder.headers)
    browser_id = browser.json()["pc_id"]
    legs = browser_calls(holder.gateway)._group.legs
    next(leg for leg in legs if leg.call_id == browser_id).on_connected()
    for name, call_id in (("browser call", browser_id), ("placed call", placed.json()["call"])):
        registry.get(call_id)
        holder.add(name, lambda call_id=call_id: call_id in {one.call.call_id for one in registry})
    phone = await holder.dial()
    await client.post(f"/v1/calls/{phone.call_id}/recording", headers=holder.headers)
    call = registry.get(phone.call_id).call
    holder.add("recording", lambda: call.recording.is_on)


async def open_requests(holder: KeyHolder) -> None:
    """Open a streamed answer, an upload, and speech on a call whose body does not end."""
    fields = {"model": "vivavoce", "input": LONG_TEXT, "voice": "tone-440", "response_format": "pcm"}
    speech = json.dumps(fields).encode()
    head = f"content-type: application/json\r\ncontent-length: {len(speech)}"
    await holder.open_request("streamed answer", f"POST /v1/audio/speech HTTP/1.1\r\n{head}", speech)
    upload = "content-type: multipart/form-data; boundary=b\r\ncontent-length: 100000"
    await holder.open_request("upload", f"POST /v1/audio/voices HTTP/1.1\r\n{upload}", b"--b\r\n")
    head = f"POST /v1/calls/{(await holder.dial()).call_id}/speech HTTP/1.1\r\ncontent-length: 100000"
    await holder.open_request("speech on a call", head, b"One two. ")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def mounts(monkeypatch: pytest.MonkeyPatch) -> list[Mount]:
    """The mounts of the gateway, once it is open."""
    found: list[Mount] = []
    make_app = serve.make_app

    def note_mounts(**arguments: Any) -> Any:
        found.extend(arguments["mounts"])
        return make_app(**arguments)

    monkeypatch.setattr(serve, "make_app", note_mounts)
    return found


async def connect_fake_browser(sdp: str, leg: BrowserLeg, settings: object) -> FakePeer:
    return FakePeer(leg)


async def open_gateway(keys_file: Path, tmp_path: Path, resources: AsyncExitStack) -> Gateway:
    resources.enter_context(patient_with_sockets(first_message_s=120))
    settings = make_settings(
        http_port=0,
        audiosocket_port=0,
        access_keys_file=keys_file,
        recordings_folder=tmp_path / "recordings",
    )
    engine = await resources.enter_async_context(await Engine.open(backend=StandInBackend((440, 330))))
    gateway = await Gateway.open(settings, engine=engine, agent=SilentAgent())
    await resources.enter_async_context(aclosing(gateway))
    browser_calls(gateway)._connect = connect_fake_browser
    return gateway


def revoke(keys: KeysFile, id: str) -> None:
    keys.revoke(id)


def expire(keys: KeysFile, id: str) -> None:
    keys.change(id, lambda key: replace(key, expires_at=int(time.time()) - 1))


def take_a_scope(keys: KeysFile, id: str) -> None:
    def change(key: ApiKey) -> ApiKey:
        return replace(key, scopes=(Scope.SPEAK, Scope.ADMIN))

    keys.change(id, change)


@pytest.mark.parametrize(
    "end", [revoke, *(pytest.param(end, marks=pytest.mark.slow) for end in (expire, take_a_scope))]
)
def test_a_key_that_ends_closes_everything_that_it_opened_and_nothing_else(
    end: Callable[[KeysFile, str], None], tmp_path: Path, mounts: list[Mount]
) -> None:
    keys = KeysFile(tmp_path / "keys.json")

    async def run() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as resources:
            holders, _ = await open_holders(keys, tmp_path, mounts, resources)
            ended, other = holders
            before = {thing.name for thing in other.opened}
            assert ended.live == other.live == before
            end(keys, ended.key[3:11])
            await until(lambda: not ended.live)
            assert other.live == before
            assert_told(ended)
            assert not any(phone.hung_up.is_set() for phone in ended.phones)
            counts = ended.gateway.apis.server.access.rate_limiters()[ended.key[3:11]].open_counts
            await until(lambda: [count.here for count in counts] == [0, 0, 0, 0])

    asyncio.run(run())


@pytest.mark.slow
def test_a_keys_file_that_is_deleted_closes_everything(tmp_path: Path, mounts: list[Mount]) -> None:
    keys = KeysFile(tmp_path / "keys.json")

    async def run() -> None:
        async with asyncio.timeout(120), AsyncExitStack() as resources:
            holders, _ = await open_holders(keys, tmp_path, mounts, resources)
            (tmp_path / "keys.json").unlink()
            await until(lambda: not any(holder.live for holder in holders))
            for holder in holders:
                assert_told(holder)

    asyncio.run(run())


async def open_holders(
    keys: KeysFile, tmp_path: Path, mounts: list[Mount], resources: AsyncExitStack
) -> tuple[list[KeyHolder], Gateway]:
    tokens = [keys.add(name, SCOPES, KeyLimits()) for name in ("first", "second")]
    gateway = await open_gateway(tmp_path / "keys.json", tmp_path, resources)
    base = "http://{}:{}".format(*gateway.addresses.http)
    client = await resources.enter_async_context(httpx.AsyncClient(base_url=base, timeout=60))
    holders = [KeyHolder(token, gateway, resources) for token in tokens]
    for holder in holders:
        await open_everything(holder, mounts, client)
    return holders, gateway


def assert_told(holder: KeyHolder) -> None:
    """Check the close codes of sockets, and the answers to requests that had none."""
    for thing in holder.opened:
        ending = thing.ending()
        match thing.name:
            case "upload" | "speech on a call":
                assert ending == b"HTTP/1.1 401", thing.name
            case "streamed answer":
                assert ending == b"HTTP/1.1 200", thing.name
            case "/v1/asterisk/media" | "/v1/media-streams/{carrier_name}":
                assert ending in CLOSE_CODES_OF_MEDIA, thing.name
            case _ if ending is not None:
                assert ending == CLOSE_CODES.get(thing.name, 1008), thing.name
