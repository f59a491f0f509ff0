"""The request with which a telephone system announces a call: JSON, or a form as CURL() of Asterisk sends."""

from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl
from uuid import UUID

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ....tts_engine.errors import BadRequest
from ...web.client_json import with_bounded_body
from ..call_options import Caller
from ..transfers import RefusedTransferAction
from .messages import (
    IfRefused,
    OptionalAttendedOptions,
    ResultText,
    TransferTarget,
    describe_validation_error,
)

MAX_BODY_BYTES: Final = 64 * 1024
FORM: Final = "application/x-www-form-urlencoded"

_Text = Annotated[str, Field(max_length=1000)]

Order = TypeVar("Order", bound=BaseModel)


class BadAnnouncement(BadRequest):
    """The body does not announce a call, or order a transfer."""


class CallAnnouncement(BaseModel):
    """A call that will come in. In a form, fields of other names are variables."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    call: Annotated[UUID | None, Field(description="Id of the call; a new one if absent.")] = None
    number: Annotated[_Text, Field(description="Number of the caller.", examples=["+15550100"])] = ""
    name: Annotated[_Text, Field(description="Name of the caller.")] = ""
    called: Annotated[_Text, Field(description="Number or extension that was called.")] = ""
    agent: Annotated[str | None, Field(description="Name in the setting `agents`.")] = None
    variables: Annotated[dict[str, _Text], Field(max_length=100, description="For the program.")] = {}
    expires_s: Annotated[
        float, Field(ge=1, le=3600, allow_inf_nan=False, description="Seconds for which it is expected.")
    ] = 60.0

    @property
    def caller(self) -> Caller:
        """Who will call."""
        return Caller(self.number, self.name, self.called, self.variables)


class TransferOrder(BaseModel):
    """Where to transfer a caller."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: TransferTarget
    result: ResultText = ""
    attended: OptionalAttendedOptions = None
    if_refused: IfRefused = RefusedTransferAction.KEEP


def is_form(request: Request) -> bool:
    """Return whether the body of a request is a form."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower() == FORM


async def read_announcement(request: Request) -> CallAnnouncement:
    """Read and check the body of a request; raises BadAnnouncement."""
    too_long = BadAnnouncement(f"the body has more than {MAX_BODY_BYTES} bytes")
    body = await with_bounded_body(request, MAX_BODY_BYTES, too_long).body()
    try:
        if is_form(request):
            return CallAnnouncement.model_validate(_form_fields(body))
        return CallAnnouncement.model_validate_json(body)
    except ValidationError as error:
        raise BadAnnouncement(describe_validation_error(error, "body")) from None


async def read_order(request: Request, model: type[Order]) -> Order:
    """Read and check the body of a request about a call; raises BadAnnouncement."""
    too_long = BadAnnouncement(f"the body has more than {MAX_BODY_BYTES} bytes")
    body = await with_bounded_body(request, MAX_BODY_BYTES, too_long).body()
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise BadAnnouncement(describe_validation_error(error, "body")) from None


def _form_fields(body: bytes) -> dict[str, Any]:
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200))
    except ValueError as error:
        raise BadAnnouncement(f"the form cannot be parsed: {error}") from None
    declared = CallAnnouncement.model_fields.keys() - {"variables"}
    # An empty field is an empty variable of the dial plan.
    fields: dict[str, Any] = {name: value for name, value in form.items() if name in declared and value}
    return {**fields, "variables": {name: value for name, value in form.items() if name not in declared}}
