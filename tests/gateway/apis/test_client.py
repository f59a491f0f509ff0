"""Our client against our server: what is spoken, what is lent, and what is left behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.event_loop import until
from shared.tones import pitch_of
from vivavoce.adapters.client import (
    PoolPolicy,
    RemoteUtterance,
    ServerUnavailable,
    SpeechClient,
    SpeechOptions,
    SpeechPiece,
)
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.tts_engine.errors import BadRequest, Overloaded, SynthesisFailed

Run = Callable[..., None]
TONE_440 = SpeechOptions(voice="tone-440")


def client(house: Any, key: str | None = None, **policy: Any) -> SpeechClient:
    return SpeechClient(str(house.client.base_url), api_key=key, pool=PoolPolicy(**policy))


async def said(utterance: RemoteUtterance, text: str = "One two three.") -> list[SpeechPiece]:
    for word in text.split(" ") if len(text) < 1_000 else [text]:
        await utterance.push_text(word + " ")
    await utterance.end_input()
    return [piece async for piece in utterance]


def pitch_hz(pieces: list[SpeechPiece]) -> float:
    return pitch_of(b"".join(piece.audio for piece in pieces))


def test_text_becomes_speech_with_word_times(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house) as speech:
            async with speech.utterance(TONE_440) as utterance:
                pieces = await said(utterance)
            assert pitch_hz(pieces) == pytest.approx(440, abs=5)
            words = [word for piece in pieces for word in piece.words]
            assert [word.text for word in words] == ["One", "two", "three"]
            assert [word.start_s for word in words] == pytest.approx([0.0, 0.2, 0.4])
            assert utterance.time_to_first_audio_s is not None
            assert speech.last_time_to_first_audio_s == utterance.time_to_first_audio_s > 0

    run(test)


def test_text_longer_than_a_message_may_be_is_sent_in_several(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house) as speech, speech.utterance(TONE_440) as utterance:
            pieces = await said(utterance, "One two" + " " * 70_000 + "three.")
            assert [word.text for piece in pieces for word in piece.words] == ["One", "two", "three"]

    run(test)


def test_one_connection_carries_utterance_after_utterance(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house, ready=1) as speech:
            for voice, pitch in [("tone-440", 440), ("tone-330", 330)] * 4:
                async with speech.utterance(SpeechOptions(voice=voice)) as utterance:
                    assert pitch_hz(await said(utterance)) == pytest.approx(pitch, abs=5)
            assert speech.open_connections == 1
            assert len(house.sockets) == 1

    run(test)


def test_a_clean_connection_goes_on_after_every_way_to_stop(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivavoce.adapters.client._DRAIN_TIMEOUT_S", 30.0)  # a stall is no way to stop

    async def test(house: Any) -> None:
        async with client(house, ready=1) as speech:
            (connection,) = speech._idle
            async with speech.utterance(TONE_440):
                pass  # nothing was said
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. ")  # left before the end of input
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. " * 50)
                await utterance.end_input()
                await anext(utterance)  # left in mid-speech
            async with speech.utterance(TONE_440) as utterance:
                await utterance.end_input()
                assert [piece async for piece in utterance] == []
            with pytest.raises(BadRequest, match="nobody"):
                async with speech.utterance(SpeechOptions(voice="nobody")) as utterance:
                    await said(utterance)
            async with speech.utterance(SpeechOptions(voice="nobody")) as utterance:
                await utterance.push_text("One two three. ")
                for _ in range(2):  # the configuration is refused, and then the text
                    with pytest.raises(BadRequest, match="nobody"):
                        await anext(utterance)
                assert [piece async for piece in utterance] == []  # over before the end of input
            with pytest.raises(ZeroDivisionError):
                async with speech.utterance(TONE_440) as utterance:
                    await utterance.push_text("One two three. ")
                    raise ZeroDivisionError
            async with speech.utterance(SpeechOptions(voice="tone-330")) as utterance:
                assert pitch_hz(await said(utterance)) == pytest.approx(330, abs=5)
            assert list(speech._idle) == [connection] and len(house.sockets) == 1
            assert house.engine.active_streams == 0

    run(test)


def test_twenty_at_once_are_never_mixed_up(run: Run) -> None:
    async def test(house: Any) -> None:
        async def speak(speech: SpeechClient, number: int) -> None:
            pitch = (440, 330)[number % 2]
            async with speech.utterance(SpeechOptions(voice=f"tone-{pitch}")) as utterance:
                assert pitch_hz(await said(utterance)) == pytest.approx(pitch, abs=5)

        async with client(house, most=6, ready=2) as speech:
            await asyncio.gather(*(speak(speech, number) for number in range(20)))
            assert speech.open_connections <= 6

    run(test)


def test_whoever_finds_all_lent_waits_so_long_and_is_told(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house, most=1, ready=0, wait_s=0.2) as speech, speech.utterance(TONE_440):
            with pytest.raises(Overloaded, match="all 1 connections are lent"):
                async with speech.utterance(TONE_440):
                    pass

    run(test)


def test_a_connection_that_the_server_closed_is_not_lent(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house, ready=2) as speech:
            await house.sockets.finish(0.1)
            await until(lambda: not house.sockets)
            async with speech.utterance(TONE_440) as utterance:
                assert await said(utterance)

    run(test)


def test_idle_connections_are_replaced_and_the_old_ones_closed(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house, ready=2, max_idle_s=0.2) as speech:
            first = set(speech._idle)
            await until(lambda: len(speech._idle) == 2 and not first & set(speech._idle))
            await until(lambda: len(house.sockets) == 2)
        await until(lambda: len(house.sockets) == 0)

    run(test)


def test_closing_leaves_nothing_even_in_mid_utterance(run: Run) -> None:
    async def test(house: Any) -> None:
        before = asyncio.all_tasks()
        async with client(house, ready=3) as speech:
            utterance = await (lent := speech.utterance(TONE_440)).__aenter__()
            await utterance.push_text("One two three. " * 100)
            await speech.aclose()
            with pytest.raises(ServerUnavailable):
                await said(utterance)
            await lent.__aexit__(None, None, None)
            assert speech.open_connections == 0
        await until(lambda: len(house.sockets) == 0 and house.engine.active_streams == 0)
        await until(lambda: len(asyncio.all_tasks()) <= len(before) + 1)

    run(test)


def test_a_task_that_is_cancelled_gives_its_connection_up(run: Run) -> None:
    async def test(house: Any) -> None:
        async def speak(speech: SpeechClient) -> None:
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. " * 100)
                await asyncio.sleep(60)

        async with client(house, ready=1, most=1) as speech:
            speaking = asyncio.create_task(speak(speech))
            await until(lambda: house.engine.active_streams == 1)
            speaking.cancel()
            await asyncio.wait({speaking})
            async with speech.utterance(TONE_440) as utterance:
                assert await said(utterance)
            assert house.engine.active_streams == 0

    run(test)


def test_a_voice_that_breaks_is_told_as_such(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house) as speech:
            with pytest.raises(SynthesisFailed):
                async with speech.utterance(TONE_440) as utterance:
                    await said(utterance, "One two three four five six seven.")

    run(test, broken_after=2)


def test_a_full_house_says_when_to_try_again(run: Run) -> None:
    async def test(house: Any) -> None:
        async with client(house) as speech, speech.utterance(TONE_440) as first:
            await first.push_text("One two three. ")
            await until(lambda: house.engine.active_streams == 1)
            with pytest.raises(Overloaded) as refusal:
                async with speech.utterance(TONE_440) as second:
                    await said(second)
            assert refusal.value.retry_after_s > 0

    run(test, max_streams=1)


def test_a_key_is_sent_and_a_wrong_one_refused(run: Run, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("bot", (Scope.SPEAK,), KeyLimits())

    async def test(house: Any) -> None:
        async with client(house, key) as speech, speech.utterance(TONE_440) as utterance:
            assert await said(utterance)
        for wrong in (None, key[:-2] + "xx"):
            with pytest.raises(BadRequest, match="API key"):
                await client(house, wrong).__aenter__()

    run(test, access=AccessControl(keys))


def test_a_server_that_is_not_there_is_one_sentence() -> None:
    async def nobody() -> None:
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            async with SpeechClient("ws://127.0.0.1:9"):
                pass

    asyncio.run(nobody())


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://x", "://"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="is allowed"):
        SpeechClient(url)


@pytest.mark.parametrize("url", ["ws://", "http://:80", "ws://host:port", "ws://host:99999", "ws://[::1"])
def test_a_url_without_a_host_or_with_a_port_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="got the URL"):
        SpeechClient(url)


@pytest.mark.parametrize("how", [{"most": 0}, {"most": 2, "ready": 3}, {"ready": -1}])
def test_a_pool_that_makes_no_sense_is_refused(how: dict[str, int]) -> None:
    with pytest.raises(BadRequest, match="allowed is 0 to most"):
        PoolPolicy(**how)
