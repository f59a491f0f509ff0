"""Voices that were prepared before a restart: read from file, made again if the file is damaged, deleted."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from torch import Tensor

from shared.voices.cosyvoice_bundles import export_bundle
from shared.voices.tiny_cosyvoice import BRIEF, pcm, run, speak
from shared.voices.voice_prompts import prompt
from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.flow.state import FlowState
from vivavoce.models.cosyvoice.flow.streaming_flow import StreamingFlow
from vivavoce.models.cosyvoice.onnx_runtime.flow import ArrayFlow, ArrayFlowState
from vivavoce.models.cosyvoice.onnx_runtime.graph_runs import Float, Integers
from vivavoce.models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from vivavoce.models.devices.execution import Executor
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.lm_runner import LmRunner, PromptPrefix
from vivavoce.tts_engine.cosyvoice.loading import voice_files_of
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.voices.store import VoiceStore

TEXT = "Well, it is me."


class Prefills:
    """Counts the prefills of recordings in both networks; the warm-up voice has none."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.flow = self.lm = 0
        flow_prefill, lm_prefill = StreamingFlow.prefill, LmRunner.prefill
        array_prefill = ArrayFlow.prefill

        def count_flow(
            flow: StreamingFlow, ids: Tensor, mel: Tensor, speaker: Tensor
        ) -> tuple[FlowState, int]:
            self.flow += ids.shape[1] > 0
            return flow_prefill(flow, ids, mel, speaker)

        def count_array_flow(flow: ArrayFlow, embedding: Float, ids: Integers, mel: Float) -> ArrayFlowState:
            self.flow += len(ids) > 0
            return array_prefill(flow, embedding, ids, mel)

        def count_lm(runner: LmRunner, prefix: PromptPrefix) -> None:
            self.lm += bool(prefix.voice_id)
            lm_prefill(runner, prefix)

        patch.setattr(StreamingFlow, "prefill", count_flow)
        patch.setattr(ArrayFlow, "prefill", count_array_flow)
        patch.setattr(LmRunner, "prefill", count_lm)

    def take(self) -> tuple[int, int]:
        counted, self.flow, self.lm = (self.flow, self.lm), 0, 0
        return counted


@pytest.fixture
def prefills() -> Iterator[Prefills]:
    with pytest.MonkeyPatch.context() as patch:
        yield Prefills(patch)


async def speech(bundle: Path, store: Path, voice: str, policy: CosyVoicePolicy = BRIEF) -> bytes:
    """Speak with a bundle that has just been loaded, as after a restart."""
    async with await Engine.open(backend=CosyVoiceBackend.load(bundle, policy, store)) as engine:
        return pcm(await speak(engine, [TEXT], voice=voice))


def enroll(store: Path, voice: str = "anna", seed: int = 1, version: int = 2) -> None:
    with VoiceStore(store, version) as voices:
        voices.add(prompt(seed, CosyVoiceVersion(version), chunks=4), name=voice, voice_id=voice)


def prepared(store: Path) -> list[Path]:
    folder = store / "prepared"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_the_first_use_after_a_restart_prefills_nothing_and_sounds_the_same(
    folder: Path, tmp_path: Path, prefills: Prefills
) -> None:
    enroll(tmp_path, version=2 if folder.name == "V2" else 3)

    async def test() -> None:
        first = await speech(folder, tmp_path, "anna")
        assert min(prefills.take()) > 0
        assert len(prepared(tmp_path)) == 2
        assert await speech(folder, tmp_path, "anna") == first
        assert prefills.take() == (0, 0)

    run(test())


def test_a_voice_of_exported_graphs_has_files_of_its_own(
    v2_folder: Path, tmp_path: Path, prefills: Prefills
) -> None:
    bundle, store = tmp_path / "bundle", tmp_path / "store"
    shutil.copytree(v2_folder, bundle)
    list(export_bundle(bundle, "fp32"))
    enroll(store)
    policy = replace(BRIEF, executor=Executor.ONNXRUNTIME)

    async def test() -> None:
        first = await speech(bundle, store, "anna", policy)
        assert min(prefills.take()) > 0
        for path in prepared(store):
            path.write_bytes(path.read_bytes()[:-1])  # a crash of the machine while it was written
        assert await speech(bundle, store, "anna", policy) == first
        assert min(prefills.take()) > 0
        assert await speech(bundle, store, "anna", policy) == first
        assert prefills.take() == (0, 0)

    run(test())


