"""Settings: their sources, and the error messages of wrong ones."""

import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from shared.gateways.made_settings import make_settings
from vivavoce.adapters.ice_server import IceServer
from vivavoce.adapters.udp_ports import MediaPorts
from vivavoce.gateway.cli.configuration.setting_keys import SETTING_KEYS, former_settings
from vivavoce.gateway.cli.configuration.settings_loader import load_settings
from vivavoce.gateway.configuration.settings_table import SettingsError
from vivavoce.tts_engine.reading.language import ReadingStyle


def write_config(folder: Path, toml: str) -> Path:
    file = folder / "vivavoce.toml"
    file.write_text(toml, encoding="utf-8")
    return file


def test_the_defaults_listen_on_loopback_only() -> None:
    settings = load_settings()
    assert (settings.http.host, settings.http.port) == ("127.0.0.1", 8080)
    assert (settings.audiosocket.host, settings.audiosocket.port) == ("127.0.0.1", 9092)
    assert settings.audiosocket.rate == 8000
    assert not settings.access.listen_beyond_loopback


def test_flags_override_the_environment_and_the_environment_overrides_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_config(tmp_path, "http.port = 1\ncalls.max_calls = 2\naudiosocket.port = 3\n")
    monkeypatch.setenv("VIVAVOCE_HTTP_PORT", "11")
    monkeypatch.setenv("VIVAVOCE_CALLS_MAX_CALLS", "12")
    settings = load_settings(file, {"http_port": "21"})
    assert (settings.http.port, settings.calls.max_calls, settings.audiosocket.port) == (21, 12, 3)


def test_a_flag_of_none_is_ignored(tmp_path: Path) -> None:
    assert load_settings(write_config(tmp_path, "[http]\nport = 1\n"), {"http_port": None}).http.port == 1


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("audiosocket_rate", "24000", 24000),
        ("access_listen_beyond_loopback", "true", True),
        ("server_drain_s", "1.25", 1.25),
        ("bundle_voice", "anna", "anna"),
        ("bundle_precision", "int8", "int8"),
        ("browser_ice_servers", "", ()),
        ("http_trusted_proxies", '["10.0.0.0/8"]', ("10.0.0.0/8",)),
        ("agents", '{"sales": "keys"}', {"sales": "keys"}),
    ],
)
def test_every_type_of_value_can_come_from_the_environment(
    name: str, value: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"VIVAVOCE_{name.upper()}", value)
    found: Any = load_settings()
    for part in next(key.path for key in SETTING_KEYS if "_".join(key.path) == name):
        found = getattr(found, part)
    assert found == expected


def test_an_entry_of_a_table_of_names_has_a_variable_and_a_flag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_config(tmp_path, '[agents]\nsales = "none"\nnight = "none"\n')
    monkeypatch.setenv("VIVAVOCE_AGENTS_SALES", "keys")
    monkeypatch.setenv("VIVAVOCE_SIP_TRUNKS_NIGHT_LINE_HOST", "sip.example.com")
    monkeypatch.setenv("VIVAVOCE_SIP_TRUNKS_NIGHT_LINE_PASSWORD", "secret")
    settings = load_settings(file, {"agents_default": "script:greeting.txt"})
    assert settings.sip.trunks["night_line"].password == SecretStr("secret")
    assert settings.agents == {"sales": "keys", "night": "none", "default": "script:greeting.txt"}


def test_the_names_of_variables_and_flags_are_unique() -> None:
    assert len({"_".join(key.path) for key in SETTING_KEYS}) == len(SETTING_KEYS)
    assert not [first for first, second in permutations(SETTING_KEYS, 2) if first.path == second.path[:1]]


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().calls.max_calls = 7  # type: ignore[misc]


@pytest.mark.parametrize("carrier", ["twilio", "plivo"])
def test_signatures_need_the_url_that_they_cover(carrier: str, tmp_path: Path) -> None:
    table = f'[media_streams]\ntokens = {{{carrier} = "secret"}}\n'
    with pytest.raises(SettingsError, match=f"tokens.{carrier}: signatures cover the server's URL"):
        load_settings(write_config(tmp_path, table))
    file = write_config(tmp_path, table + '[http]\npublic_url = "https://voice.example.org"\n')
    assert carrier in load_settings(file).media_streams.tokens


def test_a_proxy_that_is_no_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"http.trusted_proxies .* allowed is a list of IP addresses"):
        load_settings(write_config(tmp_path, '[http]\ntrusted_proxies = ["proxy.example.org"]\n'))


