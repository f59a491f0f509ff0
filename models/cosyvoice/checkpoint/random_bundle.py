"""Bundles of random weights in the released layout, for loading, tests and benches.

Nothing here was trained: what such a bundle says is noise, at the pace and size of the real one. Its speech
encoders are small ONNX models with the real inputs and outputs; its tokenizer knows every byte and a few
English pairs.

Source: FunAudioLLM/CosyVoice@ace7c47 (the layout: cosyvoice/cli/cosyvoice.py:138-240 and the example yaml
files).
"""

import contextlib
import errno
import json
import math
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import yaml  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor

from ..config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitSizes,
    EncoderSizes,
    FlowSizes,
    HiftSizes,
    SpeechLmConfig,
    UnetSizes,
    released_config,
)
from ..front_end.text_tokenizer import byte_characters, special_tokens
from .bundle import SPEAKER_ENCODER_FILE, SPEAKER_WIDTH, SPEAKERS_FILE, speech_tokenizer_name
from .random_weights import EMBEDDING_KEY, ROTARY_KEY_END, rotary_frequencies, scale_for_key
from .tensor_shapes import TensorShape, TensorShapes, file_shapes
from .weight_files import TIED_KEY
from .yaml_config import QWEN_FOLDER

# Without these the fundamental stays below any voice, the vocoder clips, and every id is about as likely.
_EXTRA_SCALES = {
    "f0_predictor.classifier.weight": 150.0,
    "conv_post.parametrizations.weight.original0": 0.1,
    "llm_decoder.weight": 6.0,
}
_BPE_PAIRS = "th he in er an re on at en nd ou ea ng ing the and ll or is it st".split()
_OTHER_FILES_BYTES = 20_000_000
_TINY_BASE_IDS = 320
_RELEASED_BASE_IDS = 151_643


class BundleSize(Enum):
    """How large a random bundle is: for tests, or as released (2.6 GB in version 2, 3.4 GB in version 3)."""

    TINY = "tiny"
    FULL = "full"


