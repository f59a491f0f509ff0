"""``vivavoce keys add | list | change | revoke``: edit the keys file. Running servers read the change."""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from ....tts_engine.errors import BadRequest
from ....tts_engine.reading.pronunciation.lexicon_files import read_lexicon
from ...access.keys import ApiKey, KeyLimits, KeysFile, Scope
from ..options import CommandGroup

_KEYS_FILE_OPTION = click.option(
    "--keys-file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="VIVAVOCE_ACCESS_KEYS_FILE",
    metavar="FILE",
    help="The file with the keys' hashes; also VIVAVOCE_ACCESS_KEYS_FILE.",
)
_POSITIVE_INTEGER = click.IntRange(min=1)
_SCOPES = [scope.value for scope in Scope if scope is not Scope.CALLS]  # that one is of older keys
_PERMISSION_OPTIONS = (
    click.option(
        "--scope",
        "scopes",
        type=click.Choice(_SCOPES),
        multiple=True,
        help="A permission of the key; repeatable.  [default of a new key: speak]",
    ),
    click.option("--requests-per-minute", type=_POSITIVE_INTEGER, metavar="N", help="[default: no limit]"),
    click.option("--characters-per-minute", type=_POSITIVE_INTEGER, metavar="N", help="[default: no limit]"),
    click.option(
        "--streams", type=_POSITIVE_INTEGER, metavar="N", help="Utterances at once.  [default: no limit]"
    ),
    click.option(
        "--max-calls",
        type=_POSITIVE_INTEGER,
        metavar="N",
        help="Calls at once, placed or of browsers.  [default: --streams]",
    ),
    click.option(
        "--max-sockets",
        type=_POSITIVE_INTEGER,
        metavar="N",
        help="WebSockets at once.  [default: --streams on calls, else no limit]",
    ),
    click.option(
        "--agent",
        "agents",
        multiple=True,
        metavar="NAME",
        help="An agent whose calls belong to the key; repeatable.",
    ),
    click.option(
        "--destination",
        "destinations",
        multiple=True,
        metavar="PATTERN",
        help="What the key may call or transfer to, as 'PJSIP/1??'; repeatable.  [default: everything]",
    ),
    click.option(
        "--expires",
        "expires",
        type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"]),
        help="When the key ends, in UTC.  [default: never]",
    ),
    click.option(
        "--lexicon",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Pronunciations for the key's texts, a file or a folder, ahead of the server's.",
    ),
    click.option(
        "--keep-speech/--no-keep-speech",
        "keeps_speech",
        default=None,
        help="Whether speech of the key's texts may be kept in memory, for others that say the same.  "
        "[default: --keep-speech]",
    ),
    click.option(
        "--complete-wav/--streamed-wav",
        "complete_wav",
        default=None,
        help="Whether a request like OpenAI's for a WAV that does not say 'stream' is answered with one "
        "complete file, with its length.  [default: --streamed-wav]",
    ),
)


@dataclass(frozen=True, slots=True)
class KeyOptions:
    """The options of a key that were given; None and () for those that were not."""

    scopes: tuple[str, ...]
    requests_per_minute: int | None
    characters_per_minute: int | None
    streams: int | None
    max_calls: int | None
    max_sockets: int | None
    agents: tuple[str, ...]
    destinations: tuple[str, ...]
    expires: datetime | None
    lexicon: Path | None
    keeps_speech: bool | None
    complete_wav: bool | None

    def apply_to(self, key: ApiKey) -> ApiKey:
        """Return the record with what was given, and the rest as it is."""
        limits = {name: value for name in KeyLimits.__slots__ if (value := getattr(self, name)) is not None}
        return replace(key, limits=replace(key.limits, **limits), **self.fields())

    def fields(self) -> dict[str, Any]:
        """Return the fields of a record that were given, but for the limits; raises BadLexicon."""
        given: dict[str, Any] = {
            "scopes": tuple(Scope(scope) for scope in dict.fromkeys(self.scopes)),
            "agents": self.agents,
            "destinations": self.destinations,
        }
        if self.expires is not None:
            given["expires_at"] = int(self.expires.replace(tzinfo=UTC).timestamp())
        if self.lexicon is not None:
            read_lexicon(self.lexicon)  # raises BadLexicon with the line of a fault
            given["lexicon"] = str(self.lexicon.absolute())
        for name, choice in (("keeps_speech", self.keeps_speech), ("complete_wav", self.complete_wav)):
            if choice is not None:
                given[name] = choice
        return {name: value for name, value in given.items() if value != ()}


