"""Calls that a program asks for: ``POST /v1/calls``, with the way in as ``over``.

rtp: a port is opened, and the answer says where the peer must send.
ari: Asterisk calls an endpoint; the call comes in under that id when it is answered.
"""

import ipaddress
from base64 import b64decode, b64encode
from secrets import token_bytes
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel, ValidationError

from ....adapters.rtp.codec import CODECS, TELEPHONE_EVENT
from ....adapters.rtp.connection import RtpOptions
from ....adapters.rtp.source_lock import Address
from ....adapters.rtp.srtp import SRTP_KEY_BYTES, SrtpKeys, SrtpSuite
from ....tts_engine.errors import BadRequest
from ...access.access_control import Grant
from ...access.dependencies import grant_of
from ...web.openapi.operations import json_body, json_response, operation
from ...web.request_body import with_bounded_body
from ...web.responses import ErrorBody, native_errors
from ..caller import CallOwner
from ..ways_in.ari.client import AriFailed
from ..ways_in.ari.controller import AriController
from ..ways_in.rtp.call_server import RtpCallServer
from .messages import describe_validation_error

_MAX_BODY_BYTES: Final = 64 * 1024


class BadCallRequest(BadRequest):
    """The body asks for no call that can be made."""


def _check_literal(value: str) -> str:
    """Raise ValueError for what Asterisk would not take as it is: line ends, functions, expressions."""
    if "${" in value or "$[" in value:
        raise ValueError("functions and expressions of the dial plan are not allowed")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in value):
        raise ValueError("control characters are not allowed")
    return value


class SrtpParameters(BaseModel):
    """How one side encrypts what it sends, as in the `crypto` attribute of RFC 4568."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: SrtpSuite = "AES_CM_128_HMAC_SHA1_80"
    key: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9+/]{40}$",
            description="Master key and salt, 30 bytes in base64, without `inline:`.",
        ),
    ]


class RtpCallRequest(BaseModel):
    """A call over RTP."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Literal["rtp"]
    codec: Annotated[
        Literal["ulaw", "alaw", "slin", "slin16"], Field(description="As Asterisk names it.")
    ] = "ulaw"
    peer: Annotated[
        str | None,
        Field(
            max_length=100,
            description="IP address and port to send to, `192.0.2.9:4000`; absent: the first that sends.",
        ),
    ] = None
    payload_type: Annotated[
        int | None, Field(ge=0, le=127, description="Of the audio, if it is not the codec's usual one.")
    ] = None
    dtmf_payload_type: Annotated[int, Field(ge=96, le=127, description="Of keys (RFC 4733).")] = (
        TELEPHONE_EVENT
    )
    srtp: Annotated[
        SrtpParameters | None, Field(description="Of the peer; absent: packets are not encrypted.")
    ] = None


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


class RtpCallPlace(BaseModel):
    """Where an RTP call is."""

    call: Annotated[str, Field(description="Id of the call.")]
    address: Annotated[str, Field(description="IP address to send RTP to.")]
    port: Annotated[int, Field(description="UDP port of RTP; RTCP goes to the next one.")]
    codec: str
    payload_type: int
    srtp: Annotated[
        SrtpParameters | None, Field(description="Of the gateway, if the request has those of the peer.")
    ] = None


class PlacedCallRequest(RootModel[RtpCallRequest | AriCallRequest]):
    """A call to make."""

    root: Annotated[RtpCallRequest | AriCallRequest, Field(discriminator="over")]


PLACE_CALL: Final = operation(
    "placeCall",
    "Open a call over RTP, or have Asterisk call an endpoint.",
    json_response(RtpCallPlace, 201, "The call over RTP is up."),
    json_response(OriginatedCall, 202, "Asterisk calls the endpoint."),
    native_errors(
        {400: "The body is wrong, or no Asterisk is configured."},
        {429: "The key has exceeded a limit."},
        {502: "Asterisk refused the call, or does not answer."},
        {503: "The server is at capacity, without a free port, or shutting down."},
    ),
    body=json_body(PlacedCallRequest),
)


def routes(rtp: RtpCallServer, ari: AriController | None) -> APIRouter:
    """Return the routes, to be mounted behind access control.

    ari: makes calls; None: there is no Asterisk.
    """
    router = APIRouter(prefix="/v1/calls")

    @router.post("", **PLACE_CALL)
    async def place_call(request: Request) -> JSONResponse:
        wanted, grant = await _read(request), grant_of(request)
        grant.charge_request()
        if isinstance(wanted, RtpCallRequest):
            place = _place_rtp_call(rtp, wanted, grant)
            return JSONResponse(place.model_dump(mode="json", exclude_none=True), 201)
        if ari is None:
            raise AriMissing("over: got 'ari', but no Asterisk is configured; set ari_url")
        grant.require_destination(wanted.endpoint)
        try:
            call_id = await ari.originate(
                wanted.endpoint, caller_id=wanted.caller_id, variables=wanted.variables, grant=grant
            )
        except AriFailed as error:
            return JSONResponse(ErrorBody(error=str(error)).model_dump(), 502)
        return JSONResponse(OriginatedCall(call=call_id).model_dump(), 202)

    return router


async def _read(request: Request) -> RtpCallRequest | AriCallRequest:
    too_long = BadCallRequest(f"the body has more than {_MAX_BODY_BYTES} bytes")
    body = await with_bounded_body(request, _MAX_BODY_BYTES, too_long).body()
    try:
        return PlacedCallRequest.model_validate_json(body).root
    except ValidationError as error:
        raise BadCallRequest(describe_validation_error(error, "body")) from None


def _place_rtp_call(rtp: RtpCallServer, wanted: RtpCallRequest, grant: Grant) -> RtpCallPlace:
    grant.require_destination(f"RTP/{wanted.peer or ''}")
    codec = CODECS[wanted.codec]
    if wanted.payload_type is not None:
        codec = codec.with_payload_type(wanted.payload_type)
    peer = None if wanted.peer is None else _parse_address(wanted.peer)
    reservation = rtp.reserve(wanted.peer or "unknown", owner=CallOwner(grant.key_id), grant=grant)
    host, port = reservation.address
    keys = None if wanted.srtp is None else _make_keys(wanted.srtp)
    call = rtp.open(reservation, RtpOptions(codec, peer, wanted.dtmf_payload_type, keys))
    return RtpCallPlace(
        call=call.call_id,
        address=host,
        port=port,
        codec=codec.name,
        payload_type=codec.payload_type,
        srtp=None if keys is None else SrtpParameters(suite=keys.suite, key=b64encode(keys.local).decode()),
    )


def _make_keys(peer: SrtpParameters) -> SrtpKeys:
    return SrtpKeys(peer.suite, local=token_bytes(SRTP_KEY_BYTES), remote=b64decode(peer.key))


def _parse_address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        address = None
    if address is None or not port.isdecimal() or not 0 < int(port) < 65_535:
        raise BadCallRequest(f"peer: got {text!r}; allowed is an IP address with a port, 192.0.2.9:4000")
    return str(address), int(port)
