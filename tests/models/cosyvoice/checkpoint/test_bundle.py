"""Checkpoint folders: an intact one opens, and each kind of damage is named before anything is loaded."""

import io
import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.checkpoint import weight_files  # noqa: E402
from vivavoce.models.checkpoint.settings_file import BundleConfigError, parse_yaml  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import InvalidBundleError, detect_version, open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.inventory import list_bundle_files  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.onnx_signature import OnnxFileError, read_onnx_signature  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import tiny_config, write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import WEIGHT_FILES, file_shapes  # noqa: E402
from vivavoce.models.cosyvoice.config import (  # noqa: E402
    TEXT_EMBEDDING_KEY,
    TIED_HEAD_KEY,
    TIED_KEYS,
    CosyVoiceVersion,
    released_config,
)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> dict[CosyVoiceVersion, Path]:
    folders = {version: tmp_path_factory.mktemp("bundles") / version.name for version in CosyVoiceVersion}
    for version, folder in folders.items():
        write_random_bundle(folder, version, BundleSize.TINY, seed=7)
    return folders


@pytest.fixture
def damaged(intact: dict[CosyVoiceVersion, Path], tmp_path: Path) -> Path:
    """A copy of an intact folder of version 2, to be damaged."""
    return Path(shutil.copytree(intact[CosyVoiceVersion.V2], tmp_path / "damaged"))


def error_of(folder: Path) -> str:
    with pytest.raises(InvalidBundleError) as caught:
        open_bundle(folder)
    return str(caught.value)


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_an_intact_folder_opens_and_has_its_tensors(
    intact: dict[CosyVoiceVersion, Path], version: CosyVoiceVersion
) -> None:
    bundle = open_bundle(intact[version])
    assert bundle.version is version
    assert file_shapes(bundle.network_config) == file_shapes(tiny_config(version))
    for name in WEIGHT_FILES:
        shapes = {key: tuple(tensor.shape) for key, tensor in bundle.load(name).items()}
        assert shapes == file_shapes(bundle.network_config)[name]
    assert bundle.yaml_config.mel_max_hz == (8000 if version is CosyVoiceVersion.V2 else None)
    assert bundle.text_tokenizer().vocab_size <= bundle.network_config.lm.text_vocab_size
    assert bundle.speakers()["nobody"].embedding.shape == (192,)
    assert "en" in bundle.languages


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_a_seed_determines_the_weights(
    intact: dict[CosyVoiceVersion, Path], tmp_path: Path, version: CosyVoiceVersion
) -> None:
    write_random_bundle(tmp_path / "again", version, BundleSize.TINY, seed=7)
    write_random_bundle(tmp_path / "other", version, BundleSize.TINY, seed=8)
    first, again, other = (
        open_bundle(folder).load("hift.pt")
        for folder in (intact[version], tmp_path / "again", tmp_path / "other")
    )
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["conv_post.bias"], other["conv_post.bias"])


def test_a_folder_in_use_is_not_overwritten(intact: dict[CosyVoiceVersion, Path]) -> None:
    with pytest.raises(FileExistsError, match="not empty"):
        write_random_bundle(intact[CosyVoiceVersion.V2], CosyVoiceVersion.V2, BundleSize.TINY)


def test_converted_weights_are_equal_and_replace_the_others(damaged: Path) -> None:
    bundle = open_bundle(damaged)
    before = {name: bundle.load(name) for name in WEIGHT_FILES}
    written = [weight_files.convert_to_safetensors(damaged / name, TIED_KEYS) for name in WEIGHT_FILES]
    assert [path.name for path in written] == ["llm.safetensors", "flow.safetensors", "hift.safetensors"]
    for name in WEIGHT_FILES:
        (damaged / name).unlink()
    after = open_bundle(damaged)
    for name in WEIGHT_FILES:
        loaded = after.load(name)
        assert set(before[name]) - set(loaded) <= {TIED_HEAD_KEY}
        assert all(torch.equal(loaded[key], before[name][key]) for key in loaded)
    assert list(damaged.glob("*.partial")) == []


def test_a_conversion_that_fails_leaves_nothing_behind(damaged: Path) -> None:
    (damaged / "hift.safetensors").mkdir()
    with pytest.raises(OSError, match=r"hift\.safetensors"):
        weight_files.convert_to_safetensors(damaged / "hift.pt")
    assert list(damaged.glob("*.partial")) == []


