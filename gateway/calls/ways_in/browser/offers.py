"""Bodies of the signalling requests that open a browser call.

Source: pipecat-ai 1.14.0, transports/smallwebrtc/request_handler.py.
"""

from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field


class Offer(BaseModel):
    """A browser's offer, as SmallWebRTC clients post it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sdp: Annotated[
        str, Field(min_length=0, examples=["v=0\r\n..."])
    ]  # without any limit, pydantic does not look for lone surrogates
    type: Literal["offer"]
    pc_id: Annotated[str, Field(max_length=64)] | None = None
    restart_pc: bool | None = None
    request_data: Any = Field(None, validation_alias=AliasChoices("request_data", "requestData"))
    skip_greeting: Annotated[
        bool,
        Field(description="Begin without greeting, script or menu, because text of the caller follows."),
    ] = False


class BrowserHangUp(BaseModel):
    """The end of a connection, also of one that is not up yet and has no data channel."""

    pc_id: Annotated[str, Field(max_length=64, examples=["PC_ID"])]


class Candidate(BaseModel):
    """One trickled ICE candidate; "" is the last."""

    candidate: Annotated[str, Field(examples=["candidate:1 1 udp 2113937151 192.0.2.7 54321 typ host"])]
    sdp_mid: str | None = None
    sdp_mline_index: Annotated[int, Field(ge=0, le=64)] | None = None


class Candidates(BaseModel):
    """Trickled candidates of one connection."""

    pc_id: Annotated[str, Field(max_length=64, examples=["PC_ID"])]
    candidates: Annotated[list[Candidate], Field(max_length=256)]
