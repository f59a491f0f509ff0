"""The password of Asterisk's REST interface: from the settings or from a file, and never in a message."""

import asyncio
from pathlib import Path

import pytest

from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway.calls.ways_in.ari.client import AriAccess
from vivavoce.gateway.calls.ways_in.ari.way_in import AriPasswordUnreadable, read_password
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings_loader import SettingsError, load_settings
from vivavoce.tts_engine.engine import Engine


def test_the_password_is_the_setting_or_the_first_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\nsecond line\n")
    assert read_password(load_settings(flags={"ari_password": "set", "ari_password_file": file})) == "set"
    assert read_password(load_settings(flags={"ari_password_file": file})) == "from file"
    assert read_password(load_settings()) == ""
    assert "set" not in repr(AriAccess("http://asterisk/ari", "user", "app", "set"))


def test_a_password_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    flags = {"ari_url": "http://127.0.0.1:8088/ari", "ari_password_file": tmp_path / "missing"}

    async def open_gateway() -> None:
        settings = load_settings(flags={**flags, "http_port": 0, "audiosocket_port": 0})
        async with await Engine.open(backend=StandInBackend()) as engine:
            await Gateway.open(settings, engine=engine)

    with pytest.raises(AriPasswordUnreadable, match="missing"):
        asyncio.run(open_gateway())


def test_rtp_beyond_loopback_needs_consent() -> None:
    with pytest.raises(SettingsError, match="rtp_host"):
        load_settings(flags={"rtp_host": "0.0.0.0"})
