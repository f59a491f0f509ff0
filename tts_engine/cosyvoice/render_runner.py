"""Runs flow and vocoder: speech ids of a sentence to samples, a chunk at a time.

A voice's recording is heard by the flow once and kept; a sentence begins with a copy. The recording is cut
to whole blocks of 25 ids and 3 more, the lookahead of its last block, so that 22 new ids make a block with
them and 25 are enough for the first sound:

    ids        |<- recording, 25 k ->|r r r|0 ... 21|22 23 24|
                prepared once a voice |first chunk |lookahead

One thread; memory is in each sentence's ``Rendering``.
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.cosyvoice.flow import BLOCK_IDS, MEL, Flow, FlowChunk, FlowState
from ...models.cosyvoice.flow_encoder import LOOKAHEAD, RATIO
from ...models.cosyvoice.hift import Hift, HiftState
from ...models.cosyvoice.hift_v3 import HiftV3, HiftV3State, NoiseReader, NoiseTable
from ...models.cosyvoice.hop_schedule import Chunk
from ...models.cosyvoice.mel_speed import MelSpeed
from ...models.cosyvoice.networks import Networks

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Timbre:
    """What the flow is conditioned on.

    id: names the value. embedding: (192,) float32. ids: (P,) of a recording, with mel: (80, 2 P); P may be 0.
    """

    id: str
    embedding: NDArray[np.float32]
    ids: NDArray[np.int32]
    mel: NDArray[np.float32]

    def last(self, most: int) -> "Timbre":
        """With the end of the recording: at most so many ids, whole blocks and the lookahead of the last."""
        count = (min(most, len(self.ids)) - LOOKAHEAD) // BLOCK_IDS * BLOCK_IDS + LOOKAHEAD
        first = len(self.ids) - count if count > LOOKAHEAD else len(self.ids)
        return Timbre(self.id, self.embedding, self.ids[first:], self.mel[:, RATIO * first :])

    @property
    def tail(self) -> tuple[int, ...]:
        """The ids that the first chunk has to speak again, unheard."""
        return tuple(self.ids[len(self.ids) // BLOCK_IDS * BLOCK_IDS :].tolist())


class Vocoder(Protocol):
    """A vocoder in the middle of a sentence. mel: (1, 80, T)."""

    def step(self, mel: Tensor) -> Tensor:
        """Samples that are certain now, (1, N)."""

    def finish(self, mel: Tensor) -> Tensor:
        """All that remain."""


@dataclass(slots=True)
class Rendering:
    """What flow, speed and vocoder remember of a sentence. tail_mel: (80, 2 n), of the recording's tail."""

    flow: FlowState
    tail_mel: Tensor
    speed: MelSpeed
    vocoder: Vocoder


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of a sentence to render; ids: all of the sentence's so far, the recording's tail first."""

    rendering: Rendering
    chunk: Chunk
    ids: list[int]


class RenderRunner:
    """Flow and vocoder of a bundle. timbres: voices kept prepared at most."""

    def __init__(self, networks: Networks, *, timbres: int) -> None:
        self._flow: Flow = networks.flow
        self._vocoder = networks.vocoder
        self._noise = NoiseTable(self._vocoder.config.waves) if isinstance(self._vocoder, HiftV3) else None
        self._most_timbres = timbres
        self._prepared: OrderedDict[str, FlowState] = OrderedDict()

    def begin(self, timbre: Timbre, speed: float, noise: np.random.Generator) -> Rendering:
        """A sentence in a voice. noise: of the session, for version 2; version 3's is always the same."""
        voice = self._prepare(timbre)
        used = int(voice.frames.max())
        room = used + self._flow.policy.reserve_frames
        tail = torch.from_numpy(timbre.mel[:, RATIO * (len(timbre.ids) - len(timbre.tail)) :])
        return Rendering(self._flow.open(voice, room), tail, MelSpeed(speed), self._vocode(noise))

    def render(self, parts: list[Part]) -> list[Samples]:
        """The samples of each chunk, as far as they are certain."""
        return [self._render(part) for part in parts]

    def _render(self, part: Part) -> Samples:
        rendering, chunk = part.rendering, part.chunk
        mel, rendering.flow = self._flow.step(_flow_chunk(part), rendering.flow)
        unheard = max(0, rendering.tail_mel.shape[1] - RATIO * chunk.start)
        mel = rendering.speed.push(mel[:, :, unheard:])
        if not chunk.final:
            return _numpy(rendering.vocoder.step(mel))
        return _numpy(rendering.vocoder.finish(torch.cat([mel, rendering.speed.finish()], 2)))

    def _prepare(self, timbre: Timbre) -> FlowState:
        if timbre.id not in self._prepared:
            self._prepared[timbre.id] = self._heard(timbre)
            if len(self._prepared) > self._most_timbres:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(timbre.id)
        return self._prepared[timbre.id]

    @torch.inference_mode()
    def _heard(self, timbre: Timbre) -> FlowState:
        speaker = self._flow.speaker(torch.from_numpy(timbre.embedding)[None])
        ids, mel = torch.from_numpy(timbre.ids).long()[None], torch.from_numpy(timbre.mel)[None]
        return self._flow.prefill(ids, mel, speaker)[0]

    def _vocode(self, noise: np.random.Generator) -> Vocoder:
        if isinstance(self._vocoder, HiftV3):
            assert self._noise is not None
            return _CausalVocoder(self._vocoder, self._noise.session())
        return _OverlappingVocoder(self._vocoder, noise)


class _OverlappingVocoder:
    """Version 2's."""

    def __init__(self, network: Hift, noise: np.random.Generator) -> None:
        self._network, self._noise = network, noise
        self._state: HiftState = network.init_state(1)

    def step(self, mel: Tensor) -> Tensor:
        samples, self._state = self._network.step(mel, self._drawn(mel), self._state)
        return samples

    def finish(self, mel: Tensor) -> Tensor:
        return self._network.finish(mel, self._drawn(mel), self._state)

    def _drawn(self, mel: Tensor) -> Tensor:
        config = self._network.config
        shape = (1, config.frame_samples * mel.shape[2], config.waves)
        return torch.from_numpy(self._noise.standard_normal(shape, np.float32))


class _CausalVocoder:
    """Version 3's."""

    def __init__(self, network: HiftV3, noise: NoiseReader) -> None:
        self._network, self._noise = network, noise
        self._state: HiftV3State = network.init_state(1)

    def step(self, mel: Tensor) -> Tensor:
        samples, self._state = self._network.step(mel, self._drawn(mel, last=False), self._state)
        return samples

    def finish(self, mel: Tensor) -> Tensor:
        return self._network.finish(mel, self._drawn(mel, last=True), self._state)

    def _drawn(self, mel: Tensor, *, last: bool) -> Tensor:
        return self._noise.take(self._network.noise_samples(mel.shape[2], self._state, last=last))


def _flow_chunk(part: Part) -> FlowChunk:
    chunk = part.chunk
    ids = torch.tensor([part.ids[chunk.start : chunk.stop]])
    future = torch.tensor([part.ids[chunk.stop : chunk.fed]], dtype=torch.int64)
    mel = torch.zeros(1, MEL, RATIO * ids.shape[1])
    tail = part.rendering.tail_mel[:, RATIO * chunk.start :]
    mel[0, :, : tail.shape[1]] = tail
    return FlowChunk(ids, future, mel)


def _numpy(samples: Tensor) -> Samples:
    array: Samples = samples[0].numpy()
    return array
