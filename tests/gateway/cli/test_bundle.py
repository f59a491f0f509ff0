"""``vivavoce bundle``: complete folders are described; every fault of a damaged one is reported."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vivavoce.gateway.cli import main

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

YAML = "cosyvoice2.yaml"
# Twenty lines that stand for a million words.
DOUBLED = "a: &a [x, x]\n" + "".join(
    f"{chr(letter + 1)}: &{chr(letter + 1)} [*{chr(letter)}, *{chr(letter)}]\n" for letter in range(97, 117)
)
DOUBLED += "sample_rate: *u\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "whole"
    with pytest.raises(SystemExit, match="0"):
        main.main(["bundle", "random", str(folder), "--size", "tiny", "--version", "2", "--seed", "7"])
    return folder


@pytest.fixture
def damaged(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "damaged"))


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(["bundle", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.fixture
def faults(capsys: pytest.CaptureFixture[str]) -> Callable[[Path], list[str]]:
    """Check a folder that must be refused; the lines about it, without the headline where there are many."""

    def check(folder: Path) -> list[str]:
        assert run("check", folder) == 1
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("vivavoce: ")
        first, *others = said.err.removeprefix("vivavoce: ").splitlines()
        if not others:
            return [first]
        assert first == f"{folder} has {len(others)} faults:"
        return [line.strip() for line in others]

    return check


Faults = Callable[[Path], list[str]]


@pytest.mark.slow
@pytest.mark.parametrize("version", [2, 3])
def test_a_random_bundle_is_complete_and_described(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], version: int
) -> None:
    assert run("random", tmp_path / "new", "--version", str(version)) == 0
    capsys.readouterr()
    assert run("check", tmp_path / "new") == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"CosyVoice {version}; ")
    for file in (tmp_path / "new").iterdir():
        assert file.is_dir() or file.name in shown
    assert run("check", tmp_path / "new", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == version
    assert {"en", "zh"} <= set(told["languages"])
    sizes = {file["name"]: file["size_bytes"] for file in told["files"]}
    assert sizes["llm.pt"] == (tmp_path / "new" / "llm.pt").stat().st_size


def test_a_folder_with_files_is_left_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    assert run("random", tmp_path) == 1
    assert "is not an empty folder" in capsys.readouterr().err
    assert run("random", tmp_path / "mine.txt") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_full_disk_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = type(shutil.disk_usage("/"))(10**10, 9 * 10**9, 10**9)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert run("random", tmp_path / "full", "--size", "full") == 1
    assert "1.0 GB are free, 3.1 GB are needed" in capsys.readouterr().err
    assert list((tmp_path / "full").iterdir()) == []


def test_an_interrupted_write_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch, "save", interrupted)
    assert run("random", tmp_path / "half") == 130
    assert not (tmp_path / "half").exists()


def test_converted_weights_are_equal_and_used(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("convert", damaged) == 0
    assert "equal to llm.pt" in capsys.readouterr().out
    for name in ("llm.pt", "flow.pt", "hift.pt"):
        (damaged / name).unlink()
    assert run("check", damaged) == 0
    assert "llm.safetensors" in capsys.readouterr().out
    assert run("convert", damaged) == 1
    assert "no .pt file is left to convert" in capsys.readouterr().err


def test_a_conversion_that_differs_is_deleted(
    damaged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from vivavoce.models.checkpoint import weight_files

    real_save = weight_files.save_file

    def save_a_little_wrong(tensors: dict[str, Any], path: Path) -> None:
        real_save({key: tensor + 1e-6 for key, tensor in tensors.items()}, path)

    monkeypatch.setattr(weight_files, "save_file", save_a_little_wrong)
    assert run("convert", damaged) == 1
    assert "differ after reading back" in capsys.readouterr().err
    assert not [*damaged.glob("*.safetensors"), *damaged.glob("*.partial")]


def test_a_damaged_folder_is_not_converted(damaged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (damaged / "campplus.onnx").unlink()
    assert run("convert", damaged) == 1
    assert "campplus.onnx" in capsys.readouterr().err
    assert not list(damaged.glob("*.safetensors"))


def test_every_fault_of_a_partial_download_is_reported(damaged: Path, faults: Faults) -> None:
    (damaged / "llm.pt").unlink()
    (damaged / "flow.pt").write_bytes((damaged / "flow.pt").read_bytes()[:5000])
    (damaged / "speech_tokenizer_v2.onnx").write_bytes(b"")
    (damaged / "CosyVoice-BlankEN" / "merges.txt").unlink()
    (damaged / YAML).write_text((damaged / YAML).read_text("utf-8").replace("24000", "16000"), "utf-8")
    told = faults(damaged)
    assert [line.partition(":")[0] for line in told] == [
        YAML,
        "llm.pt",
        "flow.pt",
        "speech_tokenizer_v2.onnx",
        "CosyVoice-BlankEN/merges.txt",
    ]
    assert all("download" in line for line in told)


def test_a_folder_that_is_not_a_bundle_is_reported(tmp_path: Path, damaged: Path, faults: Faults) -> None:
    assert "no cosyvoice2.yaml or cosyvoice3.yaml" in faults(tmp_path)[0]
    assert "no such folder" in faults(tmp_path / "nowhere")[0]
    assert "no such folder" in faults(damaged / YAML)[0]
    shutil.copy(damaged / YAML, damaged / "cosyvoice3.yaml")
    assert "expected one, remove the other" in faults(damaged)[0]
    (damaged / "cosyvoice3.yaml").unlink()
    (damaged / YAML).rename(damaged / "cosyvoice.yaml")
    assert "CosyVoice 1 (cosyvoice.yaml) is not supported" in faults(damaged)[0]


@pytest.mark.parametrize("name", ["llm.pt", "campplus.onnx", YAML, "CosyVoice-BlankEN/vocab.json"])
def test_a_file_that_is_not_regular_is_not_read(damaged: Path, faults: Faults, name: str) -> None:
    (damaged / name).unlink()
    os.mkfifo(damaged / name)
    assert any(line.startswith(f"{name}: is not a plain file") for line in faults(damaged))
    (damaged / name).unlink()
    (damaged / name).mkdir()
    assert any(line.startswith(f"{name}: is a folder") for line in faults(damaged))


def test_an_unreadable_file_is_reported(
    damaged: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open = Path.open

    def refuse(path: Path, *arguments: Any, **named: Any) -> Any:
        if path.name in ("hift.pt", "campplus.onnx"):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refuse)
    told = faults(damaged)
    assert [line.partition(";")[0] for line in told] == [
        "hift.pt: Permission denied",
        "campplus.onnx: Permission denied",
    ]


def test_all_differences_in_a_file_are_reported_together(damaged: Path, faults: Faults) -> None:
    weights = torch.load(damaged / "hift.pt", weights_only=True)
    weights["conv_post.bias"] = torch.zeros(17)
    weights["conv_pre.bias"] = weights["conv_pre.bias"].double()
    del weights["f0_predictor.classifier.bias"]
    weights["surprise"] = torch.zeros(1)
    torch.save(weights, damaged / "hift.pt")
    (told,) = faults(damaged)
    assert "1 keys missing (f0_predictor.classifier.bias); 1 keys unknown (surprise)" in told
    assert "2 tensors of another shape or type" in told
    assert "conv_pre.bias is [32] float64, expected [32] float32" in told
    assert "conv_post.bias is [17] float32, expected [18] float32" in told
    assert told.endswith("is hift.pt of the same release as the yaml beside it?")


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["llm.pt", "spk2info.pt"])
def test_code_in_a_pickle_is_not_executed(damaged: Path, tmp_path: Path, faults: Faults, name: str) -> None:
    witness = tmp_path / "was here"
    torch.save({"llm_decoder.weight": Malicious(witness)}, damaged / name)
    (told,) = faults(damaged)
    assert told.startswith(f"{name}: its pickle is damaged or asks for code to be run")
    (damaged / name).write_bytes(pickle.dumps(Malicious(witness)))
    assert faults(damaged)[0].startswith(f"{name}: ")
    assert run("convert", damaged) == 1
    assert not witness.exists()


def test_yaml_tags_are_not_executed(
    damaged: Path, tmp_path: Path, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    witness = tmp_path / "was here"
    text = (damaged / YAML).read_text("utf-8")
    (damaged / YAML).write_text(text + f"__seed: !apply:os.system ['touch {witness}']\n", "utf-8")
    assert run("check", damaged) == 0
    capsys.readouterr()
    (damaged / YAML).write_text(text + f"x: !!python/object/apply:os.system ['touch {witness}']\n", "utf-8")
    assert "not readable as yaml" in faults(damaged)[0]
    assert not witness.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        (YAML, "[" * 100_000),
        (YAML, DOUBLED),
        ("CosyVoice-BlankEN/config.json", "[" * 100_000),
        ("CosyVoice-BlankEN/config.json", '{"hidden_size": 64, "num_hidden_layers": 9999999}'),
        ("CosyVoice-BlankEN/vocab.json", "[" * 100_000),
        ("CosyVoice-BlankEN/vocab.json", '["a", "b"]'),
        ("CosyVoice-BlankEN/vocab.json", '{"a": 0, "b": 7}'),
    ],
    ids=["deep yaml", "yaml of copies", "deep json", "many layers", "deep vocabulary", "list", "gap"],
)
def test_decompression_bombs_are_refused_with_one_line(
    damaged: Path, faults: Faults, name: str, content: str
) -> None:
    (damaged / name).write_text(content, "utf-8")
    told = faults(damaged)
    assert any(line.startswith(name.partition("/")[0]) for line in told)
    assert all(len(line) < 1000 for line in told)


@pytest.mark.slow
def test_weights_are_not_loaded_before_the_check_is_done(tmp_path: Path, faults: Faults) -> None:
    """A folder of 300 MB is refused for a missing file; no process that refuses it grows by much."""
    folder = tmp_path / "large"
    assert run("random", folder, "--version", "2") == 0
    weights = torch.load(folder / "llm.pt", weights_only=True)
    weights["llm.model.model.embed_tokens.weight"] = torch.zeros(300_000_000 // 256, 64)
    torch.save(weights, folder / "llm.pt")
    code = (
        "import resource, sys\n"
        "from shared.voices.cosyvoice_bundles import check_bundle\n"
        "from vivavoce.tts_engine.errors import BundleError\n"
        "import vivavoce.models.cosyvoice.checkpoint.inventory\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    check_bundle(__import__('pathlib').Path(sys.argv[1]))\n"
        "except BundleError as error:\n    assert '[1171875, 64]' in str(error), error\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1000)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 100  # MB


def test_export_lists_the_graphs_and_say_speaks_with_them(
    damaged: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("export", damaged, "--to", "onnx", "--precision", "int4") == 0
    assert "onnx/lm_step.int4.onnx" in capsys.readouterr().out
    assert sorted(path.name for path in (damaged / "onnx").glob("*.onnx")) == [
        "campplus.onnx",
        "flow_encoder.onnx",
        "flow_speaker.onnx",
        "flow_step.onnx",
        "lm_embed.onnx",
        "lm_head.int4.onnx",
        "lm_step.int4.onnx",
        "speech_tokenizer_v2.onnx",
        "vocoder.onnx",
    ]
    assert run("check", damaged) == 0
    out = tmp_path / "spoken.wav"
    arguments = ["say", "Yes.", "--bundle", str(damaged), "--precision", "int4", "-o", str(out)]
    with pytest.raises(SystemExit, match="0"):
        main.main([*arguments, "--executor", "onnxruntime"])
    assert out.stat().st_size > 44
    with pytest.raises(SystemExit, match="1"):
        main.main([*arguments, "--executor", "torch"])
    assert "int4 needs the executor onnxruntime" in capsys.readouterr().err
