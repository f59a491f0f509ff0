"""Calls that a program asks Asterisk to make: one comes in under its id when it is answered."""

from typing import Annotated, Literal

from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from .....tts_engine.errors import BadRequest
from ....access.access_control import Grant
from ....web.responses import ErrorBody
from .client import AriFailed
from .controller import AriController


def _check_literal(value: str) -> str:
    """Raise ValueError for what Asterisk would not take as it is: line ends, functions, expressions."""
    if "${" in value or "$[" in value:
        raise ValueError("functions and expressions of the dial plan are not allowed")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in value):
        raise ValueError("control characters are not allowed")
    return value


class AriCallRequest(BaseModel):
    """A call that Asterisk makes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Literal["ari"]
    endpoint: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]+/[!-~]{1,200}$", description="As in the dial plan, `PJSIP/100`."),
        AfterValidator(_check_literal),
    ]
    caller_id: Annotated[
        str,
        Field(max_length=200, description='`"Name" <number>` to show.'),
        AfterValidator(_check_literal),
    ] = ""
    variables: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^_{0,2}[A-Za-z][A-Za-z0-9_]{0,79}$")],
            Annotated[str, Field(max_length=1000), AfterValidator(_check_literal)],
        ],
        Field(max_length=100, description="Of the channel; no functions, such as `SHELL()`."),
    ] = {}


class OriginatedCall(BaseModel):
    """A call that is ringing."""

    call: Annotated[str, Field(description="Id of the call, once it is answered.")]


class AriMissing(BadRequest):
    """No Asterisk is configured."""


async def place_call(ari: AriController | None, wanted: AriCallRequest, grant: Grant) -> JSONResponse:
    """Have Asterisk call, and answer with the id; raises AriMissing without one, and RateLimited."""
    if ari is None:
        raise AriMissing("over: got 'ari', but no Asterisk is configured; set ari.url")
    grant.require_destination(wanted.endpoint)
    try:
        call_id = await ari.originate(
            wanted.endpoint, caller_id=wanted.caller_id, variables=wanted.variables, grant=grant
        )
    except AriFailed as error:
        return JSONResponse(ErrorBody(error=str(error)).model_dump(), 502)
    return JSONResponse(OriginatedCall(call=call_id).model_dump(), 202)
