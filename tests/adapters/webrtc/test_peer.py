"""``WebRtcPeer`` and a browser by aiortc, in one process on loopback."""

import asyncio
import gc
import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import numpy as np
import pytest
from aiortc import AudioStreamTrack, RTCIceParameters, RTCIceTransport
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame

from hostile.offers import browser_offers, changed_offer
from shared.browser.webrtc_browser import (
    TIMEOUT_S,
    Browser,
    RecordingListener,
    connected,
    run,
    tone,
)
from shared.event_loop import until
from shared.process_footprint import ProcessFootprint
from vivavoce.adapters.webrtc.peer import RECEIVED_SAMPLE_RATE, WebRtcPeer, WebRtcPeerPolicy
from vivavoce.adapters.webrtc.sdp_offer import MAX_CANDIDATES, InvalidOffer

# A call


async def speak(peer: WebRtcPeer, packets: int, *, level: int = 8_000) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number in range(packets):
        await asyncio.sleep(max(0.0, start + 0.02 * number - loop.time()))
        peer.feed(tone(number, level))


async def speak_until(peer: WebRtcPeer, condition: Callable[[], object], *, level: int = 8_000) -> None:
    """Send speech until a condition holds; aiortc plays only five packets or more."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await speak(peer, 8, level=level)


def test_the_browser_receives_the_speech_that_is_fed() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, _):
            await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
            await speak_until(peer, lambda: max(browser.levels[-3:]) < 100, level=0)

    run(scenario())


def test_the_microphone_is_delivered_at_16_khz() -> None:
    async def scenario() -> None:
        async with connected() as (_, _, listener):
            await until(lambda: len(listener.pcm) > 2 * RECEIVED_SAMPLE_RATE)
        samples = np.frombuffer(listener.pcm, "<i2")[-RECEIVED_SAMPLE_RATE // 2 :].astype(float)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert np.argmax(spectrum) * 2 == pytest.approx(1_000, abs=4)

    run(scenario())


class DecodedTrack:
    """A track that delivers 20 ms of each format without pauses, and then ends."""

    def __init__(self, *formats: tuple[int, str]) -> None:
        self._formats = list(formats)

    async def recv(self) -> AudioFrame:
        if not self._formats:
            raise MediaStreamError
        rate, layout = self._formats.pop(0)
        frame = AudioFrame(format="s16", layout=layout, samples=rate // 50)
        frame.planes[0].update(bytes(frame.planes[0].buffer_size))
        frame.sample_rate = rate
        return frame


OPUS, G711 = (48_000, "stereo"), (8_000, "mono")


def received_s(*formats: tuple[int, str]) -> float:
    """Seconds of audio that the listener receives of such a track while the clock stands still."""

    async def scenario() -> float:
        listener = RecordingListener()
        peer = WebRtcPeer(listener, WebRtcPeerPolicy(), now=lambda: 0.0)
        await peer._receive_audio(DecodedTrack(*formats))  # type: ignore[arg-type]
        await peer.aclose()
        return len(listener.pcm) / 2 / RECEIVED_SAMPLE_RATE

    return asyncio.run(scenario())


def test_audio_continues_after_a_codec_change() -> None:
    assert received_s(OPUS, G711, OPUS) == pytest.approx(0.06, abs=0.01)


def test_audio_more_than_five_seconds_ahead_of_real_time_is_dropped() -> None:
    assert received_s(*[OPUS] * 400) == pytest.approx(5.0, abs=0.1)


def test_messages_arrive_in_both_directions_also_those_sent_before_the_channel_opens() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        peer = await WebRtcPeer.answer(await browser.offer(), listener)
        peer.send_message("early")
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await browser.opened.wait()
        browser.channel.send("hello")
        browser.channel.send(b"\xff bytes are decoded as text")
        await until(lambda: len(listener.messages) == 2)
        peer.send_message("late")
        await until(lambda: browser.messages == ["early", "late"])
        assert listener.messages == ["hello", "\ufffd bytes are decoded as text"]
        await peer.aclose()
        await browser.close()

    run(scenario())


def test_the_browser_s_hangup_is_reported_once() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, listener):
            await browser.close()
            async with asyncio.timeout(TIMEOUT_S):
                await listener.closed.wait()
            await peer.aclose()
            peer.send_message("dropped")
        assert listener.reasons == ["the browser hung up"]

    run(scenario())


def test_closing_ends_the_connection_of_the_browser() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, listener):
            peer.close("done")
            peer.close("done again")
            await until(lambda: browser.connection.connectionState == "closed")
        assert listener.reasons == ["done"]

    run(scenario())


def test_a_silent_browser_is_closed_after_the_timeout() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        ahead_s = 0.0
        async with connected(now=lambda: loop.time() + ahead_s) as (browser, _, listener):
            await until(lambda: listener.pcm)
            for transceiver in browser.connection.getTransceivers():
                await transceiver.sender.stop()  # no more packets, as from a closed tab
                await transceiver.receiver.stop()
            await asyncio.sleep(0.2)
            ahead_s = 60.0
            async with asyncio.timeout(TIMEOUT_S):
                await listener.closed.wait()
        assert listener.reasons == ["no audio or message from the browser for 10 s"]

    run(scenario())


async def checked_again(peer: WebRtcPeer) -> None:
    """Wait until the browser has reported what it hears, and the peer has noticed."""
    before = peer.received_packets
    await until(lambda: peer.received_packets > before)
    received = peer.received_packets
    await until(lambda: peer.seen_packets >= received)


def test_a_browser_whose_microphone_sends_nothing_is_not_closed() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        ahead_s = 0.0
        async with connected(now=lambda: loop.time() + ahead_s) as (browser, peer, listener):
            await until(lambda: listener.pcm)
            for sender in browser.connection.getSenders():
                sender.replaceTrack(None)
            for _ in range(3):
                ahead_s += 6.0
                await checked_again(peer)
            assert not listener.reasons

    run(scenario())


def test_an_answered_offer_without_a_connection_is_closed_after_the_timeout() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        peer = await WebRtcPeer.answer(
            await browser.offer(), listener, WebRtcPeerPolicy(connect_timeout_s=0.05)
        )
        async with asyncio.timeout(TIMEOUT_S):
            await listener.closed.wait()
        await peer.aclose()
        assert listener.reasons == ["not connected within 0.05 s: no UDP path to the browser was found"]
        await browser.close()

    run(scenario())


def test_closing_before_a_transport_has_started_leaves_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        closed, start = asyncio.Event(), RTCIceTransport.start
        started: list[RTCIceTransport] = []

        async def start_late(transport: RTCIceTransport, parameters: RTCIceParameters) -> None:
            started.append(transport)
            await closed.wait()
            await start(transport, parameters)

        monkeypatch.setattr(RTCIceTransport, "start", start_late)
        browser = Browser()
        browser.connection.addTrack(AudioStreamTrack())
        browser.connection.createDataChannel("messages")
        peer = await WebRtcPeer.answer(await browser.offer(), RecordingListener())
        await until(lambda: started)
        await peer.aclose()
        closed.set()
        await until(lambda: not any("__connect" in repr(task) for task in asyncio.all_tasks()))
        gc.collect()
        assert errors == []
        await browser.close()

    run(scenario())


def test_a_page_that_does_not_read_its_messages_is_closed() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, listener):
            for number in range(1, 151):  # more than the limit, but read at once
                peer.send_message("x" * 10_000)
                await until(lambda number=number: len(browser.messages) == number)
            browser.connection.sctp._handle_data = ignore  # type: ignore[method-assign, union-attr]
            while not listener.closed.is_set():
                peer.send_message("x" * 10_000)
                await asyncio.sleep(0)
            assert listener.reasons == ["the page does not read its messages"]

    run(scenario())


async def ignore(*_: Any) -> None:
    pass


def test_a_browser_without_a_microphone_receives_speech() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTransceiver("audio", direction="recvonly")
        peer = await WebRtcPeer.answer(await browser.offer(), listener)
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await listener.connected.wait()
        await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
        await peer.aclose()
        await browser.close()

    run(scenario())


def test_video_is_declined_and_audio_is_connected() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        browser.connection.addTransceiver("video", direction="sendrecv")
        peer = await WebRtcPeer.answer(await browser.offer(), listener)
        video = peer.answer_sdp[peer.answer_sdp.index("m=video") :]
        assert "a=inactive" in video.partition("m=application")[0]
        await browser.accept(peer.answer_sdp)
        async with asyncio.timeout(TIMEOUT_S):
            await listener.connected.wait()
        await peer.aclose()
        await browser.close()

    run(scenario())


def without_candidates(sdp: str) -> tuple[str, list[str]]:
    lines = sdp.splitlines()
    candidates = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate:")]
    kept = [line for line in lines if not line.startswith(("a=candidate:", "a=end-of-candidates"))]
    return "\r\n".join(kept) + "\r\n", candidates


def test_trickled_candidates_are_accepted_up_to_the_limit() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        sdp, candidates = without_candidates(await browser.offer())
        peer = await WebRtcPeer.answer(sdp, listener)
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
            await listener.connected.wait()
        await peer.aclose()
        await peer.add_candidate(candidates[0], "0", 0)  # ignored after the end
        await browser.close()

    run(scenario())


@pytest.mark.parametrize(
    "candidate", ["candidate:1 x udp y 127.0.0.1 z typ host", "candidate:1 1 udp 1 127.0.0.1 port typ host"]
)
def test_an_unparsable_candidate_raises_invalid_offer_and_keeps_the_connection(candidate: str) -> None:
    async def scenario() -> None:
        async with connected() as (_, peer, listener):
            with pytest.raises(InvalidOffer, match="cannot be parsed"):
                await peer.add_candidate(candidate, "0", 0)
            assert not listener.closed.is_set()

    run(scenario())


def broken(sdp: str, kind: str) -> str:
    match kind:
        case "no ICE password":
            return "\r\n".join(line for line in sdp.splitlines() if not line.startswith("a=ice-pwd")) + "\r\n"
        case "no supported codec":
            return sdp.replace("opus", "wax").replace("G722", "horn").replace("PCM", "pipe")
        case "invalid number":
            return sdp.replace("a=rtpmap:96", "a=rtpmap:ninety-six")
        case _:
            return sdp[: sdp.index("m=audio") + 40] + "\r\n"


@pytest.mark.parametrize("kind", ["no ICE password", "no supported codec", "invalid number", "cut in a line"])
def test_an_unanswerable_offer_raises_invalid_offer_and_leaves_no_task(kind: str) -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        offer = await browser.offer()
        before = len(asyncio.all_tasks())
        with pytest.raises(InvalidOffer):
            await WebRtcPeer.answer(broken(offer, kind), listener)
        assert len(asyncio.all_tasks()) == before
        assert listener.reasons == []
        await browser.close()

    run(scenario())


def test_changed_offers_are_answered_or_refused_and_leave_no_task_and_no_file() -> None:
    async def scenario() -> None:
        errors: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        random, offers = Random(1), await browser_offers()
        before = ProcessFootprint.now()
        for _ in range(150):
            offer, further = (changed_offer(random.choice(offers), random) for _ in range(2))
            with suppress(InvalidOffer):
                peer = await WebRtcPeer.answer(offer, RecordingListener())
                try:
                    await peer.renegotiate(further)
                finally:
                    await peer.aclose()
        await until(lambda: ProcessFootprint.now().is_at_most(before))
        assert errors == []

    run(scenario())


def test_cancelling_an_answer_at_any_step_leaves_no_task_file_or_thread() -> None:
    async def scenario() -> None:
        browser, listener = Browser(), RecordingListener()
        browser.connection.addTrack(AudioStreamTrack())
        offer = await browser.offer()
        await asyncio.sleep(0.1)
        before = ProcessFootprint.now()
        for steps in range(25):
            answering = asyncio.create_task(WebRtcPeer.answer(offer, listener))
            for _ in range(steps):
                await asyncio.sleep(0)
            answering.cancel()
            await asyncio.wait({answering})
            if not answering.cancelled():
                await answering.result().aclose()
        await until(lambda: ProcessFootprint.now().is_at_most(before))  # aiortc's tasks end a little later
        await browser.close()

    run(scenario())


def test_a_browser_may_renegotiate_during_a_call() -> None:
    async def scenario() -> None:
        async with connected() as (browser, peer, listener):
            await peer.renegotiate(await browser.offer())
            await browser.accept(peer.answer_sdp)
            await speak_until(peer, lambda: max(browser.levels, default=0) > 6_000)
            with pytest.raises(InvalidOffer):
                await peer.renegotiate("v=0\r\n")
            assert not listener.closed.is_set()

    run(scenario())


# Leaks


async def one_call(number: int) -> None:
    async with connected() as (browser, peer, listener):
        await speak_until(peer, lambda: listener.pcm and browser.levels)
        if number % 2:
            await browser.close()
            async with asyncio.timeout(TIMEOUT_S):
                await listener.closed.wait()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads the resident memory from /proc")
def test_fifty_calls_leak_no_task_file_thread_or_memory() -> None:
    async def scenario() -> None:
        for number in range(10):
            await one_call(number)
        before = ProcessFootprint.now()
        for number in range(50):
            await one_call(number)
        await until(lambda: ProcessFootprint.now().is_at_most(before))
        assert (
            ProcessFootprint.now().resident_mb - before.resident_mb < 12
        )  # for 50 calls; aiortc grows by 0.05 MB a call at first

    run(scenario())
