"""The fields of sampling that several dialects have by the same names, in terms of the engine.

CosyVoice and XTTS apply them for each utterance; the packaged voice samples nothing and ignores them.
"""

from typing import Annotated, Any, Final

from pydantic import BaseModel, Field

MAX_TEMPERATURE: Final = 10.0
MAX_TOP_K: Final = 6_561  # speech ids of CosyVoice 2; more has no effect


class SamplingFields(BaseModel):
    """Base of requests with parameters of sampling; None leaves one to the voice."""

    temperature: Annotated[
        float | None, Field(ge=0.01, le=MAX_TEMPERATURE, description="Of sampling; below 1 is steadier.")
    ] = None
    top_k: Annotated[int | None, Field(ge=1, le=MAX_TOP_K)] = None
    top_p: Annotated[float | None, Field(ge=0.01, le=1.0)] = None
    repetition_penalty: Annotated[
        float | None,
        Field(ge=0.1, le=10.0, description="1 or less switches the voice's rule against repetition off."),
    ] = None

    @property
    def sampling(self) -> dict[str, Any]:
        """The fields of ``Delivery``."""
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "repetition_window": repetition_window(self.repetition_penalty),
            "repetition_penalty": self.repetition_penalty,
        }


def repetition_window(penalty: float | None) -> int | None:
    """Return 0, which switches the rule off, for a penalty that penalises nothing; else None.

    The rule of CosyVoice draws a repeated id again, and has no number for a strength above 1.
    """
    return 0 if penalty is not None and penalty <= 1.0 else None
