"""Signalling of browser calls: offers, candidates, sessions, refusals."""

import asyncio
import contextlib
import json
import re
import socket
import time
from pathlib import Path

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection

from shared.browser.chromium import loopback_only
from shared.browser.fake_browser import (
    OFFER,
    TIMEOUT_S,
    BrowserServer,
    FakePeer,
    limited_key,
    with_server,
)
from shared.event_loop import until
from vivavoce.adapters.ice_server import IceServer
from vivavoce.adapters.udp_ports import MediaPorts
from vivavoce.gateway.calls.ways_in.browser.leg import BrowserLeg
from vivavoce.gateway.calls.ways_in.browser.settings import BrowserCallSettings


def test_candidates_and_further_offers_reach_the_call_by_the_id_in_the_answer() -> None:
    async def scenario(server: BrowserServer) -> None:
        answer = (await server.client.post("/api/offer", json=OFFER)).json()
        assert (answer["type"], answer["sdp"]) == ("answer", "v=0 answer")
        candidate = {"candidate": "candidate:1", "sdp_mid": "0", "sdp_mline_index": 0}
        trickled = {"pc_id": answer["pc_id"], "candidates": [candidate, {"candidate": ""}]}
        assert (await server.client.patch("/api/offer", json=trickled)).json() == {"status": "success"}
        again = await server.client.post("/api/offer", json={**OFFER, "sdp": "v=1", "pc_id": answer["pc_id"]})
        assert again.json()["pc_id"] == answer["pc_id"]
        (peer,) = server.peers
        assert peer.candidates == [("candidate:1", "0", 0), ("", None, None)]
        assert peer.offers == ["v=1"]

    with_server(scenario)


def test_a_restarted_connection_keeps_its_call() -> None:
    async def scenario(server: BrowserServer) -> None:
        old = await server.call()
        restart = {**OFFER, "pc_id": old.leg.call_id, "restart_pc": True, "requestData": {"any": "thing"}}
        answer = (await server.client.post("/api/offer", json=restart)).json()
        anew = server.peers[1]
        assert answer["pc_id"] == old.leg.call_id and anew.leg is old.leg
        anew.events.on_connected()
        await until(lambda: old.closed)
        old.send(type="text", text="Never heard. ")  # what the old connection still had
        anew.send(type="text", text="Tone. ")
        anew.send(type="end")
        await anew.until_received("speech_finished")
        assert [word["text"] for word in anew.of_type("word")] == ["Tone"]
        assert not anew.of_type("started") and len(anew.packets) >= 5
        assert [one.call.call_id for one in server.calls.registry] == [old.leg.call_id]
        anew.close("the browser hung up")
        assert not list(server.calls.registry)

    with_server(scenario)


def test_no_word_is_spoken_into_a_connection_that_is_not_up_yet() -> None:
    async def scenario(server: BrowserServer) -> None:
        old = await server.call()
        text = "One two three four five six seven eight nine ten."
        old.send(type="text", text=text)
        old.send(type="end")
        await old.until_received("word")
        restart = {**OFFER, "pc_id": old.leg.call_id, "restart_pc": True}
        await server.client.post("/api/offer", json=restart)
        anew = server.peers[1]
        heard_by_old = len(old.of_type("word"))
        fed = len(anew.packets)
        await until(lambda: len(anew.packets) >= fed + 25)  # half a second, more than two words
        assert not any(any(packet) for packet in anew.packets[fed:])
        anew.events.on_connected()
        await anew.until_received("speech_finished")
        words = [word["text"] for word in (*old.of_type("word")[:heard_by_old], *anew.of_type("word"))]
        assert words == text.strip(".").split()

    with_server(scenario)


def test_a_restart_during_another_one_is_refused_and_a_wrong_one_ends_nothing() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        restart = {**OFFER, "pc_id": peer.leg.call_id, "restart_pc": True}
        offers = (server.client.post("/api/offer", json=restart) for _ in range(2))
        assert sorted(answer.status_code for answer in await asyncio.gather(*offers)) == [200, 400]
        wrong = await server.client.post("/api/offer", json={**restart, "sdp": ""})
        assert wrong.status_code == 400
        assert server.peers[1].closed is None and len(list(server.calls.registry)) == 1

    with_server(scenario)


def test_a_hang_up_ends_a_call_that_is_not_connected_yet() -> None:
    async def scenario(server: BrowserServer) -> None:
        answer = await server.client.post("/api/offer", json=OFFER)
        named = {"pc_id": answer.json()["pc_id"]}
        assert (await server.client.request("DELETE", "/api/offer", json=named)).status_code == 200
        assert server.peers[-1].closed == "the page hung up"
        assert (await server.client.request("DELETE", "/api/offer", json=named)).status_code == 404

    with_server(scenario)


