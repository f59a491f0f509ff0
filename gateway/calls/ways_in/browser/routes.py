"""HTTP routes of browser calls: the page, the signalling, and Pipecat's own page.

    GET   /call                          the page of calls; its files are under /call
    POST  /api/offer                     {sdp, type, pc_id?, restart_pc?} -> {sdp, type, pc_id}
    PATCH /api/offer                     {pc_id, candidates: [{candidate, sdp_mid, sdp_mline_index}]}
    DELETE /api/offer                    {pc_id}: hang up, also before the connection is up
    POST  /start                         -> {sessionId, iceConfig?}; both above also in /sessions/{id}
    GET   /status                        transports and voices
    GET   /client                        Pipecat's own page, if pipecat-ai-prebuilt is installed

The signalling is that of Pipecat's SmallWebRTC transport, so that its clients connect as they do to a bot.

Source: pipecat-ai 1.14.0, runner/run.py and transports/smallwebrtc/request_handler.py.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from pydantic import TypeAdapter, ValidationError
from starlette.staticfiles import StaticFiles

from ....access.access_control import AccessControl
from ....access.dependencies import grant_of
from ....access.keys import Scope
from ....page.routes import CALL_PATH, PageFiles
from ...api.descriptions import describe_voices
from ...api.messages import describe_validation_error
from . import api_operations
from .calls import BrowserCalls
from .offers import BrowserHangUp, Candidates, Offer

T = TypeVar("T")

PAGE_DIRECTORY = Path(__file__).parent / "page"
_MAX_BODY_BYTES = 128 * 1024  # of an offer of maximal length, every character escaped
_OFFER = TypeAdapter(Offer)
_CANDIDATES = TypeAdapter(Candidates)
_HANG_UP = TypeAdapter(BrowserHangUp)


def routes(calls: BrowserCalls) -> APIRouter:
    """Return the routes of browser calls and their page, to be mounted behind access control."""
    router = APIRouter()

    @router.post("/api/offer", **api_operations.OFFER)
    async def offer(request: Request) -> JSONResponse:
        return await _take_offer(calls, request)

    @router.patch("/api/offer", **api_operations.TRICKLE)
    async def candidates(request: Request) -> JSONResponse:
        return await _take_candidates(calls, request)

    @router.delete("/api/offer", **api_operations.HANG_UP)
    async def hang_up(request: Request) -> JSONResponse:
        calls.hang_up(_validated(_HANG_UP, await _json(request)).pc_id, grant_of(request))
        return JSONResponse({"status": "success"})

    @router.get("/status", **api_operations.STATUS)
    async def status(request: Request) -> JSONResponse:
        voices = [voice.fields() for voice in describe_voices(calls.voices.for_grant(grant_of(request)))]
        return JSONResponse({"status": "ready", "transports": ["webrtc"], "voices": voices})

    @router.post("/start", **api_operations.START)
    async def start(request: Request) -> JSONResponse:
        transport = _transport(await _json(request))
        if transport != "webrtc":
            raise HTTPException(400, f"transport {transport!r}; only 'webrtc' can be started here")
        session: dict[str, object] = {"sessionId": calls.issue_session_id(grant_of(request))}
        if servers := calls.settings.dated_ice_servers():
            session["iceConfig"] = {"iceServers": [server.fields() for server in servers]}
        return JSONResponse(session, headers={"Cache-Control": "no-store"})  # it may contain a credential

    @router.post("/sessions/{session_id}/api/offer", **api_operations.OFFER_IN_SESSION)
    async def session_offer(session_id: str, request: Request) -> JSONResponse:
        _check_started(calls, session_id, request)
        return await _take_offer(calls, request)

    @router.patch("/sessions/{session_id}/api/offer", **api_operations.TRICKLE_IN_SESSION)
    async def session_candidates(session_id: str, request: Request) -> JSONResponse:
        _check_started(calls, session_id, request)
        return await _take_candidates(calls, request)

    _add_pipecat_client(router)
    return router


def page_routes(access: AccessControl) -> APIRouter:
    """Return the routes of the page of calls, which send a key that may not call to the tab Speak."""
    router = APIRouter()
    files = PageFiles(PAGE_DIRECTORY)

    def may_call(request: Request) -> bool:
        return access.grant(request.headers).allows(Scope.PAGE)

    @router.get(CALL_PATH, **api_operations.PAGE)
    async def page(request: Request) -> Response:
        return await files.page("call.html", request, access) if may_call(request) else RedirectResponse("/")

    @router.get(f"{CALL_PATH}/{{name}}", **api_operations.PAGE_FILE)
    async def page_file(name: str, request: Request) -> Response:
        return await files.response(name, request) if may_call(request) else RedirectResponse("/")

    return router


def _add_pipecat_client(router: APIRouter) -> None:
    found = find_spec("pipecat_ai_prebuilt")
    if found is None or found.origin is None:
        return
    files = StaticFiles(directory=Path(found.origin).parent / "client" / "dist")

    @router.get("/client", include_in_schema=False)
    async def client() -> RedirectResponse:
        return RedirectResponse("/client/")

    @router.get("/client/{path:path}", include_in_schema=False)
    async def client_file(path: str, request: Request) -> Response:
        return await files.get_response(path or "index.html", request.scope)


async def _take_offer(calls: BrowserCalls, request: Request) -> JSONResponse:
    offer = _validated(_OFFER, await _json(request))
    return JSONResponse(await calls.accept_offer(offer, _peer_name(request), grant_of(request)))


async def _take_candidates(calls: BrowserCalls, request: Request) -> JSONResponse:
    await calls.add_candidates(_validated(_CANDIDATES, await _json(request)), grant_of(request))
    return JSONResponse({"status": "success"})


async def _json(request: Request) -> object:
    # A page of another origin can make a browser post here, but only after CORS with this content type.
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(415, "the body must be application/json")
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            raise HTTPException(413, f"more than {_MAX_BODY_BYTES} bytes")
    try:
        return json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None


def _validated(adapter: TypeAdapter[T], data: object) -> T:
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        raise HTTPException(422, describe_validation_error(error, "body")) from None


def _transport(body: object) -> str:
    return str(body.get("transport") or "webrtc") if isinstance(body, dict) else "webrtc"


def _check_started(calls: BrowserCalls, session_id: str, request: Request) -> None:
    if not calls.is_session_id(session_id, grant_of(request)):
        raise HTTPException(404, "no such session; POST /start begins one")


def _peer_name(request: Request) -> str:
    return f"{request.client.host}:{request.client.port}" if request.client else "?"
