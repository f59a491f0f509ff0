"""Calls over RTP that a program asks for: a port is opened, and the answer says where the peer must send."""

import ipaddress
from base64 import b64decode, b64encode
from secrets import token_bytes
from typing import Annotated, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from .....adapters.rtp.codec import CODECS, TELEPHONE_EVENT
from .....adapters.rtp.connection import RtpOptions
from .....adapters.rtp.source_lock import Address
from .....adapters.rtp.srtp import SRTP_KEY_BYTES, SrtpKeys, SrtpSuite
from ....access.access_control import Grant
from ...api.request_bodies import BadCallRequest
from ...call_options import CallOwner
from ...kits.rtp_calls import RtpCallServer


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


async def place_call(rtp: RtpCallServer, wanted: RtpCallRequest, grant: Grant) -> JSONResponse:
    """Open a call, and answer with its place; raises BadCallRequest, Overloaded, RateLimited, OSError."""
    grant.require_destination(f"RTP/{wanted.peer or ''}")
    codec = CODECS[wanted.codec]
    if wanted.payload_type is not None:
        codec = codec.with_payload_type(wanted.payload_type)
    peer = None if wanted.peer is None else _parse_address(wanted.peer)
    reservation = rtp.reserve(wanted.peer or "unknown", owner=CallOwner(grant.key_id), grant=grant)
    host, port = reservation.address
    keys = None if wanted.srtp is None else _make_keys(wanted.srtp)
    call = rtp.open(reservation, RtpOptions(codec, peer, wanted.dtmf_payload_type, keys))
    place = RtpCallPlace(
        call=call.call_id,
        address=host,
        port=port,
        codec=codec.name,
        payload_type=codec.payload_type,
        srtp=None if keys is None else SrtpParameters(suite=keys.suite, key=b64encode(keys.local).decode()),
    )
    return JSONResponse(place.model_dump(mode="json", exclude_none=True), 201)


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
