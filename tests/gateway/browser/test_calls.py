"""Calls from browsers over their HTTP routes, with a browser that is written down instead of connected."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shared.event_loop import until
from shared.standin_backend import StandInBackend
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.browser import chat as browser_chat
from vivavoce.gateway.browser import routes as browser_routes
from vivavoce.gateway.browser.calls import BrowserCalls
from vivavoce.gateway.browser.chat import ChatSettings
from vivavoce.gateway.browser.leg import BrowserLeg
from vivavoce.gateway.browser.routes import PAGE_DIRECTORY, routes
from vivavoce.gateway.browser.settings import BrowserCallSettings
from vivavoce.gateway.calls import utterance_queue
from vivavoce.gateway.calls.agents import Agent, KeysAgent, ScriptAgent, ScriptPolicy, SilentAgent
from vivavoce.gateway.calls.call import Call, CallSpeechOptions
from vivavoce.gateway.calls.clock import Clock
from vivavoce.gateway.calls.registry import CallRegistry
from vivavoce.gateway.voice_registry import VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.tts_engine.engine import Engine

TIMEOUT_S = 30.0
OFFER = {"type": "offer", "sdp": "v=0"}


class FakePeer:
    """A browser that takes everything and says nothing by itself."""

    def __init__(self, leg: BrowserLeg) -> None:
        self.leg = leg
        self.answer_sdp = "v=0 answer"
        self.dropped = 0
        self.packets: list[bytes] = []
        self.told: list[dict[str, Any]] = []
        self.offers: list[str] = []
        self.candidates: list[tuple[str, str | None, int | None]] = []
        self.closed: str | None = None
        self._changed = asyncio.Event()

    async def renegotiate(self, offer_sdp: str) -> None:
        self.offers.append(offer_sdp)

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        self.candidates.append((candidate, mid, line))

    def feed(self, packet: bytes) -> None:
        self.packets.append(packet)
        self._changed.set()

    def discard(self) -> None:
        pass

    def send_message(self, message: str) -> None:
        self.told.append(json.loads(message))
        self._changed.set()

    def close(self, reason: str) -> None:
        if self.closed is None:
            self.closed = reason
            self.leg.on_closed(reason)

    async def aclose(self) -> None:
        self.close("closed here")

    # What a test does with it

    def say(self, **message: Any) -> None:
        self.leg.on_message(json.dumps(message, separators=(",", ":")))

    def of_type(self, *kinds: str) -> list[dict[str, Any]]:
        return [message for message in self.told if message.get("type") in kinds]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def until_told(self, kind: str, count: int = 1) -> dict[str, Any]:
        await self.until(lambda: len(self.of_type(kind)) >= count)
        return self.of_type(kind)[count - 1]

    def sounds(self) -> bool:
        return any(np.frombuffer(packet, "<i2").any() for packet in self.packets[-3:])


class House:
    """Browser calls with fake browsers, and a client for their routes."""

    def __init__(self, calls: BrowserCalls, client: httpx.AsyncClient, peers: list[FakePeer]) -> None:
        self.calls = calls
        self.client = client
        self.peers = peers

    async def call(self) -> FakePeer:
        answer = await self.client.post("/api/offer", json=OFFER)
        assert answer.status_code == 200, answer.text
        peer = self.peers[-1]
        peer.leg.on_connected()
        await peer.until_told("started")
        return peer


@asynccontextmanager
async def house(
    *,
    make_ear: Any = None,
    real: bool = False,
    max_calls: int = 100,
    agent: Agent | None = None,
    access: AccessControl | None = None,
    headers: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[House]:
    peers: list[FakePeer] = []

    async def connect(sdp: str, leg: BrowserLeg, settings: BrowserCallSettings) -> FakePeer:
        peers.append(FakePeer(leg))
        return peers[-1]

    settings = {"greeting": "", **settings}
    async with await Engine.open(backend=StandInBackend((440, 660))) as engine:
        clock = Clock(metrics=engine.metrics)
        ticking = asyncio.create_task(clock.run())
        calls = BrowserCalls(
            engine=engine, clock=clock, registry=CallRegistry(engine, max_calls=max_calls),
            voices=VoiceRegistry(engine.voices),
            settings=BrowserCallSettings(**settings),
            agent=agent, make_speech_detector=make_ear, connect=None if real else connect,
        )  # fmt: skip
        app = make_app(
            unready=lambda: None,
            registry=engine.metrics.registry,
            access=access or AccessControl.open_to_all(),
            mounts=[Mount(routes(calls), Scope.CALLS)],
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gateway", headers=headers
        ) as client:
            yield House(calls, client, peers)
        await calls.aclose()
        ticking.cancel()
        await asyncio.wait({ticking})


def in_house(test: Callable[[House], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), house(**settings) as opened:
            await test(opened)

    asyncio.run(run())


# The page


def test_the_page_and_its_files_are_served_and_may_load_nothing_from_elsewhere() -> None:
    async def scenario(house: House) -> None:
        for path in ["/", *(f"/page/{file.name}" for file in PAGE_DIRECTORY.iterdir())]:
            answer = await house.client.get(path)
            assert answer.status_code == 200
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"

    in_house(scenario)


def test_no_file_of_the_page_names_another_place() -> None:
    for file in PAGE_DIRECTORY.iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", text), file.name


def test_the_page_needs_no_style_or_script_in_its_markup() -> None:
    markup = (PAGE_DIRECTORY / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"\sstyle=|\son[a-z]+=|<style|<script(?![^>]*\ssrc=)", markup)


def test_every_id_that_the_script_uses_is_in_the_page_and_every_control_has_a_name() -> None:
    markup, script = (
        (PAGE_DIRECTORY / name).read_text(encoding="utf-8") for name in ("index.html", "call.js")
    )
    ids = set(re.findall(r'id="([^"]+)"', markup))
    assert set(re.findall(r'\$\("([^"]+)"\)', script)) | set(re.findall(r'"(n-[a-z]+)"', script)) <= ids
    for control in re.findall(r'<(?:select|textarea|input)[^>]*\sid="([^"]+)"', markup):
        assert f'for="{control}"' in markup or re.search(rf'<label[^>]*><input id="{control}"', markup), (
            control
        )


@pytest.mark.parametrize("path", ["/page/none.js", "/page/..%2f__init__.py", "/page/%2e%2e/http.py"])
def test_what_is_no_file_of_the_page_is_not_found(path: str) -> None:
    async def scenario(house: House) -> None:
        assert (await house.client.get(path)).status_code == 404

    in_house(scenario)


def test_pipecats_own_page_is_served_where_it_is_installed() -> None:
    pytest.importorskip(
        "pipecat_ai_prebuilt", reason="needs pipecat-ai-prebuilt, which is in vivavoce[pipecat]"
    )

    async def scenario(house: House) -> None:
        answer = await house.client.get("/client/")
        assert answer.status_code == 200
        (script,) = set(re.findall(r'src="[./]*(?:client/)?(assets/[^"]+\.js)"', answer.text))
        assert (await house.client.get(f"/client/{script}")).status_code == 200
        assert (await house.client.get("/client/../frontend.py")).status_code == 404

    in_house(scenario)


def test_without_pipecats_page_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser_routes, "find_spec", lambda name: None)

    async def scenario(house: House) -> None:
        assert (await house.client.get("/client/")).status_code == 404

    in_house(scenario)


# Offers


def test_an_offer_is_answered_with_an_id_by_which_candidates_and_further_offers_find_the_call() -> None:
    async def scenario(house: House) -> None:
        answer = (await house.client.post("/api/offer", json=OFFER)).json()
        assert (answer["type"], answer["sdp"]) == ("answer", "v=0 answer")
        candidate = {"candidate": "candidate:1", "sdp_mid": "0", "sdp_mline_index": 0}
        trickled = {"pc_id": answer["pc_id"], "candidates": [candidate, {"candidate": ""}]}
        assert (await house.client.patch("/api/offer", json=trickled)).json() == {"status": "success"}
        again = await house.client.post("/api/offer", json={**OFFER, "sdp": "v=1", "pc_id": answer["pc_id"]})
        assert again.json()["pc_id"] == answer["pc_id"]
        (peer,) = house.peers
        assert peer.candidates == [("candidate:1", "0", 0), ("", None, None)]
        assert peer.offers == ["v=1"]

    in_house(scenario)


def test_a_browser_that_begins_anew_gets_a_new_call_and_its_old_one_ends() -> None:
    async def scenario(house: House) -> None:
        old = await house.call()
        anew = {**OFFER, "pc_id": old.leg.call_id, "restart_pc": True, "requestData": {"any": "thing"}}
        answer = (await house.client.post("/api/offer", json=anew)).json()
        assert old.closed == "the browser restarted the connection"
        assert answer["pc_id"] == house.peers[1].leg.call_id != old.leg.call_id

    in_house(scenario)


def test_a_pipecat_client_starts_a_session_and_calls_in_it() -> None:
    async def scenario(house: House) -> None:
        assert (await house.client.get("/status")).json()["transports"] == ["webrtc"]
        body = {"transport": "webrtc", "enableDefaultIceServers": False, "body": {}}
        session_id = (await house.client.post("/start", json=body)).json()["sessionId"]
        path = f"/sessions/{session_id}/api/offer"
        answer = await house.client.post(path, json=OFFER)
        trickled = {"pc_id": answer.json()["pc_id"], "candidates": []}
        assert (await house.client.patch(path, json=trickled)).status_code == 200

    in_house(scenario)


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "sentence"),
    [
        ("POST", "/api/offer", b"{", 400, "not JSON"),
        ("POST", "/api/offer", b"[" * 100_000, 400, "not JSON"),
        ("POST", "/api/offer", b"[]", 422, "body"),
        ("POST", "/api/offer", b'{"type": "offer"}', 422, "sdp: Field required"),
        ("POST", "/api/offer", b'{"type": "answer", "sdp": "v=0"}', 422, "type"),
        ("POST", "/api/offer", b'{"type": "offer", "sdp": "' + b"x" * 1_000_000 + b'"}', 413, "131072 bytes"),
        ("PATCH", "/api/offer", b'{"pc_id": "nobody", "candidates": []}', 404, "'nobody'"),
        ("PATCH", "/api/offer", b'{"pc_id": "x", "candidates": [{}]}', 422, "candidates.0.candidate"),
        ("POST", "/start", b'{"transport": "carrier pigeon"}', 400, "'carrier pigeon'"),
        ("POST", "/sessions/nobody/api/offer", b"{}", 404, "no such session"),
        ("PATCH", "/sessions/nobody/api/offer", b"{}", 404, "no such session"),
    ],
)
def test_a_request_that_makes_no_sense_gets_a_sentence(
    method: str, path: str, content: bytes, status: int, sentence: str
) -> None:
    async def scenario(house: House) -> None:
        headers = {"content-type": "application/json; charset=utf-8"}
        answer = await house.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == status
        assert sentence in answer.json()["error"]
        assert house.peers == []

    in_house(scenario)


def test_a_form_or_plain_text_from_another_site_opens_no_call() -> None:
    async def scenario(house: House) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = await house.client.post(
                "/api/offer", content=json.dumps(OFFER), headers={"content-type": kind}
            )
            assert answer.status_code == 415

    in_house(scenario)


@pytest.mark.parametrize(
    ("sdp", "sentence"),
    [
        ("hello", "no SDP"),
        ("v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\n", "no audio"),
        ("v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "cannot be answered"),
    ],
)
def test_an_offer_that_cannot_be_used_is_refused_and_holds_no_place(sdp: str, sentence: str) -> None:
    async def scenario(house: House) -> None:
        for _ in range(3):
            answer = await house.client.post("/api/offer", json={"type": "offer", "sdp": sdp})
            assert answer.status_code == 400
            assert sentence in answer.json()["error"]

    in_house(scenario, real=True, max_calls=1)


def test_a_full_house_refuses_at_once_and_says_when_to_come_again() -> None:
    async def scenario(house: House) -> None:
        first = await house.call()
        refused = await house.client.post("/api/offer", json=OFFER)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "1 calls are up" in refused.json()["error"]
        first.close("gone")
        await house.call()

    in_house(scenario, max_calls=1)


def test_a_house_that_closes_takes_no_new_calls_and_lets_sentences_end() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="One two three. ")
        peer.say(type="end")
        await peer.until_told("word")
        await house.calls.registry.finish_calls(TIMEOUT_S)
        assert [word["text"] for word in peer.of_type("word")] == ["One", "two", "three"]
        assert peer.closed == "finished"
        refused = await house.client.post("/api/offer", json=OFFER)
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]

    in_house(scenario)


def test_a_house_that_closes_while_it_answers_a_browser_leaves_nothing_of_it() -> None:
    async def scenario(house: House) -> None:
        let_go = asyncio.Event()

        async def slow(sdp: str, leg: BrowserLeg, settings: BrowserCallSettings) -> FakePeer:
            await let_go.wait()
            house.peers.append(FakePeer(leg))
            return house.peers[-1]

        house.calls._connect = slow
        offering = asyncio.create_task(house.client.post("/api/offer", json=OFFER))
        while not house.calls._group.legs:
            await asyncio.sleep(0)
        await house.calls.registry.finish_calls(5.0)
        assert house.calls._group.legs == set()
        let_go.set()
        assert (await offering).status_code == 503
        assert house.peers[0].closed == "closed here"

    in_house(scenario)


# A call


def test_the_page_is_told_who_speaks_and_the_call_is_listed() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        (started,) = peer.of_type("started")
        assert [voice["id"] for voice in started["voices"]] == ["tone-440", "tone-660"]
        assert (started["voice"], started["speed"], started["answers"]) == ("tone-660", 1.25, False)
        (line,) = house.calls.registry
        assert (line.kind, line.call.call_id, started["call"]) == (
            "webrtc",
            started["call"],
            line.call.call_id,
        )

    in_house(scenario, speech=CallSpeechOptions(voice="tone-660", speed=1.25))


def test_the_greeting_is_written_then_heard_word_by_word_then_finished() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until_told("speech_finished")
        kinds = [message["type"] for message in peer.told if message["type"] != "stats"]
        assert kinds == ["started", "utterance", "speech_started", "word", "word", "speech_finished"]
        text = peer.of_type("utterance")[0]["text"]
        assert [text[w["text_start"] : w["text_stop"]] for w in peer.of_type("word")] == ["Good", "day"]
        assert peer.of_type("speech_started")[0]["turn"] == 0

    in_house(scenario, greeting="Good day.")


def test_packets_come_in_real_time_silence_included_and_speech_is_in_them() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until(lambda: len(peer.packets) >= 5)
        assert not peer.sounds()
        peer.say(type="text", text="Tone. ")
        peer.say(type="end")
        await peer.until(peer.sounds)
        assert {len(packet) for packet in peer.packets} == {960}

    in_house(scenario)


def test_text_in_pieces_is_one_turn_and_the_next_turn_waits_for_it() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        for piece in ("Hel", "lo wor", "ld. "):
            peer.say(type="text", text=piece)
        peer.say(type="end")
        peer.say(type="text", text="Again. ")
        peer.say(type="end")
        await peer.until_told("speech_finished", 2)
        assert [m["turn"] for m in peer.of_type("utterance")] == [0, 0, 0, 1]
        assert [m["turn"] for m in peer.of_type("speech_started")] == [0, 1]
        assert [m["text"] for m in peer.of_type("word")] == ["Hello", "world", "Again"]

    in_house(scenario)


def test_flush_speaks_what_is_written_so_far() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="Nobody knows whether this goes on")
        peer.say(type="flush")
        await peer.until_told("word")

    in_house(scenario)


def test_an_interruption_says_what_was_heard_and_nothing_of_it_or_behind_it_follows() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        for text in ("One two three four five six seven eight. ", "Never said. "):
            peer.say(type="text", text=text)
            peer.say(type="end")
        await peer.until_told("word", 2)
        peer.say(type="discard")
        (discarded,) = peer.of_type("discarded")
        assert discarded["heard"] == "One two"
        assert discarded["cut_ms"] > 0
        peer.say(type="text", text="Anew. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Anew"]

    in_house(scenario)


def test_an_interruption_of_nothing_is_answered_too() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="discard")
        assert peer.of_type("discarded") == [
            {"type": "discarded", "utterance": None, "cut_ms": 0.0, "heard": ""}
        ]

    in_house(scenario)


def test_a_turn_can_be_interrupted_while_it_is_written() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="One two three four. And so")
        await peer.until_told("word")
        peer.say(type="discard")
        peer.say(type="text", text="New. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")
        assert peer.of_type("word")[-1]["text"] == "New"

    in_house(scenario)


def test_voice_and_speed_hold_for_what_is_written_next() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="speech", voice="tone-660", speed=1.0)
        peer.say(type="text", text="Higher. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")
        heard = np.frombuffer(b"".join(peer.packets), "<i2").astype(float)
        spectrum = np.abs(np.fft.rfft(heard[np.flatnonzero(heard)[0] :][:4_800]))
        assert np.argmax(spectrum) * 5 == 660

    in_house(scenario)


@pytest.mark.parametrize(
    ("message", "complaint"),
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
        ('{"type": "speech", "voice": "nobody"}', "'nobody'"),
        ('{"type": "ask", "text": "Why?"}', "no language model"),
        ('{"type": "end", "more": 1}', "more"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_a_message_that_makes_no_sense_gets_a_sentence_and_the_call_goes_on(
    message: str, complaint: str
) -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.leg.on_message(message)
        (error,) = peer.of_type("error")
        assert complaint in error["message"]
        peer.say(type="text", text="Still here. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")

    in_house(scenario)


def test_keepalives_are_no_messages() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.leg.on_message("ping")
        peer.leg.on_message("ping: 1763723000")
        assert peer.of_type("error") == []

    in_house(scenario)


def test_more_text_than_anybody_hears_is_refused() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        for _ in range(6):
            peer.say(type="text", text="x" * 60_000)
        assert "262144 characters" in peer.of_type("error")[0]["message"]
        for _ in range(1_001):
            peer.say(type="end")
            peer.say(type="text", text="Hm. ")
        assert "1000 utterances" in peer.of_type("error")[-1]["message"]

    in_house(scenario)


@pytest.mark.parametrize("nothing", [{"type": "flush"}, {"type": "text", "text": ""}], ids=["flush", "text"])
def test_what_says_nothing_cannot_be_sent_without_end_either(
    nothing: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utterance_queue, "MAX_WAITING_CHARACTERS", 1_000)

    async def scenario(house: House) -> None:
        peer = await house.call()
        for _ in range(1_001):
            peer.say(**nothing)
        assert "1000 characters" in peer.of_type("error")[0]["message"]

    in_house(scenario)


def test_hanging_up_ends_everything_of_the_call() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="This is the end of it. ")
        await peer.until_told("speech_started")
        peer.say(type="hang_up")
        assert peer.closed == "the page hung up"
        assert peer.told[-1]["type"] != "word"
        assert list(house.calls.registry) == []
        engine = house.calls.services.engine
        await until(lambda: engine.active_streams == 0)  # a step under way comes to its end
        packets = len(peer.packets)
        await asyncio.sleep(0.05)
        assert len(peer.packets) == packets

    in_house(scenario)


def test_one_call_that_breaks_ends_alone() -> None:
    async def scenario(house: House) -> None:
        broken, other = await house.call(), await house.call()
        house.calls.registry.get(broken.leg.call_id).call._send = None  # type: ignore[assignment]
        await until(lambda: broken.closed)
        assert broken.closed == "an error of ours"
        other.say(type="text", text="Unharmed. ")
        other.say(type="end")
        await other.until_told("speech_finished")

    in_house(scenario)


class BrokenEar:
    """Fails as it is made, or as it hears."""

    def __init__(self, *, late: bool) -> None:
        if not late:
            raise ArithmeticError("no ear")

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        raise ArithmeticError("deaf")


@pytest.mark.parametrize("late", [False, True], ids=["as it begins", "as its caller speaks"])
def test_a_call_that_breaks_where_its_peer_tells_of_something_ends_alone(late: bool) -> None:
    async def scenario(house: House) -> None:
        await house.client.post("/api/offer", json=OFFER)
        (peer,) = house.peers
        peer.leg.on_connected()
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(b"\1\1" * 320)  # on its way already
        assert peer.closed == "an error of ours"
        assert len(house.calls.registry) == 0
        assert not any(house.calls.services.clock._phases)

    in_house(scenario, make_ear=lambda: BrokenEar(late=late))


def test_for_a_browser_that_goes_as_it_comes_nothing_is_begun_that_nobody_would_wait_for() -> None:
    begun: list[Call] = []

    class Begun:
        def run(self, call: Call) -> Awaitable[None]:
            begun.append(call)
            return asyncio.sleep(0)

    async def scenario(house: House) -> None:
        await house.client.post("/api/offer", json=OFFER)
        (peer,) = house.peers
        peer.leg.on_connected()
        peer.close("gone")
        await house.calls.wait_idle()
        assert begun == []

    in_house(scenario, agent=Begun())


def test_many_calls_leave_nothing_behind() -> None:
    async def scenario(house: House) -> None:
        for _ in range(50):
            peer = await house.call()
            peer.say(type="text", text="Hello. ")
            peer.close("gone")
        await until(lambda: house.calls.services.engine.active_streams == 0)
        registry = house.calls.services.engine.metrics.registry
        assert registry.get_sample_value("vivavoce_active_calls") == 0
        assert len(house.calls.registry) == 0
        assert not any(house.calls.services.clock._phases)

    in_house(scenario)


class Ear:
    """Hears speech in whatever is not silent."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        assert sample_rate == 16_000
        return [VoiceActivityChange(any(pcm), 0.0)]


