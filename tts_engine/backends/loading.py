"""Loads the backend of a bundle, whatever kind of voice it is, in this process or in a child process."""

from pathlib import Path

from ..errors import BadRequest
from ..voices.voices import Voice
from .base import Backend, ProcessPolicy
from .kinds import find_kind, require_folder
from .voice_kind import AUTO_PRECISION, NOTHING_KEPT, DividedStages, KeptSpeechConfig, LoadSettings


def load_backend(
    bundle: str,
    voices: Path | None = None,
    precision: str = AUTO_PRECISION,
    device: str = "auto",
    process: ProcessPolicy | None = None,
    executor: str = "auto",
    kept_speech: KeptSpeechConfig = NOTHING_KEPT,
) -> Backend:
    """Load the backend of a bundle: "default" for the packaged voice, else a folder.

    process: render in a child process; None: in this one. The other arguments are as in ``LoadSettings``.
    Raises BundleError, BadRequest and MissingExtra.
    """
    settings = LoadSettings(Path(bundle), voices, precision, device, executor, kept_speech)
    kind = find_kind(bundle)
    if process is None:
        return kind.load(settings)
    if kind.parts is None:
        raise BadRequest(f"{bundle}: {kind.name} renders in the server's own process only")
    from .process import ProcessBackend

    return ProcessBackend(kind.parts(settings), process)


def divided_stages(bundle: str) -> DividedStages:
    """How the stages of a bundle run apart. Raises BundleError, and BadRequest for another voice."""
    stages = find_kind(bundle).stages
    if stages is None:
        raise BadRequest(f"{bundle}: only the stages of a CosyVoice bundle can be apart")
    return stages


def list_voices(bundle: str) -> tuple[Voice, ...]:
    """The voices of a bundle, without loading its networks. Raises BundleError.

    Those of a CosyVoice or XTTS checkpoint are not listed: they are in its files of weights.
    """
    if bundle != "default":
        require_folder(Path(bundle))
    return find_kind(bundle).list_voices(Path(bundle))
