"""The language model of XTTS: a GPT-2 that continues a voice and a text with speech ids.

A step runs a batch of sessions. The module holds the weights, ``SpeechLmState`` the memory of the sessions.

    latents of the voice (32) | text + text positions | start, speech ids + speech positions
                                [START] ids [STOP]      start has position 0, the i-th id i + 1

    x, valid = gpt.embed_prompts([(conditioning, text_ids), ...])      padded at the right
    hidden, state = gpt.step(x, state, valid)
    latents = gpt.latents(hidden)          what the vocoder reads
    logits = gpt.logits(latents)

The latents of the decode equal those of upstream's second pass over the finished ids, which is left out.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/layers/xtts/gpt.py, gpt_inference.py; the decoder is GPT-2 (Radford
et al. 2019): layer norm before each block, learned positions, the tanh form of GELU.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..decoding.kv_memory import KvStepPlan, SpeechLmState, empty_state, place_columns
from ..devices.execution import Precision
from ..devices.torch_devices import to_device
from ..networks.kernel_support import MAX_FUSED_ROWS, has_fused_kernels
from ..networks.layers import join_matrices, load_weights, new_embedding
from ..networks.precision import MatrixRole, linear_class
from .config import XttsGptConfig

if TYPE_CHECKING:
    from ..kernels.decoder_layers import DecoderWeights


@dataclass(frozen=True, slots=True, eq=False)
class XttsPrompt:
    """The input of a sentence. conditioning: (32, hidden) of the voice. text_ids: without start and stop."""

    conditioning: Tensor
    text_ids: Sequence[int]


class XttsGpt(nn.Module, ABC):
    """The network: embeddings and the final norm here, the layers and the head in a subclass.

    start_text_id, stop_text_id: ids of [START] and [STOP] in the vocabulary, around every text.
    """

    def __init__(self, config: XttsGptConfig, start_text_id: int, stop_text_id: int) -> None:
        super().__init__()
        self.config = config
        self.text_ends = (start_text_id, stop_text_id)
        self.text_embedding = new_embedding(config.text_vocab_size, config.hidden)
        self.speech_embedding = new_embedding(config.speech_vocab_size, config.hidden)
        self.text_positions = new_embedding(config.text_positions, config.hidden)
        self.speech_positions = new_embedding(config.speech_positions, config.hidden)
        self.final_norm = nn.LayerNorm(config.hidden)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.speech_embedding.weight.device

    @abstractmethod
    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` columns a row."""

    @abstractmethod
    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed columns (B, T, hidden); returns the hidden states before the final norm, and the new state.

        ``valid`` (B,) int64 on the host is the number of real columns in each row, by default all; 0 leaves
        a row unchanged. The output at padding is undefined. Raises ValueError if a row would outgrow its
        memory.
        """

    @abstractmethod
    def logits(self, latents: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""

    def latents(self, hidden: Tensor) -> Tensor:
        """The input of the vocoder and of the head: (..., hidden) to (..., hidden)."""
        normed: Tensor = self.final_norm(hidden)
        return normed

    def embed_prompts(self, prompts: Sequence[XttsPrompt]) -> tuple[Tensor, Tensor]:
        """Voice, text and start id of each sentence, padded at the right.

        Returns (B, T, hidden), and (B,) int64 the number of real columns, on the host. Raises as
        ``embed_sentence``.
        """
        rows = [torch.cat([prompt.conditioning, self.embed_sentence(prompt.text_ids)]) for prompt in prompts]
        return nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])

    def embed_speech(self, speech_ids: Tensor, positions: Tensor) -> Tensor:
        """Embed decoded ids: (B, T) int64 and how many ids were decoded before each -> (B, T, hidden)."""
        embedded: Tensor = self.speech_embedding(speech_ids) + self.speech_positions(positions + 1)
        return embedded

    def embed_sentence(self, text_ids: Sequence[int]) -> Tensor:
        """What follows the voice: [START], the text, [STOP] and the start id, (text ids + 3, hidden).

        Raises ValueError for a text that is too long, IndexError for an id outside the vocabulary.
        """
        if len(text_ids) > self.config.max_text_ids:
            raise ValueError(
                f"a sentence has {len(text_ids):,} text ids; it may have {self.config.max_text_ids:,}"
            )
        start, stop = self.text_ends
        ids = to_device(torch.tensor([start, *text_ids, stop]), self.device)
        text = self.text_embedding(ids) + self.text_positions.weight[: len(ids)]
        begin = self.speech_embedding.weight[self.config.start_speech_id] + self.speech_positions.weight[0]
        return torch.cat([text, begin[None]])


class TorchXttsGpt(XttsGpt):
    """The network in torch. Built by ``load`` and constant afterwards."""

    def __init__(
        self,
        config: XttsGptConfig,
        start_text_id: int,
        stop_text_id: int,
        precision: Precision = Precision.FP32,
    ) -> None:
        super().__init__(config, start_text_id, stop_text_id)
        self.layers = nn.ModuleList(_Gpt2Block(config, precision) for _ in range(config.layers))
        self._decoder_weights: DecoderWeights | None = None
        self.norm = nn.LayerNorm(config.hidden)
        self.head = linear_class(precision, MatrixRole.OTHER, 1)(config.hidden, config.speech_vocab_size)

    @classmethod
    def load(
        cls,
        config: XttsGptConfig,
        weights: dict[str, Tensor],
        start_text_id: int,
        stop_text_id: int,
        precision: Precision = Precision.FP32,
    ) -> "TorchXttsGpt":
        """Build from the tensors of model.pth whose keys start with ``gpt.``, with matrices in a precision.

        Used tensors are removed from ``weights``, so that none is held twice. Raises KeyError for a missing
        key.
        """
        with torch.device("meta"):
            network = cls(config, start_text_id, stop_text_id, precision)
        load_weights(network, dict(renamed_weights(config, weights)))
        return network

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """Empty memory for ``capacity`` columns a row."""
        config = self.config
        heads_shape = (config.layers, config.heads, config.head_width)
        return empty_state(rows, capacity, heads_shape, self.speech_embedding.weight)

    def step(
        self, x: Tensor, state: SpeechLmState, valid: Tensor | None = None
    ) -> tuple[Tensor, SpeechLmState]:
        """Feed columns, as ``XttsGpt.step``."""
        placed = place_columns(state, x, valid)
        hidden = self.run_layers(x, state.kv, placed.plan())
        return hidden, SpeechLmState(state.kv, placed.lengths)

    def run_layers(self, x: Tensor, kv: Tensor, plan: KvStepPlan) -> Tensor:
        """Run the layers and the norm after them on (B, T, hidden), with the ``kv`` of a state."""
        for index, layer in enumerate(self.layers):
            x = layer(x, kv[:, index], plan)
        normed: Tensor = self.norm(x)
        return normed

    def has_fused_layers(self, rows: int) -> bool:
        """Whether ``run_fused_layers`` can decode so many rows: up to 4, where the device has kernels."""
        matrix = cast(_Gpt2Block, self.layers[0]).down.matrix  # those of all layers are alike
        return (
            rows <= MAX_FUSED_ROWS
            and matrix is not None
            and has_fused_kernels(self.device, [self.config.head_width // 2], matrix.shape)
        )

    def run_fused_layers(
        self, x: Tensor, kv: Tensor, positions: Tensor, write_positions: Tensor, attended_positions: int
    ) -> Tensor:
        """``run_layers`` on (B, 1, hidden), the layers in one kernel.

        positions, write_positions: (B, 1) int64, of the columns and where they are written.
        """
        from ..kernels.decoder_layers import run_decoder

        weights = self._fused_weights()
        normed: Tensor = self.norm(
            run_decoder(x, weights, None, kv, positions, write_positions, attended_positions)
        )
        return normed

    def _fused_weights(self) -> "DecoderWeights":
        """Weights of all layers, one behind the other; made once, before a step is captured."""
        if self._decoder_weights is None:
            self._decoder_weights = _join_layers(cast(list[_Gpt2Block], list(self.layers)))
        return self._decoder_weights

    def logits(self, latents: Tensor) -> Tensor:
        """Scores before softmax: (..., hidden) to (..., speech_vocab_size)."""
        scores: Tensor = self.head(latents)
        return scores


class _Gpt2Block(nn.Module):
    def __init__(self, config: XttsGptConfig, precision: Precision) -> None:
        super().__init__()
        self.heads, self.width = config.heads, config.head_width
        linear = linear_class(precision, MatrixRole.OTHER, 1)
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.qkv = linear(config.hidden, 3 * config.hidden)
        self.output = linear(config.hidden, config.hidden)
        self.mlp_norm = nn.LayerNorm(config.hidden)
        self.up = linear(config.hidden, 4 * config.hidden)
        self.down = linear(4 * config.hidden, config.hidden)

    def forward(self, x: Tensor, kv: Tensor, plan: KvStepPlan) -> Tensor:
        x = x + self.output(self._attend(self.qkv(self.attention_norm(x)), kv, plan))
        x = x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))
        return x

    def _attend(self, qkv: Tensor, kv: Tensor, plan: KvStepPlan) -> Tensor:
        rows, columns, _ = qkv.shape
        parts = qkv.view(rows, columns, 3, self.heads, self.width)
        keys, values = plan.update(kv, parts[:, :, 1:])
        query = parts[:, :, 0].transpose(1, 2)
        attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=plan.visible)
        return attended.transpose(1, 2).reshape(rows, columns, -1)


def _join_layers(layers: Sequence[_Gpt2Block]) -> "DecoderWeights":
    from ..kernels.decoder_layers import DecoderBiases, DecoderWeights, new_decoder_counters

    def joined(name: str) -> Tensor:
        return torch.stack([layer.get_parameter(name) for layer in layers])

    first = layers[0]
    return DecoderWeights(
        joined("attention_norm.weight"),
        join_matrices([layer.qkv for layer in layers]),
        joined("qkv.bias"),
        join_matrices([layer.output for layer in layers]),
        joined("mlp_norm.weight"),
        join_matrices([layer.up for layer in layers]),
        join_matrices([layer.down for layer in layers]),
        DecoderBiases(
            *(joined(f"{name}.bias") for name in ("attention_norm", "output", "mlp_norm", "up", "down"))
        ),
        first.attention_norm.eps,
        new_decoder_counters(len(layers), first.heads, first.mlp_norm.weight.device),
    )


# Our name of each module, and upstream's.
_TOP_MODULES = {
    "norm": "gpt.gpt.ln_f",
    "final_norm": "gpt.final_norm",
    "head": "gpt.mel_head",
}
_TABLES = {
    "text_embedding": "gpt.text_embedding",
    "speech_embedding": "gpt.mel_embedding",
    "text_positions": "gpt.text_pos_embedding.emb",
    "speech_positions": "gpt.mel_pos_embedding.emb",
}
TEXT_EMBEDDING_KEY = f"{_TABLES['text_embedding']}.weight"
_BLOCK_NORMS = {"attention_norm": "ln_1", "mlp_norm": "ln_2"}
_BLOCK_MATRICES = {"qkv": "attn.c_attn", "output": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}
_UNUSED_MODULE = "gpt.text_head"  # scores of text ids, for training


def renamed_weights(config: XttsGptConfig, weights: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Take the tensors out of ``weights`` under the network's names."""
    for kind in ("weight", "bias"):
        weights.pop(f"{_UNUSED_MODULE}.{kind}", None)
        for ours, theirs in _TOP_MODULES.items():
            yield f"{ours}.{kind}", weights.pop(f"{theirs}.{kind}")
    for ours, theirs in _TABLES.items():
        yield f"{ours}.weight", weights.pop(f"{theirs}.weight")
    for layer in range(config.layers):
        for kind in ("weight", "bias"):
            for ours, theirs in _BLOCK_NORMS.items():
                yield f"layers.{layer}.{ours}.{kind}", weights.pop(f"gpt.gpt.h.{layer}.{theirs}.{kind}")
            for ours, theirs in _BLOCK_MATRICES.items():
                tensor = weights.pop(f"gpt.gpt.h.{layer}.{theirs}.{kind}")
                # GPT-2's matrices are stored (inputs, outputs); transposing a vector leaves it as it is.
                yield f"layers.{layer}.{ours}.{kind}", tensor.mT if tensor.ndim == 2 else tensor
