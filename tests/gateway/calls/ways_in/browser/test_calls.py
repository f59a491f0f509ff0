"""Browser calls with a fake peer: messages, speech, interruptions and faults."""

import asyncio
from collections.abc import Awaitable

import numpy as np
import pytest

from shared.browser.fake_browser import (
    OFFER,
    BrowserServer,
    FakeSpeechDetector,
    with_server,
)
from shared.event_loop import until
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.adapters.webrtc import peer
from vivavoce.gateway.calls.api import utterance_queue
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.calls.call_options import CallSpeechOptions
from vivavoce.gateway.calls.ways_in.browser import leg


def test_the_page_gets_the_voices_and_the_call_is_listed() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        (started,) = peer.of_type("started")
        assert [voice["id"] for voice in started["voices"]] == ["tone-440", "tone-660"]
        assert (started["voice"], started["speed"], started["answers"]) == ("tone-660", 1.25, False)
        (active_call,) = server.calls.registry
        assert (active_call.kind, active_call.call.call_id, started["call"]) == (
            "webrtc",
            started["call"],
            active_call.call.call_id,
        )

    with_server(scenario, speech=CallSpeechOptions(voice="tone-660", speed=1.25))


def test_the_greeting_is_reported_as_text_then_word_by_word_then_as_finished() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("speech_finished")
        kinds = [message["type"] for message in peer.received if message["type"] != "stats"]
        assert kinds == ["started", "utterance", "speech_started", "word", "word", "speech_finished"]
        text = peer.of_type("utterance")[0]["text"]
        assert [text[w["text_start"] : w["text_stop"]] for w in peer.of_type("word")] == ["Good", "day"]
        assert peer.of_type("speech_started")[0]["turn"] == 0

    with_server(scenario, greeting="Good day.")


def test_packets_are_sent_in_real_time_as_silence_or_speech() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until(lambda: len(peer.packets) >= 5)
        assert not peer.is_audible()
        peer.send(type="text", text="Tone. ")
        peer.send(type="end")
        await peer.until(peer.is_audible)
        assert {len(packet) for packet in peer.packets} == {960}

    with_server(scenario)


def test_text_sent_in_parts_is_one_turn_and_the_next_turn_waits_for_it() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for part in ("Hel", "lo wor", "ld. "):
            peer.send(type="text", text=part)
        peer.send(type="end")
        peer.send(type="text", text="Again. ")
        peer.send(type="end")
        await peer.until_received("speech_finished", 2)
        assert [m["turn"] for m in peer.of_type("utterance")] == [0, 0, 0, 1]
        assert [m["turn"] for m in peer.of_type("speech_started")] == [0, 1]
        assert [m["text"] for m in peer.of_type("word")] == ["Hello", "world", "Again"]

    with_server(scenario)


def test_flush_speaks_the_text_so_far() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="This sentence has no end yet")
        peer.send(type="flush")
        await peer.until_received("word")

    with_server(scenario)


def test_a_discard_reports_the_text_heard_and_drops_the_rest_and_waiting_turns() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for text in ("One two three four five six seven eight. ", "Never spoken. "):
            peer.send(type="text", text=text)
            peer.send(type="end")
        await peer.until_received("word", 2)
        peer.send(type="discard")
        (discarded,) = peer.of_type("discarded")
        assert discarded["heard"] == "One two"
        assert discarded["cut_ms"] > 0
        peer.send(type="text", text="Again. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Again"]

    with_server(scenario)


def test_a_discard_is_answered_when_nothing_is_playing() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="discard")
        answer = await peer.until_received("discarded")
        assert answer == {
            "type": "discarded",
            "utterance": None,
            "cut_ms": 0.0,
            "heard": "",
            "marks": [],
            "heard_s": 0.0,
        }

    with_server(scenario)


def test_text_after_a_discard_within_a_turn_begins_a_new_turn() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="One two three four. And so")
        await peer.until_received("word")
        peer.send(type="discard")
        peer.send(type="text", text="New. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        assert peer.of_type("word")[-1]["text"] == "New"

    with_server(scenario)


def test_voice_and_speed_apply_to_the_next_turn() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="speech", voice="tone-660", speed=1.0)
        peer.send(type="text", text="Higher. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        samples = np.frombuffer(b"".join(peer.packets), "<i2").astype(float)
        spectrum = np.abs(np.fft.rfft(samples[np.flatnonzero(samples)[0] :][:4_800]))
        assert np.argmax(spectrum) * 5 == 660

    with_server(scenario)


@pytest.mark.parametrize(
    ("message", "error_text"),
    [
        ("hello", "JSON"),
        ("[]", "object"),
        ("{}", "type"),
        ('{"type": "dance"}', "dance"),
        ('{"type": "text"}', "text"),
        ('{"type": "text", "text": 5}', "text"),
        ('{"type": "text", "text": "' + "x" * 70_000 + '"}', "65536"),
        ('{"type": "text", "text": "' + "x" * 600_000 + '"}', "600"),
        ('{"type": "speech", "speed": 9}', "speed"),
        ('{"type": "speech", "voice": "unknown"}', "'unknown'"),
        ('{"type": "ask", "text": "Why?"}', "no language model"),
        ('{"type": "end", "more": 1}', "more"),
        ("[" * 20_000, "JSON"),
        ("[" * 100_000, "25000 values"),
    ],
)
def test_an_invalid_message_is_answered_with_an_error_and_the_call_continues(
    message: str, error_text: str
) -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.leg.on_message(message)
        (error,) = peer.of_type("error")
        assert error_text in error["message"]
        peer.send(type="text", text="Still here. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")

    with_server(scenario)


def test_keepalives_are_ignored() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.leg.on_message("ping")
        peer.leg.on_message("ping: 1763723000")
        assert peer.of_type("error") == []

    with_server(scenario)


def test_text_beyond_the_limits_is_refused() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for _ in range(6):
            peer.send(type="text", text="x" * 60_000)
        assert "262144 characters" in peer.of_type("error")[0]["message"]
        for _ in range(1_001):
            peer.send(type="end")
            peer.send(type="text", text="Hm. ")
        assert "1000 utterances" in peer.of_type("error")[-1]["message"]

    with_server(scenario)


def test_flushes_count_towards_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utterance_queue, "MAX_WAITING_CHARACTERS", 1_000)

    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for _ in range(1_001):
            peer.send(type="flush")
        assert "1000 characters" in peer.of_type("error")[0]["message"]

    with_server(scenario)