def test_a_file_that_is_nested_too_deeply_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nested too deeply"):
        load_settings(write_config(tmp_path, "agents = " + "[" * 100_000))


def test_an_unknown_key_of_the_file_is_named_with_the_allowed_ones(tmp_path: Path) -> None:
    file = write_config(tmp_path, 'colour = "red"\n')
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value).startswith(f"colour: unknown key in {file}; allowed are ")
    assert " http.host, http.port, " in str(error.value)


def test_a_mistyped_key_is_answered_with_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in ("media_streams", "bundles.german"):
        file = write_config(tmp_path, f'[{table}]\nfolder = "x"\nworkers = 2\n')
        with pytest.raises(SettingsError, match=rf"^{table}.(folder|workers): unknown key in "):
            load_settings(file)
    file = write_config(tmp_path, "[http]\nprot = 1\n")
    with pytest.raises(SettingsError) as error:
        load_settings(file)
    assert str(error.value) == f"http.prot: unknown key in {file}; did you mean http.port?"
    monkeypatch.setenv("VIVAVOCE_CALLS_MAX_CALL", "1")
    with pytest.raises(SettingsError) as error:
        load_settings()
    assert str(error.value).endswith("unknown environment variable; did you mean VIVAVOCE_CALLS_MAX_CALLS?")


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
    assert load_settings().model_dump() == make_settings().model_dump()


def test_a_port_without_the_name_of_its_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVAVOCE_PORT", "8080")
    with pytest.raises(SettingsError, match=r"^VIVAVOCE_PORT: unknown environment variable"):
        load_settings()


def test_an_unknown_table_and_a_table_that_is_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^network: unknown key"):
        load_settings(write_config(tmp_path, "[network]\nport = 1\n"))
    file = write_config(tmp_path, "http = 1\n")
    for flags in ({}, {"http_port": 1}):
        with pytest.raises(SettingsError, match=r"^http: got 1; allowed is a table \[http\]\.$"):
            load_settings(file, flags)


def test_every_former_key_is_refused_with_what_is_set_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, new in former_settings()["renamed"].items():
        file = write_config(tmp_path, f"{name} = 1\n")
        with pytest.raises(SettingsError) as error:
            load_settings(file)
        expected = (
            f"{name} in {file}: it is now {new}; CHANGELOG.md lists the new names, which an upgrade needs."
        )
        assert str(error.value) == expected
        with monkeypatch.context() as environment:
            environment.setenv(variable := f"VIVAVOCE_{name.replace('.', '_').upper()}", "")
            if new.replace(".", "_") == name or name == "recordings":  # the variable has kept its name
                load_settings()
                continue
            with pytest.raises(SettingsError, match=rf"^{variable}: it is now VIVAVOCE_[A-Z_]+"):
                load_settings()


def test_every_new_name_is_a_setting() -> None:
    names = {key.name for key in SETTING_KEYS}
    new = {value.partition(" = ")[0] for value in former_settings()["renamed"].values()}
    assert {name for name in new if name not in names} == {
        "lexicons.default",
        "agents.default",
        "kept_speech.phrases",
        "apis.ports.grpc",
        "apis.ports.wyoming",
        "llm.api_key",
        "llm.base_url",
        "llm.model",
        "media_streams.tokens.plivo",
        "media_streams.tokens.twilio",
        "recordings.all_calls",
        "recordings.folder",
        "sip.trunks.NAME",
    }


def test_a_former_key_without_another_says_what_holds_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SettingsError, match=r"^lead_s in .*: no longer a setting: 0.6 s of speech are kept"):
        load_settings(write_config(tmp_path, "lead_s = 1\n"))
    monkeypatch.setenv("VIVAVOCE_CLOCK_PHASES", "4")
    with pytest.raises(SettingsError, match=r"^VIVAVOCE_CLOCK_PHASES: no longer a setting: calls send in 4 "):
        load_settings()


def test_a_removed_key_of_a_table_says_what_holds_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (name for name in former_settings()["removed"] if "." in name):
        with pytest.raises(SettingsError, match=rf"^{re.escape(name)} in .*: no longer a setting: "):
            load_settings(write_config(tmp_path, f"{name} = 1\n"))
    for name in ("version", "canary_of", "share"):
        with pytest.raises(SettingsError, match=rf"^bundles.german.{name} in .*: (no longer|it is now)"):
            load_settings(write_config(tmp_path, f'[bundles.german]\nfolder = "x"\n{name} = "1"\n'))
    monkeypatch.setenv("VIVAVOCE_SIP_TRUNK_PASSWORD", "secret")
    with pytest.raises(
        SettingsError, match=r"^VIVAVOCE_SIP_TRUNK_PASSWORD: it is now VIVAVOCE_SIP_TRUNKS_NAME;"
    ):
        load_settings()


