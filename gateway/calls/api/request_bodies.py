"""Bodies of requests about calls: JSON, or to announce a call also a form, as CURL() of Asterisk sends it."""

from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....tts_engine.errors import BadRequest
from ...web.client_json import with_bounded_body
from ..call_options import Caller
from .messages import describe_validation_error

MAX_BODY_BYTES: Final = 64 * 1024
FORM: Final = "application/x-www-form-urlencoded"

_Text = Annotated[str, Field(max_length=1000)]

Order = TypeVar("Order", bound=BaseModel)


class BadCallRequest(BadRequest):
    """The body of a request about a call is wrong, or asks for what cannot be done."""


class CallAnnouncement(BaseModel):
    """A call that will come in. In a form, fields of other names are variables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    call: UUID | None = Field(default=None, description="Id of the call; a new one if absent.")
    number: _Text = Field(default="", description="Number of the caller.", examples=["+15550100"])
    name: _Text = Field(default="", description="Name of the caller.")
    called: _Text = Field(default="", description="Number or extension that was called.")
    agent: str | None = Field(default=None, description="Name in the setting `agents`.")
    variables: dict[str, _Text] = Field(default={}, max_length=100, description="For the program.")
    expires_s: float = Field(
        default=60.0, ge=1, le=3600, allow_inf_nan=False, description="Seconds for which it is expected."
    )

    @property
    def caller(self) -> Caller:
        """Who will call."""
        return Caller(self.number, self.name, self.called, self.variables)


def is_form(request: Request) -> bool:
    """Return whether the body of a request is a form."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


async def read_announcement(request: Request) -> CallAnnouncement:
    """Read and check the body of a request; raises BadCallRequest."""
    if not is_form(request):
        return await read_order(request, CallAnnouncement)
    fields = _form_fields(await _read_body(request))
    return _checked(lambda: CallAnnouncement.model_validate(fields))


async def read_order(request: Request, model: type[Order]) -> Order:
    """Read and check the JSON of a request about a call; raises BadCallRequest."""
    body = await _read_body(request)
    return _checked(lambda: model.model_validate_json(body))


async def _read_body(request: Request) -> bytes:
    too_long = BadCallRequest(f"the body has more than {MAX_BODY_BYTES} bytes")
    return await with_bounded_body(request, MAX_BODY_BYTES, too_long).body()


def _checked(validate: Callable[[], Order]) -> Order:
    try:
        return validate()
    except ValidationError as error:
        raise BadCallRequest(describe_validation_error(error, "body")) from None


def _form_fields(body: bytes) -> dict[str, Any]:
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200))
    except ValueError as error:
        raise BadCallRequest(f"the form cannot be parsed: {error}") from None
    declared = CallAnnouncement.model_fields.keys() - {"variables"}
    # An empty field is an empty variable of the dial plan.
    fields: dict[str, Any] = {name: value for name, value in form.items() if name in declared and value}
    return {**fields, "variables": {name: value for name, value in form.items() if name not in declared}}
