"""Ambience, thinking sound and hold music on calls, and their files."""

import asyncio
import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from shared.audio.sound_files import encoded
from shared.audio.tones import pitch_of
from shared.browser.fake_browser import BrowserServer
from shared.browser.fake_browser import with_server as with_browsers
from shared.calls.call_server import Phone, call_server, run, send_utterance, until
from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.websocket_calls import WebSocketCallServer, new_call_id
from shared.calls.websocket_calls import with_server as with_websockets
from shared.event_loop import until as until_true
from vivavoce.adapters.playback.background import Awaited, BackgroundLoops, BackgroundSounds
from vivavoce.gateway.calls.events import WordHeard
from vivavoce.gateway.calls.kits.transfers import DialPlanTransfers
from vivavoce.gateway.calls.settings import SoundsTable
from vivavoce.gateway.calls.sounds.sound_files import read_background
from vivavoce.gateway.calls.transfers import AttendedTransfer, TransferFailed
from vivavoce.tts_engine.errors import BadRequest

AMBIENCE_HZ, THINKING_HZ, VOICE_HZ = 1_000, 700, 440
WINDOW = 2 * 1_600  # bytes: 0.2 s at 8 kHz


def write_tone(path: Path, hz: int, seconds: float = 2.0) -> Path:
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    samples = 0.5 * np.sin(2 * np.pi * hz * time_s)
    path.write_bytes(encoded(samples[None].astype(np.float32), 16_000, "wav", "pcm_s16le"))
    return path


