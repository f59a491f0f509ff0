"""Client of Asterisk's REST interface: its requests, and the events of one application.

Source: rest-api/api-docs of Asterisk 23 (channels.json, bridges.json, events.json).
"""

import errno
import json
import logging
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import httpx
from pydantic import TypeAdapter, ValidationError
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

from .....tts_engine.errors import VivavoceError
from ....outgoing_tls import outgoing_tls
from ...kits.external_media import ExternalMedia, SystemChannel
from .models import (
    ARI_BRIDGES,
    ARI_CHANNELS,
    ARI_EVENT,
    ARI_EVENT_TYPES,
    REPLACED_EVENT,
    AriBridge,
    AriChannel,
    AriEvent,
    AriModule,
    AriVariable,
)
from .origination import Origination

logger = logging.getLogger(__name__)
# A line for each request, with the caller's number in its URL.
logging.getLogger("httpx").setLevel(logging.WARNING)

_REQUEST_TIMEOUT_S: Final = 5.0  # Asterisk answers within milliseconds
_KEY_MS: Final = 100  # of a key's tone, and between two
KEY_S: Final = 2 * _KEY_MS / 1000
_MAX_EVENT_BYTES: Final = 1 << 20
_BOOTING: Final = HTTPStatus.SERVICE_UNAVAILABLE
_REFUSED: Final = f"[Errno {errno.ECONNREFUSED}]"  # asyncio joins the errors of several addresses
_MEDIA_CONNECTION: Final = "MEDIA_WEBSOCKET_CONNECTION_ID"  # variable of a channel of chan_websocket

AnyModel = TypeVar("AnyModel")


class AriFailed(VivavoceError):
    """Asterisk refused a request or cannot be reached."""


class AriUnreachable(AriFailed):
    """Nobody listens where Asterisk should, or it has not started yet: its calls are over."""


class AriReplaced(AriFailed):
    """Another gateway has registered the application."""


class AriNotFound(AriFailed):
    """The channel or bridge is gone."""


@dataclass(frozen=True, slots=True)
class AriAccess:
    """Where and as whom to use the interface."""

    url: str  # up to /ari
    user: str
    app: str  # name of the Stasis application
    password: str = field(default="", repr=False)


