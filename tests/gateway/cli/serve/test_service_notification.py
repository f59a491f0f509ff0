"""Notifications to a service manager, whose socket is one of the test's."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from vivavoce.gateway.cli.commands.serve.service_notification import ServiceNotifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(10)
        yield sock


def test_the_manager_learns_the_states_and_children_do_not_learn_its_socket(
    manager: socket.socket,
) -> None:
    environment = {"NOTIFY_SOCKET": manager.getsockname(), "PATH": "/bin"}
    notifier = ServiceNotifier(environment)
    notifier.ready()
    notifier.stopping()
    assert [manager.recv(100), manager.recv(100)] == [b"READY=1", b"STOPPING=1"]
    assert environment == {"PATH": "/bin"}


def test_the_event_loop_is_reported_alive_three_times_a_timeout(manager: socket.socket) -> None:
    notifier = ServiceNotifier({"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "30000"})

    async def scenario() -> None:
        task = asyncio.create_task(notifier.report_alive())
        for _ in range(3):
            assert await asyncio.to_thread(manager.recv, 100) == b"WATCHDOG=1"
        task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "variables",
    [{}, {"WATCHDOG_USEC": "30000", "WATCHDOG_PID": str(os.getpid() + 1)}, {"WATCHDOG_USEC": "soon"}],
)
def test_without_a_watchdog_of_this_process_nothing_is_reported(variables: dict[str, str]) -> None:
    async def scenario() -> None:
        await asyncio.wait_for(ServiceNotifier(dict(variables)).report_alive(), 10)

    asyncio.run(scenario())


def test_a_socket_whose_name_begins_with_at_is_abstract() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        name = f"vivavoce-test-{os.getpid()}"
        sock.bind(f"\0{name}")
        sock.settimeout(10)
        ServiceNotifier({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert sock.recv(100) == b"READY=1"
