"""The discovery process as the gateway sees it: ends, faults and reports, from a stand-in of a few lines."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from shared.event_loop import until
from vivavoce.gateway.cluster.ray.finding.messages import (
    ClusterReport,
    DiscoverySettings,
    FoundReplica,
    frame,
)
from vivavoce.gateway.cluster.ray.finding.replica_directory import RayReplicas
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas.messages import ReplicaDescription, ReplicaLoad, ReplicaLost

SETTINGS = DiscoverySettings("127.0.0.1:1", ReplicaSettings())
LOAD = ReplicaLoad(0, 8, 0.0, None)
STAND_IN = """
import os, sys, time
count = os.path.getsize(sys.argv[1] + "/starts") if os.path.exists(sys.argv[1] + "/starts") else 0
open(sys.argv[1] + "/starts", "a").write("x")
reports = open(sys.argv[1] + f"/reports-{min(count, int(sys.argv[2]) - 1)}", "rb").read()
os.write(1, reports)
if count + 1 < int(sys.argv[2]):
    while not os.path.exists(sys.argv[1] + "/end"):
        time.sleep(0.005)
    sys.exit(1)
while os.read(0, 100):
    pass
"""


def found(name: str) -> FoundReplica:
    return FoundReplica.of(ReplicaDescription(name, "digest", (), LOAD))


def process(folder: Path, *reports: Sequence[ClusterReport]) -> tuple[str, ...]:
    """A command whose n-th process sends the n-th reports and ends once a file is there, except the last."""
    for number, sent in enumerate(reports):
        (folder / f"reports-{number}").write_bytes(b"".join(map(frame, sent)))
    return (sys.executable, "-c", STAND_IN, str(folder), str(len(reports)))


def run(folder: Path, *reports: Sequence[ClusterReport], test: object) -> None:
    async def opened() -> None:
        async with (
            asyncio.timeout(30),
            aclosing(RayReplicas(SETTINGS, process(folder, *reports))) as replicas,
        ):
            await test(replicas)  # type: ignore[operator]

    asyncio.run(opened())


async def names(replicas: RayReplicas) -> list[str]:
    try:
        return [each.replica for each in await replicas.discover()]
    except ReplicaLost:
        return []


async def wait_for(replicas: RayReplicas, *expected: str) -> None:
    async with asyncio.timeout(20):
        while await names(replicas) != list(expected):
            await asyncio.sleep(0.01)


def test_a_process_that_ends_is_replaced_by_another(tmp_path: Path) -> None:
    async def test(replicas: RayReplicas) -> None:
        await wait_for(replicas, "a")
        (tmp_path / "end").touch()
        await wait_for(replicas)
        assert "discovery process ended" in replicas.fault
        await wait_for(replicas, "a", "b")

    first, second = ClusterReport((found("a"),), "voice"), ClusterReport((found("a"), found("b")), "voice")
    run(tmp_path, [first], [second], test=test)


def test_replicas_that_run_are_kept_while_a_new_head_has_not_asked_them(tmp_path: Path) -> None:
    async def test(replicas: RayReplicas) -> None:
        await wait_for(replicas, "a", "b")
        (tmp_path / "end").touch()
        await until(lambda: replicas.report.undescribed == {"a", "c"})
        assert await names(replicas) == ["a"]

    first = ClusterReport((found("a"), found("b")), "voice")
    run(tmp_path, [first], [ClusterReport((), "voice", undescribed=frozenset("ac"))], test=test)


def test_a_fault_of_the_head_is_named_and_keeps_what_was_found(tmp_path: Path) -> None:
    async def test(replicas: RayReplicas) -> None:
        await until(lambda: "does not answer" in replicas.fault)
        with pytest.raises(ReplicaLost, match="does not answer"):
            await replicas.discover()
        assert replicas.report.deployment == "voice" and not replicas.may_grow

    known = ClusterReport((found("a"),), "voice", 1)
    run(tmp_path, [known, ClusterReport(fault="the cluster's head does not answer")], test=test)


def test_another_deployment_is_followed_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(replicas: RayReplicas) -> None:
        await wait_for(replicas, "b")

    with caplog.at_level(logging.INFO, logger="vivavoce"):
        reports = [ClusterReport((found("a"),), "voice"), ClusterReport((found("b"),), "decode")]
        run(tmp_path, reports, test=test)
    assert [each for each in caplog.messages if "deployment" in each] == [
        "streams go to the deployment voice",
        "streams go to the deployment decode",
    ]


def test_a_replica_of_another_release_is_refused_with_both_releases_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(replicas: RayReplicas) -> None:
        await wait_for(replicas, "ours")

    other = FoundReplica("theirs", "0.0.1 with Python 3.9", b"not read")
    run(tmp_path, [ClusterReport((other, found("ours")), "voice")], test=test)
    (line,) = [each for each in caplog.messages if "refused" in each]
    assert "theirs" in line and "0.0.1 with Python 3.9" in line and "this gateway is" in line


@pytest.mark.parametrize(
    ("report", "grows"),
    [
        (ClusterReport((), "voice", desired=1, starting=1), True),
        (ClusterReport((found("a"),), "voice", desired=1, max_replicas=3), True),
        (ClusterReport((found("a"),), "voice", desired=1, max_replicas=1), False),
        (ClusterReport((found("a"),), "voice", desired=1), False),
        (ClusterReport((FoundReplica("b", "0.0.1", b""),), "voice", desired=2, starting=1), False),
    ],
)
def test_more_replicas_come_while_some_start_or_the_autoscaling_allows_them(
    tmp_path: Path, report: ClusterReport, grows: bool
) -> None:
    async def test(replicas: RayReplicas) -> None:
        await until(lambda: not replicas.fault)
        assert replicas.may_grow is grows

    run(tmp_path, [report], test=test)


def test_the_process_ends_with_its_gateway(tmp_path: Path) -> None:
    ids: list[int] = []

    async def test(replicas: RayReplicas) -> None:
        await wait_for(replicas, "a")
        assert replicas._process is not None
        ids.append(replicas._process.pid)

    run(tmp_path, [ClusterReport((found("a"),), "voice")], test=test)
    with pytest.raises(ProcessLookupError):
        os.kill(ids[0], 0)
