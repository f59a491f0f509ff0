"""Browser calls with a fake peer: messages, speech, interruptions, agents, quotas."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import numpy as np
import pytest

from shared.event_loop import until
from shared.fake_browser import (
    OFFER,
    BrowserServer,
    FakeSpeechDetector,
    limited_key,
    with_server,
)
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.adapters.webrtc import peer
from vivavoce.gateway.browser import leg
from vivavoce.gateway.calls import utterance_queue
from vivavoce.gateway.calls.agents import KeysAgent, ScriptAgent, ScriptPolicy, SilentAgent
from vivavoce.gateway.calls.call import Call, CallSpeechOptions


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


def test_the_greeting_is_written_then_heard_word_by_word_then_finished() -> None:
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


def test_text_in_pieces_is_one_turn_and_the_next_turn_waits_for_it() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for piece in ("Hel", "lo wor", "ld. "):
            peer.send(type="text", text=piece)
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


def test_a_discard_reports_the_text_heard_and_drops_the_rest_and_what_waits() -> None:
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
        peer.send(type="text", text="Anew. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Anew"]

    with_server(scenario)


def test_a_discard_is_answered_when_nothing_is_playing() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="discard")
        assert peer.of_type("discarded") == [
            {"type": "discarded", "utterance": None, "cut_ms": 0.0, "heard": ""}
        ]

    with_server(scenario)


def test_after_a_discard_in_mid_turn_text_begins_a_new_turn() -> None:
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
        heard = np.frombuffer(b"".join(peer.packets), "<i2").astype(float)
        spectrum = np.abs(np.fft.rfft(heard[np.flatnonzero(heard)[0] :][:4_800]))
        assert np.argmax(spectrum) * 5 == 660

    with_server(scenario)


@pytest.mark.parametrize(
    ("message", "named"),
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
        ("[" * 100_000, "JSON"),
    ],
)
def test_an_invalid_message_is_answered_with_an_error_and_the_call_goes_on(message: str, named: str) -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.leg.on_message(message)
        (error,) = peer.of_type("error")
        assert named in error["message"]
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


@pytest.mark.parametrize("nothing", [{"type": "flush"}, {"type": "text", "text": ""}], ids=["flush", "text"])
def test_messages_without_text_count_towards_the_limit_too(
    nothing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utterance_queue, "MAX_WAITING_CHARACTERS", 1_000)

    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        for _ in range(1_001):
            peer.send(**nothing)
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
        await until(lambda: engine.active_streams == 0)  # a step under way comes to its end
        packets = len(peer.packets)
        await asyncio.sleep(0.05)
        assert len(peer.packets) == packets

    with_server(scenario)


def test_a_fault_in_one_call_s_tick_ends_that_call_alone() -> None:
    async def scenario(server: BrowserServer) -> None:
        broken, other = await server.call(), await server.call()
        server.calls.registry.get(broken.leg.call_id).call._send = None  # type: ignore[assignment]
        await until(lambda: broken.closed)
        assert broken.closed == "an error of ours"
        other.send(type="text", text="Unharmed. ")
        other.send(type="end")
        await other.until_received("speech_finished")

    with_server(scenario)


class BrokenSpeechDetector:
    """Raises in its constructor, or in ``push``."""

    def __init__(self, *, late: bool) -> None:
        if not late:
            raise ArithmeticError("no detector")

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        raise ArithmeticError("no decision")


@pytest.mark.parametrize("late", [False, True], ids=["on_connected", "on_audio"])
def test_a_fault_in_a_callback_of_the_peer_ends_its_call_alone(late: bool) -> None:
    async def scenario(server: BrowserServer) -> None:
        await server.client.post("/api/offer", json=OFFER)
        (peer,) = server.peers
        peer.leg.on_connected()
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(b"\1\1" * 320)  # received before the connection is closed
        assert peer.closed == "an error of ours"
        assert len(server.calls.registry) == 0
        assert not any(server.calls.services.clock._phases)

    with_server(scenario, make_speech_detector=lambda: BrokenSpeechDetector(late=late))


def test_the_agent_is_not_run_for_a_browser_that_disconnects_at_once() -> None:
    begun: list[Call] = []

    class Begun:
        def run(self, call: Call) -> Awaitable[None]:
            begun.append(call)
            return asyncio.sleep(0)

    async def scenario(server: BrowserServer) -> None:
        await server.client.post("/api/offer", json=OFFER)
        (peer,) = server.peers
        peer.leg.on_connected()
        peer.close("gone")
        await server.calls.wait_idle()
        assert begun == []

    with_server(scenario, agent=Begun())


def test_fifty_calls_leave_no_stream_no_leg_and_no_phase() -> None:
    async def scenario(server: BrowserServer) -> None:
        for _ in range(50):
            peer = await server.call()
            peer.send(type="text", text="Hello. ")
            peer.close("gone")
        await until(lambda: server.calls.services.engine.active_streams == 0)
        registry = server.calls.services.engine.metrics.registry
        assert registry.get_sample_value("vivavoce_active_calls") == 0
        assert len(server.calls.registry) == 0
        assert not any(server.calls.services.clock._phases)

    with_server(scenario)


def test_a_caller_who_speaks_interrupts_if_on_speech_is_discard() -> None:
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
        heard = len(peer.of_type("word"))
        await asyncio.sleep(0.3)
        assert len(peer.of_type("word")) == heard

    with_server(scenario, make_speech_detector=FakeSpeechDetector)


def test_text_of_a_turn_that_the_caller_interrupted_is_refused_up_to_its_end() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="One two three four five six seven. And so")
        await peer.until_received("word")
        peer.leg.on_audio(b"\1\1" * 320)
        assert len(peer.of_type("discarded")) == 1
        for text in ("on, ", "and so forth."):
            peer.send(type="text", text=text)
        peer.send(type="end")
        peer.send(type="text", text="Anew. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")
        (error,) = peer.of_type("error")
        assert "interrupted" in error["message"]
        assert peer.of_type("word")[-1]["text"] == "Anew"

    with_server(scenario, make_speech_detector=FakeSpeechDetector)


def test_a_caller_who_speaks_is_reported_if_on_speech_is_tell() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="on_speech", action="tell")
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(bytes(640))
        assert len(peer.of_type("caller_speaking")) == len(peer.of_type("caller_silent")) == 1
        assert peer.of_type("discarded") == []

    with_server(scenario, make_speech_detector=FakeSpeechDetector)


SCRIPT = ScriptAgent(
    "Good day to you.\n\nOne two three four five six seven eight.\n\nThe end.", ScriptPolicy(200, 0.05)
)


def test_an_agent_s_text_and_words_are_reported_like_the_page_s_own() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("speech_finished", 3)
        texts: dict[int, str] = {}
        for received in peer.of_type("utterance"):
            texts[received["turn"]] = texts.get(received["turn"], "") + received["text"]
        assert list(texts.values()) == [
            "Good day to you.",
            "One two three four five six seven eight.",
            "The end.",
        ]
        started = {received["utterance"]: received["turn"] for received in peer.of_type("speech_started")}
        words = peer.of_type("word")
        assert [w["text"] for w in words] == " ".join(texts.values()).replace(".", "").split()
        assert all(
            texts[started[w["utterance"]]][w["text_start"] : w["text_stop"]] == w["text"] for w in words
        )

    with_server(scenario, agent=SCRIPT, greeting="Never spoken.")


def test_after_an_interruption_the_script_goes_on_and_typed_text_is_spoken_after_it() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("word", 6)
        peer.send(type="discard")
        assert peer.of_type("discarded")[0]["heard"] == "One two"
        await peer.until_received("speech_finished", 2)
        assert peer.closed is None  # the script has ended; the call stays up for typed text
        peer.send(type="text", text="Typed. ")
        peer.send(type="end")
        await peer.until_received("speech_finished", 3)
        assert [m["text"] for m in peer.of_type("word")][-3:] == ["The", "end", "Typed"]

    with_server(scenario, agent=SCRIPT)


def test_a_script_waits_while_the_caller_speaks() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("word", 6)
        peer.leg.on_audio(b"\1\1" * 320)
        await asyncio.sleep(0.3)
        assert len(peer.of_type("speech_started")) == 2
        peer.leg.on_audio(bytes(640))
        await peer.until_received("speech_started", 3)

    with_server(scenario, agent=SCRIPT, make_speech_detector=FakeSpeechDetector)


def test_keys_of_the_page_reach_the_agent_and_pound_ends_the_call() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("word")
        peer.send(type="dtmf", digit="1")
        await peer.until_received("speech_started", 2)
        peer.send(type="dtmf", digit="11")
        assert "digit" in (await peer.until_received("error"))["message"]
        peer.send(type="dtmf", digit="#")
        await peer.until(lambda: peer.closed)
        assert "".join(m["text"] for m in peer.of_type("utterance")).endswith("You pressed pound. Goodbye.")

    with_server(scenario, agent=KeysAgent())


def test_a_program_attaches_beside_the_page_and_both_speak() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        active_call = await server.calls.registry.next_unattached()
        with server.calls.registry.attach(active_call):
            peer.send(type="text", text="Page. ")
            peer.send(type="end")
            await peer.until_received("speech_started")
            await active_call.call.speak("Program.")
            await peer.until_received("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["Page", "Program"]
        assert [m["text"] for m in peer.of_type("utterance")] == ["Page. ", "Program."]

    with_server(scenario)


def test_with_a_silent_agent_a_program_s_utterance_is_reported_to_the_page() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        (active_call,) = server.calls.registry
        await active_call.call.speak("Held.")
        await peer.until_received("speech_finished")
        assert [m["text"] for m in peer.of_type("utterance")] == ["Held."]

    with_server(scenario, agent=SilentAgent(), greeting="Never spoken.")


def test_a_fault_of_an_agent_ends_its_call_alone() -> None:
    class Broken:
        async def run(self, call: Call) -> None:
            await call.next_key()
            raise ArithmeticError("the agent's own")

    async def scenario(server: BrowserServer) -> None:
        broken, other = await server.call(), await server.call()
        broken.send(type="dtmf", digit="1")
        await broken.until(lambda: broken.closed)
        assert (broken.closed, other.closed) == ("an error of ours", None)

    with_server(scenario, agent=Broken())


def test_text_within_a_key_s_quota_is_spoken_to_the_last_character(tmp_path: Path) -> None:
    text = "One two three."

    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text=text)
        peer.send(type="end")
        await peer.until_received("speech_finished", 2)  # the greeting is not charged
        assert peer.of_type("error") == []

    with_server(scenario, greeting="Hello, and welcome to all of you.", **limited_key(tmp_path, len(text)))


def test_text_beyond_a_key_s_quota_is_refused_up_to_the_end_of_its_turn(tmp_path: Path) -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="One two. ")
        peer.send(type="text", text="far too much for a key of twenty characters")
        (error,) = peer.of_type("error")
        assert "allowed 20 characters a minute" in error["message"]
        assert 0 < error["retry_after_s"] <= 60
        peer.send(type="text", text="hole")  # within the quota, but the piece before it was not
        peer.send(type="end")
        await peer.until_received("speech_finished")
        peer.send(type="text", text="Three.")
        peer.send(type="end")
        await peer.until_received("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Three"]
        assert [m["text"] for m in peer.of_type("utterance")] == ["One two. ", "Three."]
        assert peer.of_type("error") == [error]

    with_server(scenario, **limited_key(tmp_path, 20))


def test_a_pipecat_client_gets_an_rtvi_error_for_text_beyond_the_quota(tmp_path: Path) -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(label="rtvi-ai", type="send-text", id="1", data={"content": "This is too long to be said."})
        await peer.until(lambda: [m for m in peer.of_type("error") if "label" in m])
        assert "characters a minute" in peer.of_type("error")[-1]["data"]["error"]
        assert peer.closed is None

    with_server(scenario, **limited_key(tmp_path, 20))
