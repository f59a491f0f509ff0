"""Reads the configuration: a TOML file, environment variables ``VIVAVOCE_*`` and flags; the later wins.

A wrong key or value stops the start with one ``SettingsError``, which names the key, the value and what is
allowed.
"""

import difflib
import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import SettingsConfigDict
from pydantic_settings import SettingsError as SourceError

from ..tts_engine.errors import VivavoceError
from .phone_system_settings import SECRET_PHONE_SYSTEM_SETTINGS
from .settings import ENVIRONMENT_PREFIX, Settings


class SettingsError(VivavoceError):
    """A key or value of the configuration is not allowed; the message is a sentence for the operator."""


def load_settings(file: Path | None = None, flags: Mapping[str, object] | None = None) -> Settings:
    """Read ``file``, the environment and ``flags`` (by field name; None is a flag not given); the later wins.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, a value is not allowed, or an address that
            other machines can reach lacks its explicit consent.
    """
    flags = {key: value for key, value in (flags or {}).items() if value is not None}
    if file is not None:
        _check_readable(file)
    _check_environment()

    class Loaded(Settings):
        model_config = SettingsConfigDict(toml_file=file)

    try:
        settings = Loaded(**flags)  # type: ignore[arg-type]  # pydantic checks them
    except ValidationError as error:
        raise SettingsError(_describe_error(error.errors()[0], file, flags)) from None
    except SourceError as error:
        raise SettingsError(f"Cannot read the environment: {error}.") from None
    for key in ("host", "audiosocket_host", "rtp_host"):
        _check_loopback(key, getattr(settings, key), settings)
    _check_keys(settings)
    _check_recordings(settings)
    _check_signatures(settings)
    return settings


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address; raise SettingsError if it cannot be resolved."""
    return all(address.is_loopback for address in _addresses("host", host))


def _check_readable(file: Path) -> None:
    try:
        tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"--config {file}: cannot read it: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"--config {file}: not TOML: {error}.") from None
    except RecursionError:
        raise SettingsError(f"--config {file}: nested too deeply.") from None


# Of the examples' clients, and of Kubernetes in a namespace with a service "vivavoce"
_OTHER_VARIABLES = re.compile(r"URL|KEY|(\w+_)?SERVICE_(HOST|PORT)(_\w+)?|(\w+_)?PORT_\d+_(TCP|UDP)(_\w+)?")


def _check_environment() -> None:
    for name, value in os.environ.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX)
        if not name.startswith(ENVIRONMENT_PREFIX) or key.lower() in Settings.model_fields:
            continue
        is_service = key == "PORT" and "://" in value  # of Kubernetes too
        if not is_service and _OTHER_VARIABLES.fullmatch(key) is None:
            allowed = [ENVIRONMENT_PREFIX + field.upper() for field in Settings.model_fields]
            raise SettingsError(f"{name}: unknown environment variable; {_suggest(name, allowed)}")


def _suggest(name: str, allowed: list[str]) -> str:
    nearest = difflib.get_close_matches(name, allowed, n=1)
    return f"did you mean {nearest[0]}?" if nearest else f"allowed are {', '.join(allowed)}."


def _describe_error(error: ErrorDetails, file: Path | None, flags: Mapping[str, object]) -> str:
    key = str(error["loc"][0])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return f"{key}: unknown key in {file}; {_suggest(key, list(Settings.model_fields))}"
    origin = _describe_source(key, file, flags)
    got = "a value that is not shown" if key in _SECRET_KEYS else repr(error["input"])
    return f"{key} ({origin}): got {got}; allowed is {_describe_allowed(key)}."


_SECRET_KEYS = frozenset(
    {"llm_api_key", "ice_servers", "media_streams_token", "twilio_auth_token", "plivo_auth_token"}
    | SECRET_PHONE_SYSTEM_SETTINGS
)


def _describe_source(key: str, file: Path | None, flags: Mapping[str, object]) -> str:
    if key in flags:
        return "--" + key.replace("_", "-")
    name = ENVIRONMENT_PREFIX + key.upper()
    return name if name in os.environ else str(file)


def _describe_allowed(key: str) -> str:
    return str(Settings.model_fields[key].description)


def _check_loopback(key: str, host: str, settings: Settings) -> None:
    if settings.listen_beyond_loopback:
        return
    for address in _addresses(key, host):
        if not address.is_loopback:
            raise SettingsError(
                f"{key}: got {host!r}, which other machines can reach; allowed is a loopback address, "
                "or any address with --listen-beyond-loopback (listen_beyond_loopback = true)."
            )


def _check_keys(settings: Settings) -> None:
    if settings.keys_file is None and not settings.without_keys and not is_loopback(settings.host):
        raise SettingsError(
            f"host: got {settings.host!r}, which other machines can reach, and no keys are required; "
            "allowed is a keys_file ('vivavoce keys add' makes one), or --without-keys "
            "(without_keys = true) to allow everyone."
        )


def _check_recordings(settings: Settings) -> None:
    if settings.record_calls and settings.recordings is None:
        raise SettingsError("record_calls: got true without a folder; name one with 'recordings'.")


def _check_signatures(settings: Settings) -> None:
    for key in ("twilio_auth_token", "plivo_auth_token"):
        if getattr(settings, key) is not None and settings.public_url is None:
            raise SettingsError(f"{key}: signatures cover the server's URL; name it with 'public_url'.")


def _addresses(key: str, host: str) -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise SettingsError(f"{key}: got {host!r}, which is not an address: {error.strerror}.") from None
    for *_, address in found:
        yield ipaddress.ip_address(str(address[0]).partition("%")[0])