def write_random_bundle(
    folder: Path,
    version: CosyVoiceVersion,
    size: BundleSize,
    seed: int = 0,
    on_bytes_written: Callable[[int], None] = lambda numbers: None,
) -> None:
    """Write a bundle into a folder that does not exist or is empty: all of it, or nothing.

    ``written`` is told of every tensor how many bytes it has, ``weight_bytes`` in all. Raises
    FileExistsError, and OSError where the disk is too small.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise FileExistsError(f"{folder} is not empty; give a new folder")
    config = _config_of_size(version, size)
    _require_disk_space(folder, weight_bytes(version, size))
    with contextlib.ExitStack() as unfinished:
        unfinished.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, shapes in file_shapes(config).items():
            torch.save(_random_weights(shapes, f"{seed}/{name}/", on_bytes_written), folder / name)
        _write_onnx(folder, config, seed)
        _write_qwen(folder / QWEN_FOLDER, config, size)
        speakers = {"nobody": {"embedding": _random_tensor((1, SPEAKER_WIDTH), f"{seed}/nobody")}}
        torch.save(speakers, folder / SPEAKERS_FILE)
        # Last, because a folder without it is no bundle: a run that is killed leaves none behind.
        (folder / f"cosyvoice{version.value}.yaml").write_text(_yaml(config), "utf-8")
        unfinished.pop_all()


def weight_bytes(version: CosyVoiceVersion, size: BundleSize) -> int:
    """What the weights of a random bundle take on the disk."""
    files = file_shapes(_config_of_size(version, size)).values()
    return sum(4 * math.prod(shape) for shapes in files for key, shape in shapes.items() if key != TIED_KEY)


def _config_of_size(version: CosyVoiceVersion, size: BundleSize) -> CosyVoiceConfig:
    return released_config(version) if size is BundleSize.FULL else tiny_config(version)


def _require_disk_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + _OTHER_FILES_BYTES:
        raise OSError(
            errno.ENOSPC, f"{free / 1e9:.1f} GB are free, needed are {needed / 1e9:.1f} GB", str(folder)
        )


def tiny_config(version: CosyVoiceVersion) -> CosyVoiceConfig:
    """Networks small enough for a test, with the codec, the rates and the chunks of the release."""
    text_vocab_size = _TINY_BASE_IDS + len(special_tokens(version))
    lm = SpeechLmConfig(
        version, hidden=64, layers=2, heads=4, kv_heads=2, intermediate=160, text_vocab_size=text_vocab_size
    )
    flow = FlowSizes(
        encoder=EncoderSizes(width=64, heads=4, inner=128, layers=2, up_layers=2),
        unet=UnetSizes(channels=32, head_width=16, heads=2, blocks=1, mid_blocks=2),
        lookahead_channels=48,
        dit=DitSizes(width=64, depth=2, heads=4, head_width=16),
    )
    return CosyVoiceConfig(lm, flow, replace(HiftSizes(), channels=32, f0_channels=24))


def _random_weights(
    shapes: TensorShapes, salt: str, on_bytes_written: Callable[[int], None]
) -> dict[str, Tensor]:
    tensors = {}
    for key, shape in shapes.items():
        if key != TIED_KEY:
            tensors[key] = _random_weight(key, shape, salt)
            on_bytes_written(tensors[key].nbytes)
    if TIED_KEY in shapes:
        tensors[TIED_KEY] = tensors[EMBEDDING_KEY]
    return tensors


def _random_weight(key: str, shape: TensorShape, salt: str) -> Tensor:
    if key.endswith(ROTARY_KEY_END):
        return torch.from_numpy(rotary_frequencies(shape))
    drawn = scale_for_key(key, _noise(shape, salt + key))
    for end, factor in _EXTRA_SCALES.items():
        if key.endswith(end):
            drawn *= np.float32(factor)
    return torch.from_numpy(drawn)


def _random_tensor(shape: TensorShape, salt: str) -> Tensor:
    return torch.from_numpy(_noise(shape, salt))


def _noise(shape: TensorShape, salt: str) -> NDArray[np.float32]:
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(salt.encode())))
    return generator.standard_normal(shape, dtype=np.float32)


def _write_onnx(folder: Path, config: CosyVoiceConfig, seed: int) -> None:
    onnx.save(_speaker_encoder(seed), folder / SPEAKER_ENCODER_FILE)
    onnx.save(_speech_tokenizer(config, seed), folder / speech_tokenizer_name(config.version))


def _speaker_encoder(seed: int) -> onnx.ModelProto:
    """The mean spectrum, projected."""
    spread = _noise((80, SPEAKER_WIDTH), f"{seed}/speaker")
    nodes = [
        helper.make_node("Abs", ["input"], ["size"]),
        helper.make_node("ReduceMean", ["size", "time"], ["mean"], keepdims=0),
        helper.make_node("MatMul", ["mean", "spread"], ["output"]),
    ]
    weights = [numpy_helper.from_array(np.array([1]), "time"), numpy_helper.from_array(spread, "spread")]
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", 80])]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, SPEAKER_WIDTH])]
    return _model(helper.make_graph(nodes, "campplus", inputs, outputs, weights))


def _speech_tokenizer(config: CosyVoiceConfig, seed: int) -> onnx.ModelProto:
    """Of every four frames the id whose random direction is nearest to their mean."""
    directions = _noise((config.lm.codebook_size, 128, 1), f"{seed}/speech")
    nodes = [
        helper.make_node("AveragePool", ["feats"], ["mean"], kernel_shape=[4], strides=[4]),
        helper.make_node("Conv", ["mean", "directions"], ["near"]),
        helper.make_node("ArgMax", ["near"], ["best"], axis=1, keepdims=0),
        helper.make_node("Cast", ["best"], ["indices"], to=TensorProto.INT32),
    ]
    inputs = [
        helper.make_tensor_value_info("feats", TensorProto.FLOAT, [1, 128, "T"]),
        helper.make_tensor_value_info("feats_length", TensorProto.INT32, [1]),
    ]
    outputs = [helper.make_tensor_value_info("indices", TensorProto.INT32, [1, "L"])]
    weights = [numpy_helper.from_array(directions, "directions")]
    return _model(helper.make_graph(nodes, "speech_tokenizer", inputs, outputs, weights))


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _write_qwen(folder: Path, config: CosyVoiceConfig, size: BundleSize) -> None:
    folder.mkdir()
    base_ids = _RELEASED_BASE_IDS if size is BundleSize.FULL else _TINY_BASE_IDS
    letters = byte_characters()
    vocabulary = [*letters, *sorted(_BPE_PAIRS, key=len)]
    # Ids that no text can reach stand for the rest of the vocabulary, so that the marks have their usual ids.
    vocabulary += [f"<unused {place}>" for place in range(len(vocabulary), base_ids)]
    files: dict[str, Any] = {
        "vocab.json": {token: place for place, token in enumerate(vocabulary)},
        "config.json": _qwen_config(config.lm),
        "generation_config.json": {"max_new_tokens": 2048},
        "tokenizer_config.json": {"model_max_length": 32_768, "tokenizer_class": "Qwen2Tokenizer"},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), "utf-8")
    merges = "".join(
        f"{pair[:-1]} {pair[-1]}\n" for pair in sorted(_BPE_PAIRS, key=len) if pair[:-1] in vocabulary
    )
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges, "utf-8")


def _qwen_config(lm: SpeechLmConfig) -> dict[str, Any]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_act": "silu",
        "hidden_size": lm.hidden,
        "intermediate_size": lm.intermediate,
        "max_position_embeddings": 32_768,
        "num_attention_heads": lm.heads,
        "num_hidden_layers": lm.layers,
        "num_key_value_heads": lm.kv_heads,
        "rms_norm_eps": lm.norm_epsilon,
        "rope_theta": lm.rope_base,
        "tie_word_embeddings": True,
        "vocab_size": lm.text_vocab_size,
    }


class _TaggedMapping(dict[str, Any]):
    """A mapping under a yaml tag."""

    def __init__(self, tag: str, **settings: Any) -> None:
        super().__init__(settings)
        self.tag = tag


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes tags as the release does."""


