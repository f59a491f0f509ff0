"""The outputs of ``vivavoce say``: the format of a file follows its extension, and players play."""

import sys
from pathlib import Path

import av
import numpy as np
import pytest

from vivavoce.gateway.cli import main
from vivavoce.gateway.cli.commands.say.output import CODECS, PLAYERS
from vivavoce.tts_engine.chunk import SAMPLE_RATE

PCM_SUFFIXES = {suffix for suffix, codec in CODECS.items() if codec == "pcm"}
RECORDING_PLAYER = "#!/bin/sh\n/bin/cat > {heard}\n"
FAILING_PLAYER = "#!/bin/sh\necho 'ALSA lib: first line' >&2\necho 'cannot find card 0' >&2\nexit 1\n"
WORDS = 3


def exit_code(*arguments: str) -> int:
    with pytest.raises(SystemExit) as end:
        main.main(arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


def spoken_s(samples: np.ndarray, sample_rate: int) -> float:
    """Seconds from the first to the last loud sample."""
    loud = np.flatnonzero(np.abs(samples.astype(int)) > 300)
    return float(loud[-1] - loud[0]) / sample_rate


def decoded(path: Path) -> tuple[str, np.ndarray, int]:
    """Codec, samples and sample rate of an audio file."""
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        frames = [frame.to_ndarray().reshape(-1) for frame in file.decode(stream)]
        scale = 32767 if frames[0].dtype == np.float32 else 1
        return stream.codec_context.name, np.concatenate(frames) * scale, stream.codec_context.sample_rate


@pytest.mark.parametrize("suffix", sorted(CODECS.keys() - PCM_SUFFIXES))
@pytest.mark.usefixtures("stand_in_voice")
def test_a_file_has_the_format_of_its_extension(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"out{suffix.upper()}"
    assert exit_code("say", "one two three", "-o", str(out)) == 0
    codec, samples, sample_rate = decoded(out)
    decoders = {"wav": "pcm_s16le", "mp3": "mp3float", "webm": "opus", "m4a": "aac"}
    wanted = decoders.get(CODECS[suffix], CODECS[suffix])
    assert codec in (wanted, f"lib{wanted}")
    assert spoken_s(samples, sample_rate) == pytest.approx(WORDS * 0.2, abs=0.08)


@pytest.mark.parametrize("suffix", sorted(PCM_SUFFIXES))
@pytest.mark.usefixtures("stand_in_voice")
def test_a_raw_file_holds_samples_alone(suffix: str, tmp_path: Path) -> None:
    out = tmp_path / f"out{suffix}"
    assert exit_code("say", "one two three", "-o", str(out), "--sample-rate", "8000") == 0
    assert spoken_s(np.fromfile(out, "<i2"), 8000) == pytest.approx(WORDS * 0.2, abs=0.02)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of programs, empty; the package sounddevice is missing."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    return folder


def install(program: Path, script: str) -> None:
    program.write_text(script, encoding="utf-8")
    program.chmod(0o755)


@pytest.mark.parametrize("player", list(PLAYERS))
@pytest.mark.usefixtures("stand_in_voice")
def test_without_a_file_the_first_installed_player_plays_all_of_it(
    player: str, programs: Path, tmp_path: Path
) -> None:
    heard = tmp_path / "heard.wav"
    install(programs / player, RECORDING_PLAYER.format(heard=heard))
    assert exit_code("say", "one two three") == 0
    played = heard.read_bytes()
    assert played.startswith(b"RIFF") == (player != "paplay")
    samples = np.frombuffer(played[len(played) % 2 :], "<i2")[44:]
    assert spoken_s(samples, SAMPLE_RATE) == pytest.approx(WORDS * 0.2, abs=0.02)


@pytest.mark.usefixtures("stand_in_voice")
def test_a_player_that_fails_is_one_sentence_with_its_last_line(
    programs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(programs / "aplay", FAILING_PLAYER)
    assert exit_code("say", "word " * 1000) == 1
    said = capsys.readouterr().err
    assert "vivavoce: aplay cannot play sound: cannot find card 0; write a file with -o out.wav\n" in said
    assert "first line" not in said


@pytest.mark.usefixtures("stand_in_voice", "programs")
def test_without_a_player_the_sentence_names_the_file_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("say", "one") == 1
    said = capsys.readouterr().err
    assert said.startswith("vivavoce: found nothing to play sound with (aplay, paplay, ffplay or ")
    assert said.endswith("write a file with -o out.wav\n")