@pytest.mark.parametrize("canaries", ["{german = 0.1}", "{none = 0.1}", "{vivavoce = 0.1}"])
def test_a_canary_is_another_bundle_of_one_bundle(canaries: str, tmp_path: Path) -> None:
    toml = '[bundle]\ncanaries = {german = 0.1, french = 1}\n[bundles.german]\nfolder = "x"\n'
    toml += '[bundles.french]\nfolder = "x"\n'
    load_settings(write_config(tmp_path, toml))
    with pytest.raises(SettingsError, match=r"^bundles.french.canaries: got "):
        load_settings(write_config(tmp_path, f"{toml}canaries = {canaries}\n"))


def test_an_unknown_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIVAVOCE_HTPP_PORT", "1")
    with pytest.raises(SettingsError, match=r"^VIVAVOCE_HTPP_PORT: unknown.* VIVAVOCE_HTTP_PORT"):
        load_settings()


@pytest.mark.parametrize(
    ("toml", "sentence"),
    [
        ('http.port = "x"', "http.port ({file}): got 'x'; allowed is a port from 0 (any free one) to 65535."),
        (
            "http.port = 65536",
            "http.port ({file}): got 65536; allowed is a port from 0 (any free one) to 65535.",
        ),
        (
            "http.port = true",
            "http.port ({file}): got True; allowed is a port from 0 (any free one) to 65535.",
        ),
        ("http.port = 1.5", "http.port ({file}): got 1.5; allowed is a port from 0 (any free one) to 65535."),
        ("calls.max_calls = 0", "calls.max_calls ({file}): got 0; allowed is calls from 1 to 10000."),
        (
            'agents.default = "cat"',
            "agents ({file}): got 'cat'; allowed is script:FILE, loop:FILE, keys or none.",
        ),
        (
            'agents.default = "script:"',
            "agents ({file}): got 'script:'; allowed is script:FILE, loop:FILE, keys or none.",
        ),
        ("server.drain_s = nan", "server.drain_s ({file}): got nan; allowed is seconds from 0 to 600."),
        (
            'bundles.x = {folder = "x", canaries = {y = 2}}',
            "bundles.x.canaries ({file}): got 2; allowed is parts, over 0 to 1, by bundle.",
        ),
        (
            "apis.ports = {wyoming = 70000}",
            "apis.ports ({file}): got 70000; allowed is ports from 0 (any free one) to 65535, by protocol.",
        ),
        (
            "audiosocket.expected_calls_only = 3",
            "audiosocket.expected_calls_only ({file}): got 3; allowed is true or false.",
        ),
        ('bundle.voice = ""', "bundle.voice ({file}): got ''; allowed is the id of a loaded voice."),
        (
            'server.log_level = "LOUD"',
            "server.log_level ({file}): got 'LOUD'; "
            "allowed is DEBUG (shows what is said), INFO, WARNING or ERROR.",
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
    with pytest.raises(SettingsError, match=r"^calls.max_calls \(command line\): got 'many'"):
        load_settings(None, {"calls_max_calls": "many"})
    monkeypatch.setenv("VIVAVOCE_CALLS_MAX_CALLS", "few")
    with pytest.raises(SettingsError, match=r"^calls.max_calls \(VIVAVOCE_CALLS_MAX_CALLS\): got 'few'"):
        load_settings()


def test_every_setting_says_what_it_means_and_what_it_allows() -> None:
    without_meaning = {key.name for key in SETTING_KEYS if not key.field.description}
    assert without_meaning == {"bundles"}  # whose keys are listed
    without_range = {key.field.annotation for key in SETTING_KEYS if not key.field.title}
    assert without_range == {bool}


def test_there_are_at_most_60_settings() -> None:
    assert len(SETTING_KEYS) - 1 <= 60  # without ``bundles``, whose keys are those of ``bundle``


def test_a_file_that_cannot_be_read_or_parsed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--config .*absent.toml: cannot read it: No such file"):
        load_settings(tmp_path / "absent.toml")
    with pytest.raises(SettingsError, match=r"^--config .*: not TOML: "):
        load_settings(write_config(tmp_path, "http_port 1"))
    (tmp_path / "latin.toml").write_bytes(b'bundle.voice = "\xe9"')
    with pytest.raises(SettingsError, match=r"^--config .*latin.toml: not TOML: "):
        load_settings(tmp_path / "latin.toml")


@pytest.mark.parametrize("table", ["http", "audiosocket"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_an_address_beyond_loopback_needs_explicit_consent(table: str, host: str) -> None:
    key = f"{table}_host"
    with pytest.raises(SettingsError) as error:
        load_settings(None, {key: host})
    assert str(error.value).startswith(f"{table}.host: got '{host}', which other machines can reach")
    assert "--listen-beyond-loopback" in str(error.value)
    consented = {key: host, "access_listen_beyond_loopback": True, "access_without_key": "everything"}
    assert getattr(load_settings(None, consented), table).host == host


def test_http_beyond_loopback_needs_a_keys_file_or_without_keys() -> None:
    beyond = {"http_host": "0.0.0.0", "access_listen_beyond_loopback": True}
    for without_key in ("nothing", "lists"):
        with pytest.raises(
            SettingsError, match=r"^http.host: got '0.0.0.0', which .*no keys.*--without-keys"
        ):
            load_settings(None, beyond | {"access_without_key": without_key})
    access = load_settings(None, beyond | {"access_keys_file": "keys.json"}).access
    assert access.keys_file == Path("keys.json")
    load_settings(None, beyond | {"access_without_key": "everything"})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "::1"])
def test_loopback_names_and_addresses_are_accepted(host: str) -> None:
    assert load_settings(None, {"http_host": host}).http.host == host


def test_a_host_that_is_not_an_address_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"^http.host: got 'not an address', which is not an address: "):
        load_settings(None, {"http_host": "not an address"})


@pytest.mark.parametrize(
    "toml",
    [
        "llm.api_key = 12345678",
        "media_streams.tokens = {twilio = 12345678}",
        'media_streams.tokens = {telnyx = "12345678"}',
        'browser.ice_servers = [{urls = "turn:turn.example", credential = "12345678"}]',
        'browser.ice_servers = [{urls = "turn:turn.example", user = "u", credential = "12345678"}]',
        'browser.ice_servers = [{urls = "turn:t.example", secret = "12345678"}]',
        'browser.ice_servers = [{urls = "turn:t.example", username = "u", credential = "1", '
        'secret = "1234567890123456"}]',
        'browser.ice_servers = [{urls = "http://turn.example", username = "u", credential = "12345678"}]',
    ],
)
def test_the_error_of_a_secret_does_not_show_it(toml: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"not shown|unknown key") as refusal:
        load_settings(write_config(tmp_path, toml))
    assert "1234" not in str(refusal.value)


@pytest.mark.parametrize(
    ("toml", "environment"),
    [
        (
            'browser.ice_servers = ["stun:s.example:3478", {urls = "turn:t.example?transport=tcp", '
            'username = "u", credential = "hush"}]\nrtp.ports = "40000-40999"',
            {},
        ),
        (
            "",
            {
                "VIVAVOCE_BROWSER_ICE_SERVERS": '["stun:s.example:3478", {"urls": '
                '["turn:t.example?transport=tcp"], "username": "u", "credential": "hush"}]',
                "VIVAVOCE_RTP_PORTS": "40000-40999",
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
    assert [server.server() for server in settings.browser.ice_servers] == [
        IceServer(("stun:s.example:3478",)),
        IceServer(("turn:t.example?transport=tcp",), "u", "hush"),
    ]
    assert settings.rtp.ports == MediaPorts(40_000, 40_999)
    assert "hush" not in repr(settings) + str(settings.model_dump(mode="json"))


@pytest.mark.parametrize("ports", ["40000", "40999-40000", "80-90", "60000-70000", "a-b"])
def test_a_range_of_ports_is_first_to_last_within_the_unprivileged_ones(ports: str) -> None:
    with pytest.raises(SettingsError, match=r"^rtp.ports .*; allowed is a range of UDP ports within 1024-"):
        load_settings(None, {"rtp_ports": ports})


@pytest.mark.parametrize(
    ("toml", "style"),
    [("", ReadingStyle()), ('reading.locale = "en-GB"', ReadingStyle(day_first=True, zero="oh"))],
)
def test_a_locale_gives_the_reading_style(toml: str, style: ReadingStyle, tmp_path: Path) -> None:
    assert load_settings(write_config(tmp_path, toml)).reading.style == style
