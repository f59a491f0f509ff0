"""Deployment files that users copy."""

import configparser
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[1] / "examples" / "deploy" / "vivavoce.service"
README = Path(__file__).parents[1] / "gateway" / "README.md"


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
