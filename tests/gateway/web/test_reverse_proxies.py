"""A server on loopback behind nginx and Caddy with TLS: page, keys, streamed speech, WebSocket, calls."""

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from aiortc import RTCPeerConnection
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from shared.gateways.running_gateway import running_gateway
from shared.gateways.tls_proxy import (
    SEARCH_PATH,
    caddy_command,
    free_port,
    make_certificate,
    need_programs,
)
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

NAME = "voice.example.org"
README = Path(__file__).parents[3] / "gateway" / "README.md"
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log stderr;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {map}
    server {{
        listen 127.0.0.1:{port} ssl;
        server_name {name};
        ssl_certificate {folder}/cert.pem;
        ssl_certificate_key {folder}/key.pem;
        {location}
    }}
}}
"""


def nginx_command(folder: Path, name: str, port: int, upstream: str) -> list[str]:
    """nginx as the README configures it."""
    (block,) = re.findall(r"```nginx\n(.*?)```", README.read_text("utf-8"), re.S)
    mapping, _, location = block.replace("127.0.0.1:8080", upstream).partition("\n\n")
    text = NGINX.format(folder=folder, port=port, name=name, map=mapping, location=location)
    (folder / "nginx.conf").write_text(text)
    return ["nginx", "-e", "stderr", "-p", str(folder), "-c", str(folder / "nginx.conf")]


PROXIES = {"nginx": nginx_command, "caddy": caddy_command}


@dataclass(frozen=True, slots=True)
class ProxiedServer:
    """A gateway behind a proxy, as clients see it."""

    port: int
    tls: ssl.SSLContext
    key: str

    def client(self, key: str = "") -> httpx.AsyncClient:
        """A client of the proxy that knows it by its public name."""

        async def name_server(request: httpx.Request) -> None:
            request.headers["host"] = f"{NAME}:{self.port}"
            request.extensions = {**request.extensions, "sni_hostname": NAME}

        return httpx.AsyncClient(
            base_url=f"https://127.0.0.1:{self.port}",
            verify=self.tls,
            trust_env=False,
            timeout=60,
            headers={"authorization": f"Bearer {key}"} if key else {},
            event_hooks={"request": [name_server]},
        )

    def open_socket(self, key: str) -> connect:
        """A socket as the page opens it."""
        return connect(
            f"wss://{NAME}:{self.port}/v1/audio/speech/stream",
            host="127.0.0.1",
            port=self.port,
            ssl=self.tls,
            additional_headers={"origin": self.origin, **({"authorization": f"Bearer {key}"} if key else {})},
            proxy=None,
        )

    @property
    def page_headers(self) -> dict[str, str]:
        """Those of the requests of the page."""
        return {"origin": self.origin, "sec-fetch-site": "same-origin"}

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.port}"


@asynccontextmanager
async def proxied(proxy: str, folder: Path, keyed: bool) -> AsyncIterator[ProxiedServer]:
    port = free_port()
    keys, key = folder / "keys.json", ""
    access = {}
    if keyed:
        key = KeysFile(keys).add("page", (Scope.SPEAK, Scope.CALLS), KeyLimits())
        access["access_keys_file"] = keys
    async with running_gateway(http_public_url=f"https://{NAME}:{port}", **access) as url:
        command = PROXIES[proxy](folder, NAME, port, url.removeprefix("http://"))
        environment = {"HOME": str(folder), "PATH": SEARCH_PATH}
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        server = ProxiedServer(port, ssl.create_default_context(cafile=str(folder / "cert.pem")), key)
        try:
            await _until_ready(server, process)
            yield server
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _until_ready(server: ProxiedServer, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(60), server.client() as client:
        while True:
            assert process.returncode is None, "the proxy ended"
            try:
                if (await client.get("/healthz")).status_code == 200:
                    return
            except httpx.TransportError:
                await asyncio.sleep(0.05)


async def check_keys(server: ProxiedServer) -> None:
    async with server.client() as stranger:
        assert (await stranger.get("/")).status_code == 401
        assert (await stranger.post("/start", json={}, headers=server.page_headers)).status_code == 401
    with pytest.raises(InvalidStatus):
        async with server.open_socket("wrong"):
            pass
    async with server.client(server.key) as client:
        shown = await client.get("/")
        assert "secure" in shown.headers["set-cookie"].lower()  # X-Forwarded-Proto is passed and read


async def check_page(server: ProxiedServer) -> None:
    async with server.client(server.key) as client:
        for path in ("/", "/call", "/page/speak.js", "/v1/server"):
            shown = await client.get(path, headers=server.page_headers)
            assert shown.status_code == 200, (path, shown.text)


async def check_signalling(server: ProxiedServer) -> None:
    connection = RTCPeerConnection()
    connection.addTransceiver("audio", direction="recvonly")
    connection.createDataChannel("vivavoce")
    await connection.setLocalDescription(await connection.createOffer())
    offer = {"type": "offer", "sdp": connection.localDescription.sdp}
    async with server.client(server.key) as client:
        started = await client.post("/start", json={"transport": "webrtc"}, headers=server.page_headers)
        assert started.status_code == 200 and started.json()["sessionId"], started.text
        answered = await client.post("/api/offer", json=offer, headers=server.page_headers)
        assert answered.status_code == 200 and answered.json()["type"] == "answer", answered.text
    await connection.close()


async def check_streamed_speech(server: ProxiedServer) -> None:
    speech = {"model": "vivavoce", "input": "One two three. " * 40, "response_format": "mp3"}
    async with (
        server.client(server.key) as client,
        client.stream("POST", "/v1/audio/speech", json=speech) as answer,
    ):
        assert answer.status_code == 200
        pieces = [piece async for piece in answer.aiter_raw()]
        assert len(pieces) > 3 and sum(map(len, pieces)) > 10_000


async def check_websocket(server: ProxiedServer) -> None:
    async with server.open_socket(server.key) as stream:
        await stream.send(json.dumps({"type": "session.config", "response_format": "pcm"}))
        await stream.send(json.dumps({"type": "input.text", "text": "One two three."}))
        await stream.send(json.dumps({"type": "input.done"}))
        received = []
        async for message in stream:
            received.append(message)
            if isinstance(message, str) and json.loads(message)["type"] in ("audio.done", "error"):
                break
        assert sum(len(message) for message in received if isinstance(message, bytes)) > 10_000, received


@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "open"])
@pytest.mark.parametrize("proxy", PROXIES)
def test_a_server_on_loopback_serves_under_its_public_name_through(
    proxy: str, keyed: bool, tmp_path: Path
) -> None:
    need_programs(proxy, "openssl")

    async def run() -> None:
        async with asyncio.timeout(300), proxied(proxy, tmp_path, keyed) as server:
            if keyed:
                await check_keys(server)
            await check_page(server)
            await check_signalling(server)
            await check_streamed_speech(server)
            await check_websocket(server)

    make_certificate(tmp_path, NAME)
    asyncio.run(run())
