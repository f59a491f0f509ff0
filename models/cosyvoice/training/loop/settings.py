"""Settings of a training run."""

from dataclasses import dataclass

LEARNING_RATES = {"lm": 1e-5, "lm with adapters": 1e-4, "flow": 1e-5, "vocoder": 2e-4}
MAX_LEARNING_RATE = 3e-4  # upstream's users destroyed a flow with 1e-3


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """How a part is trained. Defaults are upstream's where it has such a setting."""

    learning_rate: float = 1e-5
    warmup_steps: int = 50  # of a rate that rises evenly
    weight_decay: float = 0.0
    clip_norm: float = 5.0  # of all gradients
    accumulate: int = 2  # batches of a step
    max_frames: int = 2000  # mel frames of a batch, with padding: 40 s a process
    epochs: int = 10
    max_steps: int | None = None
    averaging: float = 0.999  # decay of the averaged weights; 0: not averaged
    bf16: bool = False  # products in bfloat16; parameters and moments stay in float32
    seed: int = 1986
    held_out: float = 0.05  # share of the utterances, for validation
    checkpoint_steps: int = 200
