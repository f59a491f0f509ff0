"""Webhooks and streams of carriers: signatures, tokens, tickets and keys, over HTTP and WebSockets."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from websockets.asyncio.client import connect

from shared.calls.peers.asterisk import SimulatedAsterisk
from shared.calls.peers.freeswitch import SimulatedAudioFork, SimulatedAudioStream
from shared.calls.peers.twilio import SimulatedTwilio
from shared.calls.websocket_calls import WebSocketCallServer, new_call_id, with_server
from shared.event_loop import until
from vivavoce.adapters.media_streams.carriers.webhooks import plivo_signature, twilio_signature
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.call_options import Caller
from vivavoce.gateway.calls.kits.websocket_leg import KnownCaller
from vivavoce.gateway.calls.ways_in.media_streams.carrier_access import TICKET_LIFETIME_S, StreamTickets
from vivavoce.gateway.calls.ways_in.media_streams.carriers import CARRIERS

PUBLIC = "https://voice.example.org"
TOKEN = "t" * 16
BODY = {"CallSid": "CA1", "CallUUID": "c-1", "From": "+1555", "To": "+1666"}


async def ask(server: WebSocketCallServer, method: str, path: str, **options: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url.replace("ws://", "http://"), trust_env=False) as client:
        return await client.request(method, path, **options)


def ticket_in(response: httpx.Response, carrier: str) -> str:
    match = re.search(rf"wss?://[^/]+/v1/media-streams/{carrier}/([\w-]+)", response.text)
    assert match is not None, response.text
    return match[1]


def test_a_signed_webhook_of_twilio_is_answered_with_a_stream_that_works_once() -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/twilio/answer"
        fields = {name: [value] for name, value in BODY.items()}
        signature = twilio_signature("secret", PUBLIC + path, fields)
        answer = await ask(server, "POST", path, data=BODY, headers={"X-Twilio-Signature": signature})
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("application/xml")
        assert '<Connect><Stream url="wss://voice.example.org/v1/media-streams/twilio/' in answer.text
        ticket = ticket_in(answer, "twilio")
        await server.dial(SimulatedTwilio(new_call_id(), token=ticket))
        with pytest.raises(Exception, match="HTTP 403"):
            await server.dial(SimulatedTwilio(new_call_id(), token=ticket))

    with_server(test, media_streams_tokens_twilio="secret", http_public_url=PUBLIC)


@pytest.mark.parametrize("signature", [None, "", "AAAA", "MlvbHJI5NvntA8/mlnTov+AJ36U="])
def test_a_forged_signature_is_refused_and_logged_with_the_call(
    signature: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {} if signature is None else {"X-Twilio-Signature": signature}

    async def test(server: WebSocketCallServer) -> None:
        answer = await ask(server, "POST", "/v1/media-streams/twilio/answer", data=BODY, headers=headers)
        assert answer.status_code == 403 and "signature of twilio" in answer.json()["error"]
        with pytest.raises(Exception, match="HTTP 403"):
            await server.dial(SimulatedTwilio(new_call_id()), headers=headers)
        assert len(server.gateway.calls.registry) == 0

    with_server(test, media_streams_tokens_twilio="secret", http_public_url=PUBLIC)
    open_server, *warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert open_server.startswith(f"http.public_url is {PUBLIC} and there is no keys file")
    why = "of twilio from 127.0.0.1 refused: the signature of twilio is missing or wrong"
    assert warnings == [f"Call {BODY['CallSid']!r} {why}", f"Call '' {why}"]


def test_a_signed_stream_of_twilio_needs_no_ticket() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedTwilio(new_call_id())
        signature = twilio_signature("secret", f"wss://voice.example.org{peer.path}", {})
        await server.dial(peer, headers={"X-Twilio-Signature": signature})

    with_server(test, media_streams_tokens_twilio="secret", http_public_url=PUBLIC)


def test_a_signature_for_the_host_that_a_request_claims_is_refused() -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/twilio/answer"
        fields = {name: [value] for name, value in BODY.items()}
        headers = {
            "Host": "other.example.net",
            "X-Twilio-Signature": twilio_signature("secret", "http://other.example.net" + path, fields),
        }
        assert (await ask(server, "POST", path, data=BODY, headers=headers)).status_code == 403

    with_server(test, media_streams_tokens_twilio="secret", http_public_url=PUBLIC)
    with_server(test, media_streams_tokens_twilio="secret")  # nothing says what was signed


@pytest.mark.parametrize("carrier", ["twilio", "plivo"])
def test_a_json_body_which_no_signature_covers_is_refused(carrier: str) -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = f"/v1/media-streams/{carrier}/answer"
        query = {name: [value] for name, value in BODY.items()}
        plivo = plivo_signature("secret", PUBLIC + path, "n1", query=query, body={})
        headers = {
            "X-Twilio-Signature": twilio_signature("secret", f"{PUBLIC}{path}?{urlencode(BODY)}", {}),
            "X-Plivo-Signature-V3-Nonce": "n1",
            "X-Plivo-Signature-V3": plivo,
        }
        signed = await ask(server, "POST", f"{path}?{urlencode(BODY)}", headers=headers)
        assert signed.status_code == 200
        forged = await ask(
            server, "POST", f"{path}?{urlencode(BODY)}", headers=headers, json={"From": "+1999"}
        )
        assert forged.status_code == 400 and "signature does not cover" in forged.json()["error"]

    with_server(
        test,
        media_streams_tokens_twilio="secret",
        media_streams_tokens_plivo="secret",
        http_public_url=PUBLIC,
    )


def test_a_signed_webhook_that_is_sent_again_gives_no_second_stream() -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/twilio/answer"
        fields = {name: [value] for name, value in BODY.items()}
        headers = {"X-Twilio-Signature": twilio_signature("secret", PUBLIC + path, fields)}
        first = await ask(server, "POST", path, data=BODY, headers=headers)
        retried = await ask(server, "POST", path, data=BODY, headers=headers)
        assert ticket_in(first, "twilio") == ticket_in(retried, "twilio")
        await server.dial(SimulatedTwilio(new_call_id(), token=ticket_in(first, "twilio")))
        replayed = await ask(server, "POST", path, data=BODY, headers=headers)
        assert replayed.status_code == 403 and "answered before" in replayed.json()["error"]

    with_server(test, media_streams_tokens_twilio="secret", http_public_url=PUBLIC)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_signed_webhook_of_plivo_is_answered(method: str) -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/plivo/answer"
        fields = {name: [value] for name, value in BODY.items()}
        in_body, in_query = ({}, fields) if method == "GET" else (fields, {})
        headers = {
            "X-Plivo-Signature-V3-Nonce": "n1",
            "X-Plivo-Signature-V3": plivo_signature(
                "secret", PUBLIC + path, "n1", query=in_query, body=in_body
            ),
        }
        target = f"{path}?{urlencode(BODY)}" if method == "GET" else path
        options = {} if method == "GET" else {"data": BODY}
        answer = await ask(server, method, target, headers=headers, **options)
        assert answer.status_code == 200 and 'keepCallAlive="true"' in answer.text
        refused = await ask(
            server, method, target, headers={**headers, "X-Plivo-Signature-V3-Nonce": "n2"}, **options
        )
        assert refused.status_code == 403

    with_server(test, media_streams_tokens_plivo="secret", http_public_url=PUBLIC)


@pytest.mark.slow
@pytest.mark.parametrize("carrier", ["telnyx", "vonage", "exotel", "jambonz"])
def test_other_carriers_have_the_token_in_their_url(carrier: str) -> None:
    async def test(server: WebSocketCallServer) -> None:
        good = await ask(server, "GET", f"/v1/media-streams/{carrier}/{TOKEN}/answer")
        assert good.status_code == 200 and ticket_in(good, carrier)
        for path in (f"/v1/media-streams/{carrier}/answer", f"/v1/media-streams/{carrier}/{TOKEN}x/answer"):
            assert (await ask(server, "GET", path)).status_code == 403

    with_server(test, media_streams_tokens={carrier: TOKEN})


def test_freeswitch_needs_the_token_and_has_no_webhook(caplog: pytest.LogCaptureFixture) -> None:
    async def test(server: WebSocketCallServer) -> None:
        for kind in (SimulatedAudioFork, SimulatedAudioStream):
            await server.dial(kind(new_call_id(), token=TOKEN))
            refused = kind(new_call_id(), token="another")
            with pytest.raises(Exception, match="HTTP 403"):
                await server.dial(refused)
            assert f"Call '{refused.call_id}' of mod_audio_" in caplog.text
        answer = await ask(server, "POST", f"/v1/media-streams/mod_audio_fork/{TOKEN}/answer", data=BODY)
        assert answer.status_code == 404 and "mod_audio_fork has no webhook" in answer.text

    with_server(test, media_streams_tokens={"mod_audio_fork": TOKEN, "mod_audio_stream": TOKEN})


def test_a_json_webhook_is_read_and_a_wrong_or_long_one_refused() -> None:
    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/jambonz/answer"
        answer = await ask(server, "POST", path, json={"call_sid": "j-1", "from": "1555"})
        (verb,) = json.loads(answer.text)
        assert verb["verb"] == "listen" and verb["bidirectionalAudio"]["streaming"] is True
        headers = {"content-type": "application/json"}
        assert (await ask(server, "POST", path, content=b"{", headers=headers)).status_code == 400
        assert (await ask(server, "POST", path, content=b"[" * 70_000, headers=headers)).status_code == 400
        assert (await ask(server, "POST", "/v1/media-streams/acme/answer")).status_code == 404

    with_server(test)


def test_without_secrets_a_carrier_needs_an_api_key(tmp_path: Path) -> None:
    keys_file = tmp_path / "keys.json"
    speaker = KeysFile(keys_file).add("speaker", (Scope.SPEAK,), KeyLimits())
    caller = KeysFile(keys_file).add("caller", (Scope.CALLS,), KeyLimits())

    async def test(server: WebSocketCallServer) -> None:
        path = "/v1/media-streams/vonage/answer"
        assert (await ask(server, "GET", path)).status_code == 401
        for key, status in ((speaker, 403), (caller, 200)):
            answer = await ask(server, "GET", path, headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == status

    with_server(test, access_keys_file=keys_file)


def test_a_ticket_is_for_one_carrier_and_one_minute() -> None:
    now = 0.0
    tickets = StreamTickets(lambda: now)
    twilio, telnyx = CARRIERS["twilio"], CARRIERS["telnyx"]
    caller = KnownCaller(caller=Caller("+1555"))
    ticket = tickets.issue(twilio, caller)
    assert tickets.redeem(telnyx, ticket) is None
    assert tickets.redeem(twilio, ticket) == caller
    assert tickets.redeem(twilio, ticket) is None
    late = tickets.issue(twilio, caller)
    now += TICKET_LIFETIME_S
    assert tickets.redeem(twilio, late) is None


def test_the_caller_of_a_webhook_is_the_caller_of_the_call() -> None:
    async def test(server: WebSocketCallServer) -> None:
        answer = await ask(server, "POST", "/v1/media-streams/twilio/answer", data=BODY)
        peer = SimulatedTwilio(new_call_id(), token=ticket_in(answer, "twilio"))
        await server.dial(peer)
        call = server.find(peer.call_id)
        assert call is not None
        assert (call.caller.number, call.caller.called) == ("+15550001", "+15550002")  # of the stream itself

    with_server(test)


def test_a_stream_without_a_caller_has_that_of_its_webhook() -> None:
    async def test(server: WebSocketCallServer) -> None:
        webhook = "/v1/media-streams/vonage/answer?from=1555&to=1666&uuid=u-1"
        ticket = ticket_in(await ask(server, "GET", webhook), "vonage")
        url = f"{server.url}/v1/media-streams/vonage/{ticket}"
        async with connect(url, proxy=None, compression=None) as socket:
            await socket.send('{"event":"websocket:connected","content-type":"audio/l16;rate=16000"}')
            await until(lambda: server.find("u-1") is not None)
            listed = (await ask(server, "GET", "/v1/calls/u-1")).json()
        assert (listed["kind"], listed["caller"]["number"], listed["caller"]["called"]) == (
            "vonage",
            "1555",
            "1666",
        )

    with_server(test)


def test_parameters_of_asterisks_url_describe_the_caller_and_the_dial_plan_can_transfer() -> None:
    async def test(server: WebSocketCallServer) -> None:
        peer = SimulatedAsterisk("id-of-the-channel")
        peer.path += "?caller=1555&name=Ann&called=100&queue=sales&call=id-of-the-dial-plan"
        peer.call_id = "id-of-the-dial-plan"
        _, call = await server.dial(peer)
        call.end.transfer("200")
        await server.wait_ended(call)
        path = "/v1/calls/id-of-the-dial-plan/result?field=transfer_to"
        assert (await ask(server, "GET", path)).text.strip() == "200"
        assert (call.caller.number, call.caller.name, call.caller.called) == ("1555", "Ann", "100")
        assert call.caller.variables["queue"] == "sales"
        assert call.caller.variables["CONTEXT"] == "phones"  # of MEDIA_START

    with_server(test)