def test_a_caller_who_speaks_interrupts_if_the_page_wants_it() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="on_speech", action="discard")
        peer.say(type="text", text="One two three four five six seven. ")
        peer.say(type="end")
        peer.say(type="text", text="Never said. ")
        peer.say(type="end")
        await peer.until_told("word")
        peer.leg.on_audio(b"\1\1" * 320)
        assert len(peer.of_type("discarded")) == 1
        assert len(peer.of_type("caller_speaking")) == 1
        heard = len(peer.of_type("word"))
        await asyncio.sleep(0.3)
        assert len(peer.of_type("word")) == heard

    in_house(scenario, make_ear=Ear)


def test_text_of_a_turn_that_the_caller_interrupted_is_refused_up_to_its_end() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="One two three four five six seven. And so")
        await peer.until_told("word")
        peer.leg.on_audio(b"\1\1" * 320)
        assert len(peer.of_type("discarded")) == 1
        for text in ("on, ", "and so forth."):
            peer.say(type="text", text=text)
        peer.say(type="end")
        peer.say(type="text", text="Anew. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")
        (error,) = peer.of_type("error")
        assert "interrupted" in error["message"]
        assert peer.of_type("word")[-1]["text"] == "Anew"

    in_house(scenario, make_ear=Ear)


def test_a_page_that_only_wants_to_be_told_learns_that_the_caller_speaks() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="on_speech", action="tell")
        peer.leg.on_audio(b"\1\1" * 320)
        peer.leg.on_audio(bytes(640))
        assert len(peer.of_type("caller_speaking")) == len(peer.of_type("caller_silent")) == 1
        assert peer.of_type("discarded") == []

    in_house(scenario, make_ear=Ear)


