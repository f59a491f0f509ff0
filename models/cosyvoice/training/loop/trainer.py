"""The loop of a training run, which may be killed at any moment and goes on with the same losses.

A step is some batches, of which each process takes its rows; their gradients are summed, also over the
processes, and divided by the number of targets. Upstream gives each batch the same weight, however few
targets it has. All random choices are functions of the seed and the place in the data (``draws``), so that a
checkpoint needs no state of a generator.

Source: FunAudioLLM/CosyVoice@ace7c47 utils/train_utils.py:217-316, utils/executor.py (loop, clipping, skipped
steps).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from ..dataset import TrainingDataset, split_held_out
from ..draws import DrawSeed
from ..flow_loss import TrainingLoss
from ..parts import TrainedPart, TrainingTurn
from .batches import cut_batches, plan_epoch
from .optimization import TrainingOptimizer, TrainingSettings
from .processes import TrainingProcesses
from .run_folder import TrainingPlace, TrainingRunError, TrainingRunFolder, free_cached_memory

_DROPOUT = 6  # purpose of the draws
_MAX_SKIPPED = 10  # steps in a row with an infinite gradient
_VALIDATION_EPOCH = 0  # training epochs count from 1 in the draws


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What is known of a step."""

    step: int  # from 1
    epoch: int  # from 1
    loss: float
    accuracy: float
    gradient_norm: float  # before clipping
    learning_rate: float
    seconds: float
    total_steps: int
    validation_loss: float | None = None
    validation_accuracy: float | None = None


