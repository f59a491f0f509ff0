"""The password of Asterisk's REST interface: from the settings or from a file, and never in a message."""

from pathlib import Path

import pytest

from vivavoce.gateway.calls.ways_in.ari.client import AriAccess
from vivavoce.gateway.calls.ways_in.ari.opening import AriPasswordUnreadable, _read_password, open_ari
from vivavoce.gateway.settings_loader import SettingsError, load_settings


def test_the_password_is_the_setting_or_the_first_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from file\nsecond line\n")
    assert _read_password(load_settings(flags={"ari_password": "set", "ari_password_file": file})) == "set"
    assert _read_password(load_settings(flags={"ari_password_file": file})) == "from file"
    assert _read_password(load_settings()) == ""
    assert "set" not in repr(AriAccess("http://asterisk/ari", "user", "app", "set"))


def test_a_password_file_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    flags = {"ari_url": "http://127.0.0.1:8088/ari", "ari_password_file": tmp_path / "missing"}
    with pytest.raises(AriPasswordUnreadable, match="missing"):
        open_ari(load_settings(flags=flags), None)  # type: ignore[arg-type]


def test_rtp_beyond_loopback_needs_consent() -> None:
    with pytest.raises(SettingsError, match="rtp_host"):
        load_settings(flags={"rtp_host": "0.0.0.0"})