# With an agent


SCRIPT = ScriptAgent(
    "Good day to you.\n\nOne two three four five six seven eight.\n\nThe end.", ScriptPolicy(200, 0.05)
)


def test_the_agent_answers_and_its_words_are_written_and_marked_as_the_pages_own_are() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until_told("speech_finished", 3)
        texts: dict[int, str] = {}
        for told in peer.of_type("utterance"):
            texts[told["turn"]] = texts.get(told["turn"], "") + told["text"]
        assert list(texts.values()) == [
            "Good day to you.",
            "One two three four five six seven eight.",
            "The end.",
        ]
        started = {told["utterance"]: told["turn"] for told in peer.of_type("speech_started")}
        words = peer.of_type("word")
        assert [w["text"] for w in words] == " ".join(texts.values()).replace(".", "").split()
        assert all(
            texts[started[w["utterance"]]][w["text_start"] : w["text_stop"]] == w["text"] for w in words
        )

    in_house(scenario, agent=SCRIPT, greeting="Never said.")


def test_who_interrupts_the_script_hears_its_next_utterance_and_typed_text_is_said_all_the_same() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until_told("word", 6)
        peer.say(type="discard")
        assert peer.of_type("discarded")[0]["heard"] == "One two"
        await peer.until_told("speech_finished", 2)
        assert peer.closed is None  # the script has ended, and the line is up for what is typed
        peer.say(type="text", text="Typed. ")
        peer.say(type="end")
        await peer.until_told("speech_finished", 3)
        assert [m["text"] for m in peer.of_type("word")][-3:] == ["The", "end", "Typed"]

    in_house(scenario, agent=SCRIPT)


