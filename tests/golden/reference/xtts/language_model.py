"""Cases d_gpt, e_sampling and f_latents: text ids to speech ids and latents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from golden.reference.comparison import Arrays, Comparison, compare, compare_rows, read_arrays
from golden.reference.golden_config import read_config
from golden.reference.xtts.decoding import Draw, StoredUniforms, decode, greedy, sampled
from golden.reference.xtts.networks import load_rule_networks
from vivavoce.models.xtts.gpt import TorchXttsGpt, XttsGpt, XttsPrompt
from vivavoce.models.xtts.latent_resampler import LinearInterpolator
from vivavoce.models.xtts.sampling import XttsSampling

_TOLERANCE = 1e-4
_CAPACITY = 512


@torch.inference_mode()
def check_gpt(folder: Path) -> Iterator[Comparison]:
    """Compare the first layer, and the language model as ``compare_gpt``."""
    arrays, gpt = read_arrays(folder, "d_gpt"), load_rule_networks(folder).gpt
    assert isinstance(gpt, TorchXttsGpt)
    first_layers: list[torch.Tensor] = []
    hook = gpt.layers[0].register_forward_hook(lambda _module, _inputs, y: first_layers.append(y))
    yield from compare_gpt(folder, gpt)
    hook.remove()
    yield compare("d_gpt", "layer1", first_layers[0], arrays["layer1"], _TOLERANCE)


@torch.inference_mode()
def compare_gpt(folder: Path, gpt: XttsGpt) -> Iterator[Comparison]:
    """Compare the prompt, its hidden states, cached steps with given ids, and the longest text."""
    arrays = read_arrays(folder, "d_gpt")
    prompt = _prompt(arrays, "text")
    yield compare("d_gpt", "prefix", gpt.embed_prompts([prompt])[0][:, :-1], arrays["prefix"], 0.0)
    x, valid = gpt.embed_prompts([prompt])
    hidden, state = gpt.step(x, gpt.init_state(1, _CAPACITY), valid)
    yield compare("d_gpt", "hidden", hidden, arrays["hidden"], _TOLERANCE)
    latents = [gpt.latents(hidden[:, -1])]
    for position, speech_id in enumerate(arrays["forced"].tolist()):
        x = gpt.embed_speech(torch.tensor([[speech_id]]), torch.tensor([[position]]))
        hidden, state = gpt.step(x, state)
        latents.append(gpt.latents(hidden[:, -1]))
    made = torch.cat(latents)
    yield compare("d_gpt", "latents", made, arrays["latents"], _TOLERANCE)
    yield compare("d_gpt", "logits", gpt.logits(made), arrays["logits"], _TOLERANCE)
    x, valid = gpt.embed_prompts([_prompt(arrays, "text_long")])
    hidden, _ = gpt.step(x, gpt.init_state(1, _CAPACITY), valid)
    latent = gpt.latents(hidden[:, -1])
    yield compare("d_gpt", "latent_long", latent, arrays["latent_long"], _TOLERANCE)
    yield compare("d_gpt", "logits_long", gpt.logits(latent), arrays["logits_long"], _TOLERANCE)


def check_sampling(folder: Path) -> Iterator[Comparison]:
    """Compare the ids of every stored run, greedy and sampled, and the logits of one."""
    arrays, gpt = read_arrays(folder, "e_sampling"), load_rule_networks(folder).gpt
    prompt = _prompt(read_arrays(folder, "d_gpt"), "text")
    for name, trace in read_config(folder)["traces"].items():
        ids, _, logits = decode(gpt, prompt, _draw(name, trace["params"], arrays))
        yield compare_rows("e_sampling", name, ids, arrays[name].tolist())
        if f"raw_{name}" in arrays:
            yield compare("e_sampling", f"raw_{name}", logits, arrays[f"raw_{name}"], _TOLERANCE)


def check_latents(folder: Path) -> Iterator[Comparison]:
    """Compare the latents of the decode with those of upstream's second pass, and their change of speed."""
    arrays, runs = read_arrays(folder, "f_latents"), read_arrays(folder, "e_sampling")
    gpt, prompt = load_rule_networks(folder).gpt, _prompt(read_arrays(folder, "d_gpt"), "text")
    for name in ("eos100", "maxlen"):
        parameters = read_config(folder)["traces"][name]["params"]
        _, latents, _ = decode(gpt, prompt, _draw(name, parameters, runs))
        yield compare("f_latents", f"lat_{name}", latents[None], arrays[f"lat_{name}"], _TOLERANCE)
        if name == "eos100":
            yield compare("f_latents", "lat_stream", latents, arrays["lat_stream"], _TOLERANCE)
    stored = arrays["lat_eos100"][0]
    for name in [name for name in arrays if name.startswith("sp_")]:
        interpolator = LinearInterpolator(1 / float(name.removeprefix("sp_")))
        slower = torch.cat([interpolator.push(stored), interpolator.finish()])[None]
        yield compare("f_latents", name, slower, arrays[name], _TOLERANCE)


def _prompt(arrays: Arrays, text: str) -> XttsPrompt:
    return XttsPrompt(arrays["cond"][0], arrays[text][0].tolist())


def _draw(name: str, stated: dict[str, Any], arrays: Arrays) -> Draw:
    penalty = stated["repetition_penalty"]
    if f"u_{name}" not in arrays:
        return greedy(penalty)
    # Upstream's stream ignores do_sample=False and then samples without the other parameters.
    parameters = (
        XttsSampling(stated["temperature"], stated["top_k"], stated["top_p"], penalty)
        if stated["do_sample"]
        else XttsSampling(1.0, 0, 1.0, penalty)
    )
    return sampled(StoredUniforms(arrays[f"u_{name}"]), parameters)
