"""Calls that a program asks Asterisk to make: one comes in under its id when it is answered."""

from typing import Annotated

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from .....tts_engine.errors import BadRequest
from ....access.access_control import Grant
from ....web.responses import ErrorBody
from .client import AriFailed
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