def test_the_leg_expects_the_sample_rate_that_the_peer_decodes_to() -> None:
    assert leg._CALLER_SAMPLE_RATE == peer.RECEIVED_SAMPLE_RATE


def test_hang_up_ends_speech_packets_and_the_call() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="This is the end of it. ")
        await peer.until_received("speech_started")
        peer.send(type="hang_up")
        assert peer.closed == "the page hung up"
        assert peer.received[-1]["type"] != "word"
        assert list(server.calls.registry) == []
        engine = server.calls.services.engine
        await until(lambda: engine.active_streams == 0)  # until the running step ends
        packets = len(peer.packets)
        await asyncio.sleep(0.05)
        assert len(peer.packets) == packets

    with_server(scenario)


def test_a_fault_in_a_call_s_tick_ends_that_call_only() -> None:
    async def scenario(server: BrowserServer) -> None:
        broken, other = await server.call(), await server.call()
        broken.leg._media._send = None
        await until(lambda: broken.closed)
        assert broken.closed == "internal error"
        other.send(type="text", text="Not affected. ")
        other.send(type="end")
        await other.until_received("speech_finished")

    with_server(scenario)


class BrokenSpeechDetector:
    """Raises in its constructor, or in ``push``."""

    def __init__(self, *, fails_in_push: bool) -> None:
        if not fails_in_push:
            raise ArithmeticError("no detector")

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        raise ArithmeticError("no decision")


@pytest.mark.parametrize("fails_in_push", [False, True], ids=["on_connected", "on_audio"])
def test_a_fault_in_a_callback_of_the_peer_ends_its_call_only(fails_in_push: bool) -> None:
    async def scenario(server: BrowserServer) -> None:
        await server.client.post("/api/offer", json=OFFER)
        (peer,) = server.peers
        peer.leg.on_connected()
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(b"\1\1" * 320)  # received before the connection is closed
        assert peer.closed == "internal error"
        assert len(server.calls.registry) == 0
        assert not any(server.clock._phases)

    with_server(scenario, make_speech_detector=lambda: BrokenSpeechDetector(fails_in_push=fails_in_push))


def test_the_agent_is_not_run_for_a_browser_that_disconnects_at_once() -> None:
    run_calls: list[Call] = []

    class RecordingAgent:
        def run(self, call: Call) -> Awaitable[None]:
            run_calls.append(call)
            return asyncio.sleep(0)

    async def scenario(server: BrowserServer) -> None:
        await server.client.post("/api/offer", json=OFFER)
        (peer,) = server.peers
        peer.leg.on_connected()
        peer.close("gone")
        await server.calls.wait_idle()
        assert run_calls == []

    with_server(scenario, agent=RecordingAgent())


def test_fifty_calls_leak_no_stream_leg_or_phase() -> None:
    async def scenario(server: BrowserServer) -> None:
        for _ in range(50):
            peer = await server.call()
            peer.send(type="text", text="Hello. ")
            peer.close("gone")
        await until(lambda: server.calls.services.engine.active_streams == 0)
        registry = server.calls.services.engine.metrics.registry
        assert registry.get_sample_value("vivavoce_active_calls") == 0
        assert len(server.calls.registry) == 0
        assert not any(server.clock._phases)

    with_server(scenario)


def test_the_caller_s_speech_interrupts_if_on_speech_is_discard() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="on_speech", action="discard")
        peer.send(type="text", text="One two three four five six seven. ")
        peer.send(type="end")
        peer.send(type="text", text="Never spoken. ")
        peer.send(type="end")
        await peer.until_received("word")
        peer.leg.on_audio(b"\1\1" * 320)
        assert len(peer.of_type("discarded")) == 1
        assert len(peer.of_type("caller_speaking")) == 1
        words = len(peer.of_type("word"))
        await asyncio.sleep(0.3)
        assert len(peer.of_type("word")) == words

    with_server(scenario, make_speech_detector=FakeSpeechDetector)


def test_text_of_a_turn_interrupted_by_the_caller_is_refused_up_to_its_end() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="One two three four five six seven. And so")
        await peer.until_received("word")
        peer.leg.on_audio(b"\1\1" * 320)
        assert len(peer.of_type("discarded")) == 1
        for text in ("on, ", "and so forth."):
            peer.send(type="text", text=text)
        peer.send(type="end")
        peer.send(type="text", text="Again. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        (error,) = peer.of_type("error")
        assert "interrupted" in error["message"]
        assert peer.of_type("word")[-1]["text"] == "Again"

    with_server(scenario, make_speech_detector=FakeSpeechDetector)


def test_the_caller_s_speech_is_reported_if_on_speech_is_tell() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="on_speech", action="tell")
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(bytes(640))
        assert len(peer.of_type("caller_speaking")) == len(peer.of_type("caller_silent")) == 1
        assert peer.of_type("discarded") == []

    with_server(scenario, make_speech_detector=FakeSpeechDetector)
