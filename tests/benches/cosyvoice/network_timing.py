"""What the networks of a bundle cost on this machine: processor time, wall time. No targets, no tables.

An utterance is random ids behind a prompt of 3 s, in the hops in which a listener would get it. Processor
time is of all threads and told over two cores: what the wall clock would show on an idle machine where both
have always something to do. The wall clock is told beside it.

Source: the method of the figures for FunAudioLLM/CosyVoice@ace7c47 that they are held against.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
from vivavoce.models.cosyvoice.device_benchmark import CPU_TIME_CORES, MeasuredTime, Stopwatch, median_time
from vivavoce.models.cosyvoice.flow.encoder import FRAMES_PER_SPEECH_ID
from vivavoce.models.cosyvoice.flow.flow import MEL_BANDS, Flow, state_bytes_per_s
from vivavoce.models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk
from vivavoce.models.cosyvoice.flow.state import EXACT_POLICY, FRAMES_PER_S, FlowChunk, FlowPolicy
from vivavoce.models.cosyvoice.networks import flow_config, load_flow, load_lm, load_networks, load_vocoder
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3
from vivavoce.models.cosyvoice.vocoder.noise_table import NoiseTable

IDS_PER_S = 25
PROMPT_RANGE_S = 3


@dataclass(frozen=True, slots=True)
class ChunkTime:
    """A chunk of an utterance: how long it is, and what it cost."""

    seconds: float
    elapsed: MeasuredTime


@dataclass(frozen=True, slots=True)
class LmTiming:
    """A context fed at once, and the median step of a token behind it."""

    context: int
    prefill: MeasuredTime
    token: MeasuredTime


@dataclass(frozen=True, slots=True)
class MelTiming:
    """An utterance through the flow or the vocoder, chunk by chunk. mel: (80, T) float32."""

    chunks: tuple[ChunkTime, ...]
    mel: Tensor

    @property
    def total(self) -> MeasuredTime:
        """All chunks; a prompt is not among them, because a voice is prefilled once."""
        return _sum([chunk.elapsed for chunk in self.chunks])

    @property
    def last_to_first_ratio(self) -> float:
        """Processor time a second of speech, in the last chunk over in the first."""
        first, last = (chunk.elapsed.cpu_s / chunk.seconds for chunk in (self.chunks[0], self.chunks[-1]))
        return last / first


def limit_torch_threads() -> None:
    """Compute on as many threads as processor time is told over."""
    torch.set_num_threads(CPU_TIME_CORES)


@torch.inference_mode()
def time_lm(bundle: CosyVoiceBundle, contexts: Sequence[int], tokens: int) -> Iterator[LmTiming]:
    """Feed random ids of each context, then decode."""
    lm = load_lm(bundle)
    for context in contexts:
        ids = _random_ids(bundle, context)
        lm.step(lm.embed_speech(ids[:, :8]), lm.init_state(1, 8))  # for what a process does once
        state = lm.init_state(1, context + tokens)
        with Stopwatch() as prefill:
            _, state = lm.step(lm.embed_speech(ids), state)
        costs = []
        for _ in range(tokens):
            with Stopwatch() as step:
                hidden, state = lm.step(lm.embed_speech(ids[:, :1]), state)
                lm.logits(hidden[:, -1])
            costs.append(step.elapsed)
        yield LmTiming(context, prefill.elapsed, median_time(costs))


def time_flow(bundle: CosyVoiceBundle, seconds: float, policy: FlowPolicy | None = None) -> MelTiming:
    """Render an utterance of random ids chunk by chunk."""
    flow = load_flow(bundle, policy)
    prompt = _random_ids(bundle, PROMPT_RANGE_S * IDS_PER_S)
    silence = torch.zeros(1, MEL_BANDS, prompt.shape[1] * FRAMES_PER_SPEECH_ID)
    voice, covered = flow.prefill(prompt, silence, _random_speaker(flow))
    count = round(seconds * IDS_PER_S)
    state = flow.copy_for_utterance(voice, frames=(covered + count) * FRAMES_PER_SPEECH_ID)
    ids = _random_ids(bundle, count)
    costs, mels = [], []
    for hop in _hop_chunks(count):
        with Stopwatch() as step:
            mel, state = flow.step(_chunk(ids, hop), state)
        costs.append(_chunk_time(hop, step.elapsed))
        mels.append(mel[0])
    return MelTiming(tuple(costs), torch.cat(mels, 1))


def time_vocoder(bundle: CosyVoiceBundle, seconds: float) -> MelTiming:
    """Vocode a random mel chunk by chunk."""
    vocoder = load_vocoder(bundle)
    frames = round(seconds * FRAMES_PER_S)
    mel = torch.randn(1, MEL_BANDS, frames, generator=torch.Generator().manual_seed(0)) - 5
    _vocode(vocoder)(mel[:, :, : 2 * FRAMES_PER_S], False)  # for what a process does once
    speak, costs = _vocode(vocoder), []
    for hop in _hop_chunks(frames // FRAMES_PER_SPEECH_ID):
        with Stopwatch() as step:
            speak(mel[:, :, hop.start * FRAMES_PER_SPEECH_ID : hop.stop * FRAMES_PER_SPEECH_ID], hop.final)
        costs.append(_chunk_time(hop, step.elapsed))
    return MelTiming(tuple(costs), mel[0])


def speak_with_all_networks(bundle: CosyVoiceBundle, seconds: float) -> int:
    """Load all three networks and speak with them; the bytes of flow state that this has filled."""
    networks = load_networks(bundle)
    ids = _random_ids(bundle, round(seconds * IDS_PER_S))
    with torch.inference_mode():
        inputs = networks.lm.embed_speech(ids)
        _, lm_state = networks.lm.step(inputs, networks.lm.init_state(1, 2 * ids.shape[1]))
        hidden, _ = networks.lm.step(inputs[:, :1], lm_state)
        networks.lm.logits(hidden)
    state, speak = networks.flow.init_state(_random_speaker(networks.flow)), _vocode(networks.vocoder)
    for hop in _hop_chunks(ids.shape[1]):
        mel, state = networks.flow.step(_chunk(ids, hop), state)
        speak(mel, hop.final)
    return round(seconds * flow_state_bytes_per_s(bundle))


def flow_state_bytes_per_s(bundle: CosyVoiceBundle) -> int:
    """What a second of speech adds to the flow's memory, everything remembered."""
    return state_bytes_per_s(flow_config(bundle.network_config), EXACT_POLICY)


