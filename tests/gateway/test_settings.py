"""Settings: their sources, and the error messages of wrong ones."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from vivavoce.adapters.ice_settings import IceServer, MediaPorts
from vivavoce.gateway.settings import Settings
from vivavoce.gateway.settings_loader import SettingsError, load_settings
from vivavoce.tts_engine.reading.reading_style import ReadingStyle


def write_config(folder: Path, toml: str) -> Path:
    file = folder / "vivavoce.toml"
    file.write_text(toml, encoding="utf-8")
    return file


def test_the_defaults_listen_on_loopback_only() -> None:
    settings = load_settings()
    assert (settings.host, settings.http_port) == ("127.0.0.1", 8080)
    assert (settings.audiosocket_host, settings.audiosocket_port) == ("127.0.0.1", 9092)
    assert settings.audiosocket_rate == 8000
    assert not settings.listen_beyond_loopback


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_config(tmp_path, "http_port = 1\nmax_calls = 2\naudiosocket_port = 3\n")
    monkeypatch.setenv("VIVAVOCE_HTTP_PORT", "11")
    monkeypatch.setenv("VIVAVOCE_MAX_CALLS", "12")
    settings = load_settings(file, {"http_port": "21"})
    assert (settings.http_port, settings.max_calls, settings.audiosocket_port) == (21, 12, 3)


def test_a_flag_of_none_is_ignored(tmp_path: Path) -> None:
    assert load_settings(write_config(tmp_path, "http_port = 1\n"), {"http_port": None}).http_port == 1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("audiosocket_rate", "24000", 24000),
        ("clock_phases", "5", 5),
        ("listen_beyond_loopback", "true", True),
        ("speed", "1.25", 1.25),
        ("voice", "anna", "anna"),
        ("precision", "int8", "int8"),
    ],
)
def test_every_type_of_value_can_come_from_the_environment(
    name: str, value: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"VIVAVOCE_{name.upper()}", value)
    assert getattr(load_settings(), name) == expected


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().max_calls = 7  # type: ignore[misc]


@pytest.mark.parametrize("key", ["twilio_auth_token", "plivo_auth_token"])
def test_signatures_need_the_url_that_they_cover(key: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{key}: signatures cover the server's URL"):
        load_settings(write_config(tmp_path, f'{key} = "secret"\n'))
    load_settings(write_config(tmp_path, f'{key} = "secret"\npublic_url = "https://voice.example.org"\n'))


def test_a_proxy_that_is_no_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"trusted_proxies .* allowed is a list of IP addresses"):
        load_settings(write_config(tmp_path, 'trusted_proxies = ["proxy.example.org"]\n'))


def test_a_file_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        load_settings(write_config(tmp_path, "agents = " + "[" * 100_000))


def test_an_unknown_key_of_the_file_is_named_with_the_allowed_ones(tmp_path: Path) -> None:
    file = write_config(tmp_path, 'colour = "red"\n')
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value).startswith(f"colour: unknown key in {file}; allowed are ")
    assert ", host, http_port, " in str(error.value)


def test_a_mistyped_key_is_answered_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_config(tmp_path, "http_prot = 1\n")
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value) == f"http_prot: unknown key in {file}; did you mean http_port?"
    monkeypatch.setenv("VIVAVOCE_MAX_CALL", "1")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert str(error.value).endswith("unknown environment variable; did you mean VIVAVOCE_MAX_CALLS?")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VIVAVOCE_URL", "ws://127.0.0.1:8080"),
        ("VIVAVOCE_KEY", "secret"),
        ("VIVAVOCE_SERVICE_HOST", "10.0.0.1"),
        ("VIVAVOCE_SERVICE_PORT_HTTP", "8080"),
        ("VIVAVOCE_PORT", "tcp://10.0.0.1:8080"),
        ("VIVAVOCE_PORT_8080_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_variables_of_the_examples_and_of_kubernetes_are_no_settings(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert load_settings().model_dump() == Settings().model_dump()


def test_a_port_without_the_name_of_its_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVAVOCE_PORT", "8080")
    with pytest.raises(SettingsError, match=r"^VIVAVOCE_PORT: unknown environment variable"):
        load_settings()


def test_a_table_of_the_file_is_an_unknown_key(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^server: unknown key"):
        load_settings(write_config(tmp_path, "[server]\nhttp_port = 1\n"))


def test_an_unknown_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVAVOCE_HTPP_PORT", "1")
    with pytest.raises(SettingsError, match=r"^VIVAVOCE_HTPP_PORT: unknown.* VIVAVOCE_HTTP_PORT"):
        load_settings()


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ('http_port = "x"', "http_port ({file}): got 'x'; allowed is a port from 0 (any free one) to 65535."),
        (
            "http_port = 65536",
            "http_port ({file}): got 65536; allowed is a port from 0 (any free one) to 65535.",
        ),
        (
            "http_port = true",
            "http_port ({file}): got True; allowed is a port from 0 (any free one) to 65535.",
        ),
        ("http_port = 1.5", "http_port ({file}): got 1.5; allowed is a port from 0 (any free one) to 65535."),
        ("max_calls = 0", "max_calls ({file}): got 0; allowed is calls from 1 to 10000."),
        ('agent = "cat"', "agent ({file}): got 'cat'; allowed is script:FILE, keys or none."),
        ('agent = "script:"', "agent ({file}): got 'script:'; allowed is script:FILE, keys or none."),
        ("speed = nan", "speed ({file}): got nan; allowed is a factor from 0.5 to 2.0."),
        ("clock_phases = 3", "clock_phases ({file}): got 3; allowed is 1, 2, 4, 5, 10 or 20."),
        ('voice = ""', "voice ({file}): got ''; allowed is the id of a loaded voice."),
        (
            'log_level = "LOUD"',
            "log_level ({file}): got 'LOUD'; allowed is DEBUG (shows what is said), INFO, WARNING or ERROR.",
        ),
    ],
)
def test_the_error_of_a_value_names_key_source_value_and_what_is_allowed(
    toml: str, sentence: str, tmp_path: Path
) -> None:
    file = write_config(tmp_path, toml)
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value) == sentence.format(file=file)


def test_the_error_of_a_value_names_the_flag_or_variable_it_came_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(SettingsError, match=r"^max_calls \(--max-calls\): got 'many'"):
        load_settings(None, {"max_calls": "many"})
    monkeypatch.setenv("VIVAVOCE_MAX_CALLS", "few")
    with pytest.raises(SettingsError, match=r"^max_calls \(VIVAVOCE_MAX_CALLS\): got 'few'"):
        load_settings()


def test_every_setting_describes_what_it_allows() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_file_that_cannot_be_read_or_parsed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--config .*absent.toml: cannot read it: No such file"):
        load_settings(tmp_path / "absent.toml")
    with pytest.raises(SettingsError, match=r"^--config .*: not TOML: "):
        load_settings(write_config(tmp_path, "http_port 1"))
    (tmp_path / "latin.toml").write_bytes(b'voice = "\xe9"')
    with pytest.raises(SettingsError, match=r"^--config .*latin.toml: not TOML: "):
        load_settings(tmp_path / "latin.toml")


@pytest.mark.parametrize("key", ["host", "audiosocket_host"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_beyond_loopback_needs_explicit_consent(key: str, host: str) -> None:
    with pytest.raises(SettingsError) as error:
        load_settings(None, {key: host})
    assert str(error.value).startswith(f"{key}: got '{host}', which other machines can reach")
    assert "--listen-beyond-loopback" in str(error.value)
    consented = {key: host, "listen_beyond_loopback": True, "without_keys": True}
    assert getattr(load_settings(None, consented), key) == host


def test_http_beyond_loopback_needs_a_keys_file_or_without_keys() -> None:
    beyond = {"host": "0.0.0.0", "listen_beyond_loopback": True}
    with pytest.raises(SettingsError, match=r"^host: got '0.0.0.0', which .*no keys.*--without-keys"):
        load_settings(None, beyond)
    assert load_settings(None, beyond | {"keys_file": "keys.json"}).keys_file == Path("keys.json")
    assert load_settings(None, beyond | {"without_keys": True}).without_keys


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
def test_loopback_names_and_addresses_are_accepted(host: str) -> None:
    assert load_settings(None, {"host": host}).host == host


def test_a_host_that_is_not_an_address_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"^host: got 'not an address', which is not an address: "):
        load_settings(None, {"host": "not an address"})


@pytest.mark.parametrize(
    "toml",
    [
        "llm_api_key = 12345678",
        'ice_servers = [{urls = "turn:turn.example", credential = "12345678"}]',
        'ice_servers = [{urls = "turn:turn.example", user = "u", credential = "12345678"}]',
        'ice_servers = [{urls = "http://turn.example", username = "u", credential = "12345678"}]',
    ],
)
def test_the_error_of_a_secret_does_not_show_it(toml: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not shown") as refusal:
        load_settings(write_config(tmp_path, toml))
    assert "1234" not in str(refusal.value)


@pytest.mark.parametrize(
    ("toml", "environment"),
    [
        (
            'ice_servers = ["stun:s.example:3478", {urls = "turn:t.example?transport=tcp", username = "u", '
            'credential = "hush"}]\nwebrtc_ports = "40000-40999"',
            {},
        ),
        (
            "",
            {
                "VIVAVOCE_ICE_SERVERS": '["stun:s.example:3478", {"urls": ["turn:t.example?transport=tcp"], '
                '"username": "u", "credential": "hush"}]',
                "VIVAVOCE_WEBRTC_PORTS": "40000-40999",
            },
        ),
    ],
    ids=["file", "environment"],
)
def test_ice_servers_and_ports_come_from_the_file_or_the_environment(
    toml: str, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = load_settings(write_config(tmp_path, toml))
    assert settings.ice_servers is not None
    assert [server.server() for server in settings.ice_servers] == [
        IceServer(("stun:s.example:3478",)),
        IceServer(("turn:t.example?transport=tcp",), "u", "hush"),
    ]
    assert settings.webrtc_ports == MediaPorts(40_000, 40_999)
    assert "hush" not in repr(settings) + str(settings.model_dump(mode="json"))


@pytest.mark.parametrize("ports", ["40000", "40999-40000", "80-90", "60000-70000", "a-b"])
def test_a_range_of_ports_is_first_to_last_within_the_unprivileged_ones(ports: str) -> None:
    with pytest.raises(
        SettingsError, match=r"^webrtc_ports .*; allowed is a range of UDP ports within 1024-"
    ):
        load_settings(None, {"webrtc_ports": ports})


@pytest.mark.parametrize(
    ("toml", "style"),
    [
        ("", ReadingStyle()),
        ('locale = "en-GB"', ReadingStyle(day_first=True, zero="oh")),
        ('locale = "en-GB"\nzero = "zero"\ndate_order = "month-first"', ReadingStyle()),
        ('date_order = "day-first"\ndigit_pairs = true', ReadingStyle(day_first=True, digit_pairs=True)),
    ],
)
def test_a_locale_gives_the_reading_style_that_single_settings_override(
    toml: str, style: ReadingStyle, tmp_path: Path
) -> None:
    assert load_settings(write_config(tmp_path, toml)).reading_style == style