def test_version_1_is_refused_by_name(damaged: Path) -> None:
    (damaged / "cosyvoice2.yaml").rename(damaged / "cosyvoice.yaml")
    assert "CosyVoice 1" in error_of(damaged)


def test_a_folder_without_a_release_or_with_two_is_refused(tmp_path: Path, damaged: Path) -> None:
    assert "no such folder" in error_of(tmp_path / "nowhere")
    assert "no cosyvoice2.yaml or cosyvoice3.yaml" in error_of(tmp_path)
    shutil.copy(damaged / "cosyvoice2.yaml", damaged / "cosyvoice3.yaml")
    assert "expected one" in error_of(damaged)


def test_settings_of_another_version_are_refused(damaged: Path) -> None:
    (damaged / "cosyvoice2.yaml").rename(damaged / "cosyvoice3.yaml")
    assert detect_version(damaged) is CosyVoiceVersion.V3
    assert "llm is new:cosyvoice.llm.llm.Qwen2LM; expected a CosyVoice3LM" in error_of(damaged)


def test_weights_of_another_version_are_refused(damaged: Path, intact: dict[CosyVoiceVersion, Path]) -> None:
    shutil.copy(intact[CosyVoiceVersion.V3] / "flow.pt", damaged / "flow.pt")
    message = error_of(damaged)
    assert message.startswith("flow.pt: ")
    assert "keys missing" in message
    assert "same release" in message


def test_weights_of_another_size_are_refused(damaged: Path) -> None:
    weights = torch.load(damaged / "hift.pt", weights_only=True)
    weights["conv_post.bias"] = torch.zeros(17)
    torch.save(weights, damaged / "hift.pt")
    assert "hift.pt: conv_post.bias is [17] float32, expected [18] float32" in error_of(damaged)


def test_weights_of_another_type_are_refused(damaged: Path) -> None:
    weights = torch.load(damaged / "hift.pt", weights_only=True)
    torch.save({key: tensor.double() for key, tensor in weights.items()}, damaged / "hift.pt")
    assert "float64, expected" in error_of(damaged)
    assert "; save it in float32, float16 or bfloat16" in error_of(damaged)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("converted", [False, True])
def test_weights_of_16_bits_are_read_as_float32(damaged: Path, dtype: torch.dtype, converted: bool) -> None:
    weights = torch.load(damaged / "llm.pt", weights_only=True)
    torch.save({key: tensor.to(dtype) for key, tensor in weights.items()}, damaged / "llm.pt")
    if converted:
        weight_files.convert_to_safetensors(damaged / "llm.pt", TIED_KEYS)
        (damaged / "llm.pt").unlink()
    loaded = open_bundle(damaged).load("llm.pt", memory_mapped=(TEXT_EMBEDDING_KEY,))
    for key, tensor in loaded.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, weights[key].to(dtype).float())


def test_counters_of_upstream_s_trainer_are_passed_over(damaged: Path) -> None:
    weights = torch.load(damaged / "flow.pt", weights_only=True)
    for counters in ({"epoch": 7, "step": 12_000}, {"epoch": torch.tensor(7), "step": torch.tensor(2.5)}):
        torch.save({**weights, **counters}, damaged / "flow.pt")
        assert set(open_bundle(damaged).load("flow.pt", memory_mapped=(next(iter(weights)),))) == set(weights)
    torch.save({**weights, "optimizer": 7}, damaged / "flow.pt")
    assert "not a table of tensors" in error_of(damaged)


def test_a_checkpoint_of_a_trainer_is_refused_with_what_to_do(damaged: Path) -> None:
    weights = torch.load(damaged / "flow.pt", weights_only=True)
    torch.save({"model": weights, "epoch": 7}, damaged / "flow.pt")
    assert "under 'model': save that table alone" in error_of(damaged)
    torch.save({f"module.{key}": tensor for key, tensor in weights.items()}, damaged / "flow.pt")
    assert "without the prefix 'module.'" in error_of(damaged)
    (damaged / "flow.pt").rename(damaged / "epoch_12_whole.pt")
    assert "flow.pt: missing; found epoch_12_whole.pt" in error_of(damaged)


