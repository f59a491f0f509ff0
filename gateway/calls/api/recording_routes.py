"""The part of the calls API that records calls."""

import asyncio

from fastapi import APIRouter, HTTPException
from fastapi.responses import JSONResponse

from ..recordings import RecordingFailed
from ..registry import CallRegistry
from . import operations
from .messages import BadCallMessage


def add_recording_routes(router: APIRouter, registry: CallRegistry) -> None:
    """Add the routes to the router of the calls API."""

    @router.post("/{call_id}/recording", **operations.BEGIN_RECORDING)
    async def begin_recording(call_id: str) -> JSONResponse:
        file = await _name_of_file(registry.get(call_id).call.record())
        return JSONResponse({"call": call_id, "file": file})

    @router.delete("/{call_id}/recording", **operations.END_RECORDING)
    async def end_recording(call_id: str) -> JSONResponse:
        file = await _name_of_file(registry.get(call_id).call.stop_recording())
        if not file:
            raise BadCallMessage("the call is not recorded")
        return JSONResponse({"call": call_id, "file": file})


async def _name_of_file(opened: "asyncio.Future[str]") -> str:
    try:
        return await asyncio.shield(opened)  # others may wait for it too
    except RecordingFailed as error:
        raise HTTPException(503, str(error)) from error
