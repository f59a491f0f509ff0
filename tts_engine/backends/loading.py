"""Chooses and loads the backend of a bundle. A new kind of bundle is recognised here.

Backends are imported when they are loaded, because their networks may need packages that are not installed.
"""

import functools
import importlib.util
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from ...models.onnx_providers import CPU, OnnxDevice
from ..errors import BadRequest, BundleError, MissingExtra
from ..voices.voices import Voice
from .base import Backend
from .bundles import is_xtts_folder, require_folder, require_networks
from .devices import require_onnx_device

if TYPE_CHECKING:
    from ..cosyvoice.policy import CosyVoicePolicy
    from ..cosyvoice.rendering.render_host import RenderHost
    from ..cosyvoice.rendering.render_stage import RenderStage
    from .process import ProcessPolicy


# Any of them tells a CosyVoice folder from one of no kind; the first two are there in a whole one.
_COSYVOICE_FILES = (
    "cosyvoice2.yaml",
    "cosyvoice3.yaml",
    "llm.pt",
    "llm.safetensors",
    "flow.pt",
    "flow.safetensors",
    "onnx/bundle.json",
)
_LOOKED_FOR = (
    "*.onnx.json (Piper), kokoro*.onnx (Kokoro), cosyvoice2.yaml or cosyvoice3.yaml (CosyVoice), "
    "and config.json with model.pth (XTTS)"
)


class BundleKind(StrEnum):
    """The kinds of bundles."""

    PACKAGED = "packaged"
    PIPER = "Piper"
    KOKORO = "Kokoro"
    COSYVOICE = "CosyVoice"
    XTTS = "XTTS"


def load_backend(
    bundle: str,
    voices: Path | None = None,
    precision: str = "fp32",
    device: str = "auto",
    process: "ProcessPolicy | None" = None,
    executor: str = "auto",
    workers: int | None = None,
) -> Backend:
    """Load the backend of a bundle: "default" for the packaged voice, else a folder, see ``find_kind``.

    process: render in a child process; None renders in this one. workers: of Piper. The others are as in
    ``Engine.open``. Raises BundleError, BadRequest and MissingExtra.
    """
    kind = find_kind(bundle)
    if kind is BundleKind.XTTS:
        return _load_xtts(Path(bundle), voices, precision, device, executor, process)
    if kind is not BundleKind.COSYVOICE:
        _check_fixed_settings(precision, executor)
        return _load_fixed_voices(kind, Path(bundle), process, workers, require_onnx_device(device))
    _require_cosyvoice(Path(bundle))
    from ..cosyvoice.policy import policy_for

    policy = policy_for(precision, device, executor)
    if process is None:
        from ..cosyvoice.backend import CosyVoiceBackend

        return CosyVoiceBackend.load(Path(bundle), policy, voices)
    return _load_cosyvoice_in_process(Path(bundle), policy, voices, process)


def load_decode_backend(
    bundle: str, precision: str, device: str, executor: str, render_stage: "RenderStage"
) -> Backend:
    """Load a bundle without its render stage, which is another process. Raises as ``load_backend``."""
    policy = _policy_of_stages(bundle, precision, device, executor)
    from ..cosyvoice.backend import CosyVoiceBackend

    return CosyVoiceBackend.load_decoder(Path(bundle), policy, render_stage)


def load_render_host(
    bundle: str, precision: str, device: str, executor: str, replica: str, bundle_digest: str
) -> "RenderHost":
    """Load the render stage of a bundle only. Raises as ``load_backend``.

    replica: its id. bundle_digest: equal digests render equally.
    """
    policy = _policy_of_stages(bundle, precision, device, executor)
    from ..cosyvoice.loading import load_render_host as load

    return load(Path(bundle), policy, replica, bundle_digest)


def _policy_of_stages(bundle: str, precision: str, device: str, executor: str) -> "CosyVoicePolicy":
    if find_kind(bundle) is not BundleKind.COSYVOICE:
        raise BadRequest(f"{bundle}: only the stages of a CosyVoice bundle can be apart")
    _require_cosyvoice(Path(bundle))
    from ..cosyvoice.policy import policy_for

    return policy_for(precision, device, executor)


def find_kind(bundle: str) -> BundleKind:
    """The kind of a bundle, by the files in its folder. A folder without known ones is CosyVoice's."""
    if bundle == "default":
        return BundleKind.PACKAGED
    folder = Path(bundle)
    if any(folder.glob("*.onnx.json")):
        return BundleKind.PIPER
    if any(folder.glob("kokoro*.onnx")) or (any(folder.glob("voices*.bin")) and any(folder.glob("*.onnx"))):
        return BundleKind.KOKORO
    return BundleKind.XTTS if is_xtts_folder(folder) else BundleKind.COSYVOICE


