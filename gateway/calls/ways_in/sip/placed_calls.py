"""Calls over SIP that a program asks for: they ring, and come in under their ids when they are answered."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from .....tts_engine.errors import BadRequest
from ....access.access_control import Grant
from ....web.errors import ErrorBody
from ...call_options import Caller, CallOwner
from ...kits.placed_call import PlacedCall
from ...outgoing.states import OutgoingState
from .outgoing.dialer import TargetUnreachable
from .transfers import SipTransfers

if TYPE_CHECKING:
    from .server import SipCallServer


class SipCallRequest(BaseModel):
    """A call over SIP."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Literal["sip"]
    to: Annotated[
        str,
        Field(
            pattern=r"^[!-;=?-~]{1,200}$",
            description="A number, a registered user, or an address, `sip:bob@pbx.example.com`.",
        ),
    ]
    trunk: Annotated[
        str, Field(max_length=40, description="Name of a trunk; absent: the first, or that of the address.")
    ] = ""
    caller_id: Annotated[
        str,
        Field(pattern=r"^[+0-9A-Za-z_.*#-]{0,60}$", description="Number to show."),
    ] = ""
    ring_s: Annotated[float, Field(gt=0, le=300, description="Seconds until the call is given up.")] = 60.0
    detect_answer: Annotated[
        bool, Field(description="Tell whether a person, a machine or a fax answers (`answered_by`).")
    ] = False


class PlacedSipCall(BaseModel):
    """A call that is being made."""

    call: Annotated[str, Field(description="Id of the call, once it is answered.")]


class SipMissing(BadRequest):
    """SIP is off."""


async def place_call(server: "SipCallServer | None", wanted: SipCallRequest, grant: Grant) -> JSONResponse:
    """Call, and answer with the id.

    Raises SipMissing, NoWayOut, DestinationNotAllowed, DestinationRefused, RateLimited, Overloaded, OSError.
    """
    if server is None:
        raise SipMissing("over: got 'sip', but SIP is off; set sip.port or a trunk")
    grant.require_destination(wanted.to)
    call_id = str(uuid4())
    try:
        route = await server.dialer.route(wanted.to, wanted.trunk)
    except TargetUnreachable as error:
        return JSONResponse(ErrorBody(error=str(error)).model_dump(), 502)
    owner = CallOwner(grant.key_id)
    shown = Caller(wanted.caller_id or route.number, "", wanted.to)
    transfers = SipTransfers(server)
    call = server.dialer.place(
        server,
        route,
        call_id,
        shown=shown,
        transfers=transfers,
        ring_s=wanted.ring_s,
        owner=owner,
        grant=grant,
    )
    transfers.sip_call = call
    cancel = partial(call.hang_up, "cancelled")
    placed = PlacedCall(call_id, "sip", shown, cancel, owner, detects_answer=wanted.detect_answer)
    server.registry.outgoing.add(placed)

    def note_progress(status: int, description: bytes) -> None:
        placed.report(OutgoingState.EARLY_MEDIA if description else OutgoingState.RINGING, status)

    call.on_progress_seen = note_progress
    call.on_up = placed.take_answer
    call.on_failed = lambda status: placed.report_gone(status or None)
    return JSONResponse(PlacedSipCall(call=call_id).model_dump(), 202)
