"""The part of the calls API that records calls."""

import asyncio

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse

from ..recordings import RecordingFailed
from ..registry import CallRegistry
from . import operations
from .key_calls import KeyCalls
from .messages import BadCallMessage


def add_recording_routes(router: APIRouter, registry: CallRegistry) -> None:
    """Add the routes to the router of the calls API."""

    @router.post("/{call_id}/recording", **operations.BEGIN_RECORDING)
    async def begin_recording(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        file = await _name_of_file(calls.record(calls.get(call_id)))
        return JSONResponse({"call": call_id, "file": file})

    @router.delete("/{call_id}/recording", **operations.END_RECORDING)
    async def end_recording(call_id: str, request: Request) -> JSONResponse:
        calls = KeyCalls.of(registry, request)
        file = await _name_of_file(calls.stop_recording(calls.get(call_id)))
        if not file:
            raise BadCallMessage("the call is not recorded")
        return JSONResponse({"call": call_id, "file": file})


async def _name_of_file(opened: "asyncio.Future[str]") -> str:
    try:
        return await asyncio.shield(opened)  # others may wait for it too
    except RecordingFailed as error:
        raise HTTPException(503, str(error)) from error
