"""Parts of a bundle to train, and the weight files that they become.

The options of a part are kept in the run's settings, so that a run is continued and exported as it was begun.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...checkpoint.weight_files import write_safetensors
from ...devices.execution import DeviceError
from ...devices.torch_devices import CPU, card_name, compute_exactly, find_device
from ..checkpoint.bundle import CosyVoiceBundle
from ..config import TIED_HEAD_KEY
from .dropout import DROPOUT, add_dropout
from .loop.processes import join_processes, leave_processes, local_device
from .loop.run_folder import TrainingRunError, read_tensors
from .loop.trainer import Trainer
from .lora import add_adapters
from .networks import trainable_flow, trainable_lm, trainable_vocoder
from .parts import FlowPart, LmPart, TrainedPart
from .vocoder.part import VocoderPart

__all__ = ["PartOptions", "Trainer", "join_processes", "leave_processes", "load_part", "write_weights"]

_BF16_CAPABILITY = 8  # of CUDA, major
WEIGHT_FILES = {part.name: part.weight_file for part in (LmPart, FlowPart, VocoderPart)}


@dataclass(frozen=True, slots=True)
class PartOptions:
    """What of a bundle is trained."""

    part: str  # "lm", "flow" or "vocoder"
    adapter_rank: int = 0  # of low-rank adapters of the language model; 0: all parameters are trained
    adapter_alpha: float = 16.0  # their product counts alpha / rank times
    speaker_share: float = 0.5  # of the flow's rows, those with the speaker's mean embedding
    dropout: float = DROPOUT  # of the flow
    seed: int = 1986  # of what begins at random: adapters, discriminators

    @property
    def adapter_scale(self) -> float | None:
        """The factor of the adapters' products; None without adapters."""
        return self.adapter_alpha / self.adapter_rank if self.adapter_rank else None


def load_part(bundle: CosyVoiceBundle, options: PartOptions, device: torch.device = CPU) -> TrainedPart:
    """Load a part of a bundle to train. Raises InvalidBundleError, and TrainingRunError for another part."""
    if options.part not in WEIGHT_FILES:
        raise TrainingRunError(f"part is {options.part!r}; allowed: {', '.join(WEIGHT_FILES)}")
    compute_exactly(device)
    weights = bundle.load(WEIGHT_FILES[options.part])
    weights.pop(TIED_HEAD_KEY, None)
    if options.part == "flow":
        flow = trainable_flow(bundle.network_config.flow, weights)
        add_dropout(flow, options.dropout)
        return FlowPart(flow.to(device), speaker_share=options.speaker_share, dropout=options.dropout)
    if options.part == "vocoder":
        vocoder = trainable_vocoder(bundle.network_config.hift, bundle.version, weights)
        return VocoderPart(vocoder, options.seed, device)
    lm = trainable_lm(bundle.network_config.lm, weights)
    if options.adapter_rank:
        add_adapters(lm, options.adapter_rank, options.adapter_alpha, options.seed)
    return LmPart(lm.to(device), adapter_scale=options.adapter_scale)


def device_of_process(name: str) -> torch.device:
    """The device to train on, of this process among those of torchrun. Raises DeviceError."""
    return local_device(find_device(name))


def bf16_notice(device: torch.device) -> str | None:
    """A sentence about a device that emulates bfloat16; None for one that computes in it.

    Raises DeviceError for a card without it.
    """
    if device.type == "cuda":
        if torch.version.hip is None and torch.cuda.get_device_capability(device)[0] < _BF16_CAPABILITY:
            raise DeviceError(
                f"{card_name(device)} has no bfloat16, which cards have from compute capability "
                f"{_BF16_CAPABILITY}.0 on; omit --bf16"
            )
        return None
    if any(found for name, found in torch.cpu.get_capabilities().items() if "bf16" in name):
        return None
    return "this processor emulates bfloat16 (it has neither AVX512-BF16 nor AMX); float32 may be faster"


def write_weights(bundle: CosyVoiceBundle, options: PartOptions, checkpoint: Path, folder: Path) -> Path:
    """Write the weight file of a checkpoint into a folder, as safetensors; returns its path.

    Raises InvalidBundleError, TrainingRunError and OSError.
    """
    part = load_part(bundle, options)
    state: dict[str, Tensor] = {name: one.detach() for name, one in part.network.state_dict().items()}
    trained = read_tensors(checkpoint / "weights.safetensors")
    if unknown := trained.keys() - state.keys():
        raise TrainingRunError(f"{checkpoint}: it is of other networks ({min(unknown)} is unknown)")
    target = (folder / part.weight_file).with_suffix(".safetensors")
    write_safetensors(target, part.weight_tensors(state | trained))
    return target