class AriClient:
    """Requests and events; every method raises AriFailed."""

    def __init__(self, access: AriAccess) -> None:
        self._access = access
        self._http = httpx.AsyncClient(
            base_url=access.url.rstrip("/") + "/",
            auth=(access.user, access.password),
            timeout=_REQUEST_TIMEOUT_S,
            trust_env=False,
            verify=outgoing_tls(trust_env=False),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def events(self) -> AsyncGenerator[AriEvent | None, None]:
        """Yield None once connected, which registers the application, and then its events."""
        address = urlsplit(self._access.url.rstrip("/") + "/events")
        scheme = "wss" if address.scheme == "https" else "ws"
        url = urlunsplit((scheme, address.netloc, address.path, urlencode({"app": self._access.app}), ""))
        credentials = f"{self._access.user}:{self._access.password}".encode()
        authorization = f"Basic {b64encode(credentials).decode()}"
        try:
            async with connect(
                url,
                additional_headers={"authorization": authorization},
                max_size=_MAX_EVENT_BYTES,
                proxy=None,
            ) as socket:
                yield None
                async for message in socket:
                    if (event := _parse_event(message)) is not None:
                        yield event
        except InvalidHandshake as error:
            is_booting = isinstance(error, InvalidStatus) and error.response.status_code == _BOOTING
            failure = AriUnreachable if is_booting else AriFailed
            raise failure(f"Asterisk refused the connection for events: {error}") from None
        except (OSError, TimeoutError, WebSocketException) as error:
            if _REFUSED in str(error):  # also by one of several addresses, as those of localhost
                raise AriUnreachable(f"Asterisk does not run: {error}") from None
            raise AriFailed(f"the connection for events failed: {error}") from None

    async def is_module_running(self, module: str) -> bool:
        """Return whether a module, such as ``chan_rtp.so``, is loaded and running."""
        try:
            described = await self._request("GET", f"asterisk/modules/{module}")
        except AriNotFound:
            return False
        return _parse(AriModule, described).status == "Running"

    async def is_registered(self) -> bool:
        """Return whether any gateway has registered the application."""
        try:
            await self._request("GET", f"applications/{self._access.app}")
        except AriNotFound:
            return False
        return True

    async def channels(self) -> list[AriChannel]:
        """Return the channels that are in the application."""
        channels = _parse(ARI_CHANNELS, await self._request("GET", "channels"))
        return [
            channel
            for channel in channels
            if channel.dialplan.app_name == "Stasis"
            and channel.dialplan.app_data.partition(",")[0] == self._access.app
        ]

    async def bridges(self) -> list[AriBridge]:
        """Return all bridges."""
        return _parse(ARI_BRIDGES, await self._request("GET", "bridges"))

    async def get_variable(self, name: str) -> str:
        """Return the value of a global variable, "" if there is none."""
        try:
            answer = await self._request("GET", "asterisk/variable", {"variable": name})
        except AriNotFound:
            return ""
        return _parse(AriVariable, answer).value

    async def set_variable(self, name: str, value: str) -> None:
        """Set a global variable; with "" it is removed."""
        await self._request("POST", "asterisk/variable", {"variable": name, "value": value})

    async def answer(self, channel: str) -> None:
        """Answer a channel."""
        await self._request("POST", f"channels/{channel}/answer")

    async def open_external_media(self, channel: str, host: str, **parameters: str) -> AriChannel:
        """Make a channel of that id whose audio is at ``host``, an address with a port."""
        query = {"channelId": channel, "app": self._access.app, "external_host": host, **parameters}
        return _parse(AriChannel, await self._request("POST", "channels/externalMedia", query))

    async def media_url(self, media: SystemChannel) -> str:
        """Return the URL of the WebSocket on which a channel of chan_websocket waits to be connected to."""
        connection_id = media.channelvars.get(_MEDIA_CONNECTION, "")
        if not connection_id:  # the answer has it only if ari.conf lists it in channelvars
            query = {"variable": _MEDIA_CONNECTION}
            answer = await self._request("GET", f"channels/{media.id}/variable", query)
            connection_id = _parse(AriVariable, answer).value
        address = urlsplit(self._access.url.rstrip("/").removesuffix("/ari"))
        scheme = "wss" if address.scheme == "https" else "ws"
        return urlunsplit((scheme, address.netloc, f"{address.path}/media/{quote(connection_id)}", "", ""))

    async def open_bridge(self, bridge: str, *channels: str) -> None:
        """Make a mixing bridge of that id, with those channels in it."""
        await self._request("POST", f"bridges/{bridge}", {"type": "mixing"})
        await self._request("POST", f"bridges/{bridge}/addChannel", {"channel": ",".join(channels)})

    async def join_bridge(self, bridge: str, channel: str, within_s: float) -> None:
        """Put a channel into a bridge, after all that it was told before is done; raises AriNotFound."""
        path = f"bridges/{bridge}/addChannel"
        await self._request("POST", path, {"channel": channel}, timeout_s=within_s)

    async def leave_bridge(self, bridge: str, channel: str) -> None:
        """Take a channel out of a bridge."""
        await self._request("POST", f"bridges/{bridge}/removeChannel", {"channel": channel})

    async def send_keys(self, channel: str, digits: str) -> None:
        """Press keys of the far end of a channel; it takes ``KEY_S`` each."""
        query = {"dtmf": digits, "duration": str(_KEY_MS), "between": str(_KEY_MS)}
        await self._request("POST", f"channels/{channel}/dtmf", query)

    async def close_bridge(self, bridge: str) -> None:
        """Remove a bridge; its channels stay."""
        await self._request("DELETE", f"bridges/{bridge}")

    async def get_channel(self, channel: str) -> AriChannel:
        """Return a channel; raises AriNotFound if it is gone."""
        return _parse(AriChannel, await self._request("GET", f"channels/{channel}"))

    async def hang_up(self, channel: str, reason: str = "normal") -> None:
        """Hang up a channel."""
        await self._request("DELETE", f"channels/{channel}", {"reason": reason})

    async def continue_in_dial_plan(self, channel: str, **place: str) -> None:
        """Return a channel to the dial plan: at ``context``, ``extension``, ``priority``, or where it was."""
        await self._request("POST", f"channels/{channel}/continue", place)

    async def redirect(self, channel: str, endpoint: str) -> None:
        """Transfer a channel blindly to an endpoint of its technology."""
        await self._request("POST", f"channels/{channel}/redirect", {"endpoint": endpoint})

    async def originate(self, wanted: Origination) -> None:
        """Call an endpoint."""
        query = {"app": self._access.app, **wanted.query}
        await self._request("POST", "channels", query, wanted.body)

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, object] | None = None,
        *,
        timeout_s: float = _REQUEST_TIMEOUT_S,
    ) -> bytes:
        try:
            answer = await self._http.request(method, path, params=query, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            raise AriFailed(f"Asterisk does not answer {method} {path}: {error!r}") from None
        if answer.is_success:
            return answer.content
        failure = AriNotFound if answer.status_code == httpx.codes.NOT_FOUND else AriFailed
        raise failure(f"Asterisk refused {method} {path}: {answer.status_code} {answer.text[:200].strip()}")


async def choose_media(client: AriClient, ways: Sequence[ExternalMedia]) -> ExternalMedia:
    """Return the first way whose module Asterisk runs, or else the last one."""
    missing: list[str] = []
    for way in ways[:-1]:
        try:
            if await client.is_module_running(way.module):
                break
            missing.append(f"{way.module} does not run")
        except AriFailed as error:
            missing.append(str(error))
    else:
        way = ways[-1]
    reason = "; ".join(missing) or ("it is configured" if len(ways) == 1 else f"{way.module} runs")
    logger.info("External media of Asterisk goes over %s: %s", way.name, reason)
    return way


def _parse(model: "type[AnyModel] | TypeAdapter[AnyModel]", body: bytes) -> AnyModel:
    adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
    try:
        return adapter.validate_json(body)
    except ValidationError as error:
        raise AriFailed(f"Asterisk's answer cannot be read: {error.errors()[0]['msg']}") from None


def _parse_event(message: str | bytes) -> AriEvent | None:
    """Return an event; None if it is of no interest, or none at all, which is logged."""
    try:
        event = json.loads(message)
        if event["type"] == REPLACED_EVENT:
            raise AriReplaced("another gateway has registered the application")
        if event["type"] not in ARI_EVENT_TYPES:
            return None
        return ARI_EVENT.validate_python(event)
    except (ValueError, TypeError, KeyError, ValidationError, RecursionError) as error:
        logger.warning("Asterisk sent an event that cannot be read: %s", str(error).splitlines()[0])
        return None
