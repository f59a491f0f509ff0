"""Deployment files that users copy."""

import configparser
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "examples" / "deploy" / "vivavoce.service"
README = Path(__file__).parents[2] / "gateway" / "README.md"


def test_the_unit_confines_the_server() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    wanted = {
        "NoNewPrivileges": "true",
        "ProtectSystem": "strict",
        "UMask": "0077",
        "CapabilityBoundingSet": "",
    }
    assert {name: service[name] for name in wanted} == wanted
    assert int(service["LimitNOFILE"]) >= 65_536


def test_systemd_finds_the_unit_well_confined() -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def test_the_example_of_nginx_replaces_what_the_client_says_of_itself() -> None:
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in README.read_text(encoding="utf-8")


def test_a_server_tells_its_manager_when_it_is_ready_alive_and_stopping(tmp_path: Path) -> None:
    assert "Type=notify" in UNIT.read_text(encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        variables = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "300000"}
        command = [sys.executable, "-c", "from vivavoce.gateway.cli import run; run()", "serve"]
        options = ["--http-port", "0", "--audiosocket-port", "0"]
        with subprocess.Popen(
            [*command, *options], env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                received = [manager.recv(100) for _ in range(3)]
                assert server.stdout is not None and server.stdout.readline().startswith("vivavoce is ready")
                assert sorted(set(received)) == [b"READY=1", b"WATCHDOG=1"]
            finally:
                server.terminate()
            while (state := manager.recv(100)) == b"WATCHDOG=1":
                pass
            assert state == b"STOPPING=1"
            assert server.wait(30) == 0
