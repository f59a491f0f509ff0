"""Trains a part of a bundle on a prepared data set."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....models.cosyvoice.checkpoint.bundle import open_bundle
from ...errors import BadRequest
from .preparation import digest_of_bundle

if TYPE_CHECKING:
    from ....models.cosyvoice.training.bundle_parts import PartOptions
    from ....models.cosyvoice.training.loop.optimization import TrainingSettings
    from ....models.cosyvoice.training.loop.run_folder import TrainingPlace
    from ....models.cosyvoice.training.loop.trainer import TrainingStep as TrainingStep


@dataclass(frozen=True, slots=True)
class TrainingChoices:
    """What a user chooses; None takes the default of the part."""

    part: str  # "lm", "flow" or "vocoder"
    whole: bool = False  # all parameters of the language model, not adapters
    adapter_rank: int = 16
    learning_rate: float | None = None
    epochs: int = 10
    max_steps: int | None = None
    max_frames: int = 2000  # mel frames of a batch
    accumulate: int = 2  # batches of a step
    averaging: float = 0.999
    bf16: bool = False
    seed: int = 1986

    def options(self) -> "PartOptions":
        """What of the bundle is trained."""
        from ....models.cosyvoice.training.bundle_parts import PartOptions

        rank = 0 if self.whole or self.part != "lm" else self.adapter_rank
        return PartOptions(self.part, rank, adapter_alpha=2.0 * max(rank, 1), seed=self.seed)

    def settings(self) -> "TrainingSettings":
        """How it is trained. Raises BadRequest for a learning rate that destroys a network, or bf16."""
        from ....models.cosyvoice.training.loop.optimization import (
            LEARNING_RATES,
            MAX_LEARNING_RATE,
            TrainingSettings,
        )

        if self.bf16 and self.part == "vocoder":
            raise BadRequest("the vocoder is trained in float32, as its spectra need it; omit --bf16")
        with_adapters = self.part == "lm" and not self.whole
        rate = self.learning_rate or LEARNING_RATES["lm with adapters" if with_adapters else self.part]
        if not 0 < rate <= MAX_LEARNING_RATE:
            raise BadRequest(
                f"the learning rate is {rate:g}; it must be above 0 and at most {MAX_LEARNING_RATE:g}"
            )
        return TrainingSettings(
            learning_rate=rate,
            epochs=self.epochs,
            max_steps=self.max_steps,
            max_frames=self.max_frames,
            accumulate=self.accumulate,
            averaging=self.averaging,
            bf16=self.bf16,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class FinishedTraining:
    """How a run ended."""

    place: "TrainingPlace"
    is_first_process: bool
    curves: Path | None  # a picture
    is_complete: bool  # False: it was interrupted


def train(
    dataset_folder: Path,
    bundle_folder: Path | None,
    run_folder: Path,
    choices: TrainingChoices,
    *,
    device: str = "auto",
    on_step: Callable[["TrainingStep"], None] = lambda step: None,
    on_notice: Callable[[str], None] = lambda sentence: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> FinishedTraining:
    """Begin a run, or continue it from its last checkpoint, to its end.

    bundle_folder: None for the one that the data set was prepared with. on_step and on_notice are called in
    the first process. Raises InvalidBundleError, DatasetError, TrainingRunError, DeviceError, OSError, and
    BadRequest for a data set of another bundle.
    """
    from ....models.cosyvoice.training import bundle_parts
    from ....models.cosyvoice.training.dataset import TrainingDataset
    from ....models.cosyvoice.training.loop.metrics import TrainingMetrics, draw_curves
    from ....models.cosyvoice.training.loop.run_folder import TrainingRunFolder

    options, settings = choices.options(), choices.settings()
    dataset = TrainingDataset(dataset_folder)
    bundle_folder = bundle_folder or Path(dataset.index.bundle)
    bundle = open_bundle(bundle_folder)
    if dataset.about.digest != digest_of_bundle(bundle):
        raise BadRequest(
            f"{dataset_folder}: prepared with another bundle than {bundle_folder}, whose tokenizer or "
            "encoders differ; prepare the recordings with this one"
        )
    run = TrainingRunFolder(run_folder)
    about = {"bundle": str(bundle_folder.resolve()), "dataset": str(dataset_folder.resolve())}
    chosen = bundle_parts.device_of_process(device)
    notice = bundle_parts.bf16_notice(chosen) if settings.bf16 else None
    processes = bundle_parts.join_processes(chosen)
    if processes.is_first:
        run.open(about | asdict(options) | {"settings": asdict(settings)})
    processes.wait()
    metrics: TrainingMetrics | None = None

    def report(step: "TrainingStep") -> None:
        if metrics:
            metrics.add(step)
            on_step(step)

    try:
        part = bundle_parts.load_part(bundle, options, chosen)
        notify = on_notice if processes.is_first else lambda sentence: None
        if notice:
            notify(notice)
        trainer = bundle_parts.Trainer(
            part, dataset, settings, run, processes=processes, on_step=report, on_notice=notify
        )
        metrics = TrainingMetrics(run_folder, trainer.place.step) if processes.is_first else None
        place = trainer.train(should_stop)
    finally:
        if metrics:
            metrics.close()
        bundle_parts.leave_processes(processes)
    curves = draw_curves(run_folder) if processes.is_first else None
    is_complete = place.epoch >= settings.epochs or place.step == settings.max_steps
    return FinishedTraining(place, processes.is_first, curves, is_complete)
