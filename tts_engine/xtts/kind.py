"""XTTS v2: a folder with ``config.json`` and ``model.pth`` or ``model.safetensors``."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..backends.base import Backend
from ..backends.voice_kind import DeviceFigure, LoadSettings, VoiceKind
from ..errors import BadRequest, MissingExtra
from .checkpoints import XttsCheckpoints, bundle_errors

if TYPE_CHECKING:
    from .benchmark import XttsBenchmarkSize


def _matches(bundle: str) -> bool:
    folder = Path(bundle)
    has_weights = any((folder / name).is_file() for name in ("model.pth", "model.safetensors"))
    return has_weights and (folder / "config.json").is_file()


def _load(settings: LoadSettings) -> Backend:
    if settings.executor not in ("auto", "torch"):
        raise BadRequest(f"executor is {settings.executor!r}; an XTTS bundle has torch only")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"the bundle {str(settings.folder)!r}", "cosyvoice")
    from .backend import XttsBackend
    from .policy import xtts_policy_for

    policy = xtts_policy_for(settings.device, settings.precision)
    return XttsBackend.load(settings.folder, policy, settings.voice_store)


def measure(
    folder: Path, device: str, precision: str, size: "XttsBenchmarkSize | None" = None
) -> tuple[DeviceFigure, ...]:
    """Time ids, a first chunk and the vocoder. size: of the work."""
    with bundle_errors():
        from .benchmark import measure_xtts

    timings = measure_xtts(folder, device, size, precision=precision)
    sessions = timings.size.sessions
    return (
        DeviceFigure(f"GPT, an id at context {timings.size.context}", 1000 * timings.id_s, "ms"),
        DeviceFigure(
            f"GPT, {sessions} sessions in one step against one after another",
            sessions * timings.id_s / timings.batched_id_s,
            "x",
            at_least=3,
        ),
        DeviceFigure("first chunk of 20 ids", timings.first_chunk_s, "s"),
        DeviceFigure(f"vocoder, {timings.size.latents} latents at once", timings.offline_s, "s"),
        DeviceFigure(
            "vocoder, streamed against at once", timings.streamed_s / timings.offline_s, "x", at_most=1.1
        ),
        DeviceFigure("memory at its highest", timings.peak_bytes / 1e9, "GB"),
    )


XTTS: Final = VoiceKind(
    name="XTTS",
    looked_for="config.json with model.pth",
    matches=_matches,
    load=_load,
    checkpoints=XttsCheckpoints(),
    measure=measure,
    measured_on_cpu=True,
)