def amplitude(pcm: bytes, hz: int, sample_rate: int = 8_000) -> float:
    """Amplitude of a tone in s16le."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    wave_at = np.exp(-2j * np.pi * hz * np.arange(len(samples)) / sample_rate)
    return float(2 * np.abs(np.mean(samples * wave_at)))


async def hears(phone: Phone, hz: int) -> bytes:
    """Wait for 0.2 s in which the strongest tone is that one, and return them."""
    while True:
        window = bytes(phone.heard[-WINDOW:])
        if len(window) == WINDOW and any(window) and abs(pitch_of(window, 8_000) - hz) < 10:
            return window
        await asyncio.sleep(0.01)


def test_the_files_are_read_at_their_levels(tmp_path: Path, decoded_in_this_process: None) -> None:
    file = write_tone(tmp_path / "a.wav", AMBIENCE_HZ)
    table = SoundsTable.model_validate(
        {"ambience": {"file": file}, "thinking": {"file": file, "level_db": 0, "after_ms": 300}}
    )
    sounds = read_background(table)
    assert amplitude(sounds.ambience, AMBIENCE_HZ, 24_000) == pytest.approx(1_638, rel=0.02)
    assert amplitude(sounds.thinking, AMBIENCE_HZ, 24_000) == pytest.approx(16_384, rel=0.02)
    assert (sounds.thinking_after_s, sounds.hold) == (0.3, b"")
    assert read_background(SoundsTable()) == BackgroundSounds()


def test_ambience_is_a_file_or_a_noise_that_is_made() -> None:
    sounds = read_background(SoundsTable.model_validate({"ambience": {"noise_dbm0": -50}}))
    noise = np.frombuffer(sounds.ambience, "<i2").astype(np.float64)
    assert 20 * np.log10(np.sqrt(np.mean(noise**2)) / 32_768) == pytest.approx(-56.15, abs=0.3)
    for wrong in ({}, {"level_db": -3}, {"file": "a.wav", "noise_dbm0": -60}):
        with pytest.raises(ValidationError, match="needs either 'file' or 'noise_dbm0'"):
            SoundsTable.model_validate({"ambience": wrong})
    for loud in (-39, -76):
        with pytest.raises(ValidationError, match="noise_dbm0"):
            SoundsTable.model_validate({"ambience": {"noise_dbm0": loud}})


def test_a_caller_hears_comfort_noise_of_that_level() -> None:
    async def test() -> None:
        async with call_server(sounds_ambience={"noise_dbm0": -45}) as server:
            phone = await server.phone()
            while len(phone.heard) < 8 * WINDOW:
                await asyncio.sleep(0.01)
            heard = np.frombuffer(bytes(phone.heard[-4 * WINDOW :]), "<i2").astype(np.float64)
            assert 20 * np.log10(np.sqrt(np.mean(heard**2)) / 32_768) == pytest.approx(-51.15, abs=2)

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("media_processes", [1], indirect=True)
def test_ambience_whose_file_is_deleted_is_heard_on_from_memory(
    sounds: dict[str, Any], media_processes: int
) -> None:
    async def test() -> None:
        async with call_server(**sounds) as server:
            sounds["sounds_ambience"]["file"].unlink()
            for _ in range(2):
                phone = await server.phone()
                while amplitude(await hears(phone, AMBIENCE_HZ), AMBIENCE_HZ) < 1_500:  # it rises
                    await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("key", ["ambience", "thinking", "hold"])
def test_a_file_that_is_missing_or_too_short_is_an_error_at_the_start(
    tmp_path: Path, key: str, decoded_in_this_process: None
) -> None:
    write_tone(tmp_path / "short.wav", AMBIENCE_HZ, 0.05)
    for name, message in (("none.wav", "No such file"), ("short.wav", "0.05 s; at least 0.1 s are needed")):
        with pytest.raises(BadRequest, match=rf"^sounds\.{key}: {name}: {message}"):
            read_background(SoundsTable.model_validate({key: {"file": tmp_path / name}}))

    async def start() -> None:
        async with call_server(**{f"sounds_{key}": {"file": tmp_path / "none.wav"}}):
            pass

    with pytest.raises(BadRequest, match=rf"^sounds\.{key}: none\.wav: No such file"):
        asyncio.run(start())


@pytest.fixture
def sounds(tmp_path: Path, decoded_in_this_process: None) -> dict[str, Any]:
    return {
        "sounds_ambience": {"file": write_tone(tmp_path / "ambience.wav", AMBIENCE_HZ), "level_db": -20},
        "sounds_thinking": {
            "file": write_tone(tmp_path / "thinking.wav", THINKING_HZ),
            "level_db": -10,
            "after_ms": 300,
        },
        "recordings_folder": tmp_path / "recordings",
    }


@pytest.mark.parametrize("media_processes", [0, 1], indirect=True)
def test_a_caller_hears_ambience_the_thinking_sound_of_a_program_and_its_words_as_recorded(
    sounds: dict[str, Any], media_processes: int
) -> None:
    async def test() -> Path:
        async with call_server(**sounds) as server:
            phone = await server.phone()
            quiet = await hears(phone, AMBIENCE_HZ)
            assert amplitude(quiet, THINKING_HZ) < 20
            async with server.socket(phone.call_id) as socket:
                await socket.send(json.dumps({"type": "record"}))
                file = (await until(socket, "recording"))[-1]["file"]
                thought = await hears(phone, THINKING_HZ)
                assert amplitude(thought, AMBIENCE_HZ) == pytest.approx(1_638, rel=0.2)
                await send_utterance(socket, "One two three four five six seven eight.")
                spoken = await hears(phone, VOICE_HZ)
                await asyncio.sleep(0.3)
                spoken = bytes(phone.heard[-WINDOW:])
                assert amplitude(spoken, THINKING_HZ) < 300  # the stand-in's words begin and end abruptly
                assert amplitude(spoken, AMBIENCE_HZ) < 1_000
                await until(socket, "speech_finished")
                await hears(phone, THINKING_HZ)
            left = len(phone.heard)
            while len(phone.heard) < left + 4 * WINDOW:
                await asyncio.sleep(0.01)
            assert amplitude(bytes(phone.heard[-WINDOW:]), THINKING_HZ) < 20
            assert file is not None
        return sounds["recordings_folder"] / str(file)

    recording = asyncio.run(asyncio.wait_for(test(), 60))
    with wave.open(str(recording)) as wav:
        heard = np.frombuffer(wav.readframes(wav.getnframes()), "<i2").reshape(-1, 2)[:, 1]
    windows = [heard[start : start + 1_600].tobytes() for start in range(0, len(heard) - 1_600, 1_600)]
    pitches = {
        min((AMBIENCE_HZ, THINKING_HZ, VOICE_HZ), key=lambda hz: abs(hz - pitch_of(one, 8_000)))
        for one in windows
    }
    assert pitches >= {THINKING_HZ, VOICE_HZ}


def test_a_caller_waits_with_hold_music_while_a_transfer_is_under_way() -> None:
    told: list[Awaited] = []

    class _Transfers(DialPlanTransfers):
        async def attend(self, transfer: AttendedTransfer) -> None:
            assert told == [Awaited.TRANSFER]
            raise TransferFailed("busy")

    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            call = server.gateway.calls.registry.get(phone.call_id).call
            call.media.set_awaited = told.append  # type: ignore[method-assign]
            call.end._transfers = _Transfers()
            with pytest.raises(TransferFailed):
                await call.end.transfer_attended(AttendedTransfer("200", "", 30.0))
            assert told == [Awaited.TRANSFER, Awaited.CALLER]

    run(test())


def test_the_sound_of_a_call_follows_what_is_waited_for() -> None:
    async def test() -> None:
        async with call_server() as server:
            phone = await server.phone()
            call = server.gateway.calls.registry.get(phone.call_id).call
            told: list[Awaited] = []
            call.media.set_awaited = told.append  # type: ignore[method-assign]
            with call.speech.awaiting(Awaited.PROGRAM):
                transfer = call.speech.awaiting(Awaited.TRANSFER)
                transfer.__enter__()
            transfer.__exit__(None, None, None)  # the program has left before the transfer failed
            assert told == [Awaited.PROGRAM, Awaited.TRANSFER, Awaited.TRANSFER, Awaited.CALLER]

    run(test())


@pytest.mark.parametrize("wire", MAKE_PEER)
def test_a_peer_that_paces_itself_hears_ambience_and_whole_words(wire: str, sounds: dict[str, Any]) -> None:
    async def check(server: WebSocketCallServer) -> None:
        peer = MAKE_PEER[wire](new_call_id())
        _, call = await server.dial(peer)
        await until_true(lambda: peer.queue.played_packets >= 20)
        words: list[str] = []
        call.events.add_listener(
            lambda event: words.append(event.word.text) if isinstance(event, WordHeard) else None
        )
        await call.speech.speak("One two three.")
        await call.speech.wait_played()
        assert words == ["One", "two", "three"]
        heard = peer.queue.played_packets
        await until_true(lambda: peer.queue.played_packets >= heard + 20)
        assert call.media.report.stats.underruns == 0

    with_websockets(check, sounds_ambience={**sounds["sounds_ambience"], "level_db": 0})


def test_a_browser_hears_ambience() -> None:
    tones = BackgroundSounds(ambience=bytes([0, 1]) * 24_000)

    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until(peer.is_audible)

    with_browsers(scenario, background=BackgroundLoops(tones))