_Dumper.add_representer(_TaggedMapping, lambda dumper, data: dumper.represent_mapping(data.tag, dict(data)))


def _yaml(config: CosyVoiceConfig) -> str:
    lm, flow = config.lm, _flow_v2(config) if config.version is CosyVoiceVersion.V2 else _flow_v3(config)
    lm_class = "Qwen2LM" if config.version is CosyVoiceVersion.V2 else "CosyVoice3LM"
    settings = {
        "sample_rate": 24_000,
        "llm_input_size": lm.hidden,
        "llm_output_size": lm.hidden,
        "spk_embed_dim": config.flow.speaker,
        "token_frame_rate": 25,
        "token_mel_ratio": 2,
        "chunk_size": 25,
        "num_decoding_left_chunks": -1,
        "llm": _TaggedMapping(
            f"!new:cosyvoice.llm.llm.{lm_class}",
            speech_token_size=lm.codebook_size,
            mix_ratio=[5, 15],
            sampling=_TaggedMapping(
                "!name:cosyvoice.utils.common.ras_sampling", top_p=0.8, top_k=25, win_size=10, tau_r=0.1
            ),
        ),
        "flow": flow,
        "hift": _hift(config),
        "feat_extractor": _TaggedMapping(
            "!name:matcha.utils.audio.mel_spectrogram",
            n_fft=1920,
            num_mels=80,
            sampling_rate=24_000,
            hop_size=480,
            win_size=1920,
            fmin=0,
            fmax=8000 if config.version is CosyVoiceVersion.V2 else None,
            center=False,
        ),
    }
    return str(yaml.dump(settings, Dumper=_Dumper, sort_keys=False))


