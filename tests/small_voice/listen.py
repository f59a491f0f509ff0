"""Words that a recogniser hears wrong in unseen sentences, part by part: who made the mistake.

    teacher         the recordings themselves
    mel             the recordings' mel, made audible without a network
    flow            the flow's mel of the recordings' speech ids, made audible without a network
    vocoder         the vocoder's samples of the recordings' mel
    flow, vocoder   the vocoder's samples of the flow's mel
    bundle          all of it, by the engine, streamed

Each includes the mistakes of the recogniser and of the parts above it. A mel becomes audible by Griffin and
Lim's algorithm, so that the flow can be judged while the vocoder is still being trained.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from benches.transcript_scoring import MistakeKind, score
from benches.word_errors import load_recogniser, to_telephone_band, to_wide_band, transcribe
from small_voice import corpus, world
from small_voice.bundle import SPEAKER
from small_voice.teacher import Recording, Teacher
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, MEL_BANDS, SAMPLE_RATE
from vivavoce.models.cosyvoice.flow.state import FlowChunk
from vivavoce.models.cosyvoice.front_end import features
from vivavoce.models.cosyvoice.front_end.features import MEL_HOP, MEL_WINDOW, mel_spectrogram
from vivavoce.models.cosyvoice.networks import RenderNetworks, load_render_networks
from vivavoce.models.cosyvoice.onnx_graphs.export import export_bundle
from vivavoce.models.devices.execution import Precision
from vivavoce.models.devices.torch_devices import CPU
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation import AT_ONCE_POLICY
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy

Float = NDArray[np.float32]
_ITERATIONS = 40  # of the search for phases
_ANY_LOAD = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))
CHANNELS = {"wide band": to_wide_band, "u-law": to_telephone_band}


def unseen_sentences(count: int, seed: int, seen: Iterable[str]) -> list[str]:
    """Sentences of the world with another seed, none of which was seen."""
    known = set(seen)
    return list(islice((text for text in world.sentences(seed) if text not in known), count))


def words_wrong(
    sentences: Sequence[str],
    speech: Sequence[Float],
    channel: Callable[[Float], Float],
    show: Callable[[str], None] = lambda line: None,
    whisper: Path | None = None,
) -> float:
    """Percent of the words that the recogniser hears wrong, of 24 kHz speech through a channel.

    whisper: folder of another recogniser than the packaged one.
    """
    model = load_recogniser(whisper)
    heard = (transcribe(model, channel(samples)).text for samples in speech)
    return words_written_wrong(sentences, heard, show)


def words_written_wrong(
    sentences: Sequence[str], texts: Iterable[str], show: Callable[[str], None] = lambda line: None
) -> float:
    """Percent of the words that a recogniser wrote wrong, in the text of each sentence."""
    words, wrong = 0, 0
    for sentence, heard in zip(sentences, texts, strict=True):
        spoken = " ".join(word.text for word in world.spoken_words(sentence)).lower()
        result = score(spoken, heard)
        words += result.words
        mistakes = result.count_wrong(MistakeKind.WORD)
        wrong += mistakes
        if mistakes:
            show(f"{mistakes}  {spoken}\n   {heard}")
    return 100 * wrong / words


def say_mel(networks: RenderNetworks, mel: Tensor) -> Float:
    """Samples of a mel, (80, T), at once."""
    vocoder = networks.vocoder
    state = vocoder.init_state(1)
    noise = torch.randn(
        1,
        vocoder.noise_samples(mel.shape[1], state, last=True),
        vocoder.config.sine_count,
        generator=torch.Generator().manual_seed(5),
    )
    with torch.inference_mode():
        return vocoder.finish(mel[None], noise, state)[0].numpy()


def invert_mel(mel: Tensor) -> Float:
    """Samples of a mel, (80, T), whose phases are found by iteration.

    Source: D. W. Griffin and J. S. Lim, Signal Estimation from Modified Short-Time Fourier Transform (1984).
    """
    filters = features.slaney_filters(SAMPLE_RATE, MEL_WINDOW, MEL_BANDS, corpus.MEL_MAX_HZ)
    magnitude = (torch.from_numpy(np.linalg.pinv(filters)).float() @ mel.exp()).clamp(min=1e-5)
    window, frames = torch.hann_window(MEL_WINDOW), mel.shape[1]
    turns = torch.rand(magnitude.shape, generator=torch.Generator().manual_seed(5))
    spectrum = torch.polar(magnitude, 2 * torch.pi * turns)
    # The mel's frames lie half a hop later than those of torch, which are centred on multiples of the hop.
    for _ in range(_ITERATIONS):
        padded = F.pad(spectrum, (1, 1))
        wave = torch.istft(padded, MEL_WINDOW, MEL_HOP, window=window, length=MEL_HOP * (frames + 1))
        made = torch.stft(wave, MEL_WINDOW, MEL_HOP, window=window, return_complex=True)[:, 1 : frames + 1]
        spectrum = torch.polar(magnitude, made.angle())
    return wave[MEL_HOP // 2 : -(MEL_HOP // 2)].numpy()


def mel_of_ids(networks: RenderNetworks, ids: NDArray[np.int64], embedding: Float) -> Tensor:
    """The flow's mel, (80, 2 L), of speech ids without a prompt, in one chunk of blocks."""
    flow = networks.flow
    with torch.inference_mode():
        speaker = flow.project_speaker(torch.from_numpy(embedding)[None])
        state = flow.init_state(speaker, FRAMES_PER_SPEECH_ID * len(ids))
        no_prompt = torch.zeros(1, MEL_BANDS, FRAMES_PER_SPEECH_ID * len(ids))
        chunk = FlowChunk(torch.from_numpy(ids)[None], torch.zeros(1, 0, dtype=torch.int64), no_prompt)
        mel, _ = flow.step(chunk, state)
        return mel[0]


