"""The end of grants: the checks of the keys file, and the blocks that a grant's end cancels."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import Context
from dataclasses import replace
from pathlib import Path

import pytest

from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.errors import GrantEnded, RateLimited
from vivavoce.gateway.access.grant_ends import GrantEnds, ending_with_grants
from vivavoce.gateway.access.keys import ApiKey, KeyLimits, KeysFile, Scope


@pytest.fixture
def now() -> list[float]:
    return [1_000.0]


@pytest.fixture
def keys(tmp_path: Path, now: list[float]) -> KeysFile:
    return KeysFile(tmp_path / "keys.json", now=lambda: now[0])


def opened_grant(keys: KeysFile, access: AccessControl, **changes: object) -> Grant:
    key = keys.add("test", (Scope.SPEAK, Scope.CALLS_OWN), KeyLimits(), **changes)
    return access.grant({"x-api-key": key})


def change_scopes(keys: KeysFile, id: str) -> None:
    keys.change(id, lambda key: replace(key, scopes=(Scope.SPEAK,)))


def change_agents(keys: KeysFile, id: str) -> None:
    keys.change(id, lambda key: replace(key, agents=("sales",)))


def change_destinations(keys: KeysFile, id: str) -> None:
    keys.change(id, lambda key: replace(key, destinations=("200",)))


@pytest.mark.parametrize("end", [KeysFile.revoke, change_scopes, change_agents, change_destinations])
def test_a_grant_ends_with_what_its_key_permits(
    keys: KeysFile, end: Callable[[KeysFile, str], object]
) -> None:
    access = AccessControl(keys)
    ended, other = opened_grant(keys, access), opened_grant(keys, access)
    end(keys, ended.key_id)
    assert not ended.is_current and other.is_current
    with pytest.raises(GrantEnded):
        ended.charge_request()


def change_limits(key: ApiKey) -> ApiKey:
    return replace(key, limits=KeyLimits(streams=1), lexicon="words.toml", name="another")


def test_a_change_of_limits_ends_nothing_and_what_is_open_stays_counted(keys: KeysFile) -> None:
    access = AccessControl(keys)
    grant = opened_grant(keys, access)
    with grant.stream():
        keys.change(grant.key_id, change_limits)
        assert grant.is_current
        changed = access._grant_of(next(iter(keys)))
        with (
            pytest.raises(RateLimited, match="1 streams of this key"),
            changed.stream(),
        ):
            pass


def test_a_grant_ends_when_its_key_expires(keys: KeysFile, now: list[float]) -> None:
    grant = opened_grant(keys, AccessControl(keys), expires_at=1_060)
    now[0] = 1_059.9
    assert grant.is_current
    now[0] = 1_060.0
    assert not grant.is_current


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_a_grant_ends_a_second_after_the_keys_file_is_gone_or_damaged(
    damage: Callable[[Path], object], keys: KeysFile, tmp_path: Path, now: list[float]
) -> None:
    path = tmp_path / "keys.json"
    grant, content = opened_grant(keys, AccessControl(keys)), path.read_text()
    damage(path)
    assert grant.is_current
    now[0] += 0.9
    assert grant.is_current
    path.write_text(content)  # as an editor does that replaces a file in two steps
    assert grant.is_current
    damage(path)
    assert grant.is_current
    now[0] += 1.0
    assert not grant.is_current


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_what_a_grant_opened_is_ended_again_until_it_is_released(
    keys: KeysFile, caplog: pytest.LogCaptureFixture
) -> None:
    ends = GrantEnds(keys.is_current)
    grant = replace(opened_grant(keys, AccessControl(keys)), ends=ends)
    ended: list[str] = []

    def broken() -> None:
        raise ArithmeticError("a fault")

    release_first = grant.on_end(lambda: ended.append("first"))
    release_second = grant.on_end(lambda: ended.append("second"))
    release_broken = grant.on_end(broken)
    ends.check()
    assert ended == []
    keys.revoke(grant.key_id)
    ends.check()
    assert ended == ["second", "first"]
    release_second()
    release_broken()
    ends.check()
    assert ended == ["second", "first", "first"]
    release_first()
    release_first()
    caplog.clear()
    ends.check()
    assert ended[3:] == [] and not caplog.records


def with_watched_access(
    keys: KeysFile, test: Callable[[AccessControl, Callable[[], Grant]], Awaitable[None]]
) -> None:
    """Run a test with an access control that checks often, and what issues a grant of a new key."""

    async def run_test() -> None:
        access = AccessControl(keys)
        key = keys.add("test", (Scope.SPEAK,), KeyLimits(max_sockets=1))

        async def check_often() -> None:
            while True:
                assert access._ends is not None
                access._ends.check()
                await asyncio.sleep(0)

        checking = asyncio.create_task(check_often())
        await test(access, lambda: access.grant({"x-api-key": key}))
        checking.cancel()

    run(run_test)


def test_a_block_is_cancelled_when_a_grant_that_was_issued_in_it_ends(keys: KeysFile) -> None:
    async def test(access: AccessControl, issue: Callable[[], Grant]) -> None:
        with pytest.raises(GrantEnded), ending_with_grants():
            keys.revoke(issue().key_id)
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()
        await asyncio.sleep(0)  # the end of the block is the end of it

    with_watched_access(keys, test)


def test_an_inner_block_reports_the_end_before_the_outer_one_is_cancelled(keys: KeysFile) -> None:
    async def test(access: AccessControl, issue: Callable[[], Grant]) -> None:
        happened: list[str] = []
        with pytest.raises(GrantEnded), ending_with_grants():
            grant = issue()
            try:
                with ending_with_grants():
                    keys.revoke(grant.key_id)
                    await asyncio.Event().wait()
            except GrantEnded:
                happened.append("reported")
            await asyncio.Event().wait()  # a report that takes long
        assert happened == ["reported"]

    with_watched_access(keys, test)


def test_a_cancellation_of_another_cause_stays_one(keys: KeysFile) -> None:
    async def test(access: AccessControl, issue: Callable[[], Grant]) -> None:
        async def serve() -> None:
            with ending_with_grants():
                issue()
                await asyncio.Event().wait()

        serving = asyncio.create_task(serve())
        await asyncio.sleep(0)
        serving.cancel()
        await asyncio.wait({serving})
        assert serving.cancelled()

    with_watched_access(keys, test)


def test_a_socket_is_counted_until_its_block_ends(keys: KeysFile) -> None:
    async def test(access: AccessControl, issue: Callable[[], Grant]) -> None:
        with ending_with_grants(counts_socket=True):
            issue()
            issue()
            with pytest.raises(RateLimited, match="1 sockets"):
                await asyncio.create_task(serve_another_socket(issue), context=Context())
        await asyncio.create_task(serve_another_socket(issue), context=Context())

    with_watched_access(keys, test)


async def serve_another_socket(issue: Callable[[], Grant]) -> None:
    with ending_with_grants(counts_socket=True):
        issue()


def test_a_key_with_the_old_scope_keeps_what_it_had_and_is_warned_of_once(
    keys: KeysFile, caplog: pytest.LogCaptureFixture
) -> None:
    access, key = AccessControl(keys), keys.add("old", (Scope.CALLS,), KeyLimits())
    with caplog.at_level(logging.WARNING):
        grant = access.grant({"x-api-key": key})
        access.grant({"x-api-key": key})
    permitted = {Scope.CALLS, Scope.PAGE, Scope.CALLS_OWN, Scope.CALLS_ALL, Scope.ORIGINATE}
    assert grant.scopes == permitted
    assert caplog.text.count("has the old scope 'calls'") == 1
