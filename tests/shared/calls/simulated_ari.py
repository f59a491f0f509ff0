"""A simulated Asterisk with its REST interface, as measured with Asterisk 23.4.1: channels, bridges, media.

``SimulatedAri`` serves HTTP, the WebSocket of events and chan_websocket's ``/media`` on one port. ``ring``
lets a caller's channel enter the application. An external media channel has a ``SimulatedMedia``: the
caller's phone, as both are in one bridge. ``requests`` has every request in order.
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket, WebSocketDisconnect
from fastapi.responses import JSONResponse

from shared.calls.simulated_media import AudioSocketMedia, RtpMedia, SimulatedMedia, WebSocketMedia
from vivavoce.gateway.calls.kits.message_socket import ServerMessageSocket

USER, PASSWORD, APP = "vivavoce", "secret", "vivavoce"
_AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass(slots=True)
class AriTestChannel:
    id: str
    name: str
    state: dict[str, Any]
    media: SimulatedMedia | None = None  # of an external media channel that is connected
    is_answered: bool = False
    is_in_application: bool = False
    args: list[str] = field(default_factory=list)  # of the application, when it answers
    variables: dict[str, str] = field(default_factory=dict)  # of the request to call it
    # What its telephone does when it is told to call somebody else (REFER): refuse (603), try it until
    # ``end_transfer`` (202), or go there.
    refers: Literal["refuses", "tries", "hangs up", "holds"] = "refuses"
    transfer_over: asyncio.Event | None = None  # of a transfer that is being tried: its next command waits


@dataclass(slots=True)
class SimulatedAri:
    url: str = ""
    channels: dict[str, AriTestChannel] = field(default_factory=dict)
    bridges: dict[str, list[str]] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)  # last parts of paths that are answered with 500
    media_enters: bool = True
    modules: set[str] = field(default_factory=set)  # that run
    gateway_url: str = ""  # as in websocket_client.conf
    on_bridged: Callable[[], None] = lambda: None
    variables: dict[str, str] = field(default_factory=dict)  # global ones
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    sockets: set[WebSocket] = field(default_factory=set)
    unavailable: int = 0  # status of every answer, 503 while it boots; 0: it is available
    refused_connections: int = 0  # for events, while it is unavailable
    server: uvicorn.Server | None = None
    serving: asyncio.Task[None] | None = None

    async def emit(self, kind: str, channel: AriTestChannel, **fields: Any) -> None:
        channel.is_in_application |= kind == "StasisStart"
        if kind == "StasisStart":
            dialplan = {"context": "default", "exten": "s", "priority": 1} | channel.state.get("dialplan", {})
            app_data = ",".join([APP, *fields["args"]])
            channel.state["dialplan"] = dialplan | {"app_name": "Stasis", "app_data": app_data}
        of = "peer" if kind == "Dial" else "channel"
        event = {"type": kind, "application": APP, "timestamp": "now", of: channel.state, **fields}
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

    async def answer(self, channel: AriTestChannel) -> None:
        """The one who is called answers."""
        await self.emit("StasisStart", channel, args=channel.args)

    async def forward(self, channel: AriTestChannel, extension: str) -> None:
        """The one who is called forwards the call to an extension (302), whose context does not exist."""
        assert channel.variables["FORWARD_CONTEXT"] == "vivavoce-forwards"
        await self.emit("Dial", channel, dialstatus="CANCEL", forward=extension)
        await self._remove(channel, cause=23)

    async def pick_up(self, channel: AriTestChannel, channel_id: str) -> AriTestChannel:
        """Another telephone answers the call of a channel that rings (PickupChan)."""
        state = {"id": channel_id, "name": "PJSIP/carol-1"}
        other = AriTestChannel(channel_id, "PJSIP/carol-1", state, args=channel.args)
        self.channels[channel_id] = other
        await self.answer(other)
        await self._remove(channel, cause=26)
        return other

    async def refer_to(self, channel: AriTestChannel, channel_id: str, number: str) -> AriTestChannel:
        """The telephone of a caller puts another caller in its place (REFER with Replaces)."""
        state = {
            "id": channel_id,
            "name": "Local/_attended@transfer-1;2",
            "caller": {"name": "", "number": ""},
            "dialplan": {"context": "transfer", "exten": "_attended", "priority": 1},
            "channelvars": {},
        }
        other = self.channels[channel_id] = AriTestChannel(channel_id, str(state["name"]), state)
        await self.emit("StasisStart", other, args=[], replace_channel=channel.state)
        state["caller"] = {"name": "", "number": number}  # a moment later
        await self._remove(channel)
        return other

    def end_transfer(self, channel: AriTestChannel) -> None:
        """The one whom a caller's telephone calls is busy (NOTIFY with 486)."""
        assert channel.transfer_over is not None
        channel.transfer_over.set()

    async def forward_to_endpoint(self, channel: AriTestChannel, channel_id: str) -> AriTestChannel:
        """The one who is called forwards the call (302) to an endpoint, which Asterisk calls itself."""
        state = {"id": channel_id, "name": "PJSIP/carol-1"}
        forwarded = AriTestChannel(channel_id, "PJSIP/carol-1", state, args=channel.args)
        self.channels[channel_id] = forwarded
        fields = {"dialstatus": "CANCEL", "forward": "PJSIP/carol", "forwarded": state}
        await self.emit("Dial", channel, **fields)
        await self._remove(channel, cause=23)
        return self.channels[channel_id]

    async def caller_hangs_up(self, channel: AriTestChannel, cause: int = 16) -> None:
        await self._remove(channel, cause)

    async def press(self, channel: AriTestChannel, digit: str) -> None:
        """Press a key, which the bridge passes on to the media too."""
        for media in self.media:
            if media.media is not None:
                await media.media.press(digit)
        await self.emit("ChannelDtmfReceived", channel, digit=digit, duration_ms=100)

    def did(self, method: str, path: str) -> list[dict[str, str]]:
        """The queries of the requests of that kind."""
        return [query for one, at, query in self.requests if (one, at) == (method, path)]

    @property
    def media(self) -> list[AriTestChannel]:
        return [channel for channel in self.channels.values() if channel.media is not None]

    async def start(self) -> None:
        """Listen on a free port of loopback, or again on that of before."""
        app = FastAPI()
        app.add_api_route("/ari/{path:path}", self.answer_request, methods=["GET", "POST", "DELETE"])
        app.add_api_websocket_route("/ari/events", self.serve_events)
        app.add_api_websocket_route("/media/{connection_id}", self.serve_media)
        sock = socket.create_server(("127.0.0.1", urlsplit(self.url).port or 0))
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}/ari"
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="websockets-sansio"))
        self.serving = asyncio.create_task(self.server.serve(sockets=[sock]))

    async def stop(self) -> None:
        """Listen no longer."""
        assert self.server is not None and self.serving is not None
        self.server.should_exit = True
        await self.serving

    async def kill(self) -> None:
        """End with all calls, of which nobody is told."""
        self.sockets.clear()
        await self.close()
        await self.stop()

    async def close(self) -> None:
        for channel in tuple(self.channels.values()):
            await self._remove(channel)
        for task in tuple(self.tasks):
            task.cancel()
            await asyncio.wait({task})

    # Requests

    async def answer_request(self, request: Request) -> Response:
        path = request.url.path.removeprefix("/ari/")
        query = dict(request.query_params)
        self.requests.append((request.method, path, query))
        if request.headers.get("authorization") != _AUTHORIZATION:
            return JSONResponse({"message": "Authentication required"}, 401)
        if self.unavailable:
            return Response(status_code=self.unavailable)
        if path.rpartition("/")[2] in self.refused:
            return JSONResponse({"message": "Allocation failed"}, 500)
        match request.method, path.split("/"):
            case "POST", ["channels", "externalMedia"]:
                return await self._open_external_media(query)
            case "GET", ["channels"]:
                return JSONResponse([channel.state for channel in self.channels.values()])
            case "GET", ["bridges"]:
                bridges = self.bridges.items()
                return JSONResponse([{"id": id_, "channels": channels} for id_, channels in bridges])
            case "GET", ["applications", _]:
                return JSONResponse({"name": APP}, 200 if self.sockets else 404)
            case "GET", ["asterisk", "variable"]:
                return JSONResponse({"value": self.variables.get(query["variable"], "")})
            case "POST", ["asterisk", "variable"]:
                self.variables[query["variable"]] = query["value"]
                return Response(status_code=204)
            case "POST", ["channels"]:
                return self._originate(query, (await request.json())["variables"])
            case method, ["channels", channel_id, *action] if channel_id in self.channels:
                return await self._act(method, self.channels[channel_id], action, query)
            case "POST", ["bridges", bridge_id]:
                self.bridges[bridge_id] = []
                return JSONResponse({"id": bridge_id, "bridge_type": query["type"]})
            case "GET", ["asterisk", "modules", module]:
                status = "Running" if module in self.modules else "Not Running"
                return JSONResponse({"name": module, "status": status})
            case "POST", ["bridges", bridge_id, "addChannel"] if bridge_id in self.bridges:
                self.on_bridged()
                added = query["channel"].split(",")
                for member in [self.channels[one] for one in added if one in self.channels]:
                    if member.transfer_over is not None:
                        await member.transfer_over.wait()
                if not all(channel in self.channels for channel in added):
                    return JSONResponse({"message": "Channel not found"}, 404)
                self.bridges[bridge_id] += added
                return Response(status_code=204)
            case "POST", ["bridges", bridge_id, "removeChannel"] if bridge_id in self.bridges:
                self.bridges[bridge_id].remove(query["channel"])
                return Response(status_code=204)
            case "DELETE", ["bridges", bridge_id] if bridge_id in self.bridges:
                del self.bridges[bridge_id]
                return Response(status_code=204)
        return JSONResponse({"message": "not found"}, 404)

    def _originate(self, query: dict[str, str], variables: dict[str, str]) -> Response:
        state = {
            "id": query["channelId"],
            "name": f"{query['endpoint']}-0x1",
            "dialplan": {"context": "phones", "exten": "s", "priority": 1},
        }
        self.channels[query["channelId"]] = AriTestChannel(
            query["channelId"],
            str(state["name"]),
            state,
            args=query.get("appArgs", "").split(","),
            variables=variables,
        )
        return JSONResponse(state)

    async def _open_external_media(self, query: dict[str, str]) -> Response:
        host = query["external_host"]
        state: dict[str, Any] = {
            "id": query["channelId"],
            "caller": {"name": "", "number": ""},
            "dialplan": {"context": "default", "exten": "s", "priority": 1},
            "channelvars": {},
        }
        channel = AriTestChannel(query["channelId"], "", state)
        self.channels[channel.id] = channel
        match query.get("transport", "udp"), query.get("encapsulation", "rtp"), host:
            case "udp", "rtp", _:
                channel.name, media = f"UnicastRTP/{host}-0x7f", RtpMedia(host)
                address, port = media.phone.address
                state["channelvars"] = {
                    "UNICASTRTP_LOCAL_PORT": str(port),
                    "UNICASTRTP_LOCAL_ADDRESS": address,
                }
                await self._enter(channel, media)
            case "tcp", "audiosocket", _:
                assert query["format"] in ("slin", "slin16")  # others would be labelled as slin
                channel.name = f"AudioSocket/{host}-{query['data']}"
                await self._enter(channel, await AudioSocketMedia.dial(host, query["data"]))
            case "websocket", "none", "INCOMING":
                assert query["connection_type"] == "server" and "v(" not in query["transport_data"]
                channel.name = "WebSocket/INCOMING/0x1"
            case "websocket", "none", _:
                assert query["connection_type"] == "client"
                channel.name = f"WebSocket/{host}/0x1"
                parameters = query["transport_data"].partition("v(")[2].removesuffix(")")
                self._start(self._dial_gateway(channel, f"{self.gateway_url}?{parameters}", host))
            case refused:
                return JSONResponse({"message": f"no external media as {refused}"}, 400)
        state["name"] = channel.name
        return JSONResponse(state)

    async def _dial_gateway(self, channel: AriTestChannel, url: str, client_name: str) -> None:
        await self._enter(channel, await WebSocketMedia.dial(url, client_name))

    async def _enter(self, channel: AriTestChannel, media: SimulatedMedia) -> None:
        channel.media = media
        channel.state["name"] = channel.name
        self._start(self._watch(channel, media))
        if self.media_enters:
            await self.emit("StasisStart", channel, args=[])

    async def _watch(self, channel: AriTestChannel, media: SimulatedMedia) -> None:
        await media.wait_ended()
        if channel.id in self.channels:
            await self._remove(channel)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def serve_media(self, websocket: WebSocket, connection_id: str) -> None:
        """Serve ``/media/ID`` of a channel that waits; its variable is the channel's id, reversed."""
        channel = self.channels[connection_id[::-1]]
        assert channel.media is None and websocket.scope["subprotocols"] == ["media"]
        await websocket.accept("media")
        media = WebSocketMedia(ServerMessageSocket(websocket), connection_id)
        await self._enter(channel, media)
        await media.wait_ended()

    async def _act(
        self, method: str, channel: AriTestChannel, action: list[str], query: dict[str, str]
    ) -> Response:
        match method, action:
            case "GET", []:
                return JSONResponse(channel.state)
            case "GET", ["variable"]:
                return JSONResponse({"value": channel.id[::-1]})
            case "POST", ["answer"]:
                channel.is_answered = True
            case "DELETE", []:
                await self._remove(channel)
            case "POST", ["redirect"] if channel.refers == "tries":
                channel.transfer_over = asyncio.Event()
            case "POST", ["redirect"] if channel.refers == "hangs up":
                await self._remove(channel)
            case "POST", ["redirect"] if channel.refers == "holds":
                await self.emit("ChannelHold", channel)
            case "POST", ["continue"]:
                await self.emit("StasisEnd", channel)
                if query.get("priority") == str(channel.state["dialplan"]["priority"]):  # at Stasis() again
                    args = channel.state["dialplan"]["app_data"].split(",")[1:]
                    await self.emit("StasisStart", channel, args=args)
                else:
                    del self.channels[channel.id]
        return Response(status_code=204)

    async def _remove(self, channel: AriTestChannel, cause: int = 16) -> None:
        self.channels.pop(channel.id, None)
        if channel.transfer_over is not None:
            channel.transfer_over.set()
        if channel.is_in_application:
            await self.emit("StasisEnd", channel)
        await self.emit("ChannelDestroyed", channel, cause=cause)
        if channel.media is not None:
            await channel.media.close()

    async def serve_events(self, websocket: WebSocket) -> None:
        if websocket.headers.get("authorization") != _AUTHORIZATION or websocket.query_params["app"] != APP:
            await websocket.close()
            return
        if self.unavailable:
            self.refused_connections += 1
            await websocket.send_denial_response(Response(status_code=self.unavailable))
            return
        await websocket.accept()
        self.sockets.add(websocket)
        try:
            while True:
                await websocket.receive_text()
        except WebSocketDisconnect:
            self.sockets.discard(websocket)


@asynccontextmanager
async def simulated_ari(modules: Iterable[str] = ()) -> AsyncIterator[SimulatedAri]:
    """Serve on a free port of loopback; modules: of media that run, besides RTP's."""
    ari = SimulatedAri(modules=set(modules))
    await ari.start()
    try:
        yield ari
    finally:
        await ari.close()
        await ari.stop()