def _with_permissions(command: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(_PERMISSION_OPTIONS):
        command = option(command)
    return command


@click.group(cls=CommandGroup)
def keys() -> None:
    """Create, list, change and revoke API keys."""


@keys.command(epilog="Example: vivavoce keys add webshop --keys-file keys.json --scope speak")
@click.argument("name")
@_KEYS_FILE_OPTION
@_with_permissions
def add(name: str, keys_file: Path, **options: Any) -> None:
    """Create a key for NAME and print it. It cannot be shown again."""
    given = KeyOptions(**options)
    fields = {"scopes": (Scope.SPEAK,), **given.fields()}
    limits = KeyLimits(*(getattr(given, limit) for limit in KeyLimits.__slots__))
    click.echo(KeysFile(keys_file).add(name, limits=limits, **fields))


@keys.command("list", epilog="Example: vivavoce keys list --keys-file keys.json")
@_KEYS_FILE_OPTION
def list_keys(keys_file: Path) -> None:
    """List the keys: id, name, scopes, limits, agents, destinations, lexicon and dates."""
    keys = list(KeysFile(keys_file))
    for key in keys:
        click.echo(_format_key(key))
    old = [key.id for key in keys if Scope.CALLS in key.scopes and key.is_valid_at(time.time())]
    if old:
        click.echo(
            f"the scope 'calls' of {', '.join(old)} is old: it means page, calls:all and originate; "
            "'vivavoce keys change ID --scope ...' gives a key what it needs",
            err=True,
        )
    if not keys:
        example = shlex.join(["vivavoce", "keys", "add", "NAME", "--keys-file", str(keys_file)])
        click.echo(f"{keys_file} holds no key; add one: {example}", err=True)


@keys.command(epilog="Example: vivavoce keys change 1f2e3d4c --keys-file keys.json --scope calls:own")
@click.argument("id")
@_KEYS_FILE_OPTION
@_with_permissions
def change(id: str, keys_file: Path, **options: Any) -> None:
    """Change the key ID, also in running servers. Each option replaces what the key had.

    If scopes, agents or destinations change, what the key has opened ends.
    """
    given = KeyOptions(**options)
    if all(value in (None, ()) for value in options.values()):
        raise BadRequest("nothing to change; give at least one option, such as --scope")
    key = KeysFile(keys_file).change(id, given.apply_to)
    click.echo(_format_key(key))


@keys.command(epilog="Example: vivavoce keys revoke 1f2e3d4c --keys-file keys.json")
@click.argument("id")
@_KEYS_FILE_OPTION
def revoke(id: str, keys_file: Path) -> None:
    """Revoke the key ID, also in running servers."""
    key = KeysFile(keys_file).revoke(id)
    click.echo(f"{key.id} ({key.name}) is revoked")


def _format_key(key: ApiKey) -> str:
    limits = key.limits
    allowed = (
        (limits.requests_per_minute, "requests/min"),
        (limits.characters_per_minute, "characters/min"),
        (limits.streams, "streams"),
        (limits.max_calls, "calls"),
        (limits.max_sockets, "sockets"),
    )
    dates = (("made", key.created_at), ("expires", key.expires_at), ("revoked", key.revoked_at))
    parts = [key.id, key.name, ",".join(key.scopes)]
    parts += [f"{limit} {unit}" for limit, unit in allowed if limit is not None]
    parts += [f"agent {agent}" for agent in key.agents]
    parts += [f"destination {pattern}" for pattern in key.destinations]
    parts += [f"lexicon {key.lexicon}"] if key.lexicon else []
    parts += [] if key.keeps_speech else ["speech not kept"]
    parts += ["complete WAV"] if key.complete_wav else []
    parts += [f"{event} {_format_date(at)}" for event, at in dates if at is not None]
    return "  ".join(parts)


def _format_date(unix_s: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(unix_s))
