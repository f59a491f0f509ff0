"""Scopes and operations: every route and every message of calls, with a key of each scope."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.browser.fake_browser import OFFER, serve_browsers
from shared.calls.call_server import CallServer, Phone, call_server, until, until_unattached
from vivavoce.gateway import serve
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.calls.api.messages import CLIENT_MESSAGE
from vivavoce.gateway.calls.call_options import CallOwner
from vivavoce.gateway.web.app import Mount

SCOPES: Final = tuple(scope for scope in Scope if scope is not Scope.CALLS)
ALL = frozenset({Scope.CALLS_ALL, Scope.ADMIN})
OWN = frozenset({Scope.CALLS_OWN})
PAGE = frozenset({Scope.PAGE, Scope.ADMIN})
PLACING = frozenset({Scope.ORIGINATE, Scope.ADMIN})
NONE: Final[frozenset[Scope]] = frozenset()
# Of each route: the scopes that permit it, and those that do for the key's own call besides.
ROUTES: Final = {
    ("POST", "/v1/calls"): (PLACING, NONE),
    ("GET", "/v1/calls"): (ALL | OWN, NONE),
    ("GET", "/v1/calls/{call_id}"): (ALL, OWN),
    ("DELETE", "/v1/calls/{call_id}"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/discard"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/speech"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/play"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/keys"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/recording"): (ALL, OWN),
    ("DELETE", "/v1/calls/{call_id}/recording"): (ALL, OWN),
    ("POST", "/v1/calls/{call_id}/transfer"): (ALL, OWN),
    ("GET", "/v1/calls/{call_id}/result"): (ALL, OWN),
    ("POST", "/v1/calls/expected"): (ALL, NONE),
    ("WEBSOCKET", "/v1/calls/{call_id}/socket"): (ALL, OWN),
    ("WEBSOCKET", "/v1/asterisk/media"): (ALL, NONE),
    ("WEBSOCKET", "/v1/media-streams/{carrier_name}"): (ALL, NONE),
    ("WEBSOCKET", "/v1/media-streams/{carrier_name}/{token}"): (ALL, NONE),
    ("GET", "/v1/media-streams/{carrier_name}/answer"): (ALL, NONE),
    ("POST", "/v1/media-streams/{carrier_name}/answer"): (ALL, NONE),
    ("GET", "/v1/media-streams/{carrier_name}/{token}/answer"): (ALL, NONE),
    ("POST", "/v1/media-streams/{carrier_name}/{token}/answer"): (ALL, NONE),
    ("GET", "/status"): (PAGE, NONE),
    ("POST", "/start"): (PAGE, NONE),
    ("POST", "/api/offer"): (PAGE, NONE),
    ("PATCH", "/api/offer"): (PAGE, NONE),
    ("DELETE", "/api/offer"): (PAGE, NONE),
    ("POST", "/sessions/{session_id}/api/offer"): (PAGE, NONE),
    ("PATCH", "/sessions/{session_id}/api/offer"): (PAGE, NONE),
}
if find_spec("pipecat_ai_prebuilt") is not None:  # of an extra
    ROUTES.update({("GET", "/client"): (PAGE, NONE), ("GET", "/client/{path:path}"): (PAGE, NONE)})
# A request that is permitted is answered otherwise than 401, 403 and 404. So that it does not end the call
# that others need, some get a query or a body that is refused later.
REQUESTS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("DELETE", "/v1/calls/{call_id}"): {"params": {"result": 1_001 * "x"}},
    ("POST", "/v1/calls/{call_id}/speech"): {"content": "Yes."},
    ("POST", "/v1/calls/{call_id}/play"): {"json": {}},
    ("POST", "/v1/calls/{call_id}/keys"): {"json": {"digits": "1"}},
    ("POST", "/v1/calls/expected"): {"json": {}},
}
# Paths with parameters that name nothing: a request that is permitted is answered 404.
MISSING: Final = {"/client/{path:path}", "/sessions/{session_id}/api/offer", "/api/offer"}
PARAMETERS: Final = {
    "carrier_name": "twilio",
    "token": "t",
    "session_id": "s",
    "path:path": "x",
}
# An example of each message of a program or a page.
MESSAGES: Final[dict[str, dict[str, Any]]] = {
    "text": {"text": "Not heard."},
    "flush": {},
    "end": {},
    "play": {"file": "menu.wav"},
    "discard": {},
    "hang_up": {},
    "transfer": {"to": "0900"},
    "record": {},
    "speech": {"voice": "unknown"},
    "on_speech": {"action": "discard"},
    "ask": {"text": "Who is there?"},
    "dtmf": {"digit": "5"},
    "send_keys": {"digits": "5"},
}


def routes_of_calls(mounts: list[Mount]) -> set[tuple[str, str]]:
    """Return method and path of every route that needs a scope of calls, and those of carriers."""
    found = set()
    for mount in mounts:
        for route in mount.router.routes:
            path: str = route.path  # type: ignore[attr-defined]
            if mount.scope is not None or path.startswith("/v1/media-streams"):
                methods = getattr(route, "methods", None) or {"WEBSOCKET"}
                found |= {(method, path) for method in methods - {"HEAD"}}
    return found


@asynccontextmanager
async def noted_server(
    keys_file: Path, monkeypatch: pytest.MonkeyPatch, mounts: list[Mount]
) -> AsyncIterator[CallServer]:
    """Open a server whose mounts are added to the list."""
    make_app = serve.make_app

    def note_mounts(**arguments: Any) -> Any:
        mounts.extend(arguments["mounts"])
        return make_app(**arguments)

    monkeypatch.setattr(serve, "make_app", note_mounts)
    async with call_server(keys_file=keys_file) as server:
        # On a busy machine, it would refuse calls.
        monkeypatch.setattr(server.gateway.calls.registry.pressure, "refusal", lambda now: None)
        yield server


async def is_permitted(server: CallServer, key: str, route: tuple[str, str], call_id: str) -> bool:
    method, path = route
    url = server.base.removesuffix("/v1/calls") + path
    for name, value in {**PARAMETERS, "call_id": call_id}.items():
        url = url.replace(f"{{{name}}}", value)
    headers = {"authorization": f"Bearer {key}"}
    if method == "WEBSOCKET":
        return await is_socket_permitted(f"ws://{url}", headers)
    async with httpx.AsyncClient(headers=headers, timeout=60) as client:
        answer = await client.request(method, f"http://{url}", **REQUESTS.get(route, {}))
    refused = {401, 403} if path in MISSING else {401, 403, 404}
    return answer.status_code not in refused


async def is_socket_permitted(url: str, headers: dict[str, str]) -> bool:
    try:
        async with connect(url, additional_headers=headers) as socket:
            return "/v1/calls/" not in url or json.loads(await socket.recv())["type"] == "started"
    except InvalidStatus as refusal:
        assert refusal.response.status_code == 403
        return False


async def phone_of(server: CallServer, key: str = "") -> Phone:
    """Return a phone whose call belongs to a key."""
    phone = await server.phone()
    server.gateway.calls.registry.get(phone.call_id).owner = CallOwner(key[3:11])
    return phone


def test_every_operation_needs_its_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_file, mounts = tmp_path / "keys.json", list[Mount]()
    tokens = {scope: KeysFile(keys_file).add(scope, (scope,), KeyLimits()) for scope in SCOPES}

    async def run() -> None:
        async with asyncio.timeout(200), noted_server(keys_file, monkeypatch, mounts) as server:
            assert routes_of_calls(mounts) == set(ROUTES), "a route without an entry, or an entry without one"
            wrong = []
            for scope, key in tokens.items():
                phones = {"nobody's": await phone_of(server), "own": await phone_of(server, key)}
                for (whose, phone), route in itertools.product(phones.items(), ROUTES):
                    needed, of_own_call = ROUTES[route]
                    permits = scope in (needed | of_own_call if whose == "own" else needed)
                    if await is_permitted(server, key, route, phone.call_id) is not permits:
                        wrong.append((scope.value, whose, *route))
                    await until_unattached(server, phone)
            assert wrong == []

    asyncio.run(run())


def test_a_key_sees_its_own_calls_and_those_of_its_agents(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("program", (Scope.CALLS_OWN,), KeyLimits(), agents=("sales",))
    settings: dict[str, Any] = {"keys_file": tmp_path / "keys.json", "agents": {"sales": "none"}}

    async def run() -> None:
        async with asyncio.timeout(60), call_server(key=key, **settings) as server, server.http() as client:
            await phone_of(server)
            own = await phone_of(server, key)
            refused = await client.post("/expected", json={})
            assert refused.status_code == 403 and "for its agents only" in refused.json()["error"]
            announced = await client.post("/expected", json={"agent": "sales"})
            of_agent = await server.phone(announced.json()["call"])
            listed = [call["call"] for call in (await client.get("")).json()["calls"]]
            assert listed == [own.call_id, of_agent.call_id]
            for phone in (own, of_agent):
                async with server.socket("next") as socket:
                    assert json.loads(await socket.recv())["call"] == phone.call_id
                    await socket.send(json.dumps({"type": "hang_up", "result": "done"}))
                    await until(socket, "hung_up")
                assert (await client.get(f"/{phone.call_id}/result")).json()["value"] == "done"

    asyncio.run(run())


def test_the_page_s_key_may_do_nothing_with_a_call_of_another(tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("page", (Scope.PAGE,), KeyLimits())
    settings: dict[str, Any] = {
        "keys_file": tmp_path / "keys.json",
        "recordings_folder": tmp_path / "recordings",
    }

    async def run() -> None:
        async with call_server(key=key, **settings) as server, server.http() as client:
            phone = await server.phone()
            path = f"/{phone.call_id}"
            answers = [
                await client.get(""),
                await client.get(path),
                await client.post(f"{path}/recording"),
                await client.post(f"{path}/transfer", json={"to": "0900"}),
                await client.post("", json={"over": "rtp"}),
                await client.delete(path),
            ]
            assert [answer.status_code for answer in answers] == [403] * 6
            with pytest.raises(InvalidStatus, match="403"):
                async with server.socket(phone.call_id, "?audio=in"):
                    pass
            assert not phone.hung_up.is_set() and not (tmp_path / "recordings").exists()

    asyncio.run(run())


def test_a_caller_is_not_joined_with_the_caller_of_another_key(tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("program", (Scope.CALLS_OWN,), KeyLimits())

    async def run() -> None:
        async with (
            call_server(keys_file=tmp_path / "keys.json", key=key) as server,
            server.http() as client,
        ):
            own, other = await phone_of(server, key), await phone_of(server)
            order = {"to": f"call:{other.call_id}"}
            assert (await client.post(f"/{own.call_id}/transfer", json=order)).status_code == 404
            async with server.socket(own.call_id) as socket:
                await socket.send(json.dumps({"type": "transfer", **order}))
                assert f"no call '{other.call_id}' is up" in (await until(socket, "error"))[-1]["message"]
            assert not own.hung_up.is_set() and not other.hung_up.is_set()

    asyncio.run(run())


def test_a_key_calls_and_transfers_to_its_destinations_only(tmp_path: Path) -> None:
    keys, scopes = KeysFile(tmp_path / "keys.json"), (Scope.CALLS_ALL, Scope.ORIGINATE)
    key = keys.add("program", scopes, KeyLimits(), destinations=("2??", "RTP/127.0.0.1:*"))

    async def run() -> None:
        async with (
            call_server(keys_file=tmp_path / "keys.json", key=key) as server,
            server.http() as client,
        ):
            refused = [{"over": "rtp"}, {"over": "rtp", "peer": "192.0.2.1:9"}]
            assert [(await client.post("", json=body)).status_code for body in refused] == [403, 403]
            placed = await client.post("", json={"over": "rtp", "peer": "127.0.0.1:4000"})
            assert placed.status_code == 201
            phone, second = await server.phone(), await server.phone()
            refusal = await client.post(f"/{phone.call_id}/transfer", json={"to": "0900123"})
            assert refusal.status_code == 403 and "its destinations are 2??" in refusal.json()["error"]
            async with server.socket(second.call_id) as socket:
                await socket.send(json.dumps({"type": "transfer", "to": "0900123"}))
                assert "may not call '0900123'" in (await until(socket, "error"))[-1]["message"]
                await socket.send(json.dumps({"type": "transfer", "to": "200"}))
                await until(socket, "hung_up")
            assert (await client.post(f"/{phone.call_id}/transfer", json={"to": "200"})).status_code == 200

    asyncio.run(run())


def test_the_table_has_every_message() -> None:
    assert set(CLIENT_MESSAGE.json_schema()["discriminator"]["mapping"]) == set(MESSAGES)


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_of_a_page_whose_key_was_revoked_is_refused(kind: str, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("page", (Scope.PAGE,), KeyLimits())

    async def run() -> None:
        headers = {"authorization": f"Bearer {key}"}
        async with asyncio.timeout(60), serve_browsers(access=AccessControl(keys), headers=headers) as server:
            peer = await server.call()
            keys.revoke(key[3:11])
            peer.send(type=kind, **MESSAGES[kind])
            assert "was revoked" in (await peer.until_received("error"))["message"]
            assert peer.closed is None and peer.of_type("utterance", "recording", "discarded", "dtmf") == []

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limits", "placed"),
    [
        (KeyLimits(requests_per_minute=1, streams=1), 1),
        (KeyLimits(streams=1), 1),
        (KeyLimits(max_calls=2), 2),
    ],
)
def test_the_limits_of_a_key_hold_for_calls_that_it_places(
    limits: KeyLimits, placed: int, tmp_path: Path
) -> None:
    key = KeysFile(tmp_path / "keys.json").add("program", (Scope.ORIGINATE, Scope.CALLS_OWN), limits)

    async def run() -> None:
        async with (
            call_server(keys_file=tmp_path / "keys.json", key=key) as server,
            server.http() as client,
        ):
            answers = [await client.post("", json={"over": "rtp"}) for _ in range(5)]
            assert [answer.status_code for answer in answers] == [201] * placed + [429] * (5 - placed)
            assert len(server.gateway.calls.registry) == placed

    asyncio.run(run())


def test_a_call_that_has_ended_counts_no_more(tmp_path: Path) -> None:
    scopes = (Scope.ORIGINATE, Scope.CALLS_OWN)
    key = KeysFile(tmp_path / "keys.json").add("program", scopes, KeyLimits(max_calls=1))

    async def run() -> None:
        async with (
            call_server(keys_file=tmp_path / "keys.json", key=key) as server,
            server.http() as client,
        ):
            for _ in range(3):
                placed = await client.post("", json={"over": "rtp"})
                assert placed.status_code == 201
                await client.delete(f"/{placed.json()['call']}")
                while len(server.gateway.calls.registry):
                    await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.parametrize("limits", [KeyLimits(streams=1), KeyLimits(max_sockets=1)])
def test_the_limits_of_a_key_hold_for_sockets_that_wait_for_a_call(limits: KeyLimits, tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("program", (Scope.CALLS_ALL,), limits)

    async def run() -> None:
        async with call_server(keys_file=tmp_path / "keys.json", key=key) as server:
            async with server.socket("next"):
                for _ in range(30):
                    with pytest.raises(InvalidStatus, match="429"):
                        async with server.socket("next"):
                            pass
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                await until(socket, "started")

    asyncio.run(run())


def test_a_program_that_waits_for_a_call_is_closed_when_its_key_is_revoked(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("program", (Scope.CALLS_ALL,), KeyLimits())

    async def run() -> None:
        async with (
            asyncio.timeout(60),
            call_server(keys_file=tmp_path / "keys.json", key=key) as server,
        ):
            async with server.socket("next", "?audio=in") as socket:
                keys.revoke(key[3:11])
                phone = await server.phone()
                with pytest.raises(ConnectionClosed) as closed:
                    await until(socket, "started")
                assert closed.value.rcvd is not None and closed.value.rcvd.code == 4401
            assert not server.gateway.calls.registry.get(phone.call_id).attached

    asyncio.run(run())


@pytest.mark.parametrize(("whose", "sdp"), [("another", "v=0"), ("own", "")])
def test_an_offer_ends_no_call_of_another_key_and_none_before_it_is_checked(
    whose: str, sdp: str, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    tokens = {name: keys.add(name, (Scope.PAGE,), KeyLimits()) for name in ("own", "another")}

    async def run() -> None:
        headers = {"authorization": f"Bearer {tokens['own']}"}
        async with serve_browsers(access=AccessControl(keys), headers=headers) as server:
            peer = await server.call()
            restart = {**OFFER, "sdp": sdp, "pc_id": peer.leg.call_id, "restart_pc": True}
            headers = {"authorization": f"Bearer {tokens[whose]}"}
            answer = await server.client.post("/api/offer", json=restart, headers=headers)
            assert answer.status_code == (400 if whose == "own" else 200)
            assert answer.json().get("pc_id") != peer.leg.call_id
            candidates = {"pc_id": peer.leg.call_id, "candidates": []}
            answer = await server.client.patch("/api/offer", json=candidates, headers=headers)
            assert answer.status_code == (200 if whose == "own" else 404)
            assert peer.closed is None

    asyncio.run(run())
