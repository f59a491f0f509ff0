"""Counts what a decode step launches on a card, without one, and prints the counts as JSON.

The depth is that of the release, the width is reduced: launches do not depend on it. A process of its own,
because Triton reads TRITON_INTERPRET when it is imported:

    TRITON_INTERPRET=1 python counted_launches.py
"""

import json
from unittest.mock import patch

import torch

from shared.runtimes.drawn_networks import draw_and_prepare
from shared.runtimes.launch_count import launches
from vivavoce.models.networks import kernel_support
from vivavoce.models.xtts.config import XttsGptConfig
from vivavoce.models.xtts.decode_graphs import GptGraphKey, XttsDecodeGraphs
from vivavoce.models.xtts.gpt import TorchXttsGpt

_CAPACITY = 40


@torch.inference_mode()
def counts() -> dict[str, int]:
    """Launches of a step of 4 rows, by what computes the layers."""
    gpt = TorchXttsGpt(XttsGptConfig(hidden=128, heads=2, text_vocab_size=50), 1, 2)
    draw_and_prepare(gpt)
    found = {}
    for name, has_kernels in (("kernels", True), ("torch", False)):
        with patch.object(kernel_support, "runs_triton", return_value=has_kernels):
            graphs = XttsDecodeGraphs(gpt, gpt.init_state(4, _CAPACITY))
            found[name] = launches(graphs._steps.get(GptGraphKey(4, _CAPACITY))._compute)
    return found


if __name__ == "__main__":
    print(json.dumps(counts()))
