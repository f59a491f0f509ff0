"""The access to Asterisk's REST interface, whose password is in no message."""

import pytest

from vivavoce.gateway.calls.ways_in.ari.client import AriAccess
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.configuration.settings_table import SettingsError


@pytest.mark.parametrize(
    ("url", "user", "base"),
    [
        ("http://127.0.0.1:8088/ari", "vivavoce", "http://127.0.0.1:8088/ari"),
        ("https://gate@pbx.example/ari", "gate", "https://pbx.example/ari"),
        ("http://gate%40home@10.0.0.1:8088/ari", "gate@home", "http://10.0.0.1:8088/ari"),
    ],
)
def test_the_url_may_name_the_user(url: str, user: str, base: str) -> None:
    ari = load_settings(flags={"ari_url": url}).ari
    assert (ari.user, ari.url_without_user) == (user, base)


def test_a_password_does_not_belong_in_the_url() -> None:
    with pytest.raises(SettingsError, match=r"ari.url .*; allowed is the URL of Asterisk's REST interface"):
        load_settings(flags={"ari_url": "http://gate:secret@127.0.0.1:8088/ari"})


def test_the_password_is_not_shown() -> None:
    assert "set" not in repr(AriAccess("http://asterisk/ari", "user", "app", "set"))
    assert "hush" not in repr(load_settings(flags={"ari_password": "hush"}))


def test_rtp_beyond_loopback_needs_consent() -> None:
    with pytest.raises(SettingsError, match=r"rtp\.host"):
        load_settings(flags={"rtp_host": "0.0.0.0"})