@pytest.mark.parametrize(
    "start",
    [
        "<!DOCTYPE html>",
        "\n<html lang='en'>",
        "\ufeff<!doctype HTML>",
        "<?xml version='1.0'?>\n<!-- saved -->\n<html>",
        "\n" * 99 + "<head>",
    ],
)
@pytest.mark.parametrize("name", ["flow.pt", "flow.safetensors", "campplus.onnx"])
def test_a_web_page_in_place_of_a_file_is_recognised(damaged: Path, start: str, name: str) -> None:
    (damaged / name).write_text(f"{start}<title>Log in</title>{' ' * 99}")
    assert error_of(damaged).startswith(f"{name}: a web page, not the file; download ")


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "hift.pt"])
def test_half_a_download_is_refused(damaged: Path, name: str) -> None:
    content = (damaged / name).read_bytes()
    for kept in (0, 3, len(content) // 2, len(content) - 1000):
        (damaged / name).write_bytes(content[:kept])
        message = error_of(damaged)
        assert message.startswith(f"{name}: ")
        assert "again" in message


def test_an_archive_without_its_numbers_is_refused(damaged: Path) -> None:
    source = damaged / "hift.pt"
    without_numbers = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(without_numbers, "w") as new:
        for entry in old.infolist():
            data = old.read(entry)
            new.writestr(entry.filename, data[:8] if "/data/" in entry.filename else data)
    source.write_bytes(without_numbers.getvalue())
    assert "bytes of numbers" in error_of(damaged)


def test_a_git_lfs_pointer_is_recognised(damaged: Path) -> None:
    (damaged / "llm.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    assert "git lfs pull" in error_of(damaged)


class Malicious:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("name", ["llm.pt", "flow.pt", "spk2info.pt"])
def test_a_pickle_with_code_is_refused_and_not_run(damaged: Path, tmp_path: Path, name: str) -> None:
    created = tmp_path / "created by the pickle"
    torch.save({"llm_decoder.weight": Malicious(created)}, damaged / name)
    assert error_of(damaged).startswith(f"{name}: ")
    assert "asks for code to be run (getattr); expected tensors only" in error_of(damaged)
    assert "\x1b" not in error_of(damaged)  # torch's own text would colour a terminal
    assert not created.exists()
    (damaged / name).write_bytes(pickle.dumps(Malicious(created)))
    assert error_of(damaged).startswith(f"{name}: ")
    assert not created.exists()


def test_keys_of_a_training_checkpoint_are_renamed(damaged: Path) -> None:
    weights = torch.load(damaged / "hift.pt", weights_only=True)
    old = {
        "generator."
        + key.replace(".parametrizations.weight.original0", ".weight_g").replace(
            ".parametrizations.weight.original1", ".weight_v"
        ): tensor
        for key, tensor in weights.items()
    }
    torch.save(old, damaged / "hift.pt")
    assert set(open_bundle(damaged).load("hift.pt")) == set(weights)


@pytest.mark.parametrize("name", ["campplus.onnx", "speech_tokenizer_v2.onnx"])
def test_half_an_onnx_model_is_refused(damaged: Path, name: str) -> None:
    content = (damaged / name).read_bytes()
    for kept in (0, 1, 40, len(content) // 2, len(content) - 1):
        (damaged / name).write_bytes(content[:kept])
        with pytest.raises(OnnxFileError):
            read_onnx_signature(damaged / name)
    assert error_of(damaged).startswith(f"{name}: ")


def test_an_onnx_model_with_other_inputs_is_refused(damaged: Path) -> None:
    shutil.copy(damaged / "campplus.onnx", damaged / "speech_tokenizer_v2.onnx")
    assert "inputs are float32 [1, ?, 80], expected float32 [1, 128, ?], int32 [?]" in error_of(damaged)


def test_other_content_is_not_an_onnx_model(tmp_path: Path) -> None:
    for content in (b"\xff" * 50, b"<html>404</html>", json.dumps({"a": 1}).encode()):
        (tmp_path / "x.onnx").write_bytes(content)
        with pytest.raises(OnnxFileError):
            read_onnx_signature(tmp_path / "x.onnx")


@pytest.mark.parametrize(
    "name",
    [
        "llm.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v2.onnx",
        "CosyVoice-BlankEN/vocab.json",
        "CosyVoice-BlankEN/merges.txt",
        "CosyVoice-BlankEN/config.json",
    ],
)
def test_a_missing_file_is_named(damaged: Path, name: str) -> None:
    (damaged / name).unlink()
    assert name in error_of(damaged)


def test_all_faults_are_listed_at_once(damaged: Path) -> None:
    (damaged / "llm.pt").unlink()
    (damaged / "campplus.onnx").unlink()
    assert [line.partition(":")[0] for line in error_of(damaged).splitlines()] == ["llm.pt", "campplus.onnx"]


def test_a_tokenizer_larger_than_the_network_is_refused(damaged: Path) -> None:
    path = damaged / "CosyVoice-BlankEN" / "vocab.json"
    vocabulary = json.loads(path.read_text("utf-8"))
    vocabulary |= {f"<more {place}>": len(vocabulary) + place for place in range(500)}
    path.write_text(json.dumps(vocabulary), "utf-8")
    assert "make 840 ids, expected at most 340" in error_of(damaged)


def test_merges_of_another_vocabulary_are_refused(damaged: Path) -> None:
    (damaged / "CosyVoice-BlankEN" / "merges.txt").write_text("#version: 0.2\nq z\n", "utf-8")
    assert "joins 'q z'" in error_of(damaged)


def change_yaml(damaged: Path, old: str, new: str) -> str:
    path = damaged / "cosyvoice2.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    return error_of(damaged)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("sample_rate: 24000", "sample_rate: 22050", "sample_rate is 22050; expected 24000"),
        ("token_frame_rate: 25\n", "", "token_frame_rate is missing"),
        ("top_p: 0.8", "top_p: 8", "top_p is 8.0; it must be"),
        ("num_blocks: 2", "num_blocks: -2", "num_blocks is -2; expected a whole number"),
        ("n_blocks: 1\n", "n_blocks: [1\n", "not readable as yaml"),
        ("static_chunk_size: 50", "static_chunk_size: 100", "static_chunk_size is 100; expected 50"),
        ("\nchunk_size: 25", "\nchunk_size: 50", "cosyvoice2.yaml: chunk_size is 50; expected 25"),
        ("pre_lookahead_len: 3", "pre_lookahead_len: 4", "flow.pre_lookahead_len is 4; expected 3"),
        (
            "\nnum_decoding_left_chunks: -1",
            "\nnum_decoding_left_chunks: 2",
            "cosyvoice2.yaml: num_decoding_left_chunks is 2; expected -1",
        ),
        ("  - 5\n  - 15\n", "  - 5\n", "llm.mix_ratio is [5]; expected two numbers"),
        ("  - 5\n  - 15\n", "  - 5\n  - 2000\n", "speech_ids of the mix ratio is 2,000; it must be"),
        ("num_mid_blocks: 2", "num_mid_blocks: 2000", "cosyvoice2.yaml: mid_blocks is 2,000; it must be"),
        (
            "attention_heads: 4",
            "attention_heads: 5",
            "width is 64; it must be a multiple of heads, which is 5",
        ),
    ],
)
def test_settings_that_the_networks_do_not_support_are_refused(
    damaged: Path, old: str, new: str, message: str
) -> None:
    assert message in change_yaml(damaged, old, new)


def test_dilations_of_the_source_are_read_from_the_settings(damaged: Path) -> None:
    path = damaged / "cosyvoice2.yaml"
    settings, tail = path.read_text("utf-8").split("source_resblock_dilation_sizes:")
    path.write_text(f"{settings}source_resblock_dilation_sizes:{tail.replace('- 5', '- 7', 1)}", "utf-8")
    hift = open_bundle(damaged).network_config.hift
    assert hift.source_dilations == ((1, 3, 7), (1, 3, 5), (1, 3, 5))
    assert hift.dilations == ((1, 3, 5),) * 3


def test_tags_are_names_and_references_are_followed_to_numbers(damaged: Path) -> None:
    text = """
__seed: !apply:os.system [touch /tmp/never]
hop: 25
ratio: 2
both: !ref <hop> * <ratio>
one: !new:a.b.C {size: !ref <hop>}
"""
    parsed = parse_yaml(text, "x.yaml")
    assert parsed["__seed"] == ["touch /tmp/never"]
    assert parsed["one"] == {"!": "new:a.b.C", "size": "<hop>"}
    path = damaged / "cosyvoice2.yaml"
    settings = path.read_text("utf-8").replace(
        "static_chunk_size: 50", "static_chunk_size: !ref <token_frame_rate> * <token_mel_ratio>"
    )
    path.write_text(settings + "__set_seed1: !apply:random.seed [1986]\n", "utf-8")
    open_bundle(damaged)


def test_python_objects_are_not_built(tmp_path: Path) -> None:
    with pytest.raises(BundleConfigError, match="not readable"):
        parse_yaml("a: !!python/object/apply:os.system ['true']", "x.yaml")


def test_the_released_flow_has_its_number_of_parameters() -> None:
    counted = {
        version: sum(
            int(np.prod(shape)) for shape in file_shapes(released_config(version))["flow.pt"].values()
        )
        for version in CosyVoiceVersion
    }
    assert round(counted[CosyVoiceVersion.V2] / 1e6, 1) == 112.5
    assert round(counted[CosyVoiceVersion.V3] / 1e6, 1) == 332.3


@pytest.mark.parametrize("converted", [False, True])
def test_a_memory_mapped_tensor_has_the_same_numbers(damaged: Path, converted: bool) -> None:
    bundle = open_bundle(damaged)
    read = bundle.load("llm.pt")
    if converted:
        weight_files.convert_to_safetensors(damaged / "llm.pt", TIED_KEYS)
        (damaged / "llm.pt").unlink()
    mapped = bundle.load("llm.pt", memory_mapped=(TEXT_EMBEDDING_KEY,))
    assert set(read) - set(mapped) <= {TIED_HEAD_KEY}
    assert all(torch.equal(mapped[key], read[key]) for key in mapped)
    maps = Path("/proc/self/maps").read_text() if Path("/proc/self/maps").exists() else str(damaged)
    assert str(damaged) in maps


def test_a_file_missing_since_the_check_is_named(damaged: Path) -> None:
    bundle = open_bundle(damaged)
    (damaged / "llm.pt").unlink()
    with pytest.raises(InvalidBundleError, match=r"llm\.pt: "):
        bundle.load("llm.pt", memory_mapped=(TEXT_EMBEDDING_KEY,))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("prompt_speech_feat", torch.zeros(1, 60, 79), "prompt_speech_feat is [1, 60, 79]"),
        ("prompt_speech_feat", torch.full((1, 60, 80), torch.nan), "expected a tensor of plain, finite"),
        ("prompt_speech_feat", torch.zeros(1, 60, 80, device="meta"), "expected a tensor of plain, finite"),
        ("flow_embedding", torch.zeros(1, 192).to_sparse(), "is [1, 192] float32 sparse_coo, expected a"),
        ("llm_prompt_speech_token", torch.zeros(1, 30), "llm_prompt_speech_token is [1, 30] float32"),
        ("llm_prompt_speech_token", torch.zeros(1, 30, dtype=torch.complex64), "plain, finite numbers"),
        ("llm_prompt_speech_token", torch.full((1, 30), 2**40), "are 2,147,483,647 to 2,147,483,647"),
        ("prompt_text", torch.zeros(1, 9_000, dtype=torch.int32), "prompt_text is [1, 9000]"),
        ("prompt_text", "Hello.", "prompt_text is a str"),
        ("flow_embedding", None, "flow_embedding is missing"),
        ("prompt_text", torch.full((1, 4), -1), "text ids of speaker 'anna' are -1 to -1, expected 0 to "),
        (
            "llm_prompt_speech_token",
            torch.full((1, 30), 99_999),
            "speech ids of speaker 'anna' are 99,999 to 99,999, expected 0 to ",
        ),
    ],
)
def test_a_clone_of_another_form_is_refused(damaged: Path, field: str, value: object, message: str) -> None:
    entry = {
        "prompt_text": torch.zeros(1, 4, dtype=torch.int32),
        "llm_prompt_speech_token": torch.zeros(1, 30, dtype=torch.int32),
        "prompt_speech_feat": torch.zeros(1, 60, 80),
        "flow_embedding": torch.zeros(1, 192),
    }
    torch.save({"anna": entry | {field: value}}, damaged / "spk2info.pt")
    assert message in error_of(damaged) and "'anna'" in error_of(damaged)


@pytest.mark.parametrize(
    "content",
    [["anna"], {"anna": 7}, torch.zeros(3), {("anna", 1): {"embedding": torch.zeros(192)}}],
    ids=["list", "number", "tensor", "name"],
)
def test_a_file_without_a_table_of_speakers_is_refused(damaged: Path, content: object) -> None:
    torch.save(content, damaged / "spk2info.pt")
    message = error_of(damaged)
    assert message.startswith("spk2info.pt: ") and "expected an embedding or a recording" in message
    assert "object" not in message  # a sentence of this program, not of Python


def test_a_second_language_model_is_listed_as_not_used(damaged: Path) -> None:
    shutil.copy(damaged / "llm.pt", damaged / "llm.rl.pt")
    checked = {file.name: file.checked for file in list_bundle_files(open_bundle(damaged))}
    assert checked["llm.rl.pt"].startswith("not used")
