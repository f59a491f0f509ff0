"""The browser's connection against aiortc as the browser, in one process and on loopback only."""

import asyncio
import gc
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiortc import AudioStreamTrack, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame

from shared.chromium import loopback_only
from shared.event_loop import until
from vivavoce.adapters.webrtc.peer import RECEIVED_SAMPLE_RATE, WebRtcPeer, WebRtcPeerPolicy
from vivavoce.adapters.webrtc.sdp_offer import MAX_CANDIDATES, InvalidOffer
from vivavoce.adapters.webrtc.speech_track import SpeechTrack

TIMEOUT_S = 30.0
PACKET = 480  # samples, 20 ms


@pytest.fixture(autouse=True)
def only_loopback() -> Iterator[None]:
    with loopback_only():
        yield


def tone(number: int, level: int = 8_000) -> bytes:
    """20 ms of 500 Hz at 24 kHz: packets follow each other without a step."""
    time_s = (number * PACKET + np.arange(PACKET)) / 24_000
    return (level * np.sin(2 * np.pi * 500 * time_s)).astype("<i2").tobytes()


class Told:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.connected = asyncio.Event()
        self.closed = asyncio.Event()
        self.messages: list[str] = []
        self.reasons: list[str] = []
        self.pcm = bytearray()

    def on_connected(self) -> None:
        self.connected.set()

    def on_message(self, message: str) -> None:
        self.messages.append(message)

    def on_audio(self, pcm: bytes) -> None:
        self.pcm += pcm

    def on_closed(self, reason: str) -> None:
        self.reasons.append(reason)
        self.closed.set()


class ToneTrack(AudioStreamTrack):
    """A microphone in which somebody whistles 1 kHz, 8 kHz mono."""

    _at = 0

    async def recv(self) -> AudioFrame:
        frame = await super().recv()
        assert isinstance(frame, AudioFrame)
        time_s = (self._at + np.arange(frame.samples)) / frame.sample_rate
        self._at += frame.samples
        frame.planes[0].update((10_000 * np.sin(2 * np.pi * 1_000 * time_s)).astype("<i2").tobytes())
        return frame


class Browser:
    """aiortc in the browser's part."""

    def __init__(self) -> None:
        self.connection = RTCPeerConnection()
        self.channel = self.connection.createDataChannel("page")
        self.opened = asyncio.Event()
        self.messages: list[str] = []
        self.levels: list[int] = []  # of the frames heard
        self._hearing: asyncio.Task[None] | None = None
        self.channel.on("open", self.opened.set)
        self.channel.on("message", self.messages.append)
        self.connection.on("track", self._on_track)

    def _on_track(self, track: Any) -> None:
        self._hearing = asyncio.ensure_future(self._hear(track))

    async def _hear(self, track: Any) -> None:
        try:
            while True:
                frame = await track.recv()
                self.levels.append(int(np.abs(frame.to_ndarray().astype(np.int32)).max()))
        except MediaStreamError:
            pass

    async def offer(self) -> str:
        await self.connection.setLocalDescription(await self.connection.createOffer())
        return str(self.connection.localDescription.sdp)

    async def accept(self, sdp: str) -> None:
        await self.connection.setRemoteDescription(RTCSessionDescription(sdp, "answer"))

    async def close(self) -> None:
        await self.connection.close()
        if self._hearing is not None:
            self._hearing.cancel()
            await asyncio.wait({self._hearing})


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[Browser, WebRtcPeer, Told]]:
    browser, told = Browser(), Told()
    browser.connection.addTrack(ToneTrack())
    peer = await WebRtcPeer.answer(await browser.offer(), told, **options)
    await browser.accept(peer.answer_sdp)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await told.connected.wait()
            await browser.opened.wait()
        yield browser, peer, told
    finally:
        await peer.aclose()
        await browser.close()


