"""Authentication of requests: keys in headers, page cookies, scopes and origins."""

import base64
from pathlib import Path

import pytest

from vivavoce.gateway.access.access_control import (
    ANONYMOUS_KEY_ID,
    PAGE_COOKIE_NAME,
    PAGE_TICKET_LIFETIME_S,
    AccessControl,
)
from vivavoce.gateway.access.errors import KeyRefused, OriginRefused, ScopeMissing
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.origins import Origins

HOST = {"host": "voice.example.org"}


@pytest.fixture
def keys(tmp_path: Path) -> KeysFile:
    return KeysFile(tmp_path / "keys.json")


@pytest.fixture
def key(keys: KeysFile) -> str:
    return keys.add("test", (Scope.SPEAK,), KeyLimits(streams=1))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.mark.parametrize(
    "headers",
    [
        lambda key: {"authorization": f"Bearer {key}"},
        lambda key: {"authorization": f"bearer {key}"},
        lambda key: {"authorization": basic("anyone", key)},
        lambda key: {"authorization": f"Basic {key}"},
        lambda key: {"x-api-key": key},
        lambda key: {"xi-api-key": key},
        lambda key: {"api-key": key},
        lambda key: {"x-api-key": "", "api-key": key},
    ],
)
def test_a_key_is_taken_from_every_header_that_clients_use(keys: KeysFile, key: str, headers: object) -> None:
    grant = AccessControl(keys).grant(HOST | headers(key))  # type: ignore[operator]
    assert grant.key_id == key[3:11]
    assert grant.allows(Scope.SPEAK) and not grant.allows(Scope.CALLS)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer  "},
        {"authorization": "Bearer vv_00000000_" + "A" * 43},
        {"authorization": "Digest vv_00000000_" + "A" * 43},
        {"authorization": "Basic !!!"},
        {"authorization": "Basic \xe9"},
        {"authorization": "Basic vv_00000000_" + "A" * 43},
        {"authorization": "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode()},
        {"authorization": basic("only", "")},
        {"x-api-key": "with spaces in it"},
        {"cookie": f"{PAGE_COOKIE_NAME}=nothing"},
        {"cookie": "\x00=;;=,"},
    ],
)
def test_headers_without_a_valid_key_are_refused(keys: KeysFile, key: str, headers: dict[str, str]) -> None:
    access = AccessControl(keys)
    with pytest.raises(KeyRefused):
        access.grant(HOST | headers)


def test_ten_thousand_wrong_keys_use_no_memory_and_a_valid_key_still_works(keys: KeysFile, key: str) -> None:
    access = AccessControl(keys)
    for number in range(10_000):
        with pytest.raises(KeyRefused):
            access.grant({"authorization": f"Bearer vv_{number:08x}_{'A' * 43}"})
    assert access.grant({"authorization": f"Bearer {key}"})
    assert len(access._rate_limiters) == 1


def test_the_refusal_of_a_missing_scope_names_it(keys: KeysFile, key: str) -> None:
    grant = AccessControl(keys).grant({"x-api-key": key})
    grant.require(Scope.SPEAK)
    with pytest.raises(ScopeMissing, match="'enrol'; it has speak"):
        grant.require(Scope.ENROLL)


def test_an_admin_may_do_everything(keys: KeysFile) -> None:
    grant = AccessControl(keys).grant({"x-api-key": keys.add("operator", (Scope.ADMIN,), KeyLimits())})
    for scope in Scope:
        grant.require(scope)


def test_the_grants_of_one_key_share_its_limits(keys: KeysFile, key: str) -> None:
    access = AccessControl(keys)
    with access.grant({"x-api-key": key}).stream():
        assert access.grant({"x-api-key": key}).rate_limiter.streams.here == 1


def test_without_a_keys_file_every_request_has_all_scopes() -> None:
    grant = AccessControl.open_to_all().grant({"host": "127.0.0.1:8080"})
    assert grant.key_id == ANONYMOUS_KEY_ID
    for scope in Scope:
        grant.require(scope)


def cookie(access: AccessControl, key: str) -> dict[str, str]:
    ticket = access.issue_page_ticket({"authorization": basic("me", key)})
    assert ticket is not None and key not in ticket
    return HOST | {"cookie": f'prefs={{"a":1}}; theme; {PAGE_COOKIE_NAME}={ticket}; vivavoce2=x'}


def test_a_page_cookie_is_valid_until_it_expires_or_its_key_is_revoked(keys: KeysFile, key: str) -> None:
    now = [0.0]
    access = AccessControl(keys, clock=lambda: now[0])
    first, second = cookie(access, key), cookie(access, key)
    assert access.grant(first).key_id == key[3:11]
    now[0] = PAGE_TICKET_LIFETIME_S
    assert access.grant(first).key_id == key[3:11]
    now[0] = 1.1 * PAGE_TICKET_LIFETIME_S
    with pytest.raises(KeyRefused):
        access.grant(first)
    third = cookie(access, key)
    keys.revoke(key[3:11])
    for headers in (second, third):
        with pytest.raises(KeyRefused):
            access.grant(headers)


