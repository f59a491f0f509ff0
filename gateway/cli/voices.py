"""``vivavoce voices add | list | remove``: edit a voice store.

Running servers that use it read the change.
"""

import hashlib
import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...tts_engine.errors import BadRequest
from .options import AS_JSON, CommandGroup

if TYPE_CHECKING:  # importing it loads onnxruntime, which would slow down --help
    from ...tts_engine.voices.store import StoredVoice, VoiceStore

_STORE_OPTION = click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    envvar="VIVAVOCE_VOICE_STORE",
    metavar="DIR",
    help="Folder of the voice store; also VIVAVOCE_VOICE_STORE.",
)
_BUNDLE_ROW_FORMAT = "{:<32} {:<8} {}"
_ROW_FORMAT = "{:<24} {:<24} {:>7}  {:<6} {:<10}  {}"


@click.group(cls=CommandGroup)
def voices() -> None:
    """Enrol, list and remove voices."""


@voices.command()
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path))
@_STORE_OPTION
@click.option(
    "--bundle", type=click.Path(path_type=Path), required=True, metavar="DIR", help="CosyVoice 2 or 3."
)
@click.option(
    "--transcript", default="", metavar="TEXT", help="The words spoken in FILE; improves similarity."
)
@click.option("--language", default="", metavar="CODE", help="Language of FILE, such as en-GB.")
@click.option("--consent", default="", metavar="TEXT", help="The speaker's consent; stored with the voice.")
def add(
    name: str, file: Path, folder: Path, bundle: Path, transcript: str, language: str, consent: str
) -> None:
    """Enrol FILE, 3 to 30 seconds of one person speaking, as the voice NAME."""
    from ...tts_engine.bundles import bundle_errors, require_folder, require_networks

    require_folder(bundle)
    require_networks(bundle)
    with bundle_errors():
        from ...tts_engine.voices.enrolment import enroll
    from ...tts_engine.voices.recording import read_recording_file
    from ...tts_engine.voices.store import VoiceMetadata, VoiceStore, checked_id

    with VoiceStore(folder, None) as store:
        if store.find(checked_id(name)) is not None:
            raise BadRequest(f"a voice {name!r} already exists; remove it first or choose another name")
        recording = read_recording_file(file)
        prompt = enroll(bundle, recording, transcript)
        about = VoiceMetadata(
            language=language,
            consent=consent,
            provenance=f"command line, {file.name}",
            source=_sha256_of(file),
        )
        voice = store.add(prompt, name=name, about=about, voice_id=name)
    click.echo(f"{voice.id}: {recording.duration_s:.1f} s, CosyVoice {voice.version}, {voice.bytes:,} bytes")


@voices.command("list")
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    envvar="VIVAVOCE_VOICE_STORE",
    metavar="DIR",
    help="Folder of the voice store; also VIVAVOCE_VOICE_STORE.",
)
@click.option(
    "--bundle", metavar="DIR", help="default, or a folder of Piper or Kokoro voices: list its voices instead."
)
@AS_JSON
def list_voices(folder: Path | None, bundle: str | None, as_json: bool) -> None:
    """List voices of a store (id, name, release, language, date, owner, origin) or of a bundle."""
    if bundle is not None or folder is None:
        _list_bundle(bundle or "default", as_json)
        return
    with _open_existing_store(folder) as store:
        stored_voices = store.list()
    if as_json:
        click.echo(json.dumps([asdict(voice) for voice in stored_voices], indent=2))
        return
    for voice in stored_voices:
        click.echo(_format_voice(voice))
    if not stored_voices:
        example = ["vivavoce", "voices", "add", "NAME", "FILE", "--store", str(folder), "--bundle", "DIR"]
        click.echo(f"{folder} holds no voice; add one: {shlex.join(example)}", err=True)


def _list_bundle(bundle: str, as_json: bool) -> None:
    from ...tts_engine.backends.loading import list_voices as list_bundle_voices

    found = list_bundle_voices(bundle)
    if as_json:
        click.echo(json.dumps([asdict(voice) for voice in found], indent=2))
        return
    for voice in found:
        click.echo(_BUNDLE_ROW_FORMAT.format(voice.id, voice.language, voice.description))


@voices.command()
@click.argument("id")
@_STORE_OPTION
def remove(id: str, folder: Path) -> None:
    """Delete the voice ID and everything derived from its recording."""
    with _open_existing_store(folder) as store:
        voice = store.remove(id)
    click.echo(f"{voice.id} ({voice.name}) is removed")


def _open_existing_store(folder: Path) -> "VoiceStore":
    from ...tts_engine.voices.store import VoiceStore

    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder; 'vivavoce voices add' creates it")
    return VoiceStore(folder, None)


def _sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _format_voice(voice: "StoredVoice") -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime(voice.created_at))
    release = f"v{voice.version}"
    owner = f"key {voice.about.owner}, " if voice.about.owner else ""
    return _ROW_FORMAT.format(
        voice.id, voice.name, release, voice.language or "-", day, owner + voice.about.provenance
    ).rstrip()
