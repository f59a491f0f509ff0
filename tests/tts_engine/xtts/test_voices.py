"""Voices of an XTTS bundle: made of recordings, refused ones, and the folder of speakers."""

import gc
import shutil
import sys
import wave
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

import torch

from shared.voices.tiny_cosyvoice import recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePromptError
from vivavoce.models.xtts.checkpoint.voice_prompt import XttsVoicePrompt
from vivavoce.models.xtts.checkpoint.weight_file import MODEL_FILE
from vivavoce.models.xtts.voice import XttsVoice, XttsVoiceEncoder
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.errors import BadRequest, UnknownVoice
from vivavoce.tts_engine.voices.recording import Recording
from vivavoce.tts_engine.voices.store import VoiceMetadata
from vivavoce.tts_engine.voices.voices import Voice
from vivavoce.tts_engine.xtts.backend import XttsBackend
from vivavoce.tts_engine.xtts.bundle_voices import XttsVoices

RATE = 16_000


@pytest.fixture(scope="module")
def voices(xtts_folder: Path) -> Iterator[XttsVoices]:
    with closing(XttsBackend.load(xtts_folder)) as backend:
        yield backend.voices


def test_recordings_are_one_voice_that_is_enrolled_once(voices: XttsVoices) -> None:
    clips = [recording(200.0, 2.0), recording(240.0, 1.5)]
    before = len(voices)
    prompt = voices.encode_recordings([Recording(clip, RATE) for clip in clips])
    first = voices.register_prompt(prompt)
    again = voices.encode_recordings([Recording(clip, RATE) for clip in clips])
    assert voices.register_prompt(again) == first
    assert len(voices) == before + 1
    profile = voices.speaker_profile(first.id)
    alone = voices.speaker_profile(voices.enroll(np.concatenate(clips), RATE).id)
    assert not torch.equal(profile.speaker, alone.speaker)  # the mean of both embeddings
    voices.remove(first.id)
    with pytest.raises(UnknownVoice):
        voices.speaker_profile(first.id)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (recording(seconds=1.0), r"have 1.0 s; give 3 to 30 s$"),
        (np.zeros(5 * RATE, np.float32), "a recording is silent"),
        (np.full(5 * RATE, np.nan, np.float32), "not numbers"),
        (np.zeros(0, np.float32), "have 0.0 s"),
    ],
)
def test_a_recording_that_cannot_be_used_is_refused_in_one_sentence(
    voices: XttsVoices, samples: np.ndarray, message: str
) -> None:
    with pytest.raises(BadRequest, match=message):
        voices.enroll(samples, RATE)


def test_a_studio_voice_is_not_removed_and_nothing_is_converted(voices: XttsVoices) -> None:
    with pytest.raises(UnknownVoice):
        voices.remove("Random")
    with pytest.raises(BadRequest, match="converts no recordings"):
        voices.tokenize_speech(recording(), RATE)


