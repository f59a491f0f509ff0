"""Runs flow and vocoder: speech ids of a sentence to samples, a chunk at a time.

A voice's recording is heard by the flow once and kept; a sentence goes on behind it, there, or in a copy, or
in pages that refer to it (``flow_runner``). The recording is cut to whole blocks of 25 ids and 3 more, the
lookahead of its last block, so that 22 new ids make a block with them and 25 are enough for the first sound:

    ids        |<- recording, 25 k ->|r r r|0 ... 21|22 23 24|
                prepared once a voice |first chunk |lookahead

Sentences whose chunks are equally long share a step of the flow, and of the vocoder where they are equally
far; last chunks share one where they take as many blocks. Memory is in each sentence's ``Rendering``, or told
there (``flow_runner``), and is replaced once a step has come to its end, so that a step that failed can be
tried again. One thread.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.cosyvoice.devices import on_device, on_host
from ...models.cosyvoice.flow import BLOCK_IDS, MEL, Flow, FlowChunk, FlowState
from ...models.cosyvoice.flow_encoder import LOOKAHEAD, RATIO
from ...models.cosyvoice.hift import Hift, HiftState
from ...models.cosyvoice.hift_v3 import HiftV3, HiftV3State, NoiseReader, NoiseTable
from ...models.cosyvoice.hop_schedule import Chunk
from ...models.cosyvoice.mel_speed import MelSpeed
from ...models.cosyvoice.networks import Networks
from ...models.cosyvoice.state import gather, join, tensors
from .flow_runner import FlowRunner, PlainFlow, RecordedFlow, can_be_recorded
from .policy import CosyVoicePolicy

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


VocoderState = HiftState | HiftV3State


class Throat(Protocol):
    """A vocoder's memory and random numbers in the middle of a sentence."""

    state: VocoderState

    def draw(self, frames: int, *, last: bool) -> Tensor:
        """The noise that so many new mel frames take, (1, N, waves)."""


@dataclass(slots=True)
class Rendering:
    """What flow, speed and vocoder remember of a sentence. tail_mel: (80, 2 n), of the recording's tail.

    seat: the sentence's at the ``FlowRunner``.
    """

    seat: object
    tail_mel: Tensor
    speed: MelSpeed
    throat: Throat


@dataclass(frozen=True, slots=True)
class Part:
    """A chunk of a sentence to render; ids: all of the sentence's so far, the recording's tail first."""

    rendering: Rendering
    chunk: Chunk
    ids: list[int]

    @property
    def length(self) -> int:
        """Ids of the chunk."""
        return self.chunk.stop - self.chunk.start


@dataclass(frozen=True, slots=True)
class Voicing:
    """What the vocoder is to make of a chunk. mel: (1, 80, T). noise: (1, N, waves)."""

    throat: Throat
    mel: Tensor
    noise: Tensor
    final: bool


