"""Adapters of the language model: only they are trained, and merged they are the network that was trained."""

import pytest

torch = pytest.importorskip("torch", reason="the [train] extra is not installed")

from shared.training.made_up_dataset import random_part  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.training.lm_loss import run_whole_rows  # noqa: E402
from vivavoce.models.cosyvoice.training.lora import ADAPTED, add_adapters, merge_adapters  # noqa: E402

ROWS = torch.arange(24).view(2, 12)


def random_lm() -> SpeechLm:
    network = random_part("lm").network
    assert isinstance(network, SpeechLm)
    return network


def test_new_adapters_change_nothing_and_alone_get_gradients() -> None:
    lm = random_lm()
    before = run_whole_rows(lm, ROWS)
    add_adapters(lm, rank=4, alpha=8, seed=0)
    after = run_whole_rows(lm, ROWS)
    assert torch.equal(before, after)
    after.square().sum().backward()
    trained = {name for name, parameter in lm.named_parameters() if parameter.grad is not None}
    assert trained == {name for name, _ in lm.named_parameters() if "adapter" in name}
    assert len(trained) == 2 * len(ADAPTED) * lm.config.layers


def test_merged_adapters_are_the_network_that_was_trained() -> None:
    lm, plain = random_lm(), random_lm()
    untrained = run_whole_rows(plain, ROWS)
    add_adapters(lm, rank=4, alpha=8, seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in lm.named_parameters():
        if name.endswith("adapter_up"):
            torch.nn.init.normal_(parameter, std=0.1, generator=generator)
    wanted = run_whole_rows(lm, ROWS)
    plain.load_state_dict(merge_adapters(lm.state_dict(), scale=2))
    assert not torch.allclose(untrained, wanted, atol=1e-2)
    torch.testing.assert_close(run_whole_rows(plain, ROWS), wanted, rtol=1e-4, atol=1e-4)
