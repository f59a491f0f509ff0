"""OpenAPI descriptions of the browser's routes, and the models of their answers."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, Field

from ....page.routes import OTHER_TAB
from ....web.errors import Status, native_errors
from ....web.openapi.operations import content_response, json_body, json_response, links, operation
from ...api.messages import VoiceDescription
from .offers import BrowserHangUp, Candidates, Offer

_BAD_BODY: Final = {400: "The body is unusable.", 413: "The body is too long.", 415: "The body is not JSON."}
_INVALID_FIELD: Final = {422: "A field is invalid."}
_NO_CALL: Final = {404: "No such call is up."}
_NO_SESSION: Final = {404: "No such session was started."}


class Answer(BaseModel):
    """The server's answer to a WebRTC offer."""

    sdp: str
    type: Literal["answer"]
    pc_id: Annotated[str, Field(description="Id of the connection, which is the id of its call.")]


class StartRequest(BaseModel):
    """What a client wants to start."""

    transport: Annotated[str, Field(examples=["webrtc"])] = "webrtc"


class BrowserIceServer(BaseModel):
    """A STUN or TURN server, as RTCPeerConnection takes it."""

    urls: list[str]
    username: str | None = None
    credential: str | None = None


class BrowserIceConfig(BaseModel):
    """The setting ``browser.ice_servers``."""

    iceServers: list[BrowserIceServer]


class StartedSession(BaseModel):
    """A session that has been started."""

    sessionId: str
    iceConfig: Annotated[
        BrowserIceConfig | None, Field(description="For RTCPeerConnection; absent if none is needed.")
    ] = None


class Startable(BaseModel):
    """What a browser can start."""

    status: Literal["ready"]
    transports: list[str]
    voices: list[VoiceDescription]


def _offer(operation_id: str, place: str, *errors: dict[int, str]) -> dict[str, Any]:
    return operation(
        operation_id,
        f"Call from a browser{place}: a WebRTC offer for an answer.",
        json_response(Answer),
        native_errors(
            _BAD_BODY,
            _INVALID_FIELD,
            {429: "The key has exceeded a limit."},
            {503: "The server is at capacity."},
            *errors,
        ),
        body=json_body(Offer),
    )


def _trickle(operation_id: str, place: str, errors: dict[int, str]) -> dict[str, Any]:
    return operation(
        operation_id,
        f"Add ICE candidates to a call{place}.",
        json_response(Status),
        native_errors(_BAD_BODY, _INVALID_FIELD, errors),
        body=json_body(Candidates),
    )


OFFER: Final = _offer("offer", "")
TRICKLE: Final = _trickle("trickle", "", _NO_CALL)
HANG_UP: Final = operation(
    "hangUpBrowser",
    "End a call from a browser, also one that is not connected yet.",
    json_response(Status),
    native_errors(_BAD_BODY, _INVALID_FIELD, _NO_CALL),
    body=json_body(BrowserHangUp),
)
OFFER_IN_SESSION: Final = _offer("offerInSession", " in a session", _NO_SESSION)
TRICKLE_IN_SESSION: Final = _trickle("trickleInSession", " in a session", _NO_SESSION)
PAGE: Final = operation(
    "callPage",
    "The page of calls.",
    content_response("HTML", "text/html"),
    OTHER_TAB,
    native_errors(),
)
PAGE_FILE: Final = operation(
    "callPageFile",
    "A file of the page of calls.",
    content_response("The file.", "text/javascript", "text/css", "text/html"),
    OTHER_TAB,
    native_errors({404: "No such file."}),
)
STATUS: Final = operation("startable", "What a browser can start.", json_response(Startable), native_errors())
START: Final = operation(
    "start",
    "Start a session, as Pipecat's clients do.",
    json_response(
        StartedSession,
        links=links("session_id", "/sessionId", "offerInSession", "trickleInSession"),
    ),
    native_errors(_BAD_BODY),
    body=json_body(StartRequest),
)
