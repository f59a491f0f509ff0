"""The part of the calls API that telephone systems use: announce a call, transfer it, and read its result."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from ....tts_engine.errors import BadRequest
from ..expected_calls import ExpectedCalls
from ..registry import CallRegistry, CallUnknown
from . import operations
from .key_calls import KeyCalls
from .messages import TransferOrder
from .request_bodies import is_form, read_announcement, read_order


def add_dial_plan_routes(router: APIRouter, registry: CallRegistry, expected: ExpectedCalls) -> None:
    """Add the routes to the router of the calls API."""

    @router.post("/expected", **operations.EXPECT_CALL)
    async def expect_call(request: Request) -> Response:
        calls = KeyCalls.of(registry, request)
        calls.grant.charge_request()
        announced = await read_announcement(request)
        calls.require_announcement(announced.agent)
        call_id = expected.announce(
            announced.caller,
            call_id=announced.call,
            agent=announced.agent,
            expires_s=announced.expires_s,
            grant=calls.grant,
        )
        if is_form(request):  # for the dial plan, which assigns the answer to a variable
            return PlainTextResponse(str(call_id))
        return JSONResponse({"call": str(call_id)})

    @router.post("/{call_id}/transfer", **operations.TRANSFER)
    async def transfer(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        call, order = calls.get(call_id).call, await read_order(request, TransferOrder)
        if (transferring := calls.transfer(call, order)) is not None:
            await transferring
        return JSONResponse({"call": call_id, "status": "transferred"})

    @router.get("/{call_id}/result", **operations.GET_RESULT)
    async def get_result(
        call_id: str,
        request: Request,
        field: Annotated[str | None, Query(description="value or transfer_to")] = None,
    ) -> Response:
        if field not in (None, "value", "transfer_to"):
            raise BadRequest("field: allowed are value and transfer_to")
        try:
            result = KeyCalls.of(registry, request).result(call_id)
        except CallUnknown:
            if field is None:
                raise
            return PlainTextResponse("", 404)  # the dial plan reads the body, whatever the status
        if field is not None:
            return PlainTextResponse(getattr(result, field))
        return JSONResponse({"call": call_id, "value": result.value, "transfer_to": result.transfer_to})
