"""Error of the scores of XTTS's language model in a precision: divergence from float32 over one sentence.

Text and speech ids are random and the same for both. Run in a process of its own, because it loads the
bundle twice.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from benches.cosyvoice.bench_process import print_figures
from vivavoce.gateway.cli.bench.report import BenchFigure
from vivavoce.models.devices.execution import Precision
from vivavoce.models.xtts.checkpoint.bundle import XttsBundle, open_bundle
from vivavoce.models.xtts.gpt import XttsPrompt
from vivavoce.models.xtts.networks import load_networks

_TEXT_IDS, _SPEECH_IDS = 40, 60


def measure_score_error(folder: Path, precision: str) -> Iterator[BenchFigure]:
    """The mean Kullback-Leibler divergence of the next id's distribution."""
    bundle = open_bundle(folder)
    exact, found = (_log_probabilities(bundle, each) for each in (Precision.FP32, Precision(precision)))
    divergence = (exact.exp() * (exact - found)).sum(-1).mean()
    yield BenchFigure("mean KL to fp32", float(divergence), "nats")


@torch.inference_mode()
def _log_probabilities(bundle: XttsBundle, precision: Precision) -> Tensor:
    """Of the id after the text and after each speech id: (ids + 1, V) float32."""
    gpt = load_networks(bundle, precision=precision).gpt
    generator = torch.Generator().manual_seed(0)
    text_ids = torch.randint(gpt.config.text_vocab_size, (_TEXT_IDS,), generator=generator)
    speech_ids = torch.randint(gpt.config.start_speech_id, (1, _SPEECH_IDS), generator=generator)
    voice = next(iter(bundle.voices().values()))
    prompt, _ = gpt.embed_prompts([XttsPrompt(voice.latents, text_ids.tolist())])
    x = torch.cat([prompt, gpt.embed_speech(speech_ids, torch.arange(_SPEECH_IDS)[None])], 1)
    hidden, _ = gpt.step(x, gpt.init_state(1, x.shape[1]))
    scores = gpt.logits(gpt.latents(hidden[0, -_SPEECH_IDS - 1 :]))
    return scores.float().log_softmax(-1)


if __name__ == "__main__":
    sys.exit(print_figures(measure_score_error(Path(sys.argv[1]), sys.argv[2])))