def write_wave(path: Path, samples: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def test_speakers_are_prepared_once(
    xtts_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(shutil.copytree(xtts_folder, tmp_path / "bundle"))
    write_wave(folder / "speakers" / "anna.wav", recording(210.0))
    write_wave(folder / "speakers" / "ben" / "1.wav", recording(120.0, 2.0))
    write_wave(folder / "speakers" / "ben" / "2.wav", recording(130.0, 2.0))
    write_wave(folder / "speakers" / "short.wav", recording(130.0, 1.0))
    encoded: list[int] = []
    encode: Callable[..., object] = XttsVoiceEncoder.encode

    def counted(encoder: XttsVoiceEncoder, recordings: list[np.ndarray], *rest: object) -> object:
        encoded.append(len(recordings))
        return encode(encoder, recordings, *rest)

    monkeypatch.setattr(XttsVoiceEncoder, "encode", counted)
    profiles = []
    for _ in range(2):
        with closing(XttsBackend.load(folder)) as backend:
            listed: list[Voice] = [*backend.voices]
            assert [voice.id for voice in listed] == ["Random", "anna", "ben"]
            profiles.append(backend.voices.speaker_profile("ben"))
    assert encoded == [1, 2]
    assert torch.equal(profiles[0].latents, profiles[1].latents)
    assert "'short.wav' is not enrolled: the recording is 1.0 s long" in caplog.text
    prepared = set((folder / "speakers" / "prepared").iterdir())
    assert len(prepared) == 2
    write_wave(folder / "speakers" / "anna.wav", recording(215.0))
    with closing(XttsBackend.load(folder)):
        assert encoded == [1, 2, 1]
    assert len(set((folder / "speakers" / "prepared").iterdir()) & prepared) == 1
    other_weights(folder)
    with closing(XttsBackend.load(folder)):
        assert encoded == [1, 2, 1, 1, 2]


def other_weights(folder: Path) -> None:
    """Change one number of the network that makes voices."""
    held = torch.load(folder / MODEL_FILE, weights_only=True)
    held["model"]["gpt.conditioning_perceiver.latents"][0, 0] += 1
    torch.save(held, folder / MODEL_FILE)


def test_a_voice_on_file_speaks_after_a_restart_and_not_with_other_weights(
    xtts_folder: Path, tmp_path: Path
) -> None:
    folder, stored = Path(shutil.copytree(xtts_folder, tmp_path / "bundle")), tmp_path / "voices"
    with closing(XttsBackend.load(folder, voices=stored)) as backend:
        prompt = backend.voices.encode_prompt(recording(), RATE, "Some words.")
        assert backend.voices.store is not None
        kept = backend.voices.store.add(prompt, name="Anna", about=VoiceMetadata("de"), voice_id="anna")
        assert (kept.content, kept.transcript) == (prompt.id, "Some words.")
    with closing(XttsBackend.load(folder, voices=stored)) as backend:
        assert backend.voices.get("anna").language == "de"
        profile = backend.voices.speaker_profile("anna")
        assert isinstance(profile, XttsVoice)
        assert profile is backend.voices.speaker_profile("anna")  # its columns are kept computed
        assert torch.equal(profile.latents, prompt.voice.latents)
        assert torch.equal(profile.speaker, prompt.voice.speaker)
        backend.close_slot(backend.open_slot(SlotRequest("anna", 1.0, 0)))
    other_weights(folder)
    with closing(XttsBackend.load(folder, voices=stored)) as backend:
        with pytest.raises(BadRequest, match=r"enrolled with XTTS \w{12}, and XTTS \w{12} is loaded; enrol"):
            backend.open_slot(SlotRequest("anna", 1.0, 0))
        assert (
            backend.voices.store is not None
            and backend.voices.store.list(version=backend.voices.model_version) == ()
        )


def test_a_damaged_voice_file_is_refused(voices: XttsVoices, tmp_path: Path) -> None:
    path = tmp_path / "voice.npz"
    voices.encode_prompt(recording(), RATE).save(path)
    loaded = XttsVoicePrompt.load(path)
    loaded.save(path)
    assert loaded.id == XttsVoicePrompt.load(path).id
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", content.replace(b"latents", b"letters")):
        path.write_bytes(damaged)
        with pytest.raises(VoicePromptError, match="enrol again"):
            XttsVoicePrompt.load(path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's list of mapped files")
def test_the_encoders_are_in_memory_only_while_a_voice_is_made(
    xtts_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(xtts_folder / MODEL_FILE)

    def mapped_bytes() -> int:
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        ranges = [line[0].split("-") for line in lines if line[-1] == path]
        return sum(int(stop, 16) - int(start, 16) for start, stop in ranges)

    during: list[int] = []
    encode: Callable[..., object] = XttsVoiceEncoder.encode

    def watched(*arguments: object) -> object:
        during.append(mapped_bytes())
        return encode(*arguments)

    monkeypatch.setattr(XttsVoiceEncoder, "encode", watched)
    others = mapped_bytes()  # of other tests
    with closing(XttsBackend.load(xtts_folder)) as backend:
        gc.collect()
        loaded = mapped_bytes() - others
        assert 0 < loaded < 1.1 * Path(path).stat().st_size  # one mapping, for the text embedding
        backend.voices.enroll(recording(), RATE)
        gc.collect()
        assert mapped_bytes() - others == loaded < during[0] - others
