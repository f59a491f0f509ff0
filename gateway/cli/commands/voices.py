"""``vivavoce voices add | list | remove``: edit a voice store.

Running servers that use it read the change.
"""

import json
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ....tts_engine.errors import BadRequest
from ..options import AS_JSON, CommandGroup

if TYPE_CHECKING:  # importing it loads onnxruntime, which would slow down --help
    from ....tts_engine.voices.store import StoredVoice, VoiceStore

_STORE_OPTION = click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    envvar="VIVAVOCE_VOICES_STORE",
    metavar="DIR",
    help="Folder of the voice store; also VIVAVOCE_VOICES_STORE.",
)
_BUNDLE_ROW_FORMAT = "{:<32} {:<8} {}"
_ROW_FORMAT = "{:<24} {:<24} {:<17}  {:<6} {:<10}  {}"


@click.group(cls=CommandGroup)
def voices() -> None:
    """Enrol, list and remove voices."""


@voices.command(epilog="Example: vivavoce voices add anna anna.wav --store voices --bundle CosyVoice2-0.5B")
@click.argument("name")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")
@_STORE_OPTION
@click.option(
    "--bundle", type=click.Path(path_type=Path), required=True, metavar="DIR", help="CosyVoice or XTTS."
)
@click.option(
    "--transcript",
    default="",
    metavar="TEXT",
    help="The words spoken in FILE; improves the similarity of CosyVoice.",
)
@click.option("--language", default="", metavar="CODE", help="Language of FILE, such as en-GB.")
@click.option("--consent", default="", metavar="TEXT", help="The speaker's consent; stored with the voice.")
def add(
    name: str,
    files: tuple[Path, ...],
    folder: Path,
    bundle: Path,
    transcript: str,
    language: str,
    consent: str,
) -> None:
    """Enrol FILE, 3 to 30 seconds of one person speaking, as the voice NAME.

    Of a longer file, up to 5 minutes, the best 10 to 25 seconds are used. XTTS takes several files, of 3 to
    30 seconds together.
    """
    from ....tts_engine.backends.kinds import checkpoints_of

    checkpoints = checkpoints_of(bundle)
    checkpoints.require_networks(bundle)
    from ....tts_engine.voices.packed_prompt import model_name
    from ....tts_engine.voices.recording import (
        check_transcript,
        hash_recording,
        read_recordings,
        read_sound_file,
    )
    from ....tts_engine.voices.store import VoiceMetadata, VoiceStore, checked_id

    with VoiceStore(folder, None) as store:
        if store.find(checked_id(name)) is not None:
            raise BadRequest(f"a voice {name!r} already exists; remove it first or choose another name")
        data = [read_sound_file(file) for file in files]
        recordings = read_recordings(data)
        check_transcript(recordings, transcript)
        remarks = [remark for recording in recordings for remark in recording.remarks]
        encoders = checkpoints.open_encoders(bundle)
        with checkpoints.errors():
            prompt = encoders.encode_recordings(recordings, transcript)
        about = VoiceMetadata(
            language=language,
            consent=consent,
            provenance=f"command line, {', '.join(file.name for file in files)}",
            source=hash_recording(b"".join(data)),
        )
        voice = store.add(prompt, name=name, about=about, voice_id=name)
    duration_s = sum(recording.duration_s for recording in recordings)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    click.echo(f"{voice.id}: {duration_s:.1f} s, {model_name(voice.version)}, {voice.bytes:,} bytes")


@voices.command("list", epilog="Example: vivavoce voices list --store voices")
@click.option(
    "--store",
    "folder",
    type=click.Path(path_type=Path),
    envvar="VIVAVOCE_VOICES_STORE",
    metavar="DIR",
    help="Folder of the voice store; also VIVAVOCE_VOICES_STORE.",
)
@click.option(
    "--bundle", metavar="DIR", help="default, or a folder of Piper or Kokoro voices: list its voices instead."
)
@AS_JSON
def list_voices(folder: Path | None, bundle: str | None, as_json: bool) -> None:
    """List voices of a store (id, name, model, language, date, owner, origin) or of a bundle."""
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
    from ....tts_engine.backends.loading import list_voices as list_bundle_voices

    found = list_bundle_voices(bundle)
    if as_json:
        click.echo(json.dumps([asdict(voice) for voice in found], indent=2))
        return
    for voice in found:
        click.echo(_BUNDLE_ROW_FORMAT.format(voice.id, voice.language, voice.description))


@voices.command(epilog="Example: vivavoce voices remove anna --store voices")
@click.argument("id")
@_STORE_OPTION
def remove(id: str, folder: Path) -> None:
    """Delete the voice ID and everything derived from its recording."""
    with _open_existing_store(folder) as store:
        voice = store.remove(id)
    click.echo(f"{voice.id} ({voice.name}) is removed")


def _open_existing_store(folder: Path) -> "VoiceStore":
    from ....tts_engine.voices.store import VoiceStore

    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder; 'vivavoce voices add' creates it")
    return VoiceStore(folder, None)


def _format_voice(voice: "StoredVoice") -> str:
    from ....tts_engine.voices.packed_prompt import model_name

    day = time.strftime("%Y-%m-%d", time.gmtime(voice.created_at))
    model = model_name(voice.version).replace(" ", "-").lower()
    owner = f"key {voice.about.owner}, " if voice.about.owner else ""
    return _ROW_FORMAT.format(
        voice.id, voice.name, model, voice.language or "-", day, owner + voice.about.provenance
    ).rstrip()
