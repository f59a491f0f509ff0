"""Request bodies and forms of OpenAI's API read into models; a long body is parsed on a thread."""

import asyncio
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from ....web.client_json import with_bounded_body
from ...kits.error_table import RequestBodyTooLong
from ...kits.openai.errors import InvalidRequestError
from ...kits.openai.request_parsing import parse_json_object, validate, validate_texts
from .extension_models import CaptionedSpeechRequest
from .models import (
    MAX_BODY_BYTES,
    CreateSpeechRequest,
    CreateVoiceForm,
    RenameVoiceRequest,
    TranscriptionForm,
)

M = TypeVar("M", bound=BaseModel)

_THREAD_PARSING_BYTES: Final = 2**18  # above this, parsing would hold up the event loop for milliseconds
_MAX_RECORDINGS: Final = 16  # of one voice
_MAX_FORM_FIELDS: Final = 20  # the form has six; clients may send others
_MAX_FORM_FIELD_BYTES: Final = 64 * 1024  # of a text; the file is bounded by the body


async def read_speech_request(request: Request, max_text_characters: int) -> CreateSpeechRequest:
    """Read and parse the body of a speech request; a long body is parsed on a thread.

    Raises InvalidRequestError, or RequestBodyTooLong before the whole of an excessive body is read.
    """
    return await _read(request, CreateSpeechRequest, max_text_characters)


async def read_captioned_speech_request(request: Request, max_text_characters: int) -> CaptionedSpeechRequest:
    """Read and parse the body of a request for speech with word times, as ``read_speech_request``."""
    return await _read(request, CaptionedSpeechRequest, max_text_characters)


def read_speech_query(request: Request, max_text_characters: int) -> CreateSpeechRequest:
    """Parse the query of a speech request; raises InvalidRequestError."""
    context = {"max_text_characters": max_text_characters}
    return validate_texts(CreateSpeechRequest, request.query_params, context)


def parse_speech_request(body: bytes, max_text_characters: int) -> CreateSpeechRequest:
    """Parse the body of a speech request; raises InvalidRequestError."""
    return _parse(CreateSpeechRequest, body, max_text_characters)


async def read_voice_name(request: Request) -> str:
    """Read the new name of a voice. Raises InvalidRequestError, RequestBodyTooLong."""
    return validate(RenameVoiceRequest, parse_json_object(await _bounded(request).body())).name


async def read_voice_form(request: Request) -> tuple[CreateVoiceForm, list[bytes]]:
    """Read the form of a new voice; returns it with the bytes of each ``audio_sample``, one or more.

    Raises InvalidRequestError, RequestBodyTooLong.
    """
    form = _bounded(request).form(
        max_files=_MAX_RECORDINGS, max_fields=_MAX_FORM_FIELDS, max_part_size=_MAX_FORM_FIELD_BYTES
    )
    try:
        async with form as fields:
            parsed = validate(CreateVoiceForm, dict(fields))
            samples = [each for each in fields.getlist("audio_sample") if isinstance(each, UploadFile)]
            return parsed, [await each.read() for each in samples]
    except HTTPException as error:
        raise InvalidRequestError(f"the form cannot be read: {error.detail}") from None


async def read_transcription_form(request: Request) -> bytes:
    """Read the form of a recording to write down; returns the file. Raises as ``read_voice_form``."""
    form = _bounded(request).form(
        max_files=1, max_fields=_MAX_FORM_FIELDS, max_part_size=_MAX_FORM_FIELD_BYTES
    )
    try:
        async with form as fields:
            return await validate(TranscriptionForm, {"file": None} | dict(fields)).file.read()
    except HTTPException as error:
        raise InvalidRequestError(f"the form cannot be read: {error.detail}") from None


async def _read(request: Request, model: type[M], max_text_characters: int) -> M:
    body = await _bounded(request).body()
    if len(body) > _THREAD_PARSING_BYTES:
        return await asyncio.to_thread(_parse, model, body, max_text_characters)
    return _parse(model, body, max_text_characters)


def _parse(model: type[M], body: bytes, max_text_characters: int) -> M:
    return validate(model, parse_json_object(body), {"max_text_characters": max_text_characters})


def _bounded(request: Request) -> Request:
    problem = f"the body has more than the {MAX_BODY_BYTES:,} bytes that are allowed"
    return with_bounded_body(request, MAX_BODY_BYTES, RequestBodyTooLong(problem))
