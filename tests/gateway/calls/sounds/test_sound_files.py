"""Files that programs play: their folder, their limits, and what is kept of them."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shared.audio.sound_files import encoded
from shared.audio.tones import pitch_of
from vivavoce.gateway.calls.sounds import sound_files
from vivavoce.gateway.calls.sounds.sound_files import SoundLibrary, SoundNotFound, SoundRefused, read_sound
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.errors import BadRequest


def tone(seconds: float, sample_rate: int, channels: int = 1) -> NDArray[np.float32]:
    time_s = np.arange(round(seconds * sample_rate)) / sample_rate
    return np.repeat(0.5 * np.sin(2 * np.pi * 440 * time_s)[None].astype(np.float32), channels, axis=0)


def write(
    folder: Path,
    name: str,
    *,
    seconds: float = 1.2,
    rate: int = 8_000,
    container: str = "wav",
    codec: str = "pcm_s16le",
) -> Path:
    path = folder / name
    path.write_bytes(encoded(tone(seconds, rate), rate, container, codec))
    return path


def play(library: SoundLibrary, name: str, **marks: float) -> list[AudioChunk]:
    return list(asyncio.run(library.find(name, marks).chunks()))


@pytest.mark.parametrize(
    ("name", "rate", "container", "codec"),
    [
        ("a.wav", 8_000, "wav", "pcm_s16le"),
        ("a.mp3", 44_100, "mp3", "libmp3lame"),
        ("a.opus", 48_000, "ogg", "libopus"),
        ("a.ogg", 24_000, "ogg", "libopus"),
    ],
)
def test_a_file_is_played_in_pieces_at_24_khz(
    tmp_path: Path, name: str, rate: int, container: str, codec: str
) -> None:
    write(tmp_path, name, rate=rate, container=container, codec=codec)
    chunks = play(SoundLibrary(tmp_path), name)
    pcm = b"".join(chunk.pcm for chunk in chunks)
    assert sum(chunk.seconds for chunk in chunks) == pytest.approx(1.2, abs=0.06)
    assert [chunk.samples[0] for chunk in chunks] == [0, *(chunk.samples[1] for chunk in chunks[:-1])]
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert pitch_of(pcm) == pytest.approx(440, abs=2)
    assert np.abs(np.frombuffer(pcm, "<i2")).max() == pytest.approx(16_384, rel=0.1)


def test_a_mark_is_in_the_piece_that_has_its_time_and_a_late_one_in_the_last(tmp_path: Path) -> None:
    write(tmp_path, "a.wav")
    chunks = play(SoundLibrary(tmp_path), "a.wav", late=9.0, begin=0.0, middle=0.6)
    assert [[mark.name for mark in chunk.marks] for chunk in chunks] == [["begin"], ["middle"], ["late"]]


@pytest.mark.parametrize("name", ["../a.wav", "/etc/passwd", "link.wav", "inner/../../a.wav"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    outside = write(tmp_path, "a.wav")
    folder = tmp_path / "sounds"
    (folder / "inner").mkdir(parents=True)
    (folder / "link.wav").symlink_to(outside)
    with pytest.raises(SoundRefused, match="is outside the folder of sounds"):
        SoundLibrary(folder).find(name)


@pytest.mark.parametrize("name", ["b.wav", "inner", "a\0.wav", "x" * 1000, "loop"])
def test_what_is_no_file_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(SoundNotFound, match="there is no sound"):
        SoundLibrary(tmp_path).find(name)
    with pytest.raises(SoundNotFound, match=r"set sounds\.folder"):
        SoundLibrary().find(name)
    with pytest.raises(BadRequest, match="no such folder"):
        SoundLibrary(tmp_path / "absent")


def test_a_file_in_a_folder_inside_is_found(tmp_path: Path, decoded_in_this_process: None) -> None:
    (tmp_path / "menus").mkdir()
    write(tmp_path / "menus", "a.wav")
    assert len(play(SoundLibrary(tmp_path), "menus/a.wav")) == 3


def wav(seconds: float, rate: int = 8_000) -> bytes:
    return encoded(tone(seconds, rate), rate, "wav", "pcm_s16le")


LIMIT = "the recording is longer than 300 s, which is the limit"
REFUSED = {
    "long.wav": (wav(301), LIMIT),
    "hour.aac": (encoded(tone(10, 8_000), 8_000, "adts", "aac") * 360, LIMIT),
    "high.wav": (wav(1, 192_000), "the recording has 192,000 Hz; 8,000 to 48,000 Hz are allowed"),
    "none.wav": (wav(0.01), "the recording is 0.0 s long; at least 0.02 s are needed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_played_is_refused_with_the_limit(
    tmp_path: Path, name: str, decoded_in_this_process: None
) -> None:
    data, message = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SoundRefused) as error:
        read_sound(tmp_path / name)
    assert str(error.value) == f"{name}: {message}"


def test_other_data_and_an_hour_as_wav_are_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.wav"
    text.write_text("no sound at all", encoding="utf-8")
    with pytest.raises(SoundRefused, match=r"text\.wav: the file is no recording that can be read"):
        read_sound(text)
    hour = tmp_path / "hour.wav"
    with hour.open("wb") as file:
        file.truncate(3600 * 2 * 44_100)
    with pytest.raises(
        SoundRefused, match=r"hour\.wav: 317,520,000 bytes; at most 67,108,864 are allowed, and 300 s"
    ):
        read_sound(hour)


def test_a_file_is_decoded_once_until_it_changes_or_others_need_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded_in_this_process: None
) -> None:
    decoded: list[str] = []

    def read(path: Path) -> bytes:
        decoded.append(path.name)
        return read_sound(path)

    monkeypatch.setattr(sound_files, "read_sound", read)
    for name in ("a.wav", "b.wav"):
        write(tmp_path, name)
    library = SoundLibrary(tmp_path, max_kept_bytes=80_000)  # one of them

    async def test() -> None:
        found = [library.find("a.wav") for _ in range(3)]
        await asyncio.gather(*(file.chunks() for file in found))
        assert decoded == ["a.wav"]
        await library.find("b.wav").chunks()
        await library.find("b.wav").chunks()
        await library.find("a.wav").chunks()
        assert decoded == ["a.wav", "b.wav", "a.wav"]
        write(tmp_path, "a.wav", seconds=0.5)
        assert len(list(await library.find("a.wav").chunks())) == 1
        gone = library.find("a.wav")
        (tmp_path / "a.wav").unlink()
        with pytest.raises(SoundRefused, match=r"a\.wav: No such file"):
            await gone.chunks()

    asyncio.run(test())