def test_a_script_waits_until_who_talks_over_it_has_spoken() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until_told("word", 6)
        peer.leg.on_audio(b"\1\1" * 320)
        await asyncio.sleep(0.3)
        assert len(peer.of_type("speech_started")) == 2
        peer.leg.on_audio(bytes(640))
        await peer.until_told("speech_started", 3)

    in_house(scenario, agent=SCRIPT, make_ear=Ear)


def test_keys_of_the_page_are_answered_and_pound_ends_the_call() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        await peer.until_told("word")
        peer.say(type="dtmf", digit="1")
        await peer.until_told("speech_started", 2)
        peer.say(type="dtmf", digit="11")
        assert "digit" in (await peer.until_told("error"))["message"]
        peer.say(type="dtmf", digit="#")
        await peer.until(lambda: peer.closed)
        assert "".join(m["text"] for m in peer.of_type("utterance")).endswith("You pressed pound. Goodbye.")

    in_house(scenario, agent=KeysAgent())


def test_a_program_may_attach_to_a_call_whose_page_is_attached_and_both_speak() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        active_call = await house.calls.registry.next_unattached()
        with house.calls.registry.attach(active_call):
            peer.say(type="text", text="Page. ")
            peer.say(type="end")
            await peer.until_told("speech_started")
            await active_call.call.speak("Program.")
            await peer.until_told("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["Page", "Program"]
        assert [m["text"] for m in peer.of_type("utterance")] == ["Page. ", "Program."]

    in_house(scenario)


def test_a_silent_agent_leaves_the_line_to_who_holds_it() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        (line,) = house.calls.registry
        await line.call.speak("Held.")
        await peer.until_told("speech_finished")
        assert [m["text"] for m in peer.of_type("utterance")] == ["Held."]

    in_house(scenario, agent=SilentAgent(), greeting="Never said.")


def test_an_agent_that_fails_ends_its_call_alone() -> None:
    class Broken:
        async def run(self, call: Call) -> None:
            await call.next_key()
            raise ArithmeticError("the agent's own")

    async def scenario(house: House) -> None:
        broken, other = await house.call(), await house.call()
        broken.say(type="dtmf", digit="1")
        await broken.until(lambda: broken.closed)
        assert (broken.closed, other.closed) == ("an error of ours", None)

    in_house(scenario, agent=Broken())


# With a key that has limits


def limited(tmp_path: Path, characters_per_minute: int) -> dict[str, Any]:
    """A house whose one caller may have so much said."""
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("page", (Scope.CALLS,), KeyLimits(characters_per_minute=characters_per_minute))
    return {"access": AccessControl(keys), "headers": {"authorization": f"Bearer {key}"}}


def test_text_that_a_key_may_have_said_is_said_to_the_last_character(tmp_path: Path) -> None:
    text = "One two three."

    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text=text)
        peer.say(type="end")
        await peer.until_told("speech_finished", 2)  # the greeting is the house's own and costs nothing
        assert peer.of_type("error") == []

    in_house(scenario, greeting="Hello, and welcome to all of you.", **limited(tmp_path, len(text)))


