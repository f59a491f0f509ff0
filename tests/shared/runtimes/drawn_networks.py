"""Networks with drawn weights, prepared as on a card. Needs torch."""

from unittest.mock import patch

from torch import Tensor, nn

from vivavoce.models.networks import layers


def draw_and_prepare(network: nn.Module) -> None:
    """Draw all parameters, and pack no matrix for a CPU."""
    network.requires_grad_(False)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.1)
    with patch.object(layers, "pack_matrix", Tensor.contiguous):
        layers.prepare_modules(network)