class Trainer:
    """Trains a part on a data set.

    run: where checkpoints are written, by the first process. on_step: called with each step. on_notice:
    called with a sentence about what a user should know. Call ``train``.
    """

    def __init__(
        self,
        part: TrainedPart,
        dataset: TrainingDataset,
        settings: TrainingSettings,
        run: TrainingRunFolder,
        *,
        processes: TrainingProcesses | None = None,
        on_step: Callable[[TrainingStep], None] = lambda step: None,
        on_notice: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self._part, self._dataset, self._settings, self._run = part, dataset, settings, run
        self._processes = processes or TrainingProcesses()
        self._on_step, self._on_notice = on_step, on_notice
        self._optimizer = TrainingOptimizer(part.network, settings)
        self._device = next(part.network.parameters()).device
        self._frames = [min(entry.frames, part.max_row_frames or entry.frames) for entry in dataset.entries]
        self._numbers, self._held_out = split_held_out(dataset.entries, settings.held_out, settings.seed)
        self._place = self._resume()
        self._skipped = 0

    @property
    def place(self) -> TrainingPlace:
        """Where the run stands."""
        return self._place

    def _resume(self) -> TrainingPlace:
        found = self._run.latest()
        if found is None:
            return TrainingPlace()
        place, tensors = found
        try:
            self._optimizer.load_state(tensors)
        except (KeyError, RuntimeError) as error:
            raise TrainingRunError(
                f"{self._run.folder}: its checkpoint is of other networks ({error})"
            ) from error
        return place

    def train(self, should_stop: Callable[[], bool] = lambda: False) -> TrainingPlace:
        """Train to the end, or until ``should_stop``, and write a checkpoint then. Returns the place.

        Raises TrainingRunError for a loss that is no number, with the name of the utterance, and OSError if a
        checkpoint cannot be written; the last good checkpoint is kept.
        """
        while self._place.epoch < self._settings.epochs and not self._is_complete():
            seed = DrawSeed(self._settings.seed, self._place.epoch + 1)
            batches = plan_epoch(
                self._numbers, self._frames, seed, self._settings.max_frames * self._processes.count
            )
            self._train_epoch(seed, batches, should_stop)
            if self._place.batch < len(batches):
                break
            self._place = replace(self._place, epoch=self._place.epoch + 1, batch=0)
        self._save()
        return self._place

    def _is_complete(self) -> bool:
        limit = self._settings.max_steps
        return limit is not None and self._place.step >= limit

    def _train_epoch(
        self, seed: DrawSeed, batches: Sequence[list[int]], should_stop: Callable[[], bool]
    ) -> None:
        step_batches = self._settings.accumulate
        while self._place.batch < len(batches) and not self._is_complete():
            if self._stops(should_stop()):
                return
            chosen = batches[self._place.batch : self._place.batch + step_batches]
            step = self._train_step(seed, chosen)
            self._place = replace(
                self._place, step=self._place.step + 1, batch=self._place.batch + len(chosen)
            )
            step = replace(step, total_steps=self._total_steps(len(batches)))
            if self._place.batch >= len(batches) or self._place.step % self._settings.checkpoint_steps == 0:
                step = self._validate(step)
                self._save()
            self._on_step(step)

    def _stops(self, wanted: bool) -> bool:
        """Whether any process is to stop: all stop at the same step."""
        return self._processes.sum_numbers([float(wanted)])[0] > 0

    def _total_steps(self, batches: int) -> int:
        each = -(-batches // self._settings.accumulate)
        total = each * self._settings.epochs
        return min(total, self._settings.max_steps or total)

    def _train_step(self, seed: DrawSeed, batches: Sequence[list[int]]) -> TrainingStep:
        begun, step = time.perf_counter(), self._place.step
        self._part.network.train()
        for turn in self._part.turns:
            loss, accuracy, norm = self._take_turn(turn, seed, batches)
        rate = self._optimizer.learning_rate(step)
        seconds = time.perf_counter() - begun
        return TrainingStep(step + 1, self._place.epoch + 1, loss, accuracy, norm, rate, seconds, 0)

    def _take_turn(
        self, turn: TrainingTurn, seed: DrawSeed, batches: Sequence[list[int]]
    ) -> tuple[float, float, float]:
        """Step the parameters of a turn; returns its loss, accuracy and norm of the gradient."""
        while (sums := self._sum_losses(self._training_losses(turn, seed, batches))) is None:
            self._optimizer.clear()
            self._halve()
        total, count, correct = sums
        if not math.isfinite(total):
            self._name_the_fault(turn, seed, batches)
        named = self._optimizer.parameters.items()
        self._processes.sum_gradients(one for name, one in named if name.startswith(turn.trains))
        norm = self._step_optimizer(int(count))
        self._check_norm(norm)
        return total / count, correct / count, norm

    def _sum_losses(self, losses: Iterable[TrainingLoss]) -> list[float] | None:
        """Sums of loss, targets and correct ones over all processes; None if any is out of memory."""
        total, count, correct, failed = 0.0, 0, 0, False
        try:
            for loss in losses:
                total, count = total + float(loss.total.detach()), count + loss.count
                correct += loss.correct
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            failed = True
        sums = self._processes.sum_numbers([total, count, correct, float(failed)])
        return None if sums[3] else sums[:3]

    def _training_losses(
        self, turn: TrainingTurn, seed: DrawSeed, batches: Sequence[list[int]]
    ) -> Iterator[TrainingLoss]:
        """The losses of the pieces; their gradients are added up."""
        for piece in self._pieces(batches):
            torch.manual_seed(self._dropout_seed(seed, piece))
            with self._autocast():
                loss = turn.loss(self._dataset, piece, seed, self._place.step)
            loss.total.backward()  # type: ignore[no-untyped-call]
            yield loss

    def _step_optimizer(self, count: int) -> float:
        """Step with the gradients of ``count`` targets; returns their norm. Its first step takes memory."""
        try:
            return self._optimizer.step(self._place.step, count)
        except RuntimeError as error:
            if not _is_out_of_memory(error):
                raise
            trained = sum(parameter.numel() for parameter in self._optimizer.parameters.values())
            raise TrainingRunError(
                f"out of memory in the optimizer's step: it keeps two moments of each of {trained:,} trained "
                "parameters; train adapters instead of everything, or on a device with more memory"
            ) from error

    def _pieces(self, batches: Sequence[list[int]]) -> Iterator[Sequence[int]]:
        """The rows of this process, in pieces that fit its memory."""
        for batch in batches:
            rows = self._processes.share(batch)
            size = max(1, -(-len(rows) // 2**self._place.halvings))
            for first in range(0, len(rows), size):
                yield rows[first : first + size]

    def _dropout_seed(self, seed: DrawSeed, piece: Sequence[int]) -> int:
        return int(seed.generator(_DROPOUT, self._place.step, piece[0]).integers(2**62))

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._settings.bf16)

    def _halve(self) -> None:
        free_cached_memory(self._device)
        largest = self._settings.max_frames >> self._place.halvings
        if largest < max(self._frames):
            raise TrainingRunError(
                "out of memory with a single utterance; leave long ones out, use adapters, or bf16"
            )
        if not self._place.halvings:
            self._on_notice("out of memory: batches are computed in smaller pieces from now on")
        self._place = replace(self._place, halvings=self._place.halvings + 1)

    @torch.no_grad()
    def _name_the_fault(self, turn: TrainingTurn, seed: DrawSeed, batches: Sequence[list[int]]) -> None:
        """Raise TrainingRunError with the utterances whose loss alone is no number."""
        names = []
        for number in (number for batch in batches for number in batch):
            with self._autocast():
                loss = turn.loss(self._dataset, [number], seed, self._place.step)
            if not math.isfinite(float(loss.total)):
                names.append(self._dataset.entries[number].name)
        culprits = ", ".join(names) or "no utterance alone, but of the batch"
        raise TrainingRunError(
            f"step {self._place.step + 1}: the loss is not a number, of: {culprits}. Remove it from the "
            "recordings, or lower the learning rate; the last checkpoint is kept"
        )

    def _check_norm(self, norm: float) -> None:
        self._skipped = 0 if math.isfinite(norm) else self._skipped + 1
        if self._skipped == 1:
            self._on_notice(f"step {self._place.step + 1} is skipped: its gradient is infinite")
        if self._skipped >= _MAX_SKIPPED:
            raise TrainingRunError(
                f"{_MAX_SKIPPED} steps in a row have infinite gradients; lower the learning rate"
            )

    def _validate(self, step: TrainingStep) -> TrainingStep:
        loss, accuracy = self.validation()
        best = min(loss, self._place.best_validation_loss or math.inf)
        self._place = replace(self._place, validation_loss=loss, best_validation_loss=best)
        return replace(step, validation_loss=loss, validation_accuracy=accuracy)

    @torch.no_grad()
    def validation(self) -> tuple[float, float]:
        """Loss and accuracy of the averaged weights on what is held out, with the same draws each time."""
        self._part.network.eval()
        with self._optimizer.averaged():
            while (sums := self._sum_losses(self._validation_losses())) is None:
                self._halve()
        total, count, correct = sums
        return total / count, correct / count

    def _validation_losses(self) -> Iterator[TrainingLoss]:
        seed = DrawSeed(self._settings.seed, _VALIDATION_EPOCH)
        ordered = sorted(self._held_out, key=lambda number: self._frames[number])
        for index, batch in enumerate(cut_batches(ordered, self._frames, self._settings.max_frames)):
            for piece in self._pieces([batch]):
                with self._autocast():
                    loss = self._part.loss(self._dataset, piece, seed, index)
                yield loss

    def _save(self) -> None:
        if self._processes.is_first and self._place.step:
            with self._optimizer.averaged() as weights:
                weights = dict(weights)
            self._run.save(self._place, weights, self._optimizer.state())
        self._processes.wait()


def _is_out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
