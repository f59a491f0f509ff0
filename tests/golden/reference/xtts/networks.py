"""The reduced XTTS networks of a folder of vectors, with weights made by the folder's rule.

Source: config.json and README.md of the folder (``make check-golden DATA=FOLDER``).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from golden.reference.comparison import read_arrays
from golden.reference.golden_config import read_config
from vivavoce.models.signal.recording_resampler import resample
from vivavoce.models.xtts.checkpoint.random_bundle import random_tensor
from vivavoce.models.xtts.checkpoint.tensor_shapes import model_tensors
from vivavoce.models.xtts.config import (
    XTTS_INPUT_RATE,
    ConditioningConfig,
    XttsConfig,
    XttsGptConfig,
    XttsVocoderConfig,
)
from vivavoce.models.xtts.networks import XttsNetworks, build_networks, build_voice_encoder
from vivavoce.models.xtts.voice import XttsVoiceEncoder

Float = NDArray[np.float32]


def is_xtts_folder(folder: Path) -> bool:
    """Whether the vectors of a folder are those of XTTS."""
    return "model_args" in read_config(folder)


def read_network_config(folder: Path) -> XttsConfig:
    """The sizes of the reduced networks."""
    stated = read_config(folder)
    sizes = stated["model_args"]
    gpt = XttsGptConfig(
        layers=sizes["gpt_layers"],
        hidden=sizes["gpt_n_model_channels"],
        heads=sizes["gpt_n_heads"],
        max_speech_tokens=sizes["gpt_max_audio_tokens"],
        max_text_tokens=sizes["gpt_max_text_tokens"],
        text_vocab_size=stated["number_text_tokens"],
        speech_vocab_size=sizes["gpt_num_audio_tokens"],
        start_speech_id=sizes["gpt_start_audio_token"],
        stop_speech_id=sizes["gpt_stop_audio_token"],
    )
    vocoder = XttsVocoderConfig(sizes["decoder_input_dim"], stated["upsample_initial_channel_decoder"])
    return XttsConfig(gpt, ConditioningConfig(gpt.hidden, gpt.heads), vocoder=vocoder)


def read_text_ends(folder: Path) -> tuple[int, int]:
    """Ids of [START] and [STOP]."""
    stated = read_config(folder)
    return stated["start_text_token"], stated["stop_text_token"]


@lru_cache(maxsize=1)
def load_rule_networks(folder: Path) -> XttsNetworks:
    """The networks of a folder, with the weights that its rule makes for their keys."""
    return build_networks(read_network_config(folder), rule_weights(folder), *read_text_ends(folder))


@lru_cache(maxsize=1)
def load_rule_voice_encoder(folder: Path) -> XttsVoiceEncoder:
    """The encoders of voices of a folder, as ``load_rule_networks``."""
    return build_voice_encoder(read_network_config(folder), rule_weights(folder))


def rule_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of model.pth that the rule makes."""
    stated, config = read_config(folder), read_network_config(folder)
    return {
        key: random_tensor(key, shape, stated["salt"], stated["multipliers"])
        for key, (shape, _) in model_tensors(config).items()
    }


def read_recordings(folder: Path) -> tuple[Float, Float]:
    """The two recordings at 22,050 Hz, mono: the second one was stereo at another rate."""
    arrays, rate = read_arrays(folder, "a_cond"), read_config(folder)["sr_b"]
    first, second = (_to_float(arrays[name]) for name in ("wav_a", "wav_b"))
    return first[0], resample(second.mean(0), rate, XTTS_INPUT_RATE)


def read_second_channel(folder: Path) -> Float:
    """The first channel of the second recording at 22,050 Hz."""
    samples = _to_float(read_arrays(folder, "a_cond")["wav_b"])[0]
    return resample(samples, read_config(folder)["sr_b"], XTTS_INPUT_RATE)


def _to_float(pcm: Tensor) -> Float:
    return pcm.numpy().astype(np.float32) / np.float32(32768)
