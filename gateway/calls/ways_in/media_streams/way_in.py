"""The media streams of carriers and of FreeSWITCH as a way in, and their routes.

    WS    /v1/media-streams/{carrier}                   a carrier connects
    WS    /v1/media-streams/{carrier}/{token}           the same with a ticket, or the token of the settings
    POST  /v1/media-streams/{carrier}/answer            a carrier's webhook of a call; GET too
    POST  /v1/media-streams/{carrier}/{token}/answer    the same with the token of the settings; GET too

Carriers: twilio, telnyx, plivo, vonage, exotel, jambonz, which the answer of a webhook makes connect; and the
modules mod_audio_fork and mod_audio_stream of FreeSWITCH, which have no webhook.
"""

import json
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, WebSocket
from fastapi.responses import Response

from .....tts_engine.errors import BadRequest
from ....web.app import Mount
from ....web.client_json import read_body
from ....web.errors import ResourceNotFound, native_errors
from ....web.openapi.operations import content_response, operation
from ...kits.message_socket import accept_later, peer_of
from ...kits.websocket_calls import WebSocketCalls, open_websocket_calls
from ...kits.websocket_leg import WebSocketCallOptions
from ..way_in import CallHost, OpenWayIn, WayIn
from .carrier_access import CarrierAccess, Form
from .carriers import CARRIERS, Carrier

MEDIA_STREAMS_PATH: Final = "/v1/media-streams"
_MAX_WEBHOOK_BYTES: Final = 64 * 1024


def media_stream_routes(calls: WebSocketCalls, access: CarrierAccess) -> APIRouter:
    """Return the routes of carriers, which authenticate requests themselves."""
    router = APIRouter(prefix=MEDIA_STREAMS_PATH)

    @router.websocket("/{carrier_name}")
    @router.websocket("/{carrier_name}/{token}")
    async def stream(socket: WebSocket, carrier_name: str, token: str = "") -> None:
        carrier = _carrier_named(carrier_name)
        caller = access.authorize_stream(carrier, token, socket)
        await calls.serve(
            carrier.name,
            carrier.make_connection(dict(socket.query_params)),
            accept_later(socket, carrier.subprotocols),
            peer=peer_of(socket),
            options=WebSocketCallOptions(caller),
        )

    async def answer(request: Request, carrier_name: str, token: str = "") -> Response:
        carrier = _carrier_named(carrier_name)
        if carrier.answer is None:
            raise ResourceNotFound(f"{carrier.name} has no webhook")
        form, parameters = await _read_parameters(request, takes_json=not access.is_signed(carrier))
        signature = access.authorize(carrier, token, request, form)
        ticket = access.tickets.issue(carrier, carrier.fields.caller(parameters), signature)
        base = "ws" + access.public_url(request).removeprefix("http")
        document = carrier.answer(f"{base}{MEDIA_STREAMS_PATH}/{carrier.name}/{ticket}")
        return Response(document.body, media_type=document.content_type)

    for path, operations in (
        ("/{carrier_name}/answer", ANSWER),
        ("/{carrier_name}/{token}/answer", ANSWER_WITH_TOKEN),
    ):
        for method, described in operations.items():
            router.add_api_route(path, answer, methods=[method], **described)
    return router


def _carrier_named(name: str) -> Carrier:
    carrier = CARRIERS.get(name)
    if carrier is None:
        raise ResourceNotFound(f"no carrier {name[:40]!r}; there are {', '.join(CARRIERS)}")
    return carrier


async def _read_parameters(request: Request, *, takes_json: bool) -> tuple[Form, dict[str, str]]:
    """Return the parameters of a form body, and those of the URL and of a body of any kind."""
    body = await read_body(request, _MAX_WEBHOOK_BYTES, BadRequest)
    parameters = dict(request.query_params)
    if request.headers.get("content-type", "").startswith("application/json"):
        if not takes_json:
            raise BadRequest("the body is JSON, which the signature does not cover; allowed is a form")
        return {}, parameters | _texts_of_json(body)
    form = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
    return form, parameters | {name: values[0] for name, values in form.items()}


def _texts_of_json(body: bytes) -> dict[str, str]:
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is not JSON") from None
    fields = parsed if isinstance(parsed, dict) else {}
    return {name: value for name, value in fields.items() if isinstance(value, str)}


_ERRORS: Final = native_errors({404: "No such carrier."})


def _webhook(operation_id: str) -> dict[str, Any]:
    return operation(
        operation_id,
        "Answer a carrier's webhook with the document that connects the call.",
        content_response("TwiML, TeXML, Plivo's XML.", "application/xml", "application/json"),
        _ERRORS,
        description="The request is authenticated by the carrier's signature, the token in the URL or a key.",
        public=True,
    )


ANSWER: Final = {"POST": _webhook("answerCarrier"), "GET": _webhook("answerCarrierGet")}
ANSWER_WITH_TOKEN: Final = {
    "POST": _webhook("answerCarrierWithToken"),
    "GET": _webhook("answerCarrierWithTokenGet"),
}


async def _open(host: CallHost) -> OpenWayIn:
    settings = host.settings
    tokens: dict[str, str] = {
        name: token.get_secret_value() for name, token in settings.media_streams.tokens.items()
    }
    access = CarrierAccess(tokens, settings.http.public_url or "", host.access)
    calls = open_websocket_calls(host)
    return OpenWayIn(calls, mounts=(Mount(media_stream_routes(calls, access), None, tag="Carriers"),))


MEDIA_STREAMS = WayIn("media_streams", _open)
