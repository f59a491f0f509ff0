"""Runs the language model of XTTS for the sessions that need speech ids.

Each session has a row of its memory. The columns of a voice are the same for all of its sentences: they are
computed once and copied into the row. The text and the start id follow, in parts; the last part gives the
first speech id. Then each step feeds the last id of all rows; on a GPU it is a captured graph:

    voice (32, copied) | text and start id, in parts | speech ids, one a step for all rows
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.decoding.kv_memory import SpeechLmState
from ...models.devices.torch_devices import to_device, to_host
from ...models.xtts.decode_graphs import XttsDecodeGraphs
from ...models.xtts.gpt import TorchXttsGpt, XttsGpt
from ...models.xtts.voice import XttsVoice
from ..backends.recently_used import RecentlyUsed
from ..voice_kit.kv_rows import KvRows

Latent = Tensor  # (hidden,) on the device


@dataclass(slots=True, eq=False)
class XttsGptInput:
    """The input of one sentence: its voice, and the columns after it that are not prefilled yet."""

    voice: XttsVoice
    columns: Tensor | None  # (T, hidden) of text and start id; None before the row begins with the voice
    text_ids: Sequence[int]

    @property
    def is_prefilled(self) -> bool:
        """Whether only speech ids are left to feed."""
        return self.columns is not None and not len(self.columns)


@dataclass(frozen=True, slots=True)
class XttsGptTurn:
    """A session's part in a decode step: its last id, and how many it has."""

    last_id: int
    decoded: int


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """What a decode step gives a session: the latent for the vocoder, and the scores of the next id."""

    latent: Latent = field(repr=False)
    logits: NDArray[np.float32] = field(repr=False)  # (V,) of the next speech id


class XttsGptRunner:
    """Steps on the rows of the memory. Used by one thread, but for ``rows.clear_row``.

    max_voices: whose columns are kept. prefill_chunk: columns in one part.
    """

    def __init__(self, gpt: XttsGpt, *, rows: int, max_voices: int, prefill_chunk: int) -> None:
        self._gpt, self._prefill_chunk = gpt, prefill_chunk
        self.rows = KvRows(gpt.init_state(rows, gpt.config.max_positions))
        self._voice_states: RecentlyUsed[XttsVoice, SpeechLmState] = RecentlyUsed(max_voices)
        self._graphs = _decode_graphs(gpt, self.rows.state)

    @torch.inference_mode()
    def prefill_part(self, row: int, sentence: XttsGptInput) -> DecodedColumn | None:
        """Prefill the voice of a sentence if it is not kept, or else the next part of its text.

        Returns what the first speech id is sampled from after the last part, else None.
        """
        if sentence.columns is None:
            is_prepared = sentence.voice in self._voice_states
            voice = self._voice_states.get(sentence.voice, lambda: self._prefilled(sentence.voice))
            self.rows.begin(row, voice)
            sentence.columns = self._gpt.embed_sentence(sentence.text_ids)
            if not is_prepared:
                return None
        part = sentence.columns[: self._prefill_chunk]
        hidden, after = self._gpt.step(part[None], self.rows.span([row]))
        self.rows.commit([row], after)
        sentence.columns = sentence.columns[len(part) :]
        return _on_host(*self._read(hidden[:, -1]))[0] if sentence.is_prefilled else None

    @torch.inference_mode()
    def decode(self, turns: Mapping[int, XttsGptTurn]) -> dict[int, DecodedColumn]:
        """Feed the last id of each row. If this raises, nothing has changed."""
        first, stop = 0 if self._graphs else min(turns), max(turns) + 1
        ids = torch.zeros(stop - first, 1, dtype=torch.int64)
        decoded, valid = torch.zeros_like(ids), torch.zeros_like(ids[:, 0])
        for row, turn in turns.items():
            ids[row - first], decoded[row - first], valid[row - first] = turn.last_id, turn.decoded - 1, 1
        if self._graphs:
            latents, logits = self._graphs.step(ids, decoded, valid)
            latents = latents.clone()  # the next step overwrites them
        else:
            device = self._gpt.device
            x = self._gpt.embed_speech(to_device(ids, device), to_device(decoded, device))
            hidden, _ = self._gpt.step(x, self.rows.span(turns.keys()), valid)
            latents, logits = self._read(hidden[:, 0])
        columns = _on_host(latents, logits)
        self.rows.advance(turns.keys())
        return {row: columns[row - first] for row in turns}

    def _prefilled(self, voice: XttsVoice) -> SpeechLmState:
        latents = to_device(voice.latents, self._gpt.device)
        return self._gpt.step(latents[None], self._gpt.init_state(1, len(latents)))[1]

    def _read(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Latents and scores of the last columns (B, hidden) of rows."""
        latents = self._gpt.latents(hidden)
        return latents, self._gpt.logits(latents).float()


def _decode_graphs(gpt: XttsGpt, state: SpeechLmState) -> XttsDecodeGraphs | None:
    if gpt.device.type == "cpu" or not isinstance(gpt, TorchXttsGpt):
        return None
    graphs = XttsDecodeGraphs(gpt, state)
    if gpt.device.type == "cuda":
        graphs.record()
    return graphs


def _on_host(latents: Tensor, logits: Tensor) -> list[DecodedColumn]:
    return [DecodedColumn(*row) for row in zip(latents, to_host(logits).numpy(), strict=True)]
