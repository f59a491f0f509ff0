"""Recordings in native-stream configurations: temporary voices are made, shared and removed."""

import asyncio
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from shared.event_loop import until
from shared.gateways.recording_streams import (
    BUNDLED_VOICES,
    LOCAL,
    REFERENCE,
    RecordingHost,
    open_stream,
    wait_voices_removed,
)
from vivavoce.tts_engine.voices.store import VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


def test_a_recording_is_encoded_once_and_its_voice_removed_with_the_connection(
    run: Any, store: VoiceStore, encoded_lengths: list[int]
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            for _ in range(2):
                await client.say()
                assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(speed=2, **REFERENCE)  # the same recording
            await client.say()
            await client.until("session.done")
            assert len(served.backend.voices) == BUNDLED_VOICES + 1
        await wait_voices_removed(served)
        assert store.list() == ()
        assert len(encoded_lengths) == 1

    run(test, store=store)


def test_the_voice_is_made_before_text_arrives(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await until(lambda: len(served.backend.voices) == BUNDLED_VOICES + 1)
            await client.configure(voice="tone-440")
            await wait_voices_removed(served)

    run(test, store=store)


def test_an_utterance_keeps_the_voice_that_it_began_with(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            await client.configure(voice="tone-440")
            await client.say()
            await client.configure(**REFERENCE)
            await client.say()
            await client.configure(voice="tone-330")
            pitches = [await client.pitch() for _ in range(3)]
            assert pitches == [pytest.approx(hz, abs=4) for hz in (220, 440, 220)]
            await wait_voices_removed(served)  # while the connection is open
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test, store=store, step_s=0.02)


def test_a_shared_recordings_voice_stays_until_the_last_connection_ends(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as stays:
            async with open_stream(served) as leaves:
                for client in (stays, leaves):
                    await client.configure(**REFERENCE)
                    await client.say()
                    assert await client.pitch() == pytest.approx(220, abs=4)
            await until(lambda: len(served.sockets) == 1)
            await stays.say()
            assert await stays.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store)


def test_an_utterance_cancelled_before_its_voice_is_made_ends_at_once(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with RecordingHost().serving() as host, open_stream(served) as client:
            await client.configure(ref_audio=host.url)
            await client.say("Never said.")
            await until(lambda: host.requests == 1)
            await client.send("input.cancel")
            for _ in range(2):
                assert (await client.until("session.done"))["cancelled"]
            assert not client.audio and not served.backend.steps
            host.released.set()
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            assert host.requests == 1  # the fetch under way serves the next utterance
        await wait_voices_removed(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_disconnects_before_its_voice_is_made_leaves_none(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        before = len(asyncio.all_tasks())
        async with RecordingHost().serving() as host:
            async with open_stream(served) as client:
                await client.configure(ref_audio=host.url)
                await client.say()
                await until(lambda: host.requests == 1)
                client.socket.transport.abort()
                await until(lambda: len(served.sockets) == 0)
            await host.disconnected.wait()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, reference_hosts=LOCAL)


def test_a_failed_fetch_is_repeated_for_the_next_utterance(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with RecordingHost(fails_once=True).serving() as host, open_stream(served) as client:
            host.released.set()
            await client.configure(ref_audio=host.url)
            await until(lambda: host.requests == 1)
            await client.say()
            await client.until("session.done")
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_disconnects_while_speaking_leaves_no_voice(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say("word " * 1_000)
            await client.until("audio.start")
            client.socket.transport.abort()
            await until(lambda: served.backend.open_slots == 0)
        await wait_voices_removed(served)

    run(test, store=store, step_s=0.005)


def test_the_voice_of_a_failed_utterance_is_removed(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert (await client.until("error"))["utterance_index"] == 0
            served.backend.broken_after = None
            await client.say()
            await client.until("session.done")
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store, broken_after=1)


def test_a_draining_server_removes_the_voice(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await served.sockets.finish(1.0)
            with pytest.raises(ConnectionClosed):
                await client.until("nothing")
        await wait_voices_removed(served)

    run(test, store=store)


def test_a_configuration_while_the_server_drains_does_not_stop_the_utterance(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say("One two three four five six.")
            await client.until("audio.start")
            ending = asyncio.create_task(_both(served.api.finish(20.0), served.sockets.finish(20.0)))
            await asyncio.sleep(0)
            await client.configure(voice="tone-440")
            assert (await client.until("error"))["code"] == "overloaded_shutting_down"
            assert await client.pitch() == pytest.approx(220, abs=4)
            await ending

    run(test, store=store, step_s=0.02)


async def _both(*work: Any) -> None:
    await asyncio.gather(*work)