def _require_cosyvoice(folder: Path) -> None:
    """Raise BundleError for a folder of no kind, and MissingExtra without what computes CosyVoice."""
    if not folder.is_dir():
        raise BundleError(f"{folder}: no such folder; give a folder of Piper, Kokoro, CosyVoice or XTTS")
    if not any((folder / name).exists() for name in _COSYVOICE_FILES):
        alone = sorted(path.name for path in folder.glob("*.onnx"))
        if alone:
            raise BundleError(
                f"{folder}: {alone[0]} needs {alone[0]}.json beside it, as Piper voices have it"
            )
        raise BundleError(f"{folder}: no bundle of any kind; looked for {_LOOKED_FOR}")
    require_networks(folder)


def list_voices(bundle: str) -> tuple[Voice, ...]:
    """The voices of a bundle, without loading its networks. Raises BundleError.

    Those of a CosyVoice or XTTS checkpoint are not listed: they are in its files of weights.
    """
    match find_kind(bundle):
        case BundleKind.PACKAGED:
            from .hibari import VOICE

            return (VOICE,)
        case BundleKind.PIPER:
            from .piper import list_piper_voices

            return list_piper_voices(Path(bundle))
        case BundleKind.KOKORO:
            from .kokoro import list_kokoro_voices

            return list_kokoro_voices(Path(bundle))
        case BundleKind.COSYVOICE | BundleKind.XTTS:
            require_folder(Path(bundle))
            return ()


def _check_fixed_settings(precision: str, executor: str) -> None:
    if precision != "fp32":
        raise BadRequest(f"precision is {precision!r}; only a CosyVoice bundle has others than fp32")
    if executor != "auto":
        raise BadRequest(f"executor is {executor!r}; only a CosyVoice bundle has others than auto")


def _load_fixed_voices(
    kind: BundleKind, folder: Path, process: "ProcessPolicy | None", workers: int | None, device: OnnxDevice
) -> Backend:
    """Load a bundle whose voices never change, here or in a child process."""
    load = functools.partial(_load_here, kind, folder, workers, device)
    if process is None:
        return load()
    from .process import ProcessBackend

    if kind is not BundleKind.PACKAGED:
        raise BadRequest(f"{folder}: a {kind} voice renders in the server's own process only")
    return ProcessBackend.start_backend(load, process)


def _load_here(kind: BundleKind, folder: Path, workers: int | None, device: OnnxDevice) -> Backend:
    """Load a voice, and compute something with it; on the CPU if the device fails at that."""
    if device.is_cpu:
        return _load_on(CPU, kind, folder, workers)
    from ...models.onnx_sessions import ONNX_RUNTIME_ERRORS, last_line, log_fallback

    try:
        return _load_on(device, kind, folder, workers)
    except (BundleError, *ONNX_RUNTIME_ERRORS) as error:
        backend = _load_on(CPU, kind, folder, workers)  # raises the fault of a voice that is damaged
        log_fallback(device, last_line(error))
        return backend


def _load_on(device: OnnxDevice, kind: BundleKind, folder: Path, workers: int | None) -> Backend:
    if kind is BundleKind.PIPER:
        from .piper import load_piper

        return load_piper(folder, workers, device)
    if kind is BundleKind.KOKORO:
        from .kokoro import load_kokoro

        return load_kokoro(folder, device)
    from .hibari import HibariBackend

    return HibariBackend.load(device)


def _load_xtts(
    folder: Path,
    voices: Path | None,
    precision: str,
    device: str,
    executor: str,
    process: "ProcessPolicy | None",
) -> Backend:
    if executor not in ("auto", "torch"):
        raise BadRequest(f"executor is {executor!r}; an XTTS bundle has torch only")
    if process is not None:
        raise BadRequest(f"{folder}: an XTTS voice renders in the server's own process only")
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"the bundle {str(folder)!r}", "cosyvoice")
    from ..xtts.backend import XttsBackend
    from ..xtts.policy import xtts_policy_for

    return XttsBackend.load(folder, xtts_policy_for(device, precision), voices)


def _load_cosyvoice_in_process(
    bundle: Path, policy: "CosyVoicePolicy", voices: Path | None, process: "ProcessPolicy"
) -> Backend:
    from ..cosyvoice.front_end import CosyVoiceFrontEnd
    from ..cosyvoice.loading import load_hosted_renderer
    from .process import ProcessBackend

    policy = replace(policy, voice_store=voices)
    front = functools.partial(CosyVoiceFrontEnd.load, bundle, policy, voices)
    return ProcessBackend.start(functools.partial(load_hosted_renderer, bundle, policy), front, process)