def in_loop(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


# The track


async def feed_and_read() -> list[tuple[int, bytes]]:
    track = SpeechTrack()
    read = []
    for number in range(3):
        track.feed(tone(number))
        frame = await track.recv()
        assert frame.sample_rate == 24_000
        read.append((frame.pts, bytes(frame.planes[0])[: 2 * frame.samples]))
    return read


def test_packets_leave_as_they_were_fed_with_times_that_leave_no_gap() -> None:
    assert asyncio.run(feed_and_read()) == [(number * PACKET, tone(number)) for number in range(3)]


def test_when_more_than_two_wait_the_oldest_is_dropped_and_counted() -> None:
    async def scenario() -> None:
        track = SpeechTrack()
        for number in range(5):
            track.feed(tone(number))
        left = [bytes((await track.recv()).planes[0]) for _ in range(2)]
        assert left == [tone(3), tone(4)]
        assert track.dropped == 3

    in_loop(scenario())


def test_what_is_discarded_is_not_sent() -> None:
    async def scenario() -> None:
        track = SpeechTrack()
        track.feed(tone(0))
        track.discard()
        track.feed(tone(7))
        assert bytes((await track.recv()).planes[0]) == tone(7)

    in_loop(scenario())


def test_nothing_is_sent_that_was_not_fed() -> None:
    async def scenario() -> None:
        waiting = asyncio.create_task(SpeechTrack().recv())
        done, _ = await asyncio.wait({waiting}, timeout=0.05)
        assert not done
        waiting.cancel()

    in_loop(scenario())


def test_a_track_that_ends_wakes_who_waits_for_it_and_ends_for_good() -> None:
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

    in_loop(scenario())


# A call


async def speak(peer: WebRtcPeer, packets: int, *, level: int = 8_000) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number in range(packets):
        await asyncio.sleep(max(0.0, start + 0.02 * number - loop.time()))
        peer.feed(tone(number, level))


async def speak_until(peer: WebRtcPeer, met: Callable[[], object], *, level: int = 8_000) -> None:
    """Aiortc hears nothing of fewer than five packets, and a stall may cost any of them."""
    async with asyncio.timeout(TIMEOUT_S):
        while not met():
            await speak(peer, 8, level=level)


def test_speech_is_heard_and_stops_when_it_is_no_longer_fed() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, _):
            await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
            await speak_until(peer, lambda: max(browser.levels[-3:]) < 100, level=0)

    in_loop(scenario())


def test_the_caller_is_heard_at_16_khz() -> None:
    async def scenario() -> None:
        async with connected() as (_, _, told):
            await until(lambda: len(told.pcm) > 2 * RECEIVED_SAMPLE_RATE)
        samples = np.frombuffer(told.pcm, "<i2")[-RECEIVED_SAMPLE_RATE // 2 :].astype(float)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert np.argmax(spectrum) * 2 == pytest.approx(1_000, abs=4)

    in_loop(scenario())


class Decoded:
    """A track that gives 20 ms of each kind, one after the other at once, and then ends."""

    def __init__(self, *kinds: tuple[int, str]) -> None:
        self._kinds = list(kinds)

    async def recv(self) -> AudioFrame:
        if not self._kinds:
            raise MediaStreamError
        rate, layout = self._kinds.pop(0)
        frame = AudioFrame(format="s16", layout=layout, samples=rate // 50)
        frame.planes[0].update(bytes(frame.planes[0].buffer_size))
        frame.sample_rate = rate
        return frame


OPUS, G711 = (48_000, "stereo"), (8_000, "mono")


def heard_s(*kinds: tuple[int, str]) -> float:
    """Seconds that a listener gets of such a track, in no time."""

    async def scenario() -> float:
        told = Told()
        peer = WebRtcPeer(told, WebRtcPeerPolicy(), now=lambda: 0.0)
        await peer._receive_audio(Decoded(*kinds))  # type: ignore[arg-type]
        await peer.aclose()
        return len(told.pcm) / 2 / RECEIVED_SAMPLE_RATE

    return asyncio.run(scenario())


def test_a_caller_whose_codec_changes_in_the_middle_is_heard_on() -> None:
    assert heard_s(OPUS, G711, OPUS) == pytest.approx(0.06, abs=0.01)


def test_audio_that_comes_faster_than_time_is_dropped_beyond_five_seconds() -> None:
    assert heard_s(*[OPUS] * 400) == pytest.approx(5.0, abs=0.1)


def test_messages_arrive_both_ways_also_those_told_before_the_channel_opened() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        peer = await WebRtcPeer.answer(await browser.offer(), told)
        peer.send_message("early")
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await browser.opened.wait()
        browser.channel.send("hello")
        browser.channel.send(b"\xff bytes are read as text")
        await until(lambda: len(told.messages) == 2)
        peer.send_message("late")
        await until(lambda: browser.messages == ["early", "late"])
        assert told.messages == ["hello", "\ufffd bytes are read as text"]
        await peer.aclose()
        await browser.close()

    in_loop(scenario())


def test_a_browser_that_hangs_up_is_told_of_once() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, told):
            await browser.close()
            async with asyncio.timeout(TIMEOUT_S):
                await told.closed.wait()
            await peer.aclose()
            peer.send_message("nobody hears this")
        assert told.reasons == ["the browser hung up"]

    in_loop(scenario())


def test_closing_here_ends_the_browsers_side_too() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, told):
            peer.close("enough")
            peer.close("twice")
            await until(lambda: browser.connection.connectionState == "closed")
        assert told.reasons == ["enough"]

    in_loop(scenario())