NUMBERS = {"kv": np.arange(600, dtype=np.float32)}
BYTES = 600 * 4 + 200  # of a file, with its header


def stored_voices(store: Path, count: int) -> list[str]:
    """Enrol voices; the ids under which their contents are kept."""
    with VoiceStore(store, 2) as voices:
        return [
            voices.add(
                prompt(seed, CosyVoiceVersion.V2, chunks=1), name="anna", voice_id=f"voice-{seed}"
            ).content
            for seed in range(count)
        ]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: b"not a file of this kind" * 100,
        lambda content: content[:-1] + bytes([content[-1] ^ 64]),
    ],
    ids=["truncated", "foreign", "changed"],
)
def test_a_damaged_file_is_deleted_and_not_used(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    (voice,) = stored_voices(tmp_path, 1)
    folder = PreparedVoiceFolder(tmp_path, "weights", 10 * BYTES)
    folder.save(voice, "lm", NUMBERS)
    loaded = folder.load(voice, "lm", NUMBERS)
    assert loaded is not None
    assert np.array_equal(loaded["kv"], NUMBERS["kv"])
    (path,) = prepared(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert folder.load(voice, "lm", NUMBERS) is None
    assert prepared(tmp_path) == []


def test_a_file_of_another_shape_or_other_weights_is_not_used(tmp_path: Path) -> None:
    (voice,) = stored_voices(tmp_path, 1)
    folder = PreparedVoiceFolder(tmp_path, "weights", 10 * BYTES)
    folder.save(voice, "lm", NUMBERS)
    assert PreparedVoiceFolder(tmp_path, "other weights", 10 * BYTES).load(voice, "lm", NUMBERS) is None
    assert folder.load(voice, "lm", {"kv": np.zeros(601, np.float32)}) is None


def test_bundles_with_other_weights_share_no_file(v2_folder: Path, tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "other", CosyVoiceVersion.V2, BundleSize.TINY, seed=2)
    (voice,) = stored_voices(tmp_path / "store", 1)
    policy = replace(BRIEF, voice_store=tmp_path / "store")
    first, other = (voice_files_of(open_bundle(path), policy) for path in (v2_folder, tmp_path / "other"))
    assert first is not None
    assert other is not None
    first.save(voice, "lm", NUMBERS)
    assert other.load(voice, "lm", NUMBERS) is None
    assert first.load(voice, "lm", NUMBERS) is not None


def test_a_removed_voice_leaves_no_file(tmp_path: Path) -> None:
    (voice,) = stored_voices(tmp_path, 1)
    PreparedVoiceFolder(tmp_path, "weights", 10 * BYTES).save(voice, "lm", NUMBERS)
    assert prepared(tmp_path)
    with VoiceStore(tmp_path, 2) as store:
        store.remove("voice-0")
    assert prepared(tmp_path) == []


def test_a_voice_that_is_not_stored_leaves_no_file(tmp_path: Path) -> None:
    stored_voices(tmp_path, 1)
    PreparedVoiceFolder(tmp_path, "weights", 10 * BYTES).save("0" * 32, "lm", NUMBERS)
    assert prepared(tmp_path) == []


def test_the_files_are_bounded_and_the_one_used_longest_ago_goes_first(tmp_path: Path) -> None:
    voices = stored_voices(tmp_path, 3)
    folder = PreparedVoiceFolder(tmp_path, "weights", round(2.5 * BYTES))
    for age, voice in zip((30, 20), voices, strict=False):
        folder.save(voice, "lm", NUMBERS)
        (path,) = (tmp_path / "prepared").glob(f"{voice}.*")
        os.utime(path, (time.time() - age,) * 2)
    assert folder.load(voices[0], "lm", NUMBERS)  # used now
    folder.save(voices[2], "lm", NUMBERS)
    assert {path.name.partition(".")[0] for path in prepared(tmp_path)} == {voices[0], voices[2]}