def mel_error_db(mel: Tensor, exact: Tensor) -> float:
    """How large the difference of two mels is against the second one's variation, root mean square."""
    return 10 * math.log10(float((mel - exact).square().mean() / exact.var()) or 1e-30)


def max_mel_difference(mel: Tensor, exact: Tensor) -> float:
    """In natural logarithms, as a mel is."""
    return float((mel - exact).abs().max())


def _random_ids(bundle: CosyVoiceBundle, count: int) -> Tensor:
    codes = bundle.network_config.lm.codebook_size
    return torch.randint(codes, (1, count), generator=torch.Generator().manual_seed(count))


def _random_speaker(flow: Flow) -> Tensor:
    return flow.project_speaker(
        torch.randn(1, flow.config.speaker_width, generator=torch.Generator().manual_seed(1))
    )


def _hop_chunks(count: int) -> Iterator[SpeechIdChunk]:
    schedule = HopSchedule()
    while hop := schedule.next(count, ended=True):
        yield hop


def _chunk(ids: Tensor, hop: SpeechIdChunk) -> FlowChunk:
    spoken = ids[:, hop.start : hop.stop]
    return FlowChunk(
        spoken,
        ids[:, hop.stop : hop.lookahead_stop],
        torch.zeros(1, MEL_BANDS, spoken.shape[1] * FRAMES_PER_SPEECH_ID),
    )


def _chunk_time(hop: SpeechIdChunk, cost: MeasuredTime) -> ChunkTime:
    return ChunkTime((hop.stop - hop.start) / IDS_PER_S, cost)


def _vocode(vocoder: HiftV2 | HiftV3) -> Callable[[Tensor, bool], Tensor]:
    """Vocodes an utterance from its beginning, chunk by chunk; the last is announced."""
    return _vocode_v2(vocoder) if isinstance(vocoder, HiftV2) else _vocode_v3(vocoder)


def _vocode_v2(vocoder: HiftV2) -> Callable[[Tensor, bool], Tensor]:
    state, generator = vocoder.init_state(1), torch.Generator().manual_seed(0)

    def speak(mel: Tensor, last: bool) -> Tensor:
        nonlocal state
        samples = mel.shape[2] * vocoder.config.samples_per_frame
        noise = torch.randn(1, samples, vocoder.config.sine_count, generator=generator)
        if last:
            return vocoder.finish(mel, noise, state)
        spoken, state = vocoder.step(mel, noise, state)
        return spoken

    return speak


def _vocode_v3(vocoder: HiftV3) -> Callable[[Tensor, bool], Tensor]:
    state, noise = vocoder.init_state(1), NoiseTable(vocoder.config.sine_count, skipped_draws=0).open_reader()

    def speak(mel: Tensor, last: bool) -> Tensor:
        nonlocal state
        taken = noise.read(vocoder.noise_samples(mel.shape[2], state, last=last))
        if last:
            return vocoder.finish(mel, taken, state)
        spoken, state = vocoder.step(mel, taken, state)
        return spoken

    return speak


def _sum(costs: Sequence[MeasuredTime]) -> MeasuredTime:
    return MeasuredTime(sum(cost.cpu_s for cost in costs), sum(cost.wall_s for cost in costs))
