"""Bench of the language model's precisions and executors: time, error, memory, eight sessions at once.

Sessions are first sampled in float32; both precisions are then given the same ids, so that every position is
compared after the same past. Steps of the two alternate. Where a figure does not say "by the clock", seconds
are processor seconds of all threads over two cores. Targets are for the released size.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benches.cosyvoice.bench_process import measure_in_process, print_figures
from benches.cosyvoice.flow_precision import flow_errors
from benches.cosyvoice.stopwatch import THREADS, MeasuredTime, Stopwatch, median_time
from shared.runtimes.logit_error import (
    MAX_KL,
    MIN_AGREEMENT,
    SESSIONS,
    logit_error,
    random_ids,
    sample_sessions,
    teacher_forced_logits,
)
from shared.runtimes.onnx_lm import OnnxSpeechLm
from shared.voices.cosyvoice_bundles import check_bundle, export_bundle
from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights, is_released, without_targets
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from vivavoce.models.cosyvoice.lm.speech_lm import LmNetwork, SpeechLm
from vivavoce.models.cosyvoice.networks import load_lm
from vivavoce.models.cosyvoice.onnx_graphs.graph_files import graph_path, is_exported
from vivavoce.models.decoding.kv_memory import SpeechLmState
from vivavoce.models.devices.execution import Executor, Precision
from vivavoce.models.networks.layers import Linear
from vivavoce.tts_engine.cosyvoice.checkpoints import bundle_errors
from vivavoce.tts_engine.cosyvoice.policy import parse_precision

MODULE = "benches.cosyvoice.precision"
DEFAULT_PRECISIONS = ("fp32", "bf16", "int8")
CONTEXT = 120  # ids before the timed tokens

_WITHOUT_BATCH_TARGET = ("bf16", "fp16", "int8")


@dataclass(frozen=True, slots=True)
class PrecisionBenchSize:
    """Amount of work."""

    tokens: int = 12  # timed, with eight sessions; twice as many beside float32
    positions: int = 1000  # compared with float32


def measure(precisions: Sequence[str], weights: BenchWeights, executor: str = "torch") -> BenchReport:
    """Measure each precision in a process of its own. Raises BundleError, BenchFailed.

    Graphs that ONNX Runtime lacks are exported.
    """
    figures: list[BenchFigure] = []
    with weights.folder() as folder:
        checked = check_bundle(folder)
        for precision in precisions:
            part = precision if executor == Executor.TORCH else f"{executor} {precision}"
            with Console(stderr=True).status(f"bench precision: {part}"):
                if executor == Executor.ONNXRUNTIME and not _is_exported(folder, precision):
                    list(export_bundle(folder, precision))
                figures += measure_in_process(MODULE, folder, part)
    if not is_released(checked):
        figures = list(without_targets(figures))
    return BenchReport(
        "precision", tuple(figures), {"version": checked.version, "weights": str(weights), "threads": THREADS}
    )


def _is_exported(folder: Path, precision: str) -> bool:
    with bundle_errors():
        return is_exported(open_bundle(folder), Precision(precision))


def measure_precision(
    folder: Path, precision: str, size: PrecisionBenchSize = PrecisionBenchSize()
) -> Iterator[BenchFigure]:
    """Yield the figures of a precision, such as "int8" with torch or "onnxruntime int8".

    Raises BundleError, and BadRequest for an unknown precision.
    """
    with bundle_errors():
        chosen = parse_precision(precision.removeprefix(f"{Executor.ONNXRUNTIME} "))
        torch.set_num_threads(THREADS)
        bundle, before = open_bundle(folder), _private_bytes()
        lm: LmNetwork
        if precision == chosen:
            torch_lm = lm = load_lm(bundle, chosen)
            yield BenchFigure(f"{precision}, matrices", _matrix_bytes(torch_lm) / 1e6, "MB")
        else:
            lm = OnnxSpeechLm.load(bundle, chosen.of_lm)
            yield BenchFigure(f"{precision}, matrices", _graph_bytes(bundle, chosen.of_lm) / 1e6, "MB")
    _step(lm, _prefilled_state(lm, 1, 1))
    yield BenchFigure(f"{precision}, memory", (_private_bytes() - before) / 1e6, "MB")
    batched, sequential = _tokens_per_s(lm, size.tokens)
    yield BenchFigure(f"{precision}, 8 sessions at once", batched, "tokens/s")
    yield BenchFigure(f"{precision}, 8 one after another", sequential, "tokens/s")
    yield BenchFigure(
        f"{precision}, at once against one after another",
        batched / sequential,
        "x",
        at_least=None if precision in _WITHOUT_BATCH_TARGET else 3,
    )
    if precision != chosen:
        yield from _beside_torch(bundle, lm, precision, size)
    if precision != Precision.FP32:
        yield from _beside_float32(bundle, lm, precision, size)
    if chosen.of_exported_flow is not Precision.FP32:
        yield from flow_errors(bundle, chosen, precision)


@torch.inference_mode()
def _beside_torch(
    bundle: CosyVoiceBundle, lm: LmNetwork, precision: str, size: PrecisionBenchSize
) -> Iterator[BenchFigure]:
    """A token beside torch in each precision; the fastest is what the executor replaces."""
    lms = {name: load_lm(bundle, Precision(name)) for name in DEFAULT_PRECISIONS}
    ours, *theirs = _alternating_token_times((lm, *lms.values()), 2 * size.tokens)
    for name, token in zip(lms, theirs, strict=True):
        yield BenchFigure(f"{precision}, torch {name} beside it", 1000 * token.cpu_s, "ms")
    fastest_s = min(token.cpu_s for token in theirs)
    ratio_name = f"{precision}, a token against torch's fastest"
    yield BenchFigure(ratio_name, ours.cpu_s / fastest_s, "x", 0.4 if "int4" in precision else None)


@torch.inference_mode()
def _beside_float32(
    bundle: CosyVoiceBundle, lm: LmNetwork, precision: str, size: PrecisionBenchSize
) -> Iterator[BenchFigure]:
    exact_lm = load_lm(bundle, Precision.FP32)
    token, exact = _alternating_token_times((lm, exact_lm), 2 * size.tokens)
    max_ratio = 0.5 if precision == Precision.INT8 else None
    yield BenchFigure(f"{precision}, a token", 1000 * token.cpu_s, "ms")
    yield BenchFigure(f"{precision}, fp32 beside it", 1000 * exact.cpu_s, "ms")
    yield BenchFigure(f"{precision}, a token against fp32", token.cpu_s / exact.cpu_s, "x", max_ratio)
    yield BenchFigure(f"{precision}, a token by the clock", 1000 * token.wall_s, "ms")
    yield BenchFigure(f"{precision}, fp32 beside it by the clock", 1000 * exact.wall_s, "ms")
    yield BenchFigure(f"{precision}, a token against fp32 by the clock", token.wall_s / exact.wall_s, "x")
    inputs, exact_logits = sample_sessions(exact_lm, -(-size.positions // SESSIONS))
    logits = teacher_forced_logits(lm, inputs)
    error = logit_error(logits[: size.positions], exact_logits[: size.positions])
    # float16 is for a GPU, and four bits lose more; what they lose is stated.
    has_targets = not precision.endswith((Precision.FP16, Precision.INT4, Precision.INT4_INT8))
    agreement_name = f"{precision}, likeliest id as fp32's where it leads by 0.1"
    yield BenchFigure(f"{precision}, mean KL to fp32", error.kl, "nats", MAX_KL if has_targets else None)
    min_agreement = 100 * MIN_AGREEMENT if has_targets else None
    yield BenchFigure(agreement_name, 100 * error.agreement, "%", at_least=min_agreement)
    yield BenchFigure(f"{precision}, positions where it leads by 0.1", error.certain, "")


def _matrix_bytes(lm: SpeechLm) -> int:
    matrices = [linear.matrix for linear in lm.modules() if isinstance(linear, Linear)]
    return sum(matrix.numel() * matrix.element_size() for matrix in matrices if matrix is not None)


def _graph_bytes(bundle: CosyVoiceBundle, precision: Precision) -> int:
    graphs = [graph_path(bundle, name, precision) for name in ("lm_step", "lm_head")]
    return sum(path.with_name(f"{path.name}.data").stat().st_size for path in graphs)


def _private_bytes() -> int:
    """Memory of this process that is not a mapped file, which the system can evict; 0 if not Linux."""
    try:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


@torch.inference_mode()
def _tokens_per_s(lm: LmNetwork, tokens: int) -> tuple[float, float]:
    """Tokens a second of all sessions, in one step and one after another, by the clock."""
    batch = _prefilled_state(lm, tokens, SESSIONS)
    singles = [_prefilled_state(lm, tokens, 1) for _ in range(SESSIONS)]
    batched, sequential = [], []
    for _ in range(tokens):
        with Stopwatch() as step:
            batch = _step(lm, batch)
        batched.append(step.elapsed)
        with Stopwatch() as steps:
            singles = [_step(lm, state) for state in singles]
        sequential.append(steps.elapsed)
    return SESSIONS / median_time(batched).wall_s, SESSIONS / median_time(sequential).wall_s


def _alternating_token_times(lms: Sequence[LmNetwork], tokens: int) -> list[MeasuredTime]:
    """Median step of each model; steps alternate, so that other load on the machine affects both."""
    states = [_prefilled_state(lm, tokens, 1) for lm in lms]
    times: list[list[MeasuredTime]] = [[] for _ in lms]
    for _ in range(tokens):
        for index, lm in enumerate(lms):
            with Stopwatch() as step:
                states[index] = _step(lm, states[index])
            times[index].append(step.elapsed)
    return [median_time(each) for each in times]


def _prefilled_state(lm: LmNetwork, tokens: int, rows: int) -> SpeechLmState:
    ids = random_ids((rows, CONTEXT), lm.config.codebook_size)
    _, state = lm.step(lm.embed_speech(ids), lm.init_state(rows, CONTEXT + tokens + 1))
    return _step(lm, state)  # warm-up


def _step(lm: LmNetwork, state: SpeechLmState) -> SpeechLmState:
    ids = torch.zeros(len(state.lengths), 1, dtype=torch.int64)
    hidden, state = lm.step(lm.embed_speech(ids), state)
    lm.logits(hidden[:, -1])
    return state


if __name__ == "__main__":
    sys.exit(print_figures(measure_precision(Path(sys.argv[1]), sys.argv[2])))
