"""Asterisk's REST interface as a way in: the controller, by the server's settings.

A call that a program asks for comes in under its id when it is answered.
"""

from functools import partial
from typing import Annotated

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from .....tts_engine.errors import BadRequest
from ....access.access_control import Grant
from ....web.errors import ErrorBody
from ....web.openapi.operations import json_response
from ...api.placed_calls import PlacedCalls
from ...kits.external_media import ExternalMedia
from ..way_in import CallHost, OpenWayIn, WayIn
from .client import AriAccess, AriClient, AriFailed
from .controller import AriController
from .requests import AriCallRequest


class RingingCall(BaseModel):
    """A call that is ringing."""

    call: Annotated[str, Field(description="Id of the call, also while it rings.")]


class AriMissing(BadRequest):
    """No Asterisk is configured."""


async def place_call(ari: AriController | None, wanted: AriCallRequest, grant: Grant) -> JSONResponse:
    """Have Asterisk call, and answer with the id; raises AriMissing without one, and RateLimited."""
    if ari is None:
        raise AriMissing("over: got 'ari', but no Asterisk is configured; set ari.url")
    grant.require_destination(wanted.endpoint)
    try:
        call_id = await ari.originate(wanted, grant)
    except AriFailed as error:
        return JSONResponse(ErrorBody(error=str(error)).model_dump(), 502)
    return JSONResponse(RingingCall(call=call_id).model_dump(), 202)


async def _open(host: CallHost) -> OpenWayIn:
    ari, controller = host.settings.ari, None
    if ari.url is not None:
        password = ari.password.get_secret_value() if ari.password else ""
        client = AriClient(AriAccess(ari.url_without_user, ari.user, ari.app, password))
        media = [
            way.external_media
            for way in host.opened.values()
            if isinstance(way.external_media, ExternalMedia)
        ]
        ways = [way for way in media if ari.medium in ("auto", way.setting)]
        controller = AriController(client, ways, host.services.registry, formats=ari.codec)
    return OpenWayIn(controller, place_call=partial(place_call, controller))


ARI = WayIn(
    "ari",
    _open,
    placed_calls=PlacedCalls(AriCallRequest, json_response(RingingCall, 202, "Asterisk calls the endpoint.")),
)
