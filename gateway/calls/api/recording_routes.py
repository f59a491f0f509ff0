"""The part of the calls API that records calls."""

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
        try:
            file = registry.get(call_id).call.record()
        except RecordingFailed as error:
            raise HTTPException(503, str(error)) from error
        return JSONResponse({"call": call_id, "file": file})

    @router.delete("/{call_id}/recording", **operations.END_RECORDING)
    async def end_recording(call_id: str) -> JSONResponse:
        file = registry.get(call_id).call.stop_recording()
        if not file:
            raise BadCallMessage("the call is not recorded")
        return JSONResponse({"call": call_id, "file": file})
