"""XTTS on a simulated device other than the CPU: mixed devices and synchronizations."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.engine.cosyvoice_sessions import TEXTS, SessionDriver  # noqa: E402
from shared.runtimes.simulated_device import DEVICE, FULL_CARD, DeviceSimulation, fill_card  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU  # noqa: E402
from vivavoce.models.xtts import networks  # noqa: E402
from vivavoce.models.xtts.checkpoint.bundle import XttsBundle, open_bundle  # noqa: E402
from vivavoce.models.xtts.networks import load_networks, load_voice_encoder  # noqa: E402
from vivavoce.tts_engine.errors import BundleError  # noqa: E402
from vivavoce.tts_engine.xtts import backend as backend_module  # noqa: E402
from vivavoce.tts_engine.xtts.backend import XttsBackend  # noqa: E402
from vivavoce.tts_engine.xtts.bundle_voices import XttsVoices  # noqa: E402
from vivavoce.tts_engine.xtts.policy import SpeechLengthBound, XttsPolicy  # noqa: E402

BRIEF = XttsPolicy(length=SpeechLengthBound(0.1, 0.1), prefill_chunk=16)


@pytest.fixture(scope="module")
def bundle(xtts_folder: Path) -> XttsBundle:
    return open_bundle(xtts_folder)


@pytest.fixture(scope="module")
def voices(bundle: XttsBundle) -> XttsVoices:
    settings = bundle.settings
    load_encoder = partial(load_voice_encoder, bundle)
    return XttsVoices(bundle.voices(), load_encoder, settings.conditioning, settings.languages)


@pytest.fixture
def simulation() -> Iterator[DeviceSimulation]:
    with torch.inference_mode(), DeviceSimulation() as mode:
        yield mode


def speak(backend: XttsBackend) -> list[np.ndarray]:
    """The samples of two sessions that share steps."""
    driver = SessionDriver(backend)
    slots = [driver.add(text, voice="Random", seed=seed) for seed, text in enumerate(TEXTS[:2])]
    driver.speak()
    assert driver.failures == {}
    backend.close()
    return [np.concatenate(driver.samples[slot]) for slot in slots]


def test_a_bundle_renders_on_another_device_and_waits_for_scores_and_samples_only(
    bundle: XttsBundle, voices: XttsVoices, simulation: DeviceSimulation
) -> None:
    backends = [
        XttsBackend(bundle.settings, load_networks(bundle, device), bundle.tokenizer(), voices, BRIEF)
        for device in (CPU, DEVICE)
    ]
    simulation.waits.clear()
    expected = speak(backends[0])
    assert not simulation.waits
    samples = speak(backends[1])
    assert set(simulation.waits) == {"aten.copy_.default"}
    for one, other in zip(samples, expected, strict=True):
        assert one.shape == other.shape
        assert np.abs(one - other).max() < 2e-3


def test_a_card_that_is_full_when_the_weights_are_loaded_is_one_sentence(
    xtts_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_module, "find_device", lambda name: torch.device("cuda", 0))
    monkeypatch.setattr(networks, "keep_compiled_kernels", lambda folder, device: None)
    fill_card(monkeypatch)
    with pytest.raises(BundleError, match=FULL_CARD):
        XttsBackend.load(xtts_folder, BRIEF)