def test_a_key_that_asks_for_the_page_each_second_leaves_the_tickets_of_other_keys(
    keys: KeysFile, key: str
) -> None:
    now = [0.0]
    access = AccessControl(keys, clock=lambda: now[0])
    page, monitor = cookie(access, key), keys.add("monitor", (Scope.SPEAK,), KeyLimits())
    while now[0] < PAGE_TICKET_LIFETIME_S:
        monitoring = cookie(access, monitor)
        now[0] += 1.0
    for headers in (page, monitoring):
        assert access.grant(headers)
    assert len(access._tickets) < 100


def test_an_open_connection_is_refused_every_charge_once_its_key_is_revoked(keys: KeysFile, key: str) -> None:
    access = AccessControl(keys)
    grants = [access.grant(headers) for headers in ({"x-api-key": key}, cookie(access, key))]
    for grant in grants:
        grant.charge_request()
        grant.charge_characters(5)
    keys.revoke(key[3:11])
    for grant in grants:
        with pytest.raises(KeyRefused):
            grant.charge_request()
        with pytest.raises(KeyRefused):
            grant.charge_characters(5)


def test_no_cookie_is_issued_for_a_wrong_key_or_for_none(keys: KeysFile, key: str) -> None:
    access = AccessControl(keys)
    with pytest.raises(KeyRefused):
        access.issue_page_ticket({"authorization": basic("me", "wrong")})
    assert access.issue_page_ticket(HOST) is None


def test_a_page_of_another_origin_needs_a_key_in_a_header(keys: KeysFile, key: str) -> None:
    access = AccessControl(keys)
    elsewhere = {"origin": "https://evil.example"}
    with pytest.raises(OriginRefused, match=r"evil\.example"):
        access.grant(cookie(access, key) | elsewhere)
    with pytest.raises(OriginRefused):
        AccessControl.open_to_all().grant(HOST | elsewhere)
    with pytest.raises(OriginRefused):
        AccessControl.open_to_all().grant(HOST | elsewhere | {"x-api-key": "whatever"})
    assert access.grant(HOST | elsewhere | {"x-api-key": key})


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("https://voice.example.org", "voice.example.org", True),
        ("https://VOICE.example.org", "voice.example.org", True),
        ("https://app.example.org", "voice.example.org", True),
        ("https://app.example.org:444", "voice.example.org", False),
        ("https://app.example.net", "voice.example.org", True),
        ("https://A.b.example.net", "voice.example.org", True),
        ("https://example.net", "voice.example.org", False),
        ("https://evil-example.net", "voice.example.org", False),
        ("http://app.example.net", "voice.example.org", False),
        ("https://app.example.net:444", "voice.example.org", False),
        ("http://app.example.org", "voice.example.org", False),
        ("http://127.0.0.1:8081", "127.0.0.1:8080", False),
        ("null", "127.0.0.1:8080", False),
        ("file://", "", False),
        ("", "127.0.0.1:8080", False),
        ("https://voice.example.org.evil.example", "voice.example.org", False),
        ("http://user@127.0.0.1:8080", "127.0.0.1:8080", False),
        ("http://[", "127.0.0.1:8080", False),
        ("http://[", "[", False),
        ("http://\u2100.example", "127.0.0.1:8080", False),
    ],
)
def test_an_origin_must_be_the_servers_own_or_allowed(origin: str, host: str, allowed: bool) -> None:
    origins = Origins(frozenset({"https://app.example.org", "https://*.example.net"}))
    headers = {"origin": origin, "host": host}
    if allowed:
        origins.check(headers)
    else:
        with pytest.raises(OriginRefused):
            origins.check(headers)


@pytest.mark.parametrize(
    "host", ["localhost:8080", "127.0.0.1:8080", "[::1]:8080", "me.localhost", "10.0.0.1"]
)
def test_on_loopback_the_server_is_named_by_an_address_or_as_localhost(host: str) -> None:
    Origins(loopback_names_only=True).check({"host": host})


def test_on_loopback_a_request_without_a_host_is_of_a_program_and_passes() -> None:
    Origins(loopback_names_only=True).check({})
    with pytest.raises(OriginRefused):
        Origins(loopback_names_only=True).check({"origin": "http://evil.example"})


@pytest.mark.parametrize(
    "host", ["evil.example:8080", "", "127.0.0.1.evil.example", "localhost.evil.example", "[", "]", "[x]"]
)
def test_on_loopback_any_other_host_name_is_refused(host: str) -> None:
    with pytest.raises(OriginRefused):
        Origins(loopback_names_only=True).check({"host": host, "origin": f"http://{host}"})