def test_of_text_that_is_too_much_for_a_key_the_page_is_told_and_the_call_goes_on(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="text", text="One two. ")
        peer.say(type="text", text="far too much for a key of twenty characters")
        (error,) = peer.of_type("error")
        assert "allowed 20 characters a minute" in error["message"]
        assert 0 < error["retry_after_s"] <= 60
        peer.say(type="text", text="hole")  # that it could pay for, but not what came before it
        peer.say(type="end")
        await peer.until_told("speech_finished")
        peer.say(type="text", text="Three.")
        peer.say(type="end")
        await peer.until_told("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Three"]
        assert [m["text"] for m in peer.of_type("utterance")] == ["One two. ", "Three."]
        assert peer.of_type("error") == [error]

    in_house(scenario, **limited(tmp_path, 20))


def test_a_pipecat_client_is_told_in_its_own_words_too(tmp_path: Path) -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(label="rtvi-ai", type="send-text", id="1", data={"content": "This is too long to be said."})
        await peer.until(lambda: [m for m in peer.of_type("error") if "label" in m])
        assert "characters a minute" in peer.of_type("error")[-1]["data"]["error"]
        assert peer.closed is None

    in_house(scenario, **limited(tmp_path, 20))


# With a language model


class Model:
    """A server that writes ``answers`` token by token, and remembers what it was asked."""

    def __init__(self, *answers: list[str], status: str = "200 OK", pause_s: float = 0.0) -> None:
        self.asked: list[list[dict[str, str]]] = []
        self.headers: list[bytes] = []
        self._answers = list(answers)
        self._status = status
        self._pause_s = pause_s
        self.let_go = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head.lower())[1])  # type: ignore[index]
        self.headers.append(head)
        self.asked.append(json.loads(await reader.readexactly(length))["messages"])
        writer.write(f"HTTP/1.1 {self._status}\r\ncontent-type: text/event-stream\r\n\r\n".encode())
        try:
            for token in self._answers.pop(0) if self._answers else []:
                event = {"choices": [{"delta": {"content": token}}]}
                writer.write(f"data: {json.dumps(event)}\n\n".encode())
                await writer.drain()
                await asyncio.sleep(self._pause_s)
            writer.write(b"data: [DONE]\n\n")
        except ConnectionError:
            self.let_go.set()
        finally:
            writer.close()