def test_a_pipecat_client_starts_a_session_and_calls_in_it() -> None:
    async def scenario(server: BrowserServer) -> None:
        assert (await server.client.get("/status")).json()["transports"] == ["webrtc"]
        body = {"transport": "webrtc", "enableDefaultIceServers": False, "body": {}}
        session_id = (await server.client.post("/start", json=body)).json()["sessionId"]
        path = f"/sessions/{session_id}/api/offer"
        answer = await server.client.post(path, json=OFFER)
        trickled = {"pc_id": answer.json()["pc_id"], "candidates": []}
        assert (await server.client.patch(path, json=trickled)).status_code == 200

    with_server(scenario)


ICE_SERVERS = (IceServer(("stun:stun.example",)), IceServer(("turn:turn.example",), "user", "credential"))


def test_a_client_that_starts_a_session_gets_the_ice_servers_with_their_credentials() -> None:
    async def scenario(server: BrowserServer) -> None:
        started = await server.client.post("/start", json={"transport": "webrtc"})
        assert started.headers["cache-control"] == "no-store"
        assert started.json()["iceConfig"] == {
            "iceServers": [
                {"urls": ["stun:stun.example"]},
                {"urls": ["turn:turn.example"], "username": "user", "credential": "credential"},
            ]
        }

    with_server(scenario, ice_servers=ICE_SERVERS)


def test_each_session_gets_credentials_of_the_secret_that_end_within_a_day() -> None:
    async def scenario(server: BrowserServer) -> None:
        started = await server.client.post("/start", json={"transport": "webrtc"})
        ((ice_server),) = started.json()["iceConfig"]["iceServers"]
        assert set(ice_server) == {"urls", "username", "credential"}
        ends_at = int(ice_server["username"].partition(":")[0])
        assert 86_000 < ends_at - time.time() <= 86_400
        assert "shared secret" not in started.text

    with_server(scenario, ice_servers=(IceServer(("turn:turn.example",), secret="shared secret"),))


def test_without_a_key_for_calls_no_route_shows_the_credential(tmp_path: Path) -> None:
    async def scenario(server: BrowserServer) -> None:
        del server.client.headers["authorization"]
        assert (await server.client.post("/start", json={})).status_code == 401
        for path in ("/status", "/openapi.json", "/healthz", "/metrics", "/call/call.js"):
            assert "turn.example" not in (await server.client.get(path)).text

    with_server(scenario, ice_servers=ICE_SERVERS, **limited_key(tmp_path, 100))


def test_media_uses_the_ports_of_the_range_and_a_call_beyond_them_is_refused() -> None:
    async def scenario(server: BrowserServer) -> None:
        async with contextlib.AsyncExitStack() as browsers:
            offers = [await real_offer(browsers) for _ in range(3)]
            answers = [await server.client.post("/api/offer", json=offer) for offer in offers]
            assert [answer.status_code for answer in answers] == [200, 200, 503]
            used = {port for answer in answers[:2] for port in candidate_ports(answer.json()["sdp"])}
            assert used == {ports.first, ports.last}
            assert answers[2].json()["error"] == f"all UDP ports for media, {ports}, are in use"
            assert answers[2].headers["retry-after"] == "5"
            first, _ = server.calls._group.legs
            first.end("enough")
            while len(server.calls._group.legs) + len(server.calls._group._tasks) > 1:
                await asyncio.sleep(0.01)
            assert (await server.client.post("/api/offer", json=offers[2])).status_code == 200

    with loopback_only():
        ports = free_ports()
        with_server(scenario, real=True, ports=ports)


def free_ports() -> MediaPorts:
    """Return two adjacent UDP ports that are free on loopback."""
    while True:
        with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            with contextlib.suppress(OSError):
                other.bind(("127.0.0.1", port + 1))
                return MediaPorts(port, port + 1)


async def real_offer(browsers: contextlib.AsyncExitStack) -> dict[str, str]:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    browsers.push_async_callback(connection.close)
    connection.addTransceiver("audio", direction="recvonly")
    await connection.setLocalDescription(await connection.createOffer())
    return {"type": "offer", "sdp": connection.localDescription.sdp}


def candidate_ports(sdp: str) -> set[int]:
    return {int(port) for port in re.findall(r"a=candidate:\S+ 1 udp \d+ \S+ (\d+) ", sdp)}


@pytest.mark.parametrize(
    ("method", "path", "content", "status", "named"),
    [
        ("POST", "/api/offer", b"{", 400, "not JSON"),
        ("POST", "/api/offer", b"[" * 100_000, 400, "not JSON"),
        ("POST", "/api/offer", b"[]", 422, "body"),
        ("POST", "/api/offer", b'{"type": "offer"}', 422, "sdp: Field required"),
        ("POST", "/api/offer", b'{"type": "answer", "sdp": "v=0"}', 422, "type"),
        ("POST", "/api/offer", rb'{"type": "offer", "sdp": "a=mid:\ud800"}', 422, "sdp"),
        ("POST", "/api/offer", b'{"type": "offer", "sdp": "' + b"x" * 1_000_000 + b'"}', 413, "131072 bytes"),
        ("PATCH", "/api/offer", b'{"pc_id": "unknown", "candidates": []}', 404, "'unknown'"),
        ("PATCH", "/api/offer", b'{"pc_id": "x", "candidates": [{}]}', 422, "candidates.0.candidate"),
        ("POST", "/start", b'{"transport": "carrier pigeon"}', 400, "'carrier pigeon'"),
        ("POST", "/sessions/unknown/api/offer", b"{}", 404, "no such session"),
        ("PATCH", "/sessions/unknown/api/offer", b"{}", 404, "no such session"),
    ],
)
def test_an_invalid_request_is_refused_with_the_reason(
    method: str, path: str, content: bytes, status: int, named: str
) -> None:
    async def scenario(server: BrowserServer) -> None:
        headers = {"content-type": "application/json; charset=utf-8"}
        answer = await server.client.request(method, path, content=content, headers=headers)
        assert answer.status_code == status
        assert named in answer.json()["error"]
        assert server.peers == []

    with_server(scenario)