def test_a_tab_that_vanishes_without_a_word_is_given_up() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        ahead_s = 0.0
        async with connected(now=lambda: loop.time() + ahead_s) as (browser, _, told):
            await until(lambda: told.pcm)
            for sender in browser.connection.getSenders():
                await sender.stop()  # the microphone falls silent, as everything does
            await asyncio.sleep(0.2)
            ahead_s = 60.0
            async with asyncio.timeout(TIMEOUT_S):
                await told.closed.wait()
        assert told.reasons == ["nothing heard of the browser for 10 s"]

    in_loop(scenario())


def test_an_offer_that_nobody_follows_up_is_given_up() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        peer = await WebRtcPeer.answer(await browser.offer(), told, WebRtcPeerPolicy(connect_timeout_s=0.05))
        async with asyncio.timeout(TIMEOUT_S):
            await told.closed.wait()
        await peer.aclose()
        assert told.reasons == ["not connected within 0.05 s"]
        await browser.close()

    in_loop(scenario())


def test_a_page_that_stops_reading_its_messages_is_hung_up_on() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, told):
            for number in range(1, 151):  # a page that reads gets more than may wait for one that does not
                peer.send_message("x" * 10_000)
                await until(lambda number=number: len(browser.messages) == number)
            browser.connection.sctp._handle_data = nothing  # type: ignore[method-assign, union-attr]
            while not told.closed.is_set():
                peer.send_message("x" * 10_000)
                await asyncio.sleep(0)
            assert told.reasons == ["the page does not read its messages"]

    in_loop(scenario())


async def nothing(*_: Any) -> None:
    pass


def test_a_listener_without_a_microphone_hears() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTransceiver("audio", direction="recvonly")
        peer = await WebRtcPeer.answer(await browser.offer(), told)
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await told.connected.wait()
        await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
        await peer.aclose()
        await browser.close()

    in_loop(scenario())


def test_video_is_declined_and_the_call_goes_on_without_it() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        browser.connection.addTransceiver("video", direction="sendrecv")
        peer = await WebRtcPeer.answer(await browser.offer(), told)
        video = peer.answer_sdp[peer.answer_sdp.index("m=video") :]
        assert "a=inactive" in video.partition("m=application")[0]
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await told.connected.wait()
        await peer.aclose()
        await browser.close()

    in_loop(scenario())


def without_candidates(sdp: str) -> tuple[str, list[str]]:
    lines = sdp.splitlines()
    candidates = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate:")]
    kept = [line for line in lines if not line.startswith(("a=candidate:", "a=end-of-candidates"))]
    return "\r\n".join(kept) + "\r\n", candidates


def test_candidates_may_come_after_the_offer_in_any_number() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        sdp, candidates = without_candidates(await browser.offer())
        peer = await WebRtcPeer.answer(sdp, told)
        answer, answered = without_candidates(peer.answer_sdp)
        await browser.accept(answer)
        for candidate in candidates:
            await peer.add_candidate(candidate, "0", 0)
        for port in range(200):
            await peer.add_candidate(f"candidate:9 1 udp 1 127.0.0.1 {20_000 + port} typ host", "0", 0)
        await peer.add_candidate("candidate:9 1 udp 1 abcd.local 9 typ host", "0", 0)
        assert peer.accepted_candidates == MAX_CANDIDATES
        for line in answered:
            parsed = candidate_from_sdp(line.removeprefix("candidate:"))
            parsed.sdpMid, parsed.sdpMLineIndex = "0", 0
            await browser.connection.addIceCandidate(parsed)
        async with asyncio.timeout(TIMEOUT_S):
            await told.connected.wait()
        await peer.aclose()
        await peer.add_candidate(candidates[0], "0", 0)  # too late, and no error
        await browser.close()

    in_loop(scenario())


