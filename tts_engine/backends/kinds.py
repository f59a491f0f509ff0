"""The kinds of voice; another package adds one with an entry point of ``vivavoce.voice_kinds``."""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from ..cosyvoice.kind import COSYVOICE
from ..errors import BundleError
from ..hibari.kind import PACKAGED, load_phonemizer
from ..kokoro.kind import kokoro_kind
from ..piper.kind import PIPER
from ..xtts.kind import XTTS
from .voice_kind import Checkpoints, VoiceKind

# Kokoro reads English as the packaged voice does, which uses the same alphabet.
VOICE_KINDS: Final = (PACKAGED, PIPER, kokoro_kind(load_phonemizer), XTTS, COSYVOICE)
_ENTRY_POINTS: Final = "vivavoce.voice_kinds"


def find_kind(bundle: str) -> VoiceKind:
    """The kind of a bundle: "default", or a folder. Raises BundleError for another one."""
    for kind in all_kinds():
        if kind.matches(bundle):
            return kind
    folder = Path(bundle)
    if not folder.is_dir():
        raise BundleError(f"{folder}: no such folder; give a folder of Piper, Kokoro, CosyVoice or XTTS")
    alone = sorted(path.name for path in folder.glob("*.onnx"))
    if alone:
        raise BundleError(f"{folder}: {alone[0]} needs {alone[0]}.json beside it, as Piper voices have it")
    looked_for = ", ".join(f"{kind.looked_for} ({kind.name})" for kind in all_kinds() if kind.looked_for)
    raise BundleError(f"{folder}: no bundle of any kind; looked for {looked_for}")


def all_kinds() -> tuple[VoiceKind, ...]:
    """The kinds of this package, then those of others."""
    return (*VOICE_KINDS, *(entry.load() for entry in entry_points(group=_ENTRY_POINTS)))


def kinds_with_checkpoints() -> dict[str, Checkpoints]:
    """What can be done with checkpoints, by the name of the kind."""
    return {kind.name: kind.checkpoints for kind in all_kinds() if kind.checkpoints is not None}


def checkpoints_of(folder: Path) -> Checkpoints:
    """What can be done with the checkpoint in a folder; one of no kind counts as CosyVoice's.

    Raises BundleError if the folder is missing.
    """
    require_folder(folder)
    kinds = kinds_with_checkpoints()
    matching = (kind.name for kind in all_kinds() if kind.name in kinds and kind.matches(str(folder)))
    return kinds[next(matching, COSYVOICE.name)]


def require_folder(folder: Path) -> None:
    """Raise BundleError if a folder is missing."""
    if not folder.is_dir():
        raise BundleError(
            f"{folder}: no such folder; give the folder that holds cosyvoice2.yaml or cosyvoice3.yaml"
        )
