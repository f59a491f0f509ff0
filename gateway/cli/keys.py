"""``vivavoce keys add | list | revoke``: edit the keys file. Running servers that use it read the change."""

import shlex
import time
from pathlib import Path

import click

from ...tts_engine.reading.pronunciation.lexicon_files import read_lexicon
from ..access.keys import ApiKey, KeyLimits, KeysFile, Scope
from .options import CommandGroup

_KEYS_FILE_OPTION = click.option(
    "--keys-file",
    type=click.Path(path_type=Path),
    required=True,
    envvar="VIVAVOCE_KEYS_FILE",
    metavar="FILE",
    help="The file with the keys' hashes; also VIVAVOCE_KEYS_FILE.",
)
_POSITIVE_INTEGER = click.IntRange(min=1)


@click.group(cls=CommandGroup)
def keys() -> None:
    """Create, list and revoke API keys."""


@keys.command(epilog="Example: vivavoce keys add webshop --keys-file keys.json --scope speak")
@click.argument("name")
@_KEYS_FILE_OPTION
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    default=("speak",),
    show_default=True,
    help="A permission of the key; repeatable.",
)
@click.option("--requests-per-minute", type=_POSITIVE_INTEGER, metavar="N", help="[default: no limit]")
@click.option("--characters-per-minute", type=_POSITIVE_INTEGER, metavar="N", help="[default: no limit]")
@click.option(
    "--streams", type=_POSITIVE_INTEGER, metavar="N", help="Utterances at once.  [default: no limit]"
)
@click.option(
    "--lexicon",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Pronunciations for the key's texts, a file or a folder, ahead of the server's.",
)
def add(
    name: str,
    keys_file: Path,
    scopes: tuple[str, ...],
    requests_per_minute: int | None,
    characters_per_minute: int | None,
    streams: int | None,
    lexicon: Path | None,
) -> None:
    """Create a key for NAME and print it. It cannot be shown again."""
    limits = KeyLimits(requests_per_minute, characters_per_minute, streams)
    if lexicon is not None:
        read_lexicon(lexicon)  # raises BadLexicon with the line of a fault
    granted = tuple(Scope(scope) for scope in dict.fromkeys(scopes))
    click.echo(KeysFile(keys_file).add(name, granted, limits, lexicon))


@keys.command("list", epilog="Example: vivavoce keys list --keys-file keys.json")
@_KEYS_FILE_OPTION
def list_keys(keys_file: Path) -> None:
    """List the keys: id, name, scopes, limits, lexicon, creation date."""
    keys = list(KeysFile(keys_file))
    for key in keys:
        click.echo(_format_key(key))
    if not keys:
        example = shlex.join(["vivavoce", "keys", "add", "NAME", "--keys-file", str(keys_file)])
        click.echo(f"{keys_file} holds no key; add one: {example}", err=True)


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
    )
    parts = [key.id, key.name, ",".join(key.scopes)]
    parts += [f"{limit} {unit}" for limit, unit in allowed if limit is not None]
    parts += [f"lexicon {key.lexicon}"] if key.lexicon else []
    parts.append(f"made {_format_date(key.created_at)}")
    if key.revoked_at is not None:
        parts.append(f"revoked {_format_date(key.revoked_at)}")
    return "  ".join(parts)


def _format_date(unix_s: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(unix_s))
