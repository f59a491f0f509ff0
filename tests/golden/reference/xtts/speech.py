"""Case j_tts: recordings and text to samples, end to end."""

from collections.abc import Iterator
from pathlib import Path

import torch

from golden.reference.comparison import Comparison, compare, compare_rows, read_arrays
from golden.reference.golden_config import read_config
from golden.reference.xtts.conditioning import EMBEDDING_TOLERANCE, NETWORK_TOLERANCE
from golden.reference.xtts.decoding import StoredUniforms, decode, sampled
from golden.reference.xtts.networks import (
    load_rule_networks,
    load_rule_voice_encoder,
    read_recordings,
)
from golden.reference.xtts.text import text_ids
from golden.reference.xtts.vocoder import WAVE_TOLERANCE, stream
from vivavoce.models.xtts.gpt import XttsPrompt
from vivavoce.models.xtts.sampling import XttsSampling
from vivavoce.models.xtts.voice import VoiceConditioningConfig


@torch.inference_mode()
def check_speech(folder: Path) -> Iterator[Comparison]:
    """Compare the voice, text ids, speech ids, latents and samples of every text."""
    arrays, networks = read_arrays(folder, "j_tts"), load_rule_networks(folder)
    config = VoiceConditioningConfig(max_reference_s=3, latents_s=6, piece_s=4)
    voice = load_rule_voice_encoder(folder).encode(read_recordings(folder), config)
    yield compare("j_tts", "cond", voice.latents[None], arrays["cond"], NETWORK_TOLERANCE)
    yield compare("j_tts", "spk", voice.speaker[None, :, None], arrays["spk"], EMBEDDING_TOLERANCE)
    for name, stated in read_config(folder)["e2e"].items():
        texts = [text_ids(folder, sentence, stated["lang"]) for sentence in stated["sentences"]]
        yield compare_rows("j_tts", f"text_ids_{name}", texts, stated["text_ids"])
        uniforms = StoredUniforms(arrays[f"u_{name}"])
        codes: list[int] = []
        latents: list[torch.Tensor] = []
        waves: list[torch.Tensor] = []
        for text in stated["text_ids"]:
            prompt = XttsPrompt(voice.latents, text)
            ids, made, _ = decode(networks.gpt, prompt, sampled(uniforms, XttsSampling()))
            codes += ids
            latents.append(made)
            waves += stream(networks.vocoder, made, voice.speaker[None])
        yield compare_rows("j_tts", f"codes_{name}", codes, arrays[f"codes_{name}"].tolist())
        yield compare(
            "j_tts", f"latents_{name}", torch.cat(latents)[None], arrays[f"latents_{name}"], NETWORK_TOLERANCE
        )
        yield compare("j_tts", f"wav_{name}", torch.cat(waves), arrays[f"wav_{name}"], WAVE_TOLERANCE)
