"""Calls that a program asks for: ``POST /v1/calls``, with the way in as ``over``."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, RootModel

from ...access.access_control import Grant
from ...access.dependencies import grant_of
from ...web.errors import native_errors
from ...web.openapi.operations import Responses, json_body, operation
from .request_bodies import read_order


@dataclass(frozen=True, slots=True)
class PlacedCalls:
    """The calls that a way in can make."""

    request: type[BaseModel]  # its field ``over`` is a literal
    answer: Responses  # in the OpenAPI document


PlaceCall = Callable[[Any, Grant], Awaitable[JSONResponse]]  # takes a ``PlacedCalls.request``


def routes(ways: Sequence[tuple[PlacedCalls, PlaceCall]]) -> APIRouter:
    """Return the routes, to be mounted behind access control; ``ways`` are at least two."""
    router = APIRouter(prefix="/v1/calls")
    requests: Any = Union[tuple(placed.request for placed, _ in ways)]  # noqa: UP007

    class PlacedCallRequest(RootModel[Any]):
        """A call to make."""

        root: Annotated[requests, Field(discriminator="over")]

    described = operation(
        "placeCall",
        "Open a call over RTP, call over SIP, or have Asterisk call an endpoint.",
        *(placed.answer for placed, _ in ways),
        native_errors(
            {400: "The body is wrong, or no such way is configured, or the destination is not allowed."},
            {429: "The key has exceeded a limit."},
            {502: "Asterisk refused the call or does not answer, or the servers of SIP are not found."},
            {503: "The server is at capacity, without a free port, or shutting down."},
        ),
        body=json_body(PlacedCallRequest),
    )

    @router.post("", **described)
    async def place_call(request: Request) -> JSONResponse:
        wanted, grant = (await read_order(request, PlacedCallRequest)).root, grant_of(request)
        grant.charge_request()
        place = next(place for placed, place in ways if isinstance(wanted, placed.request))
        return await place(wanted, grant)

    return router
