"""The kinds of voice; another package adds one with an entry point of ``vivavoce.voice_kinds``."""

from operator import attrgetter
from pathlib import Path
from typing import Final

from ..cosyvoice.kind import COSYVOICE
from ..errors import BundleError
from ..hibari.kind import PACKAGED, load_phonemizer
from ..kokoro.kind import kokoro_kind
from ..packaging.plug_ins import with_plug_ins
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
    require_folder(folder)
    alone = sorted(path.name for path in folder.glob("*.onnx"))
    if alone:
        raise BundleError(f"{folder}: {alone[0]} needs {alone[0]}.json beside it, as Piper voices have it")
    looked_for = ", ".join(f"{kind.looked_for} ({kind.name})" for kind in all_kinds() if kind.looked_for)
    raise BundleError(f"{folder}: no bundle of any kind; looked for {looked_for}")


def all_kinds() -> tuple[VoiceKind, ...]:
    """The kinds of this package, then those of others."""
    return with_plug_ins(_ENTRY_POINTS, VOICE_KINDS, attrgetter("name"))


def kinds_with_checkpoints() -> dict[str, Checkpoints]:
    """What can be done with checkpoints, by the name of the kind."""
    return {kind.name: kind.checkpoints for kind in all_kinds() if kind.checkpoints is not None}


def checkpoints_of(folder: Path) -> Checkpoints:
    """What can be done with the checkpoint in a folder; one of no kind counts as CosyVoice's.

    Raises BundleError if the folder is missing, or of a kind without checkpoints.
    """
    require_folder(folder)
    kind = next((kind for kind in all_kinds() if kind.matches(str(folder))), COSYVOICE)
    if kind.checkpoints is None:
        families = " and ".join(kinds_with_checkpoints())
        raise BundleError(f"{folder}: a bundle of {kind.name}; only {families} have checkpoints")
    return kind.checkpoints


def require_folder(folder: Path) -> None:
    """Raise BundleError if a folder is missing."""
    if not folder.is_dir():
        families = [kind.name for kind in all_kinds() if kind.looked_for]
        raise BundleError(f"{folder}: no such folder; give a folder of {', '.join(families)}")
