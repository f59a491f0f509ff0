"""``SpeechTrack``: packets, timestamps, drops and the end of a track."""

import asyncio

import pytest
from aiortc.mediastreams import MediaStreamError

from shared.browser.webrtc_browser import (
    PACKET_SAMPLES,
    run,
    tone,
)
from vivavoce.adapters.webrtc.speech_track import SpeechTrack


async def feed_and_read() -> list[tuple[int, bytes]]:
    track = SpeechTrack()
    read = []
    for number in range(3):
        track.feed(tone(number))
        frame = await track.recv()
        assert frame.sample_rate == 24_000
        read.append((frame.pts, bytes(frame.planes[0])[: 2 * frame.samples]))
    return read


def test_a_track_sends_packets_unchanged_with_continuous_timestamps() -> None:
    assert asyncio.run(feed_and_read()) == [(number * PACKET_SAMPLES, tone(number)) for number in range(3)]


def test_the_oldest_packet_is_dropped_and_counted_if_more_than_two_wait() -> None:
    async def scenario() -> None:
        track = SpeechTrack()
        for number in range(5):
            track.feed(tone(number))
        left = [bytes((await track.recv()).planes[0]) for _ in range(2)]
        assert left == [tone(3), tone(4)]
        assert track.dropped == 3

    run(scenario())


def test_discarded_packets_are_not_sent() -> None:
    async def scenario() -> None:
        track = SpeechTrack()
        track.feed(tone(0))
        track.discard()
        track.feed(tone(7))
        assert bytes((await track.recv()).planes[0]) == tone(7)

    run(scenario())


def test_nothing_is_sent_between_packets() -> None:
    async def scenario() -> None:
        waiting = asyncio.create_task(SpeechTrack().recv())
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
        waiting.cancel()

    run(scenario())


def test_stopping_a_track_ends_pending_and_later_reads() -> None:
    async def scenario() -> None:
        track = SpeechTrack()
        waiting = asyncio.create_task(track.recv())
        await asyncio.sleep(0)
        track.stop()
        with pytest.raises(MediaStreamError):
            await waiting
        track.feed(tone(0))
        track.stop()
        with pytest.raises(MediaStreamError):
            await track.recv()

    run(scenario())
