"""Which files of the product are kinds, and which are the core: ``python tests/kinds.py`` prints them.

A kind is one of many of its sort, behind one door: a client dialect, a way into a call, a voice family, an
audio format, a language, a place to run. A wire is a protocol core that kinds of other sorts speak. A kit is
what the kinds of one sort are made of; the core does without it. Every other file is the core. The source is
read with ``ast``; nothing is imported.
"""

from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from structure import Module, modules


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind and the files that are its own; ``*`` in a pattern matches sub-folders too."""

    sort: str
    name: str
    files: tuple[str, ...]

    def owns(self, path: PurePosixPath) -> bool:
        """Whether a file is this kind's."""
        return any(fnmatch(str(path), pattern) for pattern in self.files)


ROOT: Final = Path(__file__).parents[1]
# Files outside their folder.
_MORE_FILES: Final = {
    "asterisk_websocket": ("adapters/media_streams/asterisk.py",),
    "browser": ("adapters/ice_server.py", "adapters/webrtc/*", "gateway/page/*"),
    "cosyvoice": ("gateway/cli/finetune/*",),
}
# What all carriers speak; their folder has those of each too.
_MEDIA_STREAMS: Final = (
    *(
        f"adapters/media_streams/{name}.py"
        for name in ("connection", "events", "json_object", "peer_playout", "stream_format")
    ),
    *(f"adapters/media_streams/carriers/{name}.py" for name in ("audio_fork", "carrier_json", "webhooks")),
)


def _in_folder(sort: str, folder: str) -> list[Kind]:
    """A kind for each folder in a folder."""
    names = sorted(path.parent.name for path in (ROOT / folder).glob("*/__init__.py"))
    return [Kind(sort, name, (f"{folder}/{name}/*", *_MORE_FILES.get(name, ()))) for name in names]


def _files_of(sort: str, folder: str) -> list[Kind]:
    """A kind for each file or folder in a folder."""
    names = sorted(
        path.stem for path in (ROOT / folder).iterdir() if path.name[0].isalpha() and path.stem != "README"
    )
    return [Kind(sort, name, (f"{folder}/{name}.py", f"{folder}/{name}/*")) for name in names]


def _voice_families() -> list[Kind]:
    names = sorted(path.parent.name for path in (ROOT / "tts_engine").glob("*/kind.py"))
    return [
        Kind("voice family", name, (f"models/{name}/*", f"tts_engine/{name}/*", *_MORE_FILES.get(name, ())))
        for name in names
    ]


def _wire(name: str) -> Kind:
    return Kind("wire", name, (f"adapters/{name}/*",))


def _carrier(name: str) -> Kind:
    return Kind("carrier", name, (f"adapters/media_streams/carriers/{name}.py",))


KINDS: Final = (
    *_in_folder("dialect", "gateway/apis/dialects"),
    *_in_folder("way in", "gateway/calls/ways_in"),
    *map(_wire, ("audiosocket", "client", "dashscope", "rtp", "sip", "wyoming")),
    Kind("wire", "media_streams", _MEDIA_STREAMS),
    *map(_carrier, ("exotel", "freeswitch", "jambonz", "plivo", "telnyx", "twilio", "vonage")),
    *_files_of("audio format", "adapters/audio/formats"),
    Kind("framework", "pipecat", ("adapters/pipecat/*",)),
    *_voice_families(),
    *_in_folder("language", "tts_engine/reading/languages"),
    Kind("place to run", "process", ("tts_engine/backends/process*.py",)),
    Kind("place to run", "cluster", ("gateway/cluster/*",)),
    *_files_of("lexicon format", "tts_engine/reading/pronunciation/formats"),
    *_files_of("markup", "adapters/ssml/markups"),
    *_files_of("markup", "tts_engine/reading/markups"),
    *_files_of("agent", "gateway/calls/agents/kinds"),
    *_files_of("command", "gateway/cli/commands"),
    Kind("command", "bench", ("gateway/cli/bench/*",)),
)
# By sort of kind, the files of its kit.
KITS: Final = {
    "audio format": ("adapters/audio/format_kit/*",),
    "dialect": ("adapters/transcript_queue.py", "gateway/apis/kits/*"),
    "way in": ("adapters/answer_detector.py", "adapters/udp_ports.py", "gateway/calls/kits/*"),
    "command": ("gateway/cli/configuration/*", "gateway/cli/phones/*"),
    "language": ("tts_engine/reading/kit/*",),
    "voice family": (
        "models/bundle_files.py",
        "models/checkpoint/*",
        "models/decoding/*",
        "models/devices/*",
        "models/kernels/*",
        "models/networks/*",
        "models/onnx_graphs/*",
        "models/phonemes/*",
        "models/rendering_identity.py",
        "models/signal/[!_l]*",  # the limiter is the core's
        "tts_engine/voice_kit/*",
    ),
}


@cache
def kit_of(path: PurePosixPath) -> str | None:
    """The sort of kind whose kit has a file; None for other files."""
    found = (sort for sort, files in KITS.items() if any(fnmatch(str(path), each) for each in files))
    return next(found, None)


@cache
def kind_of(path: PurePosixPath) -> Kind | None:
    """The kind that owns a file; None for the core and for kits. Raises ValueError if two do."""
    owners = [kind for kind in KINDS if kind.owns(path)]
    if len(owners) > 1:
        raise ValueError(f"{path} is owned by {owners[0].name} and by {owners[1].name}")
    return owners[0] if owners else None


def lines_by_owner(found: list[Module]) -> Counter[tuple[str, str]]:
    """Lines of each kind, by sort and name; of kits by ("kit", sort), of the core by ("core", top folder)."""
    lines: Counter[tuple[str, str]] = Counter()
    for module in found:
        kind = kind_of(module.path)
        kit = kit_of(module.path)
        owner = ("kit", kit) if kit else ("core", "/".join(module.path.parts[:2]))
        owner = (kind.sort, kind.name) if kind else owner
        lines[owner] += module.lines
    return lines


def main() -> None:
    """Print the lines of the core and of each kind."""
    lines = lines_by_owner(modules(ROOT))
    for sort in dict.fromkeys(("core", "kit", *(kind.sort for kind in KINDS))):
        of_sort = {name: count for (owner, name), count in lines.items() if owner == sort}
        print(f"{sum(of_sort.values()):7} {sort}")
        for name, count in sorted(of_sort.items(), key=lambda each: -each[1]):
            print(f"{count:15} {name}")


if __name__ == "__main__":
    main()