def with_model(model: Model, test: Callable[[FakePeer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * TIMEOUT_S), model.serving() as url:
            chat = ChatSettings(base_url=url, model="m", api_key="secret")
            async with house(chat=chat, **settings) as opened:
                await test(await opened.call())

    asyncio.run(run())


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_a_question_is_answered_aloud_token_by_token_and_both_enter_the_history() -> None:
    model = Model(["It ", "is ", "noon. "], ["Yes. "])

    async def scenario(peer: FakePeer) -> None:
        peer.say(type="ask", text="What time is it?")
        await peer.until_told("speech_finished")
        peer.say(type="ask", text="Sure?")
        await peer.until_told("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("utterance")] == ["It ", "is ", "noon. ", "Yes. "]

    with_model(model, scenario)
    assert [(m["role"], m["content"]) for m in model.asked[1][1:]] == [
        ("user", "What time is it?"),
        ("assistant", "It is noon."),
        ("user", "Sure?"),
    ]
    assert b"authorization: bearer secret" in model.headers[0].lower()


def test_after_an_interruption_the_history_holds_what_was_heard_and_not_what_was_written() -> None:
    model = Model(["One two three four five six seven eight nine ten. "], ["Fine. "])

    async def scenario(peer: FakePeer) -> None:
        peer.say(type="ask", text="Count.")
        await peer.until_told("word", 3)
        peer.say(type="ask", text="Stop.")
        await peer.until_told("speech_started", 2)

    with_model(model, scenario)
    assert [m["content"] for m in model.asked[1][1:]] == ["Count.", "One two three", "Stop."]


def test_the_greeting_is_part_of_the_history_and_text_to_be_said_is_not() -> None:
    model = Model(["Well. "])

    async def scenario(peer: FakePeer) -> None:
        await peer.until_told("speech_finished")
        peer.say(type="text", text="Said as written. ")
        peer.say(type="end")
        await peer.until_told("speech_finished", 2)
        peer.say(type="ask", text="How are you?")
        await peer.until_told("speech_finished", 3)

    with_model(model, scenario, greeting="Hello.")
    assert [m["content"] for m in model.asked[0][1:]] == ["Hello.", "How are you?"]


def test_what_was_heard_of_an_agent_is_part_of_the_history_and_a_question_interrupts_it() -> None:
    model = Model(["Sure. "])

    async def scenario(peer: FakePeer) -> None:
        await peer.until_told("word", 6)
        peer.say(type="ask", text="Slower?")
        await peer.until_told("speech_finished", 3)
        assert [m["text"] for m in peer.of_type("word")][4:] == ["One", "two", "Sure", "The", "end"]

    with_model(model, scenario, agent=SCRIPT)
    assert [m["content"] for m in model.asked[0][1:]] == ["Good day to you.", "One two", "Slower?"]


def test_an_answer_that_is_too_much_for_a_key_stops_there_and_what_came_before_is_said(
    tmp_path: Path,
) -> None:
    model = Model(["One ", "two. ", *["and so on "] * 1_000], ["Three."], pause_s=0.001)

    async def scenario(peer: FakePeer) -> None:
        peer.say(type="ask", text="How is that? The question itself is not said and costs nothing.")
        await peer.until_told("speech_finished")
        assert [m["text"] for m in peer.of_type("utterance")] == ["One ", "two. "]
        (error,) = peer.of_type("error")
        assert "allowed 18 characters a minute" in error["message"]
        await model.let_go.wait()  # nor is any more of it read
        peer.say(type="ask", text="And now?")
        await peer.until_told("speech_finished", 2)
        assert [m["text"] for m in peer.of_type("word")] == ["One", "two", "Three"]

    with_model(model, scenario, **limited(tmp_path, 18))


def test_a_model_that_refuses_is_told_to_the_page_in_a_sentence_without_the_key() -> None:
    model = Model(status="401 Unauthorized")

    async def scenario(peer: FakePeer) -> None:
        peer.say(type="ask", text="Hello?")
        error = await peer.until_told("error")
        assert error["message"] == "the language model's server answered 401"

    with_model(model, scenario)
    assert "secret" not in repr(ChatSettings(base_url="", model="", api_key="secret"))


def test_a_model_that_nobody_serves_is_told_to_the_page_and_the_call_goes_on() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="ask", text="Hello?")
        assert "failed" in (await peer.until_told("error"))["message"]
        peer.say(type="text", text="Still here. ")
        peer.say(type="end")
        await peer.until_told("speech_finished")

    in_house(scenario, chat=ChatSettings(base_url="http://127.0.0.1:1/v1", model="m"))


def test_a_model_at_an_address_that_is_none_is_told_to_the_page_and_the_call_goes_on() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="ask", text="Hello?")
        assert "failed" in (await peer.until_told("error"))["message"]
        assert peer.closed is None

    in_house(scenario, chat=ChatSettings(base_url="http://[::1/v1", model="m"))


def test_a_conversation_that_breaks_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError("no words")

    monkeypatch.setattr(browser_chat, "stream_answer", broken)

    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="ask", text="Hello?")
        await peer.until(lambda: peer.closed)
        assert peer.closed == "an error of ours"

    in_house(scenario, chat=ChatSettings(base_url="http://127.0.0.1:1/v1", model="m"))


