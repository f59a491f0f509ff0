"""CosyVoice 2 and 3: a checkpoint folder with ``cosyvoice2.yaml`` or ``cosyvoice3.yaml``."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ...models.devices.execution import Executor
from ..backends.base import Backend
from ..backends.divided_stages import RenderTransport
from ..backends.hosted_backend import BackendParts
from ..backends.voice_kind import DeviceFigure, DividedStages, LoadSettings, VoiceKind
from .checkpoints import CosyVoiceCheckpoints, bundle_errors

if TYPE_CHECKING:
    from ...models.cosyvoice.device_benchmark import DeviceBenchmarkSize
    from .policy import CosyVoicePolicy
    from .rendering.remote_render_stage import RemoteRenderStage
    from .rendering.render_host import RenderHost
    from .rendering.render_stage import RenderStage

# Any of them tells a CosyVoice folder from one of no kind; the first two are there in a whole one.
_FILES: Final = (
    "cosyvoice2.yaml",
    "cosyvoice3.yaml",
    "llm.pt",
    "llm.safetensors",
    "flow.pt",
    "flow.safetensors",
    "onnx/bundle.json",
)
_CHECKPOINTS: Final = CosyVoiceCheckpoints()


def _matches(bundle: str) -> bool:
    return any((Path(bundle) / name).exists() for name in _FILES)


def require_policy(settings: LoadSettings) -> "CosyVoicePolicy":
    """The policy of a bundle. Raises BadRequest for a setting, and MissingExtra."""
    _CHECKPOINTS.require_networks(settings.folder)
    from .policy import policy_for

    return policy_for(settings.precision, settings.device, settings.executor)


def _load(settings: LoadSettings) -> Backend:
    policy = require_policy(settings)
    from .backend import CosyVoiceBackend

    return CosyVoiceBackend.load(settings.folder, policy, settings.voice_store)


def _parts(settings: LoadSettings) -> BackendParts:
    policy = replace(require_policy(settings), voice_store=settings.voice_store)
    from .front_end import CosyVoiceFrontEnd
    from .loading import load_hosted_renderer

    front = partial(CosyVoiceFrontEnd.load, settings.folder, policy, settings.voice_store)
    load = partial(load_hosted_renderer, settings.folder, policy)
    return BackendParts(load, front)


def _load_decoder(settings: LoadSettings, stage: "RenderStage") -> Backend:
    policy = require_policy(settings)
    from .backend import CosyVoiceBackend

    return CosyVoiceBackend.load_decoder(settings.folder, policy, stage)


def _load_host(settings: LoadSettings, replica: str, bundle_digest: str) -> "RenderHost":
    policy = require_policy(settings)
    from .loading import load_render_host

    return load_render_host(settings.folder, policy, replica, bundle_digest)


def _open_stage(transport: RenderTransport, bundle_digest: str, decoder: str) -> "RemoteRenderStage":
    from .rendering.remote_render_stage import RemoteRenderStage

    return RemoteRenderStage(transport, bundle_digest, decoder)


def measure(
    folder: Path, device: str, precision: str, size: "DeviceBenchmarkSize | None" = None
) -> tuple[DeviceFigure, ...]:
    """Time an id of one session, and chunks of the flow; the targets are for an H100. size: of the work."""
    with bundle_errors():
        from ...models.cosyvoice.checkpoint.bundle import open_bundle
        from ...models.cosyvoice.device_benchmark import DeviceBenchmarkSize, measure_device
        from ...models.devices.torch_devices import find_device
        from .policy import policy_for

        found, chosen = find_device(device), policy_for(precision, device, Executor.TORCH).precision
        size = size or DeviceBenchmarkSize()
        timings = measure_device(open_bundle(folder), found, chosen, size)
    gain = timings.sequential_s / timings.batched_s
    return (
        DeviceFigure(
            f"LM, a token of one session, context {size.context}",
            1000 * timings.token_s,
            "ms",
            at_most=1.5,
        ),
        DeviceFigure(f"flow, {size.chunks} chunks of 1 s in one step", 1000 * timings.batched_s, "ms"),
        DeviceFigure(f"flow, {size.chunks} one after another", 1000 * timings.sequential_s, "ms"),
        DeviceFigure("flow, one after another against in one step", gain, "x", at_least=3),
    )


COSYVOICE: Final = VoiceKind(
    name="CosyVoice",
    looked_for="cosyvoice2.yaml or cosyvoice3.yaml",
    matches=_matches,
    load=_load,
    checkpoints=_CHECKPOINTS,
    parts=_parts,
    renders_apart=True,
    stages=DividedStages(_open_stage, _load_decoder, _load_host),
    measure=measure,
)
