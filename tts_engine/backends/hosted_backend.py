"""A backend in two parts: a renderer that another process may load, and a front end that needs no tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from ..segmenter import Segmenter
from ..voices.voices import Voice, Voices
from .base import Backend, SlotRenderer, SlotRequest, Stage, VaryingBackend, VoiceFrontEnd


@dataclass(frozen=True, slots=True)
class HostedBackend:
    """What ``load`` returns in the child."""

    renderer: SlotRenderer
    open_slot: Callable[[Any], int]  # takes what the parent's ``BackendFrontEnd.prepare_request`` returned
    first_stage: Stage  # of a slot that was just opened
    # Of a backend whose voices never change; otherwise the parent's front end has them.
    voices: tuple[Voice, ...] = ()
    warm_up_text: str = ""
    varies_pauses: bool = False  # whether the segmenter of such a backend does


def host_backend(load: Callable[[], Backend]) -> HostedBackend:
    """Load a whole backend whose voices never change."""
    backend = load()
    slot = backend.open_slot(SlotRequest(backend.voices.default.id, speed=1.0, seed=0))
    stage = backend.stage(slot)
    backend.close_slot(slot)
    return HostedBackend(
        backend,
        backend.open_slot,
        stage,
        tuple(backend.voices),
        backend.warm_up_text,
        isinstance(backend, VaryingBackend) and backend.varies_pauses,
    )


class BackendFrontEnd(VoiceFrontEnd, Protocol):
    """The part of a backend that needs no tensors and stays in the parent process."""

    def prepare_request(self, request: SlotRequest) -> object:
        """Check a request; the picklable value with which the renderer opens a slot. Raises BadRequest."""


class StaticFrontEnd:
    """The front end of a backend whose voices never change; it passes requests on."""

    def __init__(self, voices: Voices, warm_up_text: str, *, varies_pauses: bool = False) -> None:
        self.voices, self.warm_up_text = voices, warm_up_text
        self._varies_pauses = varies_pauses

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter that yields clauses and sentences."""
        pause_seed = request.seed if self._varies_pauses else None
        return Segmenter(style=request.reading, pause_seed=pause_seed)

    def prepare_request(self, request: SlotRequest) -> SlotRequest:
        """The request itself."""
        return request

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class BackendParts:
    """What loads the parts of a backend. make_front_end: None for voices that never change."""

    load_renderer: Callable[[], HostedBackend]  # picklable; raises BundleError
    make_front_end: Callable[[], BackendFrontEnd] | None = None
