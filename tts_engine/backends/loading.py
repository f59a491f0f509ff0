"""Chooses and loads the backend of a bundle. A new kind of bundle is recognised here.

Backends are imported when they are loaded, because their networks may need packages that are not installed.
"""

import functools
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from ..bundles import require_folder
from ..errors import BadRequest, MissingExtra
from .base import Backend

if TYPE_CHECKING:
    from ..cosyvoice.policy import CosyVoicePolicy
    from .process import ProcessPolicy


def load_backend(
    bundle: str,
    voices: Path | None,
    precision: str,
    device: str,
    process: "ProcessPolicy | None",
    executor: str = "auto",
) -> Backend:
    """Load the backend of a bundle: "default" for the packaged voice, else a CosyVoice checkpoint folder.

    process: render in a child process; None renders in this one. The other settings are as in
    ``Engine.open``. Raises BundleError, BadRequest and MissingExtra.
    """
    if bundle == "default":
        if precision != "fp32":
            raise BadRequest(f"precision is {precision!r}; only a CosyVoice bundle has others than fp32")
        if device not in ("auto", "cpu"):
            raise BadRequest(f"device is {device!r}; only a CosyVoice bundle computes on others than cpu")
        if executor != "auto":
            raise BadRequest(f"executor is {executor!r}; only a CosyVoice bundle has others than auto")
        return _load_hibari() if process is None else _load_hibari_in_process(process)
    require_folder(Path(bundle))
    if importlib.util.find_spec("torch") is None:
        raise MissingExtra(f"the bundle {bundle!r}", "cosyvoice")
    from ..cosyvoice.policy import policy_for

    policy = policy_for(precision, device, executor)
    if process is None:
        from ..cosyvoice.backend import CosyVoiceBackend

        return CosyVoiceBackend.load(Path(bundle), policy, voices)
    return _load_cosyvoice_in_process(Path(bundle), policy, voices, process)


def _load_hibari() -> Backend:
    from .hibari import HibariBackend

    return HibariBackend.load()


def _load_hibari_in_process(process: "ProcessPolicy") -> Backend:
    from .process import ProcessBackend

    return ProcessBackend.start_backend(_load_hibari, process)


def _load_cosyvoice_in_process(
    bundle: Path, policy: "CosyVoicePolicy", voices: Path | None, process: "ProcessPolicy"
) -> Backend:
    from ..cosyvoice.front_end import CosyVoiceFrontEnd
    from ..cosyvoice.renderer import load_hosted_renderer
    from .process import ProcessBackend

    front = functools.partial(CosyVoiceFrontEnd.load, bundle, policy, voices)
    return ProcessBackend.start(functools.partial(load_hosted_renderer, bundle, policy), front, process)
