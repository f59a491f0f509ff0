"""The request for a call that Asterisk makes."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _check_literal(value: str) -> str:
    """Raise ValueError for what Asterisk would not take as it is: line ends, functions, expressions."""
    if "${" in value or "$[" in value:
        raise ValueError("functions and expressions of the dial plan are not allowed")
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in value):
        raise ValueError("control characters are not allowed")
    return value


class AriCallRequest(BaseModel):
    """A call that Asterisk makes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    over: Literal["ari"]
    endpoint: Annotated[
        str,
        Field(pattern=r"^[A-Za-z0-9_-]+/[!-~]{1,200}$", description="As in the dial plan, `PJSIP/100`."),
        AfterValidator(_check_literal),
    ]
    caller_id: Annotated[
        str,
        Field(max_length=200, description='`"Name" <number>` to show.'),
        AfterValidator(_check_literal),
    ] = ""
    ring_s: Annotated[
        float | None,
        Field(ge=1, le=300, allow_inf_nan=False, description="Seconds to wait for an answer; absent: 30."),
    ] = None
    detect_answer: Annotated[
        bool, Field(description="Tell whether a person, a machine or a fax answers (`answered_by`).")
    ] = False
    variables: Annotated[
        dict[
            Annotated[str, Field(pattern=r"^_{0,2}[A-Za-z][A-Za-z0-9_]{0,79}$")],
            Annotated[str, Field(max_length=1000), AfterValidator(_check_literal)],
        ],
        Field(max_length=100, description="Of the channel; no functions, such as `SHELL()`."),
    ] = {}