def test_an_offer_that_is_not_posted_as_json_is_refused() -> None:
    async def scenario(server: BrowserServer) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
            answer = await server.client.post(
                "/api/offer", content=json.dumps(OFFER), headers={"content-type": kind}
            )
            assert answer.status_code == 415

    with_server(scenario)


@pytest.mark.parametrize(
    ("sdp", "named"),
    [
        ("hello", "not SDP"),
        ("v=0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\n", "no audio"),
        ("v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n", "no DTLS role"),
    ],
)
def test_an_unusable_offer_is_refused_and_does_not_count_as_a_call(sdp: str, named: str) -> None:
    async def scenario(server: BrowserServer) -> None:
        for _ in range(3):
            answer = await server.client.post("/api/offer", json={"type": "offer", "sdp": sdp})
            assert answer.status_code == 400
            assert named in answer.json()["error"]

    with_server(scenario, real=True, max_calls=1)


def test_an_offer_without_a_transport_is_refused_in_the_shape_of_the_route() -> None:
    async def scenario(server: BrowserServer) -> None:
        async with contextlib.AsyncExitStack() as browsers:
            audio = (await real_offer(browsers))["sdp"]
        (mid,) = re.findall(r"a=mid:(\S+)", audio)
        data = "m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\nc=IN IP4 0.0.0.0\r\na=mid:x\r\n"
        transport = "".join(re.findall(r"a=(?:ice-ufrag|ice-pwd|fingerprint|setup):[^\n]*\n", audio))
        for sdp in (
            audio + data,
            audio + data + transport.replace("a=setup", "a=set"),
            (audio + data + transport).replace(f"BUNDLE {mid}", "BUNDLE absent x"),
            (audio + data + transport).replace(f"BUNDLE {mid}", f"BUNDLE absent {mid}"),
            audio + "a=fmtp:77 apt=96\r\n",
            audio.replace(f"a=mid:{mid}", "a=mid"),
        ):
            answer = await server.client.post("/api/offer", json={"type": "offer", "sdp": sdp})
            assert (answer.status_code, list(answer.json())) == (400, ["error"]), sdp
        assert (
            await server.client.post("/api/offer", json={"type": "offer", "sdp": audio})
        ).status_code == 200

    with loopback_only():
        with_server(scenario, real=True, max_calls=1)


def test_beyond_max_calls_an_offer_is_refused_with_retry_after() -> None:
    async def scenario(server: BrowserServer) -> None:
        first = await server.call()
        refused = await server.client.post("/api/offer", json=OFFER)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "1 calls are up" in refused.json()["error"]
        first.close("gone")
        await server.call()

    with_server(scenario, max_calls=1)


def test_a_server_that_shuts_down_refuses_calls_and_finishes_sentences() -> None:
    async def scenario(server: BrowserServer) -> None:
        peer = await server.call()
        peer.send(type="text", text="One two three. ")
        peer.send(type="end")
        await peer.until_received("word")
        await server.calls.registry.finish_calls(TIMEOUT_S)
        assert [word["text"] for word in peer.of_type("word")] == ["One", "two", "three"]
        assert peer.closed == "shutting down after its sentence"
        refused = await server.client.post("/api/offer", json=OFFER)
        assert refused.status_code == 503
        assert "shutting down" in refused.json()["error"]

    with_server(scenario)


def test_a_shutdown_during_an_offer_s_negotiation_leaves_no_call() -> None:
    async def scenario(server: BrowserServer) -> None:
        disconnected = asyncio.Event()

        async def slow(sdp: str, leg: BrowserLeg, settings: BrowserCallSettings) -> FakePeer:
            await disconnected.wait()
            server.peers.append(FakePeer(leg))
            return server.peers[-1]

        server.calls._connect = slow
        offering = asyncio.create_task(server.client.post("/api/offer", json=OFFER))
        while not server.calls._group.legs:
            await asyncio.sleep(0)
        await server.calls.registry.finish_calls(5.0)
        assert server.calls._group.legs == set()
        disconnected.set()
        assert (await offering).status_code == 503
        assert server.peers[0].closed == "closed here"

    with_server(scenario)
