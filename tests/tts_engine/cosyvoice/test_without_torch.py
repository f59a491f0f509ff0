"""An exported bundle speaks where torch is not installed, as torch does where it is."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.cosyvoice_bundles import export_bundle
from shared.voices.tiny_cosyvoice import BRIEF, pcm, run, speak
from shared.voices.voice_prompts import prompt
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.decode_turn import DecodeTurn
from vivavoce.models.devices.execution import Executor
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.lm_runner import LmRunner
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.voices.store import VoiceStore

PROGRAM = Path(__file__).parents[2] / "shared" / "runtimes" / "speech_without_torch.py"
TEXT = "Well, it is me. Who is it?"
WEIGHTS = ("llm.pt", "flow.pt", "hift.pt")


def test_an_exported_bundle_speaks_the_same_ids_as_torch(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, store = tmp_path / "bundle", tmp_path / "store"
    shutil.copytree(folder, bundle)
    list(export_bundle(bundle, "fp32"))
    version = CosyVoiceVersion(2 if folder.name == "V2" else 3)
    with VoiceStore(store, version.value) as voices:
        voices.add(prompt(1, version, chunks=3), name="anna", voice_id="anna")
    ids: list[int] = []
    choose = LmRunner.choose

    def note(runner: LmRunner, turns: Mapping[int, DecodeTurn]) -> dict[int, int]:
        chosen = choose(runner, turns)
        ids.extend(chosen.values())
        return chosen

    monkeypatch.setattr(LmRunner, "choose", note)

    async def with_torch() -> bytes:
        backend = CosyVoiceBackend.load(bundle, replace(BRIEF, executor=Executor.TORCH), store)
        async with await Engine.open(backend=backend) as engine:
            ids.clear()
            return pcm(await speak(engine, [TEXT], voice="anna", seed=3))

    spoken: list[bytes] = []

    async def test() -> None:
        spoken.append(await with_torch())

    run(test())
    for name in WEIGHTS:
        (bundle / name).unlink()
    target = tmp_path / "speech.pcm"
    command = [sys.executable, *map(str, (PROGRAM, bundle, store)), "fp32", TEXT, str(target)]
    told = json.loads(subprocess.check_output(command, text=True, timeout=120))
    assert told == {"ids": ids, "torch": []}
    expected, found = (np.frombuffer(part, "<i2") / 32768 for part in (spoken[0], target.read_bytes()))
    assert len(ids) > 20
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-3  # as the vectors' samples
