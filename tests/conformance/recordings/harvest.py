"""A pytest plugin that keeps what the clients of tests send: ``pytest -p conformance.recordings.harvest``.

``HARVEST`` names the folder for one file of sessions for each folder of tests. Answers are recorded later, by
``python -m conformance.recordings``, because servers of tests differ.
"""

import base64
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from .sessions import KEY, ClientMessage, RecordedSession, save

_MAX_BODY_BYTES = 200_000
_OWN_KEY = re.compile(r"vv_[0-9a-f]{8}_[A-Za-z0-9_-]{43}")
_LEFT_OUT = frozenset(
    "host accept-encoding connection user-agent content-length transfer-encoding upgrade sec-websocket-key "
    "sec-websocket-version sec-websocket-extensions".split()
)
_SESSIONS: dict[str, list[RecordedSession]] = defaultdict(list)
_RUNNING = {"folder": ""}
_SOCKETS: dict[int, tuple[RecordedSession, list[int]]] = {}


def _headers(headers: Iterator[tuple[str, str]]) -> list[list[str]]:
    kept = ((name, _OWN_KEY.sub(KEY, value)) for name, value in headers if name.lower() not in _LEFT_OUT)
    return [[name, value] for name, value in kept if (name.lower(), value) != ("accept", "*/*")]


def _add(session: RecordedSession) -> None:
    session.needs_key = KEY in session.question
    _SESSIONS[_RUNNING["folder"]].append(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _RUNNING["folder"] = item.path.parent.name


@pytest.hookimpl
def pytest_sessionfinish() -> None:
    folder = Path(os.environ["HARVEST"])
    folder.mkdir(parents=True, exist_ok=True)
    for name, sessions in _SESSIONS.items():
        save(folder / f"{name}.json.xz", list({one.question: one for one in sessions}.values()))


_ask = httpx.AsyncHTTPTransport.handle_async_request
_shake_hands, _send, _recv = ClientConnection.handshake, ClientConnection.send, ClientConnection.recv


async def _kept_ask(self: httpx.AsyncHTTPTransport, request: httpx.Request) -> httpx.Response:
    if isinstance(request.stream, httpx.SyncByteStream):
        body = b"".join(request.stream)
        if len(body) <= _MAX_BODY_BYTES:
            path = _OWN_KEY.sub(KEY, request.url.raw_path.decode())
            pairs = ((name.decode(), value.decode("latin-1")) for name, value in request.headers.raw)
            _add(RecordedSession(request.method, path, _headers(pairs), base64.b64encode(body).decode()))
    return await _ask(self, request)


async def _kept_handshake(self: ClientConnection, *arguments: Any, **options: Any) -> None:
    session, count = RecordedSession("WEBSOCKET", ""), [0]
    _SOCKETS[id(self)] = (session, count)
    try:
        await _shake_hands(self, *arguments, **options)
    finally:
        if self.request is not None:
            session.path = _OWN_KEY.sub(KEY, self.request.path)
            session.headers = _headers(self.request.headers.raw_items())
            _add(session)


async def _kept_send(self: ClientConnection, message: Any, *arguments: Any, **options: Any) -> None:
    if id(self) in _SOCKETS and isinstance(message, str | bytes):
        session, count = _SOCKETS[id(self)]
        is_binary = isinstance(message, bytes)
        data = (
            base64.b64encode(message).decode() if isinstance(message, bytes) else _OWN_KEY.sub(KEY, message)
        )
        if len(data) <= _MAX_BODY_BYTES:
            session.messages.append(ClientMessage(data, is_binary, count[0]))
            session.needs_key = session.needs_key or KEY in data
    await _send(self, message, *arguments, **options)


async def _kept_recv(self: ClientConnection, *arguments: Any, **options: Any) -> Any:
    data = await _recv(self, *arguments, **options)
    if id(self) in _SOCKETS:
        _SOCKETS[id(self)][1][0] += 1
    return data


httpx.AsyncHTTPTransport.handle_async_request = _kept_ask  # type: ignore[method-assign]
ClientConnection.handshake = _kept_handshake  # type: ignore[method-assign]
ClientConnection.send = _kept_send  # type: ignore[method-assign, assignment]
ClientConnection.recv = _kept_recv  # type: ignore[method-assign, assignment]