def say_with_engine(
    bundle: Path,
    sentences: Sequence[str],
    *,
    backend: CosyVoiceBackend | None = None,
    executor: str = "auto",
    precision: str = "fp32",
    pieces: str = r".+",
    together: int = 1,
) -> list[Float]:
    """Each sentence as a stream of the engine.

    backend: of the bundle, in place of one that executor and precision choose. pieces: a pattern of what is
    pushed at a time. together: streams at once.
    """

    async def say() -> list[Float]:
        if backend is not None:
            engine = await Engine.open(backend=backend, config=_ANY_LOAD, warm_up=False)
        else:
            engine = await Engine.open(str(bundle), config=_ANY_LOAD, executor=executor, precision=precision)
        try:
            said: list[Float] = []
            for first in range(0, len(sentences), together):
                batch = sentences[first : first + together]
                said += await asyncio.gather(*(_streamed(engine, re.findall(pieces, one)) for one in batch))
            return said
        finally:
            await engine.aclose()

    return asyncio.run(say())


async def _streamed(engine: Engine, pieces: Sequence[str]) -> Float:
    async with engine.stream(seed=7) as stream:
        for piece in pieces:
            stream.push_text(piece)
            await asyncio.sleep(0)
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


def speech_of_ways(bundle: Path, sentences: Sequence[str]) -> Iterator[tuple[str, list[Float]]]:
    """Each way to speak a bundle, whose graphs are written for it, and the sentences as they are said.

    The first is of torch, in one chunk that attends to all of itself; the others stream, by ONNX Runtime.
    """
    for precision in (Precision.FP32, Precision.INT8):
        for _ in export_bundle(open_bundle(bundle), precision):
            pass
    yield "at once", say_with_engine(bundle, sentences, backend=CosyVoiceBackend.load(bundle, AT_ONCE_POLICY))
    say = partial(say_with_engine, bundle, sentences, executor="onnxruntime")
    yield "whole text", say()
    yield "word by word", say(pieces=r"\S+\s*")
    yield "eight at once", say(together=8)
    yield "int8", say(precision="int8")


def speech_of_parts(bundle: Path, sentences: Sequence[str]) -> Iterator[tuple[str, list[Float]]]:
    """Each part, and the sentences as it says them: (N,) samples at 24 kHz."""
    checked = open_bundle(bundle)
    networks, embedding = load_render_networks(checked, None, CPU), checked.speakers()[SPEAKER].embedding
    tokenizer = onnxruntime.InferenceSession(checked.speech_tokenizer)
    teacher = Teacher()
    recordings = [teacher.speak(text) for text in sentences]
    yield "teacher", [recording.waveform for recording in recordings]
    mels = [mel_of(recording) for recording in recordings]
    yield "mel", list(map(invert_mel, mels))
    flow_mels = [
        mel_of_ids(networks, ids_of(tokenizer, corpus.whisper_features(one)), embedding) for one in recordings
    ]
    yield "flow", list(map(invert_mel, flow_mels))
    yield "vocoder", [say_mel(networks, mel) for mel in mels]
    yield "flow, vocoder", [say_mel(networks, mel) for mel in flow_mels]
    yield "bundle", say_with_engine(bundle, sentences)


def ids_of(tokenizer: onnxruntime.InferenceSession, whisper: NDArray[np.floating]) -> NDArray[np.int64]:
    """The speech ids, (L,), of Whisper's features, (128, 4 L)."""
    whisper = whisper.astype(np.float32)[None]
    feed = {"feats": whisper, "feats_length": np.array([whisper.shape[2]], np.int32)}
    return np.asarray(tokenizer.run(None, feed)[0][0], np.int64)


def mel_of(recording: Recording) -> Tensor:
    """(80, T) float32."""
    return torch.from_numpy(mel_spectrogram(recording.waveform, corpus.MEL_MAX_HZ))