def test_hanging_up_while_the_model_writes_lets_go_of_it() -> None:
    model = Model(["word "] * 1_000, pause_s=0.01)

    async def scenario(peer: FakePeer) -> None:
        peer.say(type="ask", text="Talk.")
        await peer.until_told("utterance", 3)
        peer.say(type="hang_up")
        await model.let_go.wait()

    with_model(model, scenario)


# Pipecat's clients


def test_a_pipecat_client_is_answered_in_its_own_words() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="signalling", message={"type": "trackStatus", "receiver_index": 0, "enabled": True})
        rtvi = {"label": "rtvi-ai", "id": "7"}
        peer.say(**rtvi, type="client-ready", data={"version": "1.0.0", "about": {"library": "x"}})
        ready = await peer.until_told("bot-ready")
        assert (ready["label"], ready["id"], ready["data"]["version"]) == ("rtvi-ai", "7", "1.0.0")
        peer.say(**rtvi, type="send-text", data={"content": "Good morning. "})
        await peer.until_told("bot-stopped-speaking")
        words = [message["data"]["text"] for message in peer.of_type("bot-tts-text")]
        assert words == ["Good", "morning"]
        spoken = peer.told.index(peer.of_type("bot-started-speaking")[0])
        assert spoken < peer.told.index(peer.of_type("bot-tts-text")[0])
        peer.say(**rtvi, type="something-new", data=None)
        assert peer.of_type("error") == []
        peer.say(**rtvi, type="disconnect-bot")
        assert peer.closed == "the page hung up"

    in_house(scenario)


