"""The part of a session in a step of the language model. No tensors."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...decoding.uniforms import PeekableUniforms
from .generation import Generation, LmInput, SamplingRequest
from .sampling import SamplingContext, SamplingParameters


@dataclass(frozen=True, slots=True)
class DecodeTurn:
    """A session's part in a step."""

    generation: Generation
    draws: PeekableUniforms  # random numbers of the session
    parameters: SamplingParameters = field(default_factory=SamplingParameters)
    inputs_fed: int = 0  # inputs of the pending request that the row's memory holds already


@dataclass(frozen=True, slots=True)
class RowRequest:
    """The pending request of a row's generation."""

    row: int
    turn: DecodeTurn
    request: SamplingRequest

    @property
    def inputs(self) -> tuple[LmInput, ...]:
        """Inputs that the row still has to be fed."""
        return self.request.inputs[self.turn.inputs_fed :]

    @property
    def sampling_context(self) -> SamplingContext:
        """The row's inputs to the sampling rule."""
        turn = self.turn
        return SamplingContext(turn.generation.decoded, turn.draws, self.request.forbidden, turn.parameters)


def collect_requests(turns: Iterable[tuple[int, DecodeTurn | None]]) -> list[RowRequest]:
    """The pending requests of the rows that have a turn."""
    return [
        RowRequest(row, turn, request) for row, turn in turns if turn and (request := turn.generation.ask())
    ]
