"""Which faults of a bundle's folder are reported, before anything is loaded."""

from pathlib import Path

import pytest

from vivavoce.tts_engine.backends.loading import divided_stages, load_backend
from vivavoce.tts_engine.cosyvoice.checkpoints import CosyVoiceCheckpoints
from vivavoce.tts_engine.errors import BundleError, MissingExtra


def fault_of(folder: Path) -> str:
    with pytest.raises(BundleError) as raised:
        load_backend(str(folder))
    return str(raised.value)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert fault_of(tmp_path / "absent") == (
        f"{tmp_path}/absent: no such folder; give a folder of Piper, Kokoro, XTTS, CosyVoice"
    )


def test_a_piper_voice_without_its_configuration_says_which_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "joe.onnx").write_bytes(b"")
    assert fault_of(tmp_path) == (
        f"{tmp_path}: joe.onnx needs joe.onnx.json beside it, as Piper voices have it"
    )


@pytest.mark.parametrize("others", [[], ["README.md", "config.json"]])
def test_a_folder_of_no_kind_says_which_files_were_looked_for(tmp_path: Path, others: list[str]) -> None:
    for name in others:
        (tmp_path / name).write_bytes(b"{}")
    fault = fault_of(tmp_path)
    assert fault.startswith(f"{tmp_path}: no bundle of any kind; looked for ")
    for file in ("*.onnx.json", "kokoro*.onnx", "cosyvoice2.yaml", "model.pth"):
        assert file in fault
    with pytest.raises(BundleError, match="no bundle of any kind"):
        divided_stages(str(tmp_path))


def test_torch_is_asked_for_only_by_a_folder_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def miss(_: CosyVoiceCheckpoints, folder: Path) -> None:
        raise MissingExtra(str(folder), "cosyvoice")

    monkeypatch.setattr(CosyVoiceCheckpoints, "require_networks", miss)
    fault_of(tmp_path)
    (tmp_path / "cosyvoice2.yaml").write_bytes(b"")
    with pytest.raises(MissingExtra):
        load_backend(str(tmp_path))