@pytest.mark.parametrize("length", [70_000, 600_000])
def test_more_than_fits_from_a_pipecat_client_is_an_error_and_the_call_goes_on(length: int) -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        rtvi = {"label": "rtvi-ai", "id": "7"}
        peer.say(**rtvi, type="client-ready", data={"version": "1.0.0"})
        peer.say(**rtvi, type="send-text", data={"content": "x" * length})
        assert "are read" in peer.of_type("error")[0]["data"]["error"]
        peer.say(**rtvi, type="send-text", data={"content": "Still here. "})
        await peer.until_told("bot-stopped-speaking")

    in_house(scenario)


def test_a_pipecat_client_is_told_what_was_said_before_it_was_ready() -> None:
    async def scenario(house: House) -> None:
        peer = await house.call()
        peer.say(type="signalling", message={"type": "trackStatus", "receiver_index": 0, "enabled": True})
        await peer.until_told("word")
        peer.say(label="rtvi-ai", id="7", type="client-ready", data={"version": "1.0.0"})
        await peer.until_told("bot-stopped-speaking")
        told = [m["type"] for m in peer.told if m.get("label") == "rtvi-ai" and m["type"] != "bot-output"]
        started = ["bot-ready", "bot-started-speaking", "bot-tts-started"]
        assert told == [*started, "bot-tts-text", "bot-tts-text", "bot-tts-stopped", "bot-stopped-speaking"]

    in_house(scenario, greeting="Good day.")


def test_what_is_typed_into_a_pipecat_client_is_asked_where_there_is_a_model() -> None:
    model = Model(["Yes. "])

    async def scenario(peer: FakePeer) -> None:
        peer.say(label="rtvi-ai", id="1", type="send-text", data={"content": "Are you there?"})
        await peer.until_told("bot-tts-text")

    with_model(model, scenario)
    assert model.asked[0][-1] == {"role": "user", "content": "Are you there?"}


def test_the_folder_of_the_page_is_shipped() -> None:
    pyproject = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert '"vivavoce.gateway.browser" = ["page/*"' in pyproject