class RenderRunner:
    """Flow and vocoder of a bundle."""

    def __init__(self, networks: Networks, policy: CosyVoicePolicy) -> None:
        self._flow: Flow = networks.flow
        self._device = networks.flow.device
        self._vocoder = networks.vocoder
        self._noise = NoiseTable(self._vocoder.config.waves) if isinstance(self._vocoder, HiftV3) else None
        self._most_timbres = policy.prepared_voices
        self._runner = _flow_runner(networks.flow, policy)
        self._prepared: OrderedDict[str, object] = OrderedDict()

    @property
    def memory_ids(self) -> int:
        """Speech ids that there is memory for."""
        return self._runner.memory_ids

    @property
    def kept_ids(self) -> int:
        """Speech ids of the voices that are kept prepared."""
        return sum(self._runner.kept_ids(voice) for voice in [*self._prepared.values()])

    def copied_ids(self, timbre: Timbre) -> int:
        """Speech ids of memory that each sentence takes for its voice."""
        return self._runner.copied_ids(len(timbre.ids))

    def begin(self, timbre: Timbre, speed: float, noise: np.random.Generator) -> Rendering:
        """A sentence in a voice. noise: of the session, for version 2; version 3's is always the same."""
        seat = self._runner.open(self._prepare(timbre))
        tail = self._there(timbre.mel[:, RATIO * (len(timbre.ids) - len(timbre.tail)) :])
        return Rendering(seat, tail, MelSpeed(speed), self._throat(noise))

    def shares_flow(self, part: Part) -> Hashable:
        """Equal for parts that ``flow`` may be given together."""
        final, alone = part.chunk.final, self._runner.alone(part.rendering.seat)
        return final, alone, -(-part.length // BLOCK_IDS) if final else part.length

    def flow(self, parts: Mapping[int, Part]) -> dict[int, Tensor]:
        """The mel of each chunk, (1, 80, T)."""
        chunk = _flow_chunk([*parts.values()], self._device)
        mel = self._runner.step(chunk, [part.rendering.seat for part in parts.values()])
        return {
            row: mel[index : index + 1, :, : RATIO * part.length]
            for index, (row, part) in enumerate(parts.items())
        }

    def voicing(self, part: Part, mel: Tensor) -> Voicing:
        """A chunk's mel at the session's speed, and the noise that it takes; not to be done twice."""
        rendering, final = part.rendering, part.chunk.final
        unheard = max(0, rendering.tail_mel.shape[1] - RATIO * part.chunk.start)
        mel = rendering.speed.push(mel[:, :, unheard:])
        if final:
            mel = torch.cat([mel, rendering.speed.finish()], 2)
        noise = rendering.throat.draw(mel.shape[2], last=final)
        return Voicing(rendering.throat, mel, noise, final)

    def shares_vocoder(self, voicing: Voicing) -> Hashable:
        """Equal for voicings that ``vocode`` may be given together."""
        held = tuple(tensor.shape for tensor in tensors(voicing.throat.state))
        return voicing.final, voicing.mel.shape, held

    @torch.inference_mode()
    def vocode(self, voicings: Mapping[int, Voicing]) -> dict[int, Samples]:
        """The samples of each chunk, as far as they are certain."""
        rows = [*voicings.values()]
        mel, noise = torch.cat([row.mel for row in rows]), torch.cat([row.noise for row in rows])
        network = cast(_Network, self._vocoder)
        state = join([row.throat.state for row in rows])
        if rows[0].final:
            samples = network.finish(mel, noise, state)
        else:
            samples, state = network.step(mel, noise, state)
            for index, row in enumerate(rows):
                row.throat.state = gather(state, [index])
        return dict(zip(voicings, on_host(samples).numpy(), strict=True))

    def vacate(self, rendering: Rendering) -> None:
        """Free what the flow remembers of a sentence that is not rendered any more."""
        self._runner.vacate(rendering.seat)

    def _prepare(self, timbre: Timbre) -> object:
        if timbre.id not in self._prepared:
            self._prepared[timbre.id] = self._runner.keep(self._heard(timbre))
            if len(self._prepared) > self._most_timbres:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(timbre.id)
        return self._prepared[timbre.id]

    @torch.inference_mode()
    def _heard(self, timbre: Timbre) -> FlowState:
        speaker = self._flow.speaker(self._there(timbre.embedding[None]))
        ids, mel = self._there(timbre.ids[None]).long(), self._there(timbre.mel[None])
        return self._flow.prefill(ids, mel, speaker)[0]

    def _there(self, numbers: NDArray[Any]) -> Tensor:
        return on_device(torch.from_numpy(numbers), self._device)

    def _throat(self, noise: np.random.Generator) -> Throat:
        if isinstance(self._vocoder, HiftV3):
            assert self._noise is not None
            return _CausalThroat(self._vocoder, self._noise.session())
        return _OverlappingThroat(self._vocoder, noise)


class _Network(Protocol):
    """What both vocoders do with states of their own kind."""

    def step(self, mel: Tensor, noise: Tensor, state: VocoderState) -> tuple[Tensor, VocoderState]: ...

    def finish(self, mel: Tensor, noise: Tensor, state: VocoderState) -> Tensor: ...


class _OverlappingThroat:
    """Version 2's."""

    def __init__(self, network: Hift, noise: np.random.Generator) -> None:
        self._config, self._noise = network.config, noise
        self.state: VocoderState = network.init_state(1)

    def draw(self, frames: int, *, last: bool) -> Tensor:
        shape = (1, self._config.frame_samples * frames, self._config.waves)
        drawn = torch.from_numpy(self._noise.standard_normal(shape, np.float32))
        return on_device(drawn, self.state.mel.device)


class _CausalThroat:
    """Version 3's."""

    def __init__(self, network: HiftV3, noise: NoiseReader) -> None:
        self._network, self._noise = network, noise
        self.state: VocoderState = network.init_state(1)

    def draw(self, frames: int, *, last: bool) -> Tensor:
        assert isinstance(self.state, HiftV3State)
        drawn = self._noise.take(self._network.noise_samples(frames, self.state, last=last))
        return on_device(drawn, self.state.mel.device)


def _flow_runner(flow: Flow, policy: CosyVoicePolicy) -> FlowRunner[Any, Any]:
    if not can_be_recorded(flow):
        return PlainFlow(flow, policy.memory_share)
    return RecordedFlow(
        flow,
        policy.memory_share,
        rows=policy.most_render_rows,
        sentences=policy.slots,
        prompt_ids=policy.prompt_ids,
        longest_hop=policy.longest_hop,
    )


def _flow_chunk(parts: Sequence[Part], device: torch.device) -> FlowChunk:
    """Chunks as rows, padded where they are last ones of different length; their ids on the host."""
    lengths = tuple(part.length for part in parts)
    longest = max(lengths)
    ids = torch.zeros(len(parts), longest, dtype=torch.int64)
    mel = torch.zeros(len(parts), MEL, RATIO * longest, device=device)
    for row, part in enumerate(parts):
        chunk = part.chunk
        ids[row, : part.length] = torch.tensor(part.ids[chunk.start : chunk.stop])
        tail = part.rendering.tail_mel[:, RATIO * chunk.start :]
        mel[row, :, : tail.shape[1]] = tail
    future = torch.tensor([part.ids[part.chunk.stop : part.chunk.fed] for part in parts], dtype=torch.int64)
    return FlowChunk(ids, future, mel, lengths if len(set(lengths)) > 1 else None)
