"""Reads the configuration: a TOML file, environment variables ``VIVAVOCE_*`` and flags; the later wins.

A variable is named after its table and key, ``VIVAVOCE_HTTP_PORT``, and so is a flag, ``http_port``. A wrong
key or value stops the start with one ``SettingsError``, which names the key, the value and what is allowed.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ...configuration.settings import Settings
from ...configuration.settings_table import SettingsError
from ...engine_settings import MAIN_BUNDLE, FurtherBundleTable
from ...listening_sockets import is_loopback
from .setting_keys import SETTING_KEYS, SettingKey, describe_former

VARIABLE_PREFIX = "VIVAVOCE_"
_KEYS = {"_".join(key.path): key for key in SETTING_KEYS}  # by the names of flags


def load_settings(file: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Read ``file``, the environment and ``flags`` (``http_port``; None is a flag not given); the later wins.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, a value is not allowed, or an address that
            other machines can reach lacks its explicit consent.
    """
    settings = read_settings(file, flags)
    _check_loopback("http.host", settings.http.host, settings)
    _check_loopback("audiosocket.host", settings.audiosocket.host, settings)
    _check_loopback("rtp.host", settings.rtp.host, settings)
    if settings.sip.is_on:
        _check_loopback("sip.host", settings.sip.host, settings)
    _check_keys(settings)
    for carrier in settings.media_streams.signing:
        if settings.http.public_url is None:
            key = f"media_streams.tokens.{carrier}"
            raise SettingsError(f"{key}: signatures cover the server's URL; name it with http.public_url.")
    _check_canaries(settings)
    return settings


