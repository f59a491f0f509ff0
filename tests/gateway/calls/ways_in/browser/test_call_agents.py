"""Browser calls with a fake peer: agents, attached programs, and character quotas."""

import asyncio
from pathlib import Path

from shared.browser.fake_browser import (
    BrowserServer,
    FakeSpeechDetector,
    limited_key,
    with_server,
)
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.agents.kinds.script import ScriptAgent, ScriptPolicy, SilentAgent
from vivavoce.gateway.calls.call import Call

SCRIPT = ScriptAgent(
    "Good day to you.\n\nOne two three four five six seven eight.\n\nThe end.", ScriptPolicy(200, 0.05)
)


def test_an_agent_s_text_and_words_are_reported_like_those_of_the_page() -> None:
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


def test_a_script_continues_after_an_interruption_and_typed_text_follows_it() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        await peer.until_received("word", 6)
        peer.send(type="discard")
        assert peer.of_type("discarded")[0]["heard"] == "One two"
        await peer.until_received("speech_finished", 2)
        assert peer.closed is None  # the script has ended, and the call continues for typed text
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


def test_digits_of_the_page_reach_the_agent_and_pound_ends_the_call() -> None:
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


def test_an_attached_program_and_the_page_both_speak() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        active_call = await server.calls.registry.next_unattached()
        with server.calls.registry.attach(active_call):
            peer.send(type="text", text="Page. ")
            peer.send(type="end")
            await peer.until_received("speech_started")
            await active_call.call.speech.speak("Program.")
            await peer.until_received("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["Page", "Program"]
        assert [m["text"] for m in peer.of_type("utterance")] == ["Page. ", "Program."]

    with_server(scenario)


def test_with_a_silent_agent_a_program_s_utterance_is_reported_to_the_page() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        (active_call,) = server.calls.registry
        await active_call.call.speech.speak("Program.")
        await peer.until_received("speech_finished")
        assert [m["text"] for m in peer.of_type("utterance")] == ["Program."]

    with_server(scenario, agent=SilentAgent(), greeting="Never spoken.")


def test_a_fault_of_an_agent_ends_its_call_only() -> None:
    class Broken:
        async def run(self, call: Call) -> None:
            await call.listening.next_key()
            raise ArithmeticError("a fault of the agent")

    async def scenario(server: BrowserServer) -> None:
        broken, other = await server.call(), await server.call()
        broken.send(type="dtmf", digit="1")
        await broken.until(lambda: broken.closed)
        assert (broken.closed, other.closed) == ("internal error", None)

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
        peer.send(type="text", text="beyond twenty now")
        (error,) = peer.of_type("error")
        assert "allowed 20 characters a minute" in error["message"]
        assert 0 < error["retry_after_s"] <= 60
        peer.send(type="text", text="hole")  # within the quota, but the text before it was not
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