@pytest.mark.parametrize(
    "candidate", ["candidate:1 x udp y 127.0.0.1 z typ host", "candidate:1 1 udp 1 127.0.0.1 port typ host"]
)
def test_a_candidate_that_cannot_be_read_is_a_bad_offer_and_the_call_goes_on(candidate: str) -> None:
    async def scenario() -> None:
        async with connected() as (_, peer, told):
            with pytest.raises(InvalidOffer, match="cannot be read"):
                await peer.add_candidate(candidate, "0", 0)
            assert not told.closed.is_set()

    in_loop(scenario())


def broken(sdp: str, kind: str) -> str:
    match kind:
        case "no ICE password":
            return "\r\n".join(line for line in sdp.splitlines() if not line.startswith("a=ice-pwd")) + "\r\n"
        case "no codec of ours":
            return sdp.replace("opus", "wax").replace("G722", "horn").replace("PCM", "pipe")
        case "numbers that are none":
            return sdp.replace("a=rtpmap:96", "a=rtpmap:ninety-six")
        case _:
            return sdp[: sdp.index("m=audio") + 40] + "\r\n"


@pytest.mark.parametrize(
    "kind", ["no ICE password", "no codec of ours", "numbers that are none", "cut in a line"]
)
def test_an_offer_that_cannot_be_answered_is_a_bad_offer_and_leaves_nothing(kind: str) -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        offer = await browser.offer()
        before = len(asyncio.all_tasks())
        with pytest.raises(InvalidOffer):
            await WebRtcPeer.answer(broken(offer, kind), told)
        assert len(asyncio.all_tasks()) == before
        assert told.reasons == []
        await browser.close()

    in_loop(scenario())


def test_a_browser_that_goes_while_it_is_answered_leaves_nothing() -> None:
    async def scenario() -> None:
        browser, told = Browser(), Told()
        browser.connection.addTrack(AudioStreamTrack())
        offer = await browser.offer()
        await asyncio.sleep(0.1)
        before = footprint()
        for steps in range(25):
            answering = asyncio.create_task(WebRtcPeer.answer(offer, told))
            for _ in range(steps):
                await asyncio.sleep(0)
            answering.cancel()
            await asyncio.wait({answering})
            if not answering.cancelled():
                await answering.result().aclose()
        await until(lambda: is_at_most(footprint(), before))  # aiortc's tasks find out
        await browser.close()

    in_loop(scenario())


def test_a_browser_may_offer_again_in_the_middle_of_a_call() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, told):
            await peer.renegotiate(await browser.offer())
            await browser.accept(peer.answer_sdp)
            await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
            with pytest.raises(InvalidOffer):
                await peer.renegotiate("v=0\r\n")
            assert not told.closed.is_set()

    in_loop(scenario())


# Fifty calls


def footprint() -> tuple[int, int, int]:
    """Tasks, open files, threads but those of the executor, which keeps what it once had."""
    gc.collect()
    threads = [thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")]
    return len(asyncio.all_tasks()), len(os.listdir("/dev/fd")), len(threads)


def is_at_most(now: tuple[int, ...], then: tuple[int, ...]) -> bool:
    return all(one <= other for one, other in zip(now, then, strict=True))


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def one_call(number: int) -> None:
    async with connected() as (browser, peer, told):
        await speak_until(peer, lambda: told.pcm and browser.levels)
        if number % 2:
            await browser.close()
            async with asyncio.timeout(TIMEOUT_S):
                await told.closed.wait()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="counts memory as Linux tells it")
def test_fifty_calls_leave_no_task_file_thread_or_memory_behind() -> None:
    async def scenario() -> None:
        for number in range(10):
            await one_call(number)
        before, before_mb = footprint(), resident_mb()
        for number in range(50):
            await one_call(number)
        await until(lambda: is_at_most(footprint(), before))
        assert resident_mb() - before_mb < 12  # of 50 calls; aiortc's own is 0.05 MB a call and flattens

    in_loop(scenario())
