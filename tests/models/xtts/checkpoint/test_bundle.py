"""Folders of XTTS v2: complete ones load, damaged and foreign ones are refused with a sentence."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch

from vivavoce.models.checkpoint.weight_files import WeightFileError
from vivavoce.models.xtts.checkpoint.bundle import InvalidXttsBundleError, open_bundle
from vivavoce.models.xtts.checkpoint.weight_file import convert_model, current_key, load_model, model_path


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "damaged"))


def refusal(folder: Path) -> str:
    with pytest.raises(InvalidXttsBundleError) as raised:
        open_bundle(folder)
    return str(raised.value)


def change_settings(folder: Path, **changed: Any) -> None:
    settings = json.loads((folder / "config.json").read_text("utf-8"))
    arguments = changed.pop("model_args", {})
    settings |= changed
    settings["model_args"] |= arguments
    (folder / "config.json").write_text(json.dumps(settings), "utf-8")


def test_a_folder_of_version_1_is_named(damaged: Path) -> None:
    change_settings(damaged, model_args={"gpt_use_perceiver_resampler": False})
    assert refusal(damaged) == "config.json: XTTS v1 (no perceiver) is not supported; use XTTS v2"


def test_another_vocabulary_is_one_sentence(damaged: Path) -> None:
    stated = json.loads((damaged / "vocab.json").read_text("utf-8"))
    stated["model"]["vocab"]["new"] = len(stated["model"]["vocab"])
    (damaged / "vocab.json").write_text(json.dumps(stated), "utf-8")
    assert "112 text ids, expected 111" in refusal(damaged)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "vits"}, "model is 'vits'; expected 'xtts'"),
        ({"model_args": {"output_hop_length": 512}}, "output_hop_length is 512; expected 256"),
        ({"model_args": {"gpt_layers": 3}}, "keys missing"),
        ({"model_args": {"gpt_n_heads": 5}}, "multiple of heads"),
        ({"temperature": 0}, "temperature is 0"),
        ({"languages": ["en", "xx"]}, "no tag for xx"),
    ],
)
def test_settings_that_do_not_fit_are_named(damaged: Path, changed: dict[str, Any], message: str) -> None:
    change_settings(damaged, **changed)
    assert message in refusal(damaged)


@pytest.mark.parametrize("name", ["config.json", "model.pth", "vocab.json"])
def test_a_missing_file_is_named(damaged: Path, name: str) -> None:
    (damaged / name).unlink()
    assert name in refusal(damaged)


class _Command:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return eval, ("1 / 0",)


def test_a_pickle_that_would_run_a_command_is_refused(damaged: Path) -> None:
    torch.save({"model": {}, "config": _Command()}, damaged / "model.pth", pickle_module=pickle)
    assert "asks for code to be run" in refusal(damaged)


def test_a_truncated_file_is_refused(damaged: Path) -> None:
    data = (damaged / "model.pth").read_bytes()
    (damaged / "model.pth").write_bytes(data[: len(data) // 2])
    assert "not a complete PyTorch archive" in refusal(damaged)


def test_a_converted_folder_loads_the_same_tensors(damaged: Path) -> None:
    before = load_model(damaged / "model.pth")
    convert_model(damaged)
    (damaged / "model.pth").unlink()
    after = load_model(model_path(damaged))
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[key]) for key, tensor in before.items())
    open_bundle(damaged)


@pytest.mark.parametrize(
    ("key", "current"),
    [
        ("xtts.gpt.final_norm.bias", "gpt.final_norm.bias"),
        ("gpt.gpt_inference.final_norm.bias", None),
        ("xtts.gpt.gpt.wte.weight", None),
        ("dvae.codebook.embed", None),
        ("torch_mel_spectrogram_dvae.mel_stft.window", None),
        ("a.ups.0.weight_g", "a.ups.0.parametrizations.weight.original0"),
    ],
)
def test_keys_of_other_checkpoints_are_those_of_the_release(key: str, current: str | None) -> None:
    assert current_key(key) == current


def test_a_voice_of_another_size_is_named(damaged: Path) -> None:
    voice = {"gpt_cond_latent": torch.zeros(1, 32, 8), "speaker_embedding": torch.zeros(1, 512, 1)}
    torch.save({"Anna": voice}, damaged / "speakers_xtts.pth")
    assert "voice 'Anna' is [1, 32, 8]" in refusal(damaged)
    torch.save({"Anna": {"speaker_embedding": torch.zeros(1, 512, 1)}}, damaged / "speakers_xtts.pth")
    assert "voice 'Anna' has no gpt_cond_latent" in refusal(damaged)


def test_a_table_of_something_else_is_refused(damaged: Path) -> None:
    torch.save({"model": {"a": 1}}, damaged / "model.pth")
    with pytest.raises(WeightFileError, match="no table of tensors"):
        load_model(damaged / "model.pth")
