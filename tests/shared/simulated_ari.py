"""A simulated Asterisk with its REST interface, as measured with Asterisk 23.4.1: channels, bridges, RTP.

``SimulatedAri`` serves HTTP and the WebSocket of events on one port. ``ring`` lets a caller's channel enter
the application. An external media channel has a UDP socket, ``RtpTestPhone``: the caller's phone, as both are
in one bridge. ``requests`` has every request in order.
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from shared.rtp_phone import RtpTestPhone

USER, PASSWORD, APP = "vivavoce", "secret", "vivavoce"
_AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass(slots=True)
class AriTestChannel:
    id: str
    name: str
    state: dict[str, Any]
    phone: RtpTestPhone | None = None  # of an external media channel
    is_answered: bool = False


@dataclass(slots=True)
class SimulatedAri:
    url: str = ""
    channels: dict[str, AriTestChannel] = field(default_factory=dict)
    bridges: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # last parts of paths that are answered with 500
    media_enters: bool = True
    sockets: set[WebSocket] = field(default_factory=set)

    async def emit(self, kind: str, channel: AriTestChannel, **fields: Any) -> None:
        event = {"type": kind, "application": APP, "timestamp": "now", "channel": channel.state, **fields}
        for socket_ in tuple(self.sockets):
            await socket_.send_text(json.dumps(event))

    async def ring(self, channel_id: str = "1700.1", *args: str, **variables: str) -> AriTestChannel:
        """A call comes in, and the dial plan's ``Stasis()`` hands it over."""
        state = {
            "id": channel_id,
            "name": f"PJSIP/alice-{channel_id}",
            "state": "Ring",
            "caller": {"name": "Alice", "number": "100"},
            "connected": {"name": "", "number": ""},
            "dialplan": {"context": "from-phones", "exten": "600", "priority": 2, "app_name": "Stasis"},
            "channelvars": variables,
        }
        channel = self.channels[channel_id] = AriTestChannel(channel_id, str(state["name"]), state)
        await self.emit("StasisStart", channel, args=list(args))
        return channel

    async def caller_hangs_up(self, channel: AriTestChannel) -> None:
        await self._remove(channel)

    async def press(self, channel: AriTestChannel, digit: str) -> None:
        await self.emit("ChannelDtmfReceived", channel, digit=digit, duration_ms=100)

    def did(self, method: str, path: str) -> list[dict[str, str]]:
        """The queries of the requests of that kind."""
        return [query for one, at, query in self.requests if (one, at) == (method, path)]

    @property
    def media(self) -> list[AriTestChannel]:
        return [channel for channel in self.channels.values() if channel.phone is not None]

    async def close(self) -> None:
        for channel in tuple(self.channels.values()):
            await self._remove(channel)

    # Requests

    async def answer_request(self, request: Request) -> Response:
        path = request.url.path.removeprefix("/ari/")
        query = dict(request.query_params)
        self.requests.append((request.method, path, query))
        if request.headers.get("authorization") != _AUTHORIZATION:
            return JSONResponse({"message": "Authentication required"}, 401)
        if path.rpartition("/")[2] in self.refused:
            return JSONResponse({"message": "Allocation failed"}, 500)
        match request.method, path.split("/"):
            case "POST", ["channels", "externalMedia"]:
                return await self._open_external_media(query)
            case "POST", ["channels"]:
                return JSONResponse({"id": query["channelId"], "name": query["endpoint"]})
            case method, ["channels", channel_id, *action] if channel_id in self.channels:
                return await self._act(method, self.channels[channel_id], action)
            case "POST", ["bridges", bridge_id]:
                self.bridges[bridge_id] = []
                return JSONResponse({"id": bridge_id, "bridge_type": query["type"]})
            case "POST", ["bridges", bridge_id, "addChannel"] if bridge_id in self.bridges:
                self.bridges[bridge_id] += query["channel"].split(",")
                return Response(status_code=204)
            case "DELETE", ["bridges", bridge_id] if bridge_id in self.bridges:
                del self.bridges[bridge_id]
                return Response(status_code=204)
        return JSONResponse({"message": "not found"}, 404)

    async def _open_external_media(self, query: dict[str, str]) -> Response:
        host, port = query["external_host"].split(":")
        phone = RtpTestPhone((host, int(port)))
        own_host, own_port = phone.address
        state = {
            "id": query["channelId"],
            "name": f"UnicastRTP/{query['external_host']}-0x7f",
            "caller": {"name": "", "number": ""},
            "dialplan": {"context": "default", "exten": "s", "priority": 1},
            "channelvars": {
                "UNICASTRTP_LOCAL_PORT": str(own_port),
                "UNICASTRTP_LOCAL_ADDRESS": own_host,
            },
        }
        channel = AriTestChannel(query["channelId"], str(state["name"]), state, phone)
        self.channels[channel.id] = channel
        if self.media_enters:
            await self.emit("StasisStart", channel, args=[])
        return JSONResponse(state)

    async def _act(self, method: str, channel: AriTestChannel, action: list[str]) -> Response:
        match method, action:
            case "GET", []:
                return JSONResponse(channel.state)
            case "POST", ["answer"]:
                channel.is_answered = True
            case "DELETE", []:
                await self._remove(channel)
            case "POST", ["continue"]:
                await self.emit("StasisEnd", channel)
                del self.channels[channel.id]
        return Response(status_code=204)

    async def _remove(self, channel: AriTestChannel) -> None:
        self.channels.pop(channel.id, None)
        await self.emit("StasisEnd", channel)
        await self.emit("ChannelDestroyed", channel, cause=16)
        if channel.phone is not None:
            await asyncio.to_thread(channel.phone.close)

    async def serve_events(self, websocket: WebSocket) -> None:
        if websocket.headers.get("authorization") != _AUTHORIZATION or websocket.query_params["app"] != APP:
            await websocket.close()
            return
        await websocket.accept()
        self.sockets.add(websocket)
        try:
            while True:
                await websocket.receive_text()
        except WebSocketDisconnect:
            self.sockets.discard(websocket)


@asynccontextmanager
async def simulated_ari() -> AsyncIterator[SimulatedAri]:
    """Serve on a free port of loopback."""
    ari, app = SimulatedAri(), FastAPI()
    app.add_api_route("/ari/{path:path}", ari.answer_request, methods=["GET", "POST", "DELETE"])
    app.add_api_websocket_route("/ari/events", ari.serve_events)
    sock = socket.create_server(("127.0.0.1", 0))
    ari.url = f"http://127.0.0.1:{sock.getsockname()[1]}/ari"
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="websockets-sansio"))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield ari
    finally:
        await ari.close()
        server.should_exit = True
        await serving
