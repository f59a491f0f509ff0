"""Asterisk's REST interface as a way in: the controller, by the server's settings."""

from functools import partial

from ....web.openapi.operations import json_response
from ...api.placed_calls import PlacedCalls
from ..way_in import CallHost, OpenWayIn, WayIn
from .client import AriAccess, AriClient
from .controller import AriController
from .placed_calls import RingingCall, place_call
from .requests import AriCallRequest


async def _open(host: CallHost) -> OpenWayIn:
    ari, controller = host.settings.ari, None
    if ari.url is not None:
        password = ari.password.get_secret_value() if ari.password else ""
        client = AriClient(AriAccess(ari.url_without_user, ari.user, ari.app, password))
        media = [way.external_media for way in host.opened.values() if way.external_media is not None]
        ways = [way for way in media if ari.medium in ("auto", way.setting)]
        controller = AriController(client, ways, host.services.registry, formats=ari.codec)
    return OpenWayIn(controller, place_call=partial(place_call, controller))


ARI = WayIn(
    "ari",
    _open,
    placed_calls=PlacedCalls(AriCallRequest, json_response(RingingCall, 202, "Asterisk calls the endpoint.")),
)