def read_settings(file: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Return what ``load_settings`` does, without the checks of one setting by others."""
    values = {} if file is None else _read_file(file)
    sources = {}  # of the settings that are not from the file, by name
    for variable, name, value in _read_environment():
        sources[_put(values, name, value)] = variable
    for name, given in (flags or {}).items():
        if given is not None:
            sources[_put(values, name, given)] = "command line"
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(_describe_error(error.errors()[0], file, sources)) from None


def _read_file(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--config {file}: cannot read it: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {file}: not TOML: {error}.") from None
    except RecursionError:
        raise SettingsError(f"--config {file}: nested too deeply.") from None
    for name, value in values.items():
        is_table = name in Settings.model_fields and isinstance(value, dict)
        if not is_table and (sentence := describe_former(name)):
            raise SettingsError(f"{name} in {file}: {sentence}")
    return values


# Of the examples' clients, and of Kubernetes in a namespace with a service "vivavoce"
_OTHER_VARIABLES = re.compile(r"URL|KEY|(\w+_)?SERVICE_(HOST|PORT)(_\w+)?|(\w+_)?PORT_\d+_(TCP|UDP)(_\w+)?")


def _read_environment() -> Iterator[tuple[str, str, str]]:
    """The variables that are settings, and not empty: each with the name of its setting and its value."""
    for variable, value in os.environ.items():
        if not variable.startswith(VARIABLE_PREFIX):
            continue
        key = variable.removeprefix(VARIABLE_PREFIX)
        name = key.lower()
        if _path_of(name) is not None:
            if value:
                yield variable, name, value
            continue
        is_service = key == "PORT" and "://" in value  # of Kubernetes too
        if is_service or _OTHER_VARIABLES.fullmatch(key) is not None:
            continue
        if sentence := describe_former(name, as_variable=VARIABLE_PREFIX):
            raise SettingsError(f"{variable}: {sentence}")
        allowed = [VARIABLE_PREFIX + each.upper() for each in _KEYS]
        raise SettingsError(f"{variable}: unknown environment variable; {_suggest(variable, allowed)}")


def _path_of(name: str) -> tuple[str, ...] | None:
    """The path of a setting, or of an entry of a table with names of the operator.

    ``agents_default`` is one, and ``sip_trunks_home_password`` a key of one.
    """
    if name in _KEYS:
        return _KEYS[name].path
    for prefix, key in _KEYS.items():
        if name.startswith(f"{prefix}_") and (isinstance(key.field.get_default(), dict) or key.is_table):
            entry = name.removeprefix(f"{prefix}_")
            ends = (field for field in key.fields_of_entries if entry.endswith(f"_{field}"))
            field = max(ends, key=len, default="")
            return (*key.path, entry.removesuffix(f"_{field}"), field) if field else (*key.path, entry)
    return None


def _put(values: dict[str, Any], name: str, value: object) -> str:
    """Set a value of the nested tables; return the setting's name as messages have it."""
    path = _path_of(name)
    if path is None:
        raise SettingsError(f"{name}: unknown setting; {_suggest(name, list(_KEYS))}")
    *tables, key = path
    for table in tables:
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            raise SettingsError(f"{table}: got {values!r}; allowed is a table [{table}].")
    values[key] = value
    return ".".join(path)


def _suggest(name: str, allowed: list[str]) -> str:
    nearest = difflib.get_close_matches(name, allowed, n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"allowed are {', '.join(allowed)}."


def _describe_error(error: ErrorDetails, file: Path | None, sources: Mapping[str, str]) -> str:
    path = [str(part) for part in error["loc"]]
    name, key = ".".join(path), _find_key(path)
    if error["type"] == "extra_forbidden":
        if sentence := describe_former(re.sub(r"^bundles\.[^.]+", "bundle", name)):
            return f"{name} in {file}: {sentence}"
        return f"{name}: unknown key in {file}; {_suggest(name, [each.name for each in SETTING_KEYS])}"
    if key is None:
        return f"{name}: got {error['input']!r}; allowed is a table [{name}]."
    names = (".".join(path[:count]) for count in range(len(path), 0, -1))
    source = next((sources[name] for name in names if name in sources), file)
    got = "a value that is not shown" if key.is_secret else repr(error["input"])
    return f"{key.name} ({source}): got {got}; allowed is {key.allowed}."


def _find_key(path: list[str]) -> SettingKey | None:
    if path[0] == "bundles" and path[2:] and path[2] in FurtherBundleTable.model_fields:
        return SettingKey(tuple(path[:3]), FurtherBundleTable.model_fields[path[2]])
    return next((key for key in SETTING_KEYS if list(key.path) == path[: len(key.path)]), None)


def _check_loopback(key: str, host: str, settings: Settings) -> None:
    if not settings.access.listen_beyond_loopback and not _is_loopback(key, host):
        raise SettingsError(
            f"{key}: got {host!r}, which other machines can reach; allowed is a loopback address, "
            "or any address with --listen-beyond-loopback (access.listen_beyond_loopback = true)."
        )


def _check_keys(settings: Settings) -> None:
    access, host = settings.access, settings.http.host
    if (
        access.keys_file is None
        and access.without_key != "everything"
        and not _is_loopback("http.host", host)
    ):
        raise SettingsError(
            f"http.host: got {host!r}, which other machines can reach, and no keys are required; "
            "allowed is a keys_file ('vivavoce keys add' makes one), or --without-keys "
            '(access.without_key = "everything") to allow everyone.'
        )


def _check_canaries(settings: Settings) -> None:
    further = settings.bundles or {}
    taken: set[str] = set()
    for name, bundle in {MAIN_BUNDLE: settings.bundle, **further}.items():
        key = "bundle" if name == MAIN_BUNDLE else f"bundles.{name}"
        for canary in bundle.canaries:
            if canary not in further or canary == name or canary in taken:
                raise SettingsError(
                    f"{key}.canaries: got {canary!r}; allowed is another bundle of the tables [bundles.NAME] "
                    "that is no canary yet."
                )
            taken.add(canary)


def _is_loopback(key: str, host: str) -> bool:
    try:
        return is_loopback(host)
    except OSError as error:
        raise SettingsError(f"{key}: got {host!r}, which is not an address: {error.strerror}.") from None
