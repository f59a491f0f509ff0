"""Dropout where upstream trains with it; a server's networks have none, so it is added from outside.

    version 2    encoder: after attention and feed-forward, inside feed-forward, after both embeddings, on the
                 sines of distances, and on the attention weights (``flow_loss``)
    version 3    estimator: after attention, inside feed-forward

Source: FunAudioLLM/CosyVoice@ace7c47 conf/cosyvoice2.yaml (dropout_rate, 0.1), transformer/{encoder_layer,
positionwise_feed_forward,embedding,subsampling}.py, flow/DiT/dit.py:112.
"""

import re
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

DROPOUT = 0.1

_OUTPUTS = re.compile(
    r"encoder\.(up_)?embed|encoder\.(up_)?encoders\.\d+\.(self_attn|feed_forward)"
    r"|decoder\.estimator\.transformer_blocks\.\d+\.attn\.to_out\.0"
)
_INPUTS = re.compile(
    r"encoder\.(up_)?encoders\.\d+\.(feed_forward\.w_2|self_attn\.linear_pos)"
    r"|decoder\.estimator\.transformer_blocks\.\d+\.ff\.ff\.2"
)


def add_dropout(flow: nn.Module, share: float = DROPOUT) -> None:
    """Drop a share of the numbers at upstream's places while the network is in training mode."""

    def drop_output(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return F.dropout(output, share, module.training)

    def drop_input(module: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (F.dropout(inputs[0], share, module.training),)

    for name, module in flow.named_modules():
        if _OUTPUTS.fullmatch(name):
            module.register_forward_hook(drop_output)
        if _INPUTS.fullmatch(name):
            module.register_forward_pre_hook(drop_input)
