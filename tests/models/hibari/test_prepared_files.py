"""The packaged voice's files as they are kept in the cache, against hibari's own loaders."""

import gzip
import json
from pathlib import Path

import hibari
import numpy as np
import onnx
import onnxruntime
import pytest
from hibari.g2p import G2P

from vivavoce.models.devices.onnx_providers import CPU, OnnxDevice
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from vivavoce.models.hibari import prepared_files
from vivavoce.models.hibari.prepared_files import HibariGraphMismatchError, PreparedFiles, read_names
from vivavoce.models.hibari.voice import HibariVoice
from vivavoce.models.onnx_graphs.exact_products import (
    saturating_product,
    signed_products_are_exact,
    use_unsigned_weights,
)
from vivavoce.models.phonemes.english_ipa import SpelledWord

ASSETS = Path(hibari.__file__).parent / "assets"
TEXT = "I read the record that she will record; the {live} show, 'the \"bow\", and vivavoce's O'Neill."


def prepared(encoder: bytes) -> dict[str, bytes]:
    """Members of a prepared file with one graph in place of all."""
    graphs = {
        f"{weights}/{part}.onnx": encoder
        for weights in ("signed", "unsigned")
        for part in ("encoder", "decoder")
    }
    return {**graphs, "product.onnx": saturating_product()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache") / "vivavoce"


@pytest.fixture(scope="module")
def files(folder: Path) -> PreparedFiles:
    PreparedFiles.load(ASSETS, folder)
    return PreparedFiles.load(ASSETS, folder)


def test_every_table_of_the_tagger_is_that_of_the_package(files: PreparedFiles) -> None:
    with gzip.open(ASSETS / "tagger.json.gz", "rt", encoding="utf-8") as file:
        model = json.load(file)
    tagger = files.tagger()
    assert [key for key, table in model["weights"].items() if tagger.weights.get(key) != table] == []
    assert tagger.weights.get("no such feature") is None
    assert (tagger.tags, tagger.tagdict, tagger.vocab) == (
        model["tags"],
        model["tagdict"],
        set(model["vocab"]),
    )


def test_lexicon_and_converter_are_those_of_the_package(files: PreparedFiles) -> None:
    own, ours = G2P(), files.g2p()
    assert vars(ours).keys() == vars(own).keys()
    for name in ("golds", "silvers"):
        table, entries = getattr(ours.lexicon, name).d, getattr(own.lexicon, name).d
        other = {word.lower() for word, phonemes in entries.items() if table.get(word) != phonemes}
        assert other <= read_names().keys()
        assert table.get("no such word") is None
    assert ours(TEXT) == own(TEXT)


def test_files_that_are_kept_are_read_and_not_prepared(
    files: PreparedFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(prepared_files, "_prepare")
    assert PreparedFiles.load(ASSETS, folder).graphs() == files.graphs()


@pytest.mark.parametrize("damage", [b"", b"no archive"])
def test_a_damaged_file_is_prepared_again(
    files: PreparedFiles, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    (kept,) = folder.iterdir()
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / kept.name).write_bytes(damage or bytes(content))
    monkeypatch.setattr(prepared_files, "_prepare", lambda *_: prepared(b"prepared"))
    assert PreparedFiles.load(ASSETS, tmp_path).graphs()[0] == b"prepared"
    assert PreparedFiles.load(ASSETS, tmp_path).graphs()[0] == b"prepared"  # the file is whole again


def test_files_of_other_versions_are_removed(
    folder: Path, files: PreparedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hibari-other.zip").write_bytes(b"")
    monkeypatch.setattr(prepared_files, "_prepare", lambda *_: prepared(b""))
    PreparedFiles.load(ASSETS, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [file.name for file in folder.iterdir()]


def test_the_voice_loads_where_no_file_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(prepared_files, "_prepare", lambda *_: prepared(b"prepared"))
    assert PreparedFiles.load(ASSETS, tmp_path / "file" / "folder").graphs()[0] == b"prepared"


def test_another_model_file_raises(tmp_path: Path) -> None:
    (tmp_path / "hibari.onnx").write_bytes((ASSETS / "hibari.onnx").read_bytes()[:-1])
    with pytest.raises(HibariGraphMismatchError, match=r"hibari-tts 0\.2\.1"):
        PreparedFiles.load(tmp_path, tmp_path)


@pytest.mark.parametrize("device", [CPU, OnnxDevice("coreml")], ids=str)
def test_only_the_cpu_gets_graphs_that_were_optimized_for_it(
    device: OnnxDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bytes] = []
    real = OnnxSessions.open

    def note(
        sessions: OnnxSessions, model: bytes, options: onnxruntime.SessionOptions | None = None
    ) -> onnxruntime.InferenceSession:
        opened.append(model)
        return real(CPU_SESSIONS, model, options)

    monkeypatch.setattr(OnnxSessions, "open", note)
    HibariVoice.load(1, device)
    operators = {node.op_type for model in opened for node in onnx.load_from_string(model).graph.node}
    assert ("DynamicQuantizeMatMul" in operators) == device.is_cpu  # the CPU's provider has it


@pytest.mark.parametrize("is_exact", [True, False])
def test_graphs_have_unsigned_weights_where_sums_with_signed_ones_saturate(
    files: PreparedFiles, is_exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_files, "sums_are_exact", lambda _: is_exact)
    for graph in files.graphs()[:2]:
        assert (use_unsigned_weights(onnx.load_from_string(graph)) > 0) == is_exact


def test_signed_and_unsigned_weights_speak_the_same_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    spoken = []
    for is_exact in (signed_products_are_exact(), False):
        monkeypatch.setattr(prepared_files, "sums_are_exact", lambda _, found=is_exact: found)
        (voice,) = HibariVoice.load()
        (words,) = voice.phonemizer.phonemize([SpelledWord(word) for word in "seven green apples".split()])
        line = voice.encode(words)
        samples, _ = voice.step(line, voice.init_state(line, 1), line.frames)
        spoken.append(samples)
    np.testing.assert_array_equal(*spoken)
