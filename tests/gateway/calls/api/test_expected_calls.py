"""Calls announced over HTTP as a dial plan does it: caller, agent, allow-list, result and transfer."""

import asyncio
import json
import uuid
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from shared.calls.call_server import call_server, run, until
from shared.event_loop import until as wait_until
from vivavoce.adapters.audiosocket.protocol import AudioSocketAudio

FORM = {"number": "+15550100", "name": "A & B", "called": "102", "agent": "", "queue": "sales", "empty": ""}


def test_a_dial_plan_announces_a_call_and_reads_where_to_transfer_it() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as http:
            announced = await http.post("/expected", data=FORM)
            assert announced.headers["content-type"].startswith("text/plain")
            call_id = str(uuid.UUID(announced.text))
            phone = await server.phone(call_id)
            async with server.socket("next") as socket:
                started = (await until(socket, "started"))[-1]
                assert started["caller"] == {
                    "number": "+15550100",
                    "name": "A & B",
                    "called": "102",
                    "variables": {"queue": "sales", "empty": ""},
                }
                await socket.send(json.dumps({"type": "transfer", "to": "200", "result": "booked"}))
                await phone.hung_up.wait()
                # The dial plan goes on at once; the end of the call may not be known here yet.
                assert (await http.get(f"/{call_id}/result?field=transfer_to")).text == "200"
                await until(socket, "hung_up")
            result = await http.get(f"/{call_id}/result")
            assert result.json() == {"call": call_id, "value": "booked", "transfer_to": "200"}

    run(test())


def test_a_result_without_a_transfer() -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as http:
            first, second, third = [await server.phone() for _ in range(3)]
            async with server.socket(first.call_id) as socket:
                await socket.send(json.dumps({"type": "hang_up", "result": "no answer"}))
                with pytest.raises(ConnectionClosed):
                    await until(socket, "never")
            assert (await http.get(f"/{first.call_id}/result?field=value")).text == "no answer"
            assert (await http.get(f"/{first.call_id}/result?field=transfer_to")).text == ""
            await http.delete(f"/{second.call_id}", params={"result": "full"})
            await second.hung_up.wait()
            assert (await http.get(f"/{second.call_id}/result?field=value")).text == "full"
            other_call = await http.post(f"/{third.call_id}/transfer", json={"to": f"call:{second.call_id}"})
            assert (other_call.status_code, "cannot be joined" in other_call.text) == (400, True)
            transferred = await http.post(f"/{third.call_id}/transfer", json={"to": "sip:a@example.org"})
            assert transferred.json() == {"call": third.call_id, "status": "transferred"}
            unknown = await http.get(f"/{uuid.uuid4()}/result?field=transfer_to")
            assert (unknown.status_code, unknown.text) == (404, "")  # a dial plan reads the body
            assert (await http.get(f"/{uuid.uuid4()}/result")).json()["error"]

    run(test())


def test_a_call_of_a_json_announcement_is_answered_by_its_agent(tmp_path: Path) -> None:
    (tmp_path / "sales.txt").write_text("Sales here.")
    agents = {"sales": f"script:{tmp_path / 'sales.txt'}", "quiet": "none"}

    async def test() -> None:
        async with call_server(agents=agents) as server, server.http() as http:
            call_id = str(uuid.uuid4())
            body = {"call": call_id, "agent": "sales", "variables": {"a": "1"}}
            assert (await http.post("/expected", json=body)).json() == {"call": call_id}
            phone = await server.dial(call_id)
            await phone.hung_up.wait()  # a script ends the call; without an agent it would stay up
            assert any(phone.heard)
            refused = await http.post("/expected", json={"agent": "support"})
            assert refused.status_code == 400
            assert "no agent 'support' is configured (there are: quiet, sales)" in refused.json()["error"]

    run(test())


def test_other_calls_are_refused_if_only_expected_ones_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with call_server(audiosocket_expected_calls_only=True) as server, server.http() as http:
            call_id = (await http.post("/expected", json={})).json()["call"]
            stranger = await server.dial()
            await stranger.hung_up.wait()
            expected = await server.phone(call_id)
            await http.delete(f"/{call_id}")
            await expected.hung_up.wait()
            again = await server.dial(call_id)  # a call is expected once
            await again.hung_up.wait()
            await wait_until(lambda: len(server.gateway.calls.registry) == 0)
            assert caplog.text.count("is expected") == 2

    run(test())


@pytest.mark.parametrize(
    ("body", "content_type", "sentence"),
    [
        (b"{", "application/json", "Invalid JSON"),
        (b'{"phone": "1"}', "application/json", "phone: Extra inputs are not permitted"),
        (b'{"call": "7"}', "application/json", "call: Input should be a valid UUID"),
        (b"call=7", "application/x-www-form-urlencoded", "call: Input should be a valid UUID"),
        (b"expires_s=inf", "application/x-www-form-urlencoded", "expires_s: "),
        (b"number=\xff", "application/x-www-form-urlencoded", "the form cannot be parsed"),
        (b"&".join(b"v%d=1" % n for n in range(101)), "application/x-www-form-urlencoded", "variables: "),
        (b"number=" + b"1" * 70_000, "application/x-www-form-urlencoded", "more than 65536 bytes"),
    ],
)
def test_a_wrong_announcement_is_refused(body: bytes, content_type: str, sentence: str) -> None:
    async def test() -> None:
        async with call_server() as server, server.http() as http:
            answer = await http.post("/expected", content=body, headers={"content-type": content_type})
            assert answer.status_code == 400
            assert sentence in answer.json()["error"]

    run(test())


@pytest.mark.parametrize(("caller_rate", "sent_rate"), [(8_000, 8_000), (16_000, 24_000), (None, 8_000)])
def test_the_rate_sent_follows_the_caller_s_channel(caller_rate: int | None, sent_rate: int) -> None:
    async def test() -> None:
        async with call_server(audiosocket_rate="caller") as server:
            phone = await server.dial()
            if caller_rate is not None:
                phone.send(AudioSocketAudio(caller_rate, bytes(caller_rate // 25)))
            async with server.socket("next") as socket:
                assert (await until(socket, "started"))[-1]["sample_rate"] == sent_rate

    run(test())


def test_a_caller_who_hangs_up_before_its_first_audio_is_no_call() -> None:
    async def test() -> None:
        async with call_server(audiosocket_rate="caller") as server:
            phone = await server.dial()
            await phone.aclose()
            await asyncio.sleep(0.2)  # past the wait for audio
            assert len(server.gateway.calls.registry) == 0
            assert server.gateway.calls.registry.refusal() is None

    run(test())
