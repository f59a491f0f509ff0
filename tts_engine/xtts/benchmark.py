"""Times the networks of XTTS as the engine runs them: ids, a first chunk, the vocoder, many sessions.

Run by ``vivavoce bench device``. A step ends when its result is on the host.
"""

import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from ...models.decoding.uniforms import PeekableUniforms, seeded_uniforms
from ...models.devices.torch_devices import find_device
from ...models.xtts.checkpoint.bundle import open_bundle
from ...models.xtts.gpt import XttsGpt
from ...models.xtts.networks import load_networks
from ...models.xtts.sampling import PREFIX_ID, XttsSamplingInputs, sample_speech_ids
from ...models.xtts.text.cleaner import clean_text
from ...models.xtts.voice import XttsVoice
from ..backends.base import SlotRequest, SlotTurn
from .backend import XttsBackend
from .checkpoints import bundle_errors
from .gpt_runner import DecodedColumn, Latent, XttsGptInput, XttsGptRunner, XttsGptTurn
from .number_words import CldrNumberWords
from .policy import xtts_policy_for
from .render_runner import XttsRenderRunner

Clock = Callable[[], float]  # seconds

_TEXT = "It took me quite a long time to develop a voice and now that I have it."
_CHUNK_IDS = 20  # upstream's stream_chunk_size
_MARKS = 3  # around a text: start, stop, and the first speech id


@dataclass(frozen=True, slots=True)
class XttsBenchmarkSize:
    """Amount of work."""

    context: int = 100  # columns before the timed ids
    ids: int = 30  # timed ids of each session
    sessions: int = 8
    latents: int = 215  # for the vocoder, 10 s
    rounds: int = 3  # of the first chunk


@dataclass(frozen=True, slots=True)
class XttsTimings:
    """Median seconds, but for memory."""

    size: XttsBenchmarkSize
    id_s: float  # an id of one session: fed, sampled
    batched_id_s: float  # a step of all sessions
    first_chunk_s: float  # a text of 72 characters to the samples of 20 ids
    streamed_s: float  # the vocoder, 20 latents at a time
    offline_s: float  # the vocoder, all latents at once
    peak_bytes: int  # resident memory at its highest
    resident_bytes: int  # resident memory after one session


def measure_xtts(
    folder: Path,
    device: str,
    size: XttsBenchmarkSize | None = None,
    clock: Clock = time.perf_counter,
    precision: str = "fp32",
) -> XttsTimings:
    """Load a bundle and time it. clock: gives seconds. Raises BundleError, BadRequest."""
    size = size or XttsBenchmarkSize()
    policy = replace(
        xtts_policy_for(device, precision), slots=1, first_hop=_CHUNK_IDS, ids_per_decode_step=_CHUNK_IDS
    )
    with bundle_errors():
        bundle = open_bundle(folder)
        found = find_device(device)
        networks = load_networks(bundle, found, policy.precision)
    voice = next(iter(bundle.voices().values()))
    id_s, latents = _decode(networks.gpt, voice, size, clock, rows=1)
    with closing(XttsBackend.from_bundle(bundle, networks, policy)) as backend:
        first_chunk_s = statistics.median(_first_chunks(backend, size.rounds, clock))
        resident_bytes = _resident_bytes()
    spoken = (latents * (size.latents // len(latents) + 1))[: size.latents]
    vocoder = XttsRenderRunner(networks.vocoder, found)
    offline_s = _vocode(vocoder, voice, spoken, len(spoken), clock)
    streamed_s = _vocode(vocoder, voice, spoken, _CHUNK_IDS, clock)
    batched_id_s, _ = _decode(networks.gpt, voice, size, clock, rows=size.sessions)
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return XttsTimings(
        size, id_s, batched_id_s, first_chunk_s, streamed_s, offline_s, peak_bytes, resident_bytes
    )


def first_chunk_columns(folder: Path) -> int:
    """Columns before the first id of the first chunk: voice, text and its marks. Raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
    voice = next(iter(bundle.voices().values()))
    text_ids = bundle.tokenizer().encode(clean_text(_TEXT, "en", CldrNumberWords()), "en")
    return len(voice.latents) + len(text_ids) + _MARKS


def _resident_bytes() -> int:
    """Resident memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _decode(
    gpt: XttsGpt, voice: XttsVoice, size: XttsBenchmarkSize, clock: Clock, rows: int
) -> tuple[float, list[Latent]]:
    """Median seconds of a step of that many sessions, and the latents of the first one."""
    runner = XttsGptRunner(gpt, rows=rows, max_voices=1, prefill_chunk=128)
    text_ids = [5] * max(1, size.context - len(voice.latents) - 2)
    columns = {row: _prefilled(runner, row, XttsGptInput(voice, None, text_ids)) for row in range(rows)}
    draws = [seeded_uniforms(row) for row in range(rows)]
    ids: list[list[int]] = [[] for _ in range(rows)]
    times: list[float] = []
    latents: list[Latent] = []
    for _ in range(size.ids):
        started = clock()
        for row, column in columns.items():
            ids[row].append(_sampled(column, ids[row], draws[row]))
        columns = runner.decode({row: XttsGptTurn(each[-1], len(each)) for row, each in enumerate(ids)})
        times.append(clock() - started)
        latents.append(columns[0].latent)
    return statistics.median(times), latents


def _prefilled(runner: XttsGptRunner, row: int, sentence: XttsGptInput) -> DecodedColumn:
    while (column := runner.prefill_part(row, sentence)) is None:
        pass
    return column


def _sampled(column: DecodedColumn, ids: Sequence[int], draws: PeekableUniforms) -> int:
    inputs = XttsSamplingInputs((PREFIX_ID, *ids), draws)
    return sample_speech_ids(column.logits[None], [inputs])[0]


def _vocode(
    runner: XttsRenderRunner, voice: XttsVoice, latents: Sequence[Latent], count: int, clock: Clock
) -> float:
    """Seconds to bring latents to samples, ``count`` at a time; the second of two runs."""
    for _ in range(2):
        started = clock()
        state = runner.begin(voice.speaker, 1.0)
        for start in range(0, len(latents), count):
            final = start + count >= len(latents)
            runner.run({0: runner.render_input(state, latents[start : start + count], final=final)})
        taken_s = clock() - started
    return taken_s


def _first_chunks(backend: XttsBackend, rounds: int, clock: Clock) -> Iterator[float]:
    """Seconds from an open slot to its first samples; the first round is a warm-up and left out."""
    request = SlotRequest(backend.voices.default.id, 1.0, 0)
    segmenter = backend.segmenter(request)
    segment = [*segmenter.push(_TEXT), *segmenter.flush()][0]
    for index in range(rounds + 1):
        slot = backend.open_slot(request)
        turn = SlotTurn(slot, segment)
        started = clock()
        while not _rendered(backend, turn):
            turn = SlotTurn(slot, None)
        taken_s = clock() - started
        backend.close_slot(slot)
        if index:
            yield taken_s


def _rendered(backend: XttsBackend, turn: SlotTurn) -> bool:
    worker = next(index for index, stages in enumerate(backend.workers) if backend.stage(turn.slot) in stages)
    [result] = backend.step(worker, [turn])
    if isinstance(result, Exception):
        raise result
    return len(result.samples) > 0