def _flow_v2(config: CosyVoiceConfig) -> _TaggedMapping:
    encoder, unet = config.flow.encoder, config.flow.unet
    return _TaggedMapping(
        "!new:cosyvoice.flow.flow.CausalMaskedDiffWithXvec",
        input_size=encoder.width,
        output_size=80,
        vocab_size=config.lm.codebook_size,
        pre_lookahead_len=3,
        encoder=_TaggedMapping(
            "!new:cosyvoice.transformer.upsample_encoder.UpsampleConformerEncoder",
            output_size=encoder.width,
            attention_heads=encoder.heads,
            linear_units=encoder.inner,
            num_blocks=encoder.layers,
            num_up_blocks=encoder.up_layers,
        ),
        decoder=_decoder(
            _TaggedMapping(
                "!new:cosyvoice.flow.decoder.CausalConditionalDecoder",
                in_channels=320,
                out_channels=80,
                channels=[unet.channels],
                attention_head_dim=unet.head_width,
                n_blocks=unet.blocks,
                num_mid_blocks=unet.mid_blocks,
                num_heads=unet.heads,
                act_fn="gelu",
                static_chunk_size=50,
            )
        ),
    )


def _flow_v3(config: CosyVoiceConfig) -> _TaggedMapping:
    dit = config.flow.dit
    return _TaggedMapping(
        "!new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT",
        input_size=80,
        output_size=80,
        vocab_size=config.lm.codebook_size,
        pre_lookahead_len=3,
        pre_lookahead_layer=_TaggedMapping(
            "!new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer",
            in_channels=80,
            channels=config.flow.lookahead_channels,
            pre_lookahead_len=3,
        ),
        decoder=_decoder(
            _TaggedMapping(
                "!new:cosyvoice.flow.DiT.dit.DiT",
                dim=dit.width,
                depth=dit.depth,
                heads=dit.heads,
                dim_head=dit.head_width,
                ff_mult=dit.factor,
                static_chunk_size=50,
            )
        ),
    )


def _decoder(estimator: _TaggedMapping) -> _TaggedMapping:
    guidance = {"sigma_min": 1e-6, "solver": "euler", "t_scheduler": "cosine", "inference_cfg_rate": 0.7}
    return _TaggedMapping(
        "!new:cosyvoice.flow.flow_matching.CausalConditionalCFM",
        in_channels=240,
        n_spks=1,
        spk_emb_dim=80,
        cfm_params=_TaggedMapping("!new:omegaconf.DictConfig", content=guidance),
        estimator=estimator,
    )


def _hift(config: CosyVoiceConfig) -> _TaggedMapping:
    sizes, version = config.hift, config.version
    causal = "" if version is CosyVoiceVersion.V2 else "Causal"
    settings: dict[str, Any] = {
        "in_channels": 80,
        "base_channels": sizes.channels,
        "nb_harmonics": sizes.harmonics,
        "sampling_rate": 24_000,
        "nsf_alpha": 0.1,
        "nsf_sigma": 0.003,
        "nsf_voiced_threshold": 10,
        "lrelu_slope": 0.1,
        "audio_limit": 0.99,
        "upsample_rates": list(sizes.upsample_rates),
        "upsample_kernel_sizes": list(sizes.upsample_kernels),
        "istft_params": {"n_fft": sizes.transform, "hop_len": sizes.hop},
        "resblock_kernel_sizes": list(sizes.resblock_kernels),
        "resblock_dilation_sizes": [list(sizes.dilations) for _ in sizes.resblock_kernels],
        "source_resblock_kernel_sizes": list(sizes.source_kernels),
        "source_resblock_dilation_sizes": [list(sizes.dilations) for _ in sizes.source_kernels],
        "f0_predictor": _TaggedMapping(
            f"!new:cosyvoice.hifigan.f0_predictor.{causal}ConvRNNF0Predictor",
            num_class=1,
            in_channels=80,
            cond_channels=sizes.f0_channels,
        ),
    }
    if version is CosyVoiceVersion.V3:
        settings["conv_pre_look_right"] = sizes.look_right
    return _TaggedMapping(f"!new:cosyvoice.hifigan.generator.{causal}HiFTGenerator", **settings)
