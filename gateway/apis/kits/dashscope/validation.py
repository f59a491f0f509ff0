"""Validation of DashScope's messages: the base model, and one DashScope sentence for each invalid field.

DashScope's clients show ``message`` to a person, so every field of ``models.py`` and ``frames.py`` names the
sentence of its refusal with ``explained``. Pydantic's own texts never reach a client.
"""

import math
from typing import Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from ....web.client_json import replace_lone_surrogates
from .errors import InvalidDashScopeField

INVALID_FIELD = "invalid_field"  # pydantic error type whose text is a sentence for the client
FRACTION = "fraction"  # pydantic error type: a number that must be whole is not

MessageT = TypeVar("MessageT", bound="DashScopeMessage")


class DashScopeMessage(BaseModel):
    """Base of DashScope's request objects.

    Unknown fields are ignored, as DashScope ignores them. ``null`` is the same as an absent field.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _read_null_as_absent(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        given = {name: _readable(data[name]) for name in cls.model_fields if data.get(name) is not None}
        # A required field is always passed on, as None if need be: its own sentence then refuses it.
        required = [name for name, field in cls.model_fields.items() if field.is_required()]
        return {**dict.fromkeys(required), **given}


def explained(wrong: str, **sentences: str) -> WrapValidator:
    """Replace pydantic's error of a field by a sentence.

    ``wrong`` is the sentence for any error; a keyword names one for the pydantic error type of that name, and
    ``missing`` one for an absent, null or empty value. A sentence may contain ``{length}``, the length of the
    string that was got.
    """

    def validate(value: object, handler: ValidatorFunctionWrapHandler) -> object:
        try:
            return handler(value)
        except ValidationError as error:
            kind = error.errors()[0]["type"]
            if kind == INVALID_FIELD:
                raise
            kind = "missing" if value is None or value == "" else kind
            length = len(value) if isinstance(value, str) else 0
            raise PydanticCustomError(
                INVALID_FIELD,
                sentences.get(kind, wrong),
                {"length": length},
            ) from None

    return WrapValidator(validate)


def refused(sentence: str) -> PydanticCustomError:
    """Return the error that a field's own validator raises to show ``sentence`` as it is."""
    return PydanticCustomError(INVALID_FIELD, "{sentence}", {"sentence": sentence})


def to_integer(value: object) -> object:
    """Turn 7.0 into 7, as JSON does not distinguish them; raise the error ``FRACTION`` for 7.5."""
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    if not value.is_integer():
        raise PydanticCustomError(FRACTION, "not a whole number")
    return int(value)


def _readable(value: Any) -> Any:
    return replace_lone_surrogates(value) if isinstance(value, str) else value


def parse_message(model: type[MessageT], data: object) -> MessageT:
    """Validate decoded JSON; raise InvalidDashScopeField for the first fault."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise to_invalid_field(error) from None


def to_invalid_field(error: ValidationError) -> InvalidDashScopeField:
    """Translate pydantic's error: the outermost fault, and of these the first."""
    return InvalidDashScopeField(_sentence_of(min(error.errors(), key=lambda fault: len(fault["loc"]))))


def _sentence_of(fault: ErrorDetails) -> str:
    if fault["type"] == INVALID_FIELD:
        return fault["msg"]
    # Fields without a sentence of their own are objects.
    path = ".".join(str(name) for name in fault["loc"])
    return f"{path} must be an object" if path else "the request is not a JSON object"
