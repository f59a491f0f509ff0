"""Browser calls of Pipecat's clients, which speak RTVI on the data channel."""

import pytest

from shared.browser.fake_browser import BrowserServer, FakeLanguageModel, FakePeer, with_model, with_server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_pipecat_client_is_served_in_rtvi() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="signalling", message={"type": "trackStatus", "receiver_index": 0, "enabled": True})
        rtvi = {"label": "rtvi-ai", "id": "7"}
        peer.send(**rtvi, type="client-ready", data={"version": "1.0.0", "about": {"library": "x"}})
        ready = await peer.until_received("bot-ready")
        assert (ready["label"], ready["id"], ready["data"]["version"]) == ("rtvi-ai", "7", "1.0.0")
        peer.send(**rtvi, type="send-text", data={"content": "Good morning. "})
        await peer.until_received("bot-stopped-speaking")
        words = [message["data"]["text"] for message in peer.of_type("bot-tts-text")]
        assert words == ["Good", "morning"]
        spoken = peer.received.index(peer.of_type("bot-started-speaking")[0])
        assert spoken < peer.received.index(peer.of_type("bot-tts-text")[0])
        peer.send(**rtvi, type="something-new", data=None)
        assert peer.of_type("error") == []
        peer.send(**rtvi, type="disconnect-bot")
        assert peer.closed == "the page hung up"

    with_server(scenario)


@pytest.mark.parametrize("length", [70_000, 600_000])
def test_too_long_a_text_of_a_pipecat_client_is_an_error_and_the_call_goes_on(length: int) -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        rtvi = {"label": "rtvi-ai", "id": "7"}
        peer.send(**rtvi, type="client-ready", data={"version": "1.0.0"})
        peer.send(**rtvi, type="send-text", data={"content": "x" * length})
        assert "are read" in peer.of_type("error")[0]["data"]["error"]
        peer.send(**rtvi, type="send-text", data={"content": "Still here. "})
        await peer.until_received("bot-stopped-speaking")

    with_server(scenario)


def test_half_a_surrogate_pair_of_a_pipecat_client_is_an_error_and_the_call_goes_on() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(label="rtvi-ai", id="\ud83d", type="client-ready", data={"version": "1.0.0"})
        assert (await peer.until_received("bot-ready"))["id"] == "\ud83d"
        rtvi = {"label": "rtvi-ai", "id": "7"}
        peer.send(**rtvi, type="send-text", data={"content": "A smile \ud83d"})
        assert "unicode" in peer.of_type("error")[0]["data"]["error"]
        peer.send(**rtvi, type="send-text", data={"content": "Still here. "})
        await peer.until_received("bot-stopped-speaking")

    with_server(scenario)


def test_a_pipecat_client_gets_the_events_from_before_it_was_ready() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="signalling", message={"type": "trackStatus", "receiver_index": 0, "enabled": True})
        await peer.until_received("word")
        peer.send(label="rtvi-ai", id="7", type="client-ready", data={"version": "1.0.0"})
        await peer.until_received("bot-stopped-speaking")
        received = [
            m["type"] for m in peer.received if m.get("label") == "rtvi-ai" and m["type"] != "bot-output"
        ]
        started = ["bot-ready", "bot-started-speaking", "bot-tts-started"]
        assert received == [
            *started,
            "bot-tts-text",
            "bot-tts-text",
            "bot-tts-stopped",
            "bot-stopped-speaking",
        ]

    with_server(scenario, greeting="Good day.")


def test_text_of_a_pipecat_client_is_a_question_if_there_is_a_model() -> None:
    model = FakeLanguageModel(["Yes. "])

    async def scenario(peer: FakePeer) -> None:
        peer.send(label="rtvi-ai", id="1", type="send-text", data={"content": "Are you there?"})
        await peer.until_received("bot-tts-text")

    with_model(model, scenario)
    assert model.asked[0][-1] == {"role": "user", "content": "Are you there?"}
