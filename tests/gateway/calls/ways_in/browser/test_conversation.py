"""Browser calls with a language model."""

from pathlib import Path

import pytest

from shared.browser.fake_browser import (
    BrowserServer,
    FakeLanguageModel,
    FakePeer,
    limited_key,
    with_model,
    with_server,
)
from vivavoce.gateway.calls.agents.kinds.script import ScriptAgent, ScriptPolicy
from vivavoce.gateway.calls.ways_in.browser import chat as browser_chat
from vivavoce.gateway.calls.ways_in.browser.chat import ChatSettings


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


SCRIPT = ScriptAgent(
    "Good day to you.\n\nOne two three four five six seven eight.\n\nThe end.", ScriptPolicy(200, 0.05)
)


def test_an_answer_is_spoken_token_by_token_and_enters_the_history_with_its_question() -> None:
    model = FakeLanguageModel(["It ", "is ", "noon. "], ["Yes. "])

    async def scenario(peer: FakePeer) -> None:
        peer.send(type="ask", text="What time is it?")
        await peer.until_received("speech_finished")
        peer.send(type="ask", text="Sure?")
        await peer.until_received("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("utterance")] == ["It ", "is ", "noon. ", "Yes. "]

    with_model(model, scenario)
    assert [(m["role"], m["content"]) for m in model.asked[1][1:]] == [
        ("user", "What time is it?"),
        ("assistant", "It is noon."),
        ("user", "Sure?"),
    ]
    assert b"authorization: bearer secret" in model.headers[0].lower()


def test_after_an_interruption_the_history_holds_the_text_heard() -> None:
    model = FakeLanguageModel(["One two three four five six seven eight nine ten. "], ["Fine. "])

    async def scenario(peer: FakePeer) -> None:
        peer.send(type="ask", text="Count.")
        await peer.until_received("word", 3)
        peer.send(type="ask", text="Stop.")
        await peer.until_received("speech_started", 2)

    with_model(model, scenario)
    assert [m["content"] for m in model.asked[1][1:]] == ["Count.", "One two three", "Stop."]


def test_the_greeting_is_in_the_history_and_typed_text_is_not() -> None:
    model = FakeLanguageModel(["Well. "])

    async def scenario(peer: FakePeer) -> None:
        await peer.until_received("speech_finished")
        peer.send(type="text", text="Spoken as written. ")
        peer.send(type="end")
        await peer.until_received("speech_finished", 2)
        peer.send(type="ask", text="How are you?")
        await peer.until_received("speech_finished", 3)

    with_model(model, scenario, greeting="Hello.")
    assert [m["content"] for m in model.asked[0][1:]] == ["Hello.", "How are you?"]


def test_a_question_interrupts_an_agent_whose_heard_text_is_in_the_history() -> None:
    model = FakeLanguageModel(["Sure. "])

    async def scenario(peer: FakePeer) -> None:
        await peer.until_received("word", 6)
        peer.send(type="ask", text="Slower?")
        await peer.until_received("speech_finished", 3)
        assert [m["text"] for m in peer.of_type("word")][4:] == ["One", "two", "Sure", "The", "end"]

    with_model(model, scenario, agent=SCRIPT)
    assert [m["content"] for m in model.asked[0][1:]] == ["Good day to you.", "One two", "Slower?"]


def test_an_answer_stops_at_the_end_of_the_key_s_quota(
    tmp_path: Path,
) -> None:
    model = FakeLanguageModel(["One ", "two. ", *["and so on "] * 1_000], ["Three."], pause_s=0.001)

    async def scenario(peer: FakePeer) -> None:
        peer.send(type="ask", text="How is that? The question itself is not spoken and not charged.")
        await peer.until_received("speech_finished")
        assert [m["text"] for m in peer.of_type("utterance")] == ["One ", "two. "]
        (error,) = peer.of_type("error")
        assert "allowed 18 characters a minute" in error["message"]
        await model.disconnected.wait()
        peer.send(type="ask", text="And now?")
        await peer.until_received("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Three"]

    with_model(model, scenario, **limited_key(tmp_path, 18))


def test_a_model_s_refusal_is_an_error_without_the_key() -> None:
    model = FakeLanguageModel(status="401 Unauthorized")

    async def scenario(peer: FakePeer) -> None:
        peer.send(type="ask", text="Hello?")
        error = await peer.until_received("error")
        assert error["message"] == "the language model's server answered 401"

    with_model(model, scenario)
    assert "secret" not in repr(ChatSettings(base_url="", model="", api_key="secret"))


def test_an_unreachable_model_is_an_error_and_the_call_goes_on() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="ask", text="Hello?")
        assert "failed" in (await peer.until_received("error"))["message"]
        peer.send(type="text", text="Still here. ")
        peer.send(type="end")
        await peer.until_received("speech_finished")

    with_server(scenario, chat=ChatSettings(base_url="http://127.0.0.1:1/v1", model="m"))


def test_an_invalid_model_url_is_an_error_and_the_call_goes_on() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="ask", text="Hello?")
        assert "failed" in (await peer.until_received("error"))["message"]
        assert peer.closed is None

    with_server(scenario, chat=ChatSettings(base_url="http://[::1/v1", model="m"))


def test_a_fault_in_the_conversation_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("no words")

    monkeypatch.setattr(browser_chat, "stream_answer", broken)

    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="ask", text="Hello?")
        await peer.until(lambda: peer.closed)
        assert peer.closed == "internal error"

    with_server(scenario, chat=ChatSettings(base_url="http://127.0.0.1:1/v1", model="m"))


def test_a_hang_up_in_mid_answer_disconnects_from_the_model() -> None:
    model = FakeLanguageModel(["word "] * 1_000, pause_s=0.01)

    async def scenario(peer: FakePeer) -> None:
        peer.send(type="ask", text="Talk.")
        await peer.until_received("utterance", 3)
        peer.send(type="hang_up")
        await model.disconnected.wait()

    with_model(model, scenario)
