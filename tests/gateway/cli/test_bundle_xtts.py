"""``vivavoce bundle`` and a folder of XTTS: created, described, converted, and refused to speak."""

import json
from pathlib import Path

import pytest

from vivavoce.gateway.cli import main

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main.main([*map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


def test_a_random_bundle_is_described_and_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    assert run("bundle", "random", folder, "--family", "xtts") == 0
    assert "XTTS 2, tiny" in " ".join(capsys.readouterr().err.split())
    assert run("bundle", "convert", folder) == 0
    (folder / "model.pth").unlink()
    capsys.readouterr()
    assert run("bundle", "check", folder) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("XTTS 2; ") and "model.safetensors" in shown
    assert "non-commercial" in shown
    assert run("bundle", "check", folder, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["family"] == "XTTS" and "zh-cn" in told["languages"]
    assert run("bundle", "convert", folder) == 1
    assert "no .pth file is left to convert" in capsys.readouterr().err
    (folder / "vocab.json").unlink()
    assert run("bundle", "check", folder) == 1
    assert "vocab.json" in capsys.readouterr().err


def test_a_damaged_folder_is_one_sentence_of_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("config.json", "model.pth"):
        (tmp_path / name).write_bytes(b"")
    assert run("say", "hello", "--bundle", tmp_path, "-o", tmp_path / "x.wav") == 1
    said = capsys.readouterr().err
    assert said.startswith("vivavoce: config.json: not readable as JSON") and said.count("\n") == 1


@pytest.mark.parametrize("target", ["onnx", "tensorrt"])
def test_a_bundle_of_xtts_is_not_exported(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("config.json", "model.pth"):
        (tmp_path / name).write_bytes(b"")
    assert run("bundle", "export", tmp_path, "--to", target) == 1
    assert "XTTS is not exported; with precision int8" in capsys.readouterr().err
