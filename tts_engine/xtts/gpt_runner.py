"""Runs the language model of XTTS for the sessions that need speech ids, and keeps their key-value cache.

Each session has a row of the cache. The columns of a voice are the same for all of its sentences: they are
prefilled once, kept, and copied into the row of each new sentence. The text is prefilled alone and in parts,
so that rows which need only their next id wait for one part and are not padded to its length:

    voice (32, copied) | text, in parts | start id | speech ids, one a step for all rows

Used by one thread, but for ``clear_row``.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...models.cosyvoice.devices import to_device, to_host
from ...models.cosyvoice.lm.speech_lm import SpeechLmState
from ...models.xtts.gpt import XttsGpt, XttsPrompt
from ...models.xtts.voice import XttsVoice

Latent = Tensor  # (hidden,) on the device


@dataclass(slots=True, eq=False)
class XttsGptInput:
    """The input of one sentence: its voice, and the columns of its text that are not prefilled yet."""

    voice: XttsVoice
    columns: Tensor | None  # (T, hidden) after those of the voice; None before the voice is copied
    text_ids: Sequence[int]

    @property
    def is_prefilled(self) -> bool:
        """Whether only the start id and speech ids are left to feed."""
        return self.columns is not None and not len(self.columns)


@dataclass(frozen=True, slots=True)
class XttsGptTurn:
    """A session's part in a decode step. last_id: None before the first. decoded: ids so far."""

    last_id: int | None
    decoded: int


@dataclass(frozen=True, slots=True)
class DecodedColumn:
    """What a decode step gives a session: the latent for the vocoder, and the scores of the next id."""

    latent: Latent = field(repr=False)
    logits: NDArray[np.float32] = field(repr=False)  # (V,) of the next speech id


class XttsGptRunner:
    """The rows of the cache, and steps on them.

    max_voices: whose columns are kept. prefill_chunk: columns in one part.
    """

    def __init__(self, gpt: XttsGpt, *, rows: int, max_voices: int, prefill_chunk: int) -> None:
        self._gpt = gpt
        self._state = gpt.init_state(rows, gpt.config.max_positions)
        self._max_voices, self._prefill_chunk = max_voices, prefill_chunk
        self._voice_states: OrderedDict[XttsVoice, SpeechLmState] = OrderedDict()

    def lengths(self) -> list[int]:
        """Columns in the memory of each row."""
        return [int(length) for length in self._state.lengths]

    def prefill_part(self, row: int, sentence: XttsGptInput) -> None:
        """Prefill the next part of a sentence's input in its row, or its voice."""
        if sentence.columns is None:
            self._begin(row, sentence)
            return
        part = sentence.columns[: self._prefill_chunk]
        after = self._fed(
            part, SpeechLmState(self._state.kv[row : row + 1], self._state.lengths[row : row + 1])
        )
        self._state.lengths[row] = after.lengths[0]
        sentence.columns = sentence.columns[len(part) :]

    @torch.inference_mode()
    def decode(self, turns: Mapping[int, XttsGptTurn]) -> dict[int, DecodedColumn]:
        """Feed the last id of each row. If this raises, nothing has changed."""
        first, stop = min(turns), max(turns) + 1
        start_id = self._gpt.config.start_speech_id
        ids = torch.full((stop - first, 1), start_id)
        positions = torch.full_like(ids, -1)  # of the start id: before the first speech id
        valid = torch.zeros(stop - first, dtype=torch.int64)
        for row, turn in turns.items():
            valid[row - first] = 1
            if turn.last_id is not None:
                ids[row - first], positions[row - first] = turn.last_id, turn.decoded - 1
        device = self._gpt.device
        x = self._gpt.embed_speech(to_device(ids, device), to_device(positions, device))
        state = SpeechLmState(self._state.kv[first:stop], self._state.lengths[first:stop])
        hidden, after = self._gpt.step(x, state, valid)
        latents = self._gpt.latents(hidden[:, 0])
        logits = to_host(self._gpt.logits(latents).float()).numpy()
        # Only the rows of this step: a row in between may be cleared by another thread meanwhile.
        for row in turns:
            self._state.lengths[row] = after.lengths[row - first]
        return {row: DecodedColumn(latents[row - first], logits[row - first]) for row in turns}

    def clear_row(self, row: int) -> None:
        """Empty a row, so that attention is not computed over it."""
        self._state.lengths[row] = 0

    @torch.inference_mode()
    def _begin(self, row: int, sentence: XttsGptInput) -> None:
        """Copy the columns of the voice into the row, and embed the text."""
        voice = self._voice_state(sentence.voice)
        count = int(voice.lengths[0])
        self._state.kv[row, :, :, :, :count] = voice.kv[0, :, :, :, :count]
        prompt = XttsPrompt(self._latents(sentence.voice), sentence.text_ids)
        sentence.columns = self._gpt.embed_text(prompt)[count:]
        self._state.lengths[row] = count

    def _voice_state(self, voice: XttsVoice) -> SpeechLmState:
        if voice not in self._voice_states:
            latents = self._latents(voice)
            self._voice_states[voice] = self._fed(latents, self._gpt.init_state(1, len(latents)))
            if len(self._voice_states) > self._max_voices:
                self._voice_states.popitem(last=False)
        self._voice_states.move_to_end(voice)
        return self._voice_states[voice]

    def _latents(self, voice: XttsVoice) -> Tensor:
        return to_device(voice.latents, self._gpt.device)

    @torch.inference_mode()
    def _fed(self, columns: Tensor, state: SpeechLmState) -> SpeechLmState:
        return self._gpt.step(columns[None], state)[1]
