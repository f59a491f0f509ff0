"""Opening CosyVoice bundles by the engine: missing speakers, damage, and a missing torch."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.tiny_cosyvoice import (  # noqa: E402
    BRIEF,
    content,
    recording,
    run,
    speak,
)
from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt  # noqa: E402
from vivavoce.models.cosyvoice.lm.generation import LmInputKind  # noqa: E402
from vivavoce.tts_engine.backends.base import SlotRequest  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402
from vivavoce.tts_engine.errors import (  # noqa: E402
    BundleError,
    MissingExtra,
    UnknownVoice,
)
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, SpokenWord  # noqa: E402

SHORT = "Well, it is me."


def test_a_bundle_is_opened_by_its_folder(folder: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            assert engine.voices.default.id == "nobody"
            assert engine.active_streams == 0

    run(test())


def test_a_bundle_without_speakers_renders_after_enrolment(v2_folder: Path, tmp_path: Path) -> None:
    for path in v2_folder.iterdir():
        if path.name != "spk2info.pt":
            (tmp_path / path.name).symlink_to(path)

    async def test() -> None:
        async with await Engine.open(backend=CosyVoiceBackend.load(tmp_path, BRIEF)) as engine:
            with pytest.raises(UnknownVoice, match="no voice is loaded; enrol one"):
                engine.stream()
            voice = engine.voices.enroll(recording(), 16_000)
            assert engine.voices.default == voice
            assert (await speak(engine, [SHORT]))[-1].final

    run(test())


def test_the_error_for_a_damaged_bundle_lists_its_faults(v2_folder: Path, tmp_path: Path) -> None:
    for path in v2_folder.iterdir():
        if path.name != "hift.pt":
            (tmp_path / path.name).symlink_to(path)
    with pytest.raises(BundleError, match=r"hift\.pt"):
        run(open_engine(tmp_path))


async def open_engine(folder: Path) -> None:
    await Engine.open(str(folder))


def test_without_torch_the_error_has_the_pip_command(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[cosyvoice\]"):
        run(open_engine(folder))


def test_text_and_speech_alternate_as_the_bundle_states(tmp_path: Path) -> None:
    write_random_bundle(tmp_path, CosyVoiceVersion.V2, BundleSize.TINY, seed=1)
    settings = tmp_path / "cosyvoice2.yaml"
    settings.write_text(settings.read_text("utf-8").replace("  - 5\n  - 15\n", "  - 3\n  - 4\n"), "utf-8")
    backend = CosyVoiceBackend.load(tmp_path, BRIEF)
    slot = backend.open_slot(SlotRequest("nobody", 1.0, 0))
    session = backend._sessions[slot]
    session.begin(Segment((SpokenWord("extraordinarily", ".", 0, 15),), 0, 15, BoundaryKind.SENTENCE), 0.0)
    blocks = []
    while (turn := session.decoding_turn()) is not None and len(turn.generation.speech_ids) < 8:
        blocks.append(sum(one.kind is LmInputKind.TEXT for one in turn.generation.ask().inputs))
        session.answer(7)
    assert blocks == [3, 0, 0, 0, 3, 0, 0, 0]
    backend.close_slot(slot)


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_a_clone_in_the_bundle_speaks_as_the_same_recording_enrolled(
    tmp_path: Path, version: CosyVoiceVersion
) -> None:
    """The entry is written as upstream's add_zero_shot_spk stores it."""
    write_random_bundle(tmp_path, version, BundleSize.TINY, seed=1)

    async def test() -> None:
        async with await Engine.open(backend=CosyVoiceBackend.load(tmp_path, BRIEF)) as engine:
            enrolled = engine.voices.enroll(recording(), 16_000, "What is said.")
            expected = await speak(engine, [SHORT], voice=enrolled.id)
            profile = engine.voices.speaker_profile(enrolled.id)
        torch.save({"anna": upstream_entry(tmp_path, version, profile.prompt)}, tmp_path / "spk2info.pt")
        async with await Engine.open(backend=CosyVoiceBackend.load(tmp_path, BRIEF)) as engine:
            assert engine.voices.default.id == "anna"
            assert content(await speak(engine, [SHORT])) == content(expected)

    run(test())


def upstream_entry(folder: Path, version: CosyVoiceVersion, prompt: VoicePrompt) -> dict[str, torch.Tensor]:
    tokenizer = open_bundle(folder).text_tokenizer()
    greeting = "You are a helpful assistant.<|endofprompt|>" if version is CosyVoiceVersion.V3 else ""
    ids = torch.from_numpy(prompt.speech_ids)[None]
    mel = torch.zeros(1, 2 * len(prompt.speech_ids), 80)
    mel[0, len(mel[0]) - prompt.mel.shape[1] :] = torch.from_numpy(prompt.mel.T)
    text_ids = torch.tensor([tokenizer.encode(greeting + prompt.transcript)], dtype=torch.int32)
    embedding = torch.from_numpy(prompt.embedding)[None]
    return {
        "prompt_text": text_ids,
        "prompt_text_len": torch.tensor([text_ids.shape[1]], dtype=torch.int32),
        "llm_prompt_speech_token": ids,
        "flow_prompt_speech_token": ids,
        "prompt_speech_feat": mel,
        "llm_embedding": embedding,
        "flow_embedding": embedding,
    }
