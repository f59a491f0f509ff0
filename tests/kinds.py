"""Which files of the product are kinds, and which are the core: ``python tests/kinds.py [ROOT]`` prints them.

A kind is one of many of its sort, behind one door: a client dialect, a way into a call, a voice family, a
language, a place to run. A kit is what the kinds of one sort are made of; the core does without it. Every
other file is the core. The source is read with ``ast``; nothing is imported.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatch
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


def _dialect(name: str, *more: str) -> Kind:
    return Kind("dialect", name, (f"gateway/apis/dialects/{name}/*", *more))


def _way_in(name: str, *more: str) -> Kind:
    return Kind("way in", name, (f"gateway/calls/ways_in/{name}/*", *more))


def _carrier(name: str) -> Kind:
    return Kind("carrier", name, (f"adapters/media_streams/carriers/{name}.py",))


def _voice_family(name: str) -> Kind:
    return Kind(
        "voice family",
        name,
        (f"models/{name}/*", f"tts_engine/{name}/*"),
    )


def _language(code: str) -> Kind:
    return Kind("language", code, (f"tts_engine/reading/languages/{code}/*",))


KINDS: Final = (
    _dialect("cartesia"),
    _dialect("cosyvoice_server"),
    _dialect("dashscope", "adapters/dashscope/*"),
    _dialect("deepgram"),
    _dialect("elevenlabs"),
    _dialect("inworld"),
    _dialect("jambonz"),
    _dialect("native_stream"),
    _dialect("openai"),
    _dialect("pai"),
    _dialect("ray_serve"),
    _dialect("xtts"),
    _way_in("audiosocket", "adapters/audiosocket/*", "gateway/cli/phones/audiosocket_phones.py"),
    _way_in("rtp", "adapters/rtp/*", "gateway/cli/phones/rtp_phones.py"),
    _way_in("ari"),
    _way_in("asterisk_websocket", "adapters/media_streams/asterisk.py"),
    _way_in("media_streams"),
    _way_in("browser", "adapters/webrtc/*"),
    *map(_carrier, ("exotel", "freeswitch", "jambonz", "plivo", "telnyx", "twilio", "vonage")),
    Kind("framework", "pipecat", ("adapters/pipecat/*",)),
    *map(_voice_family, ("hibari", "piper", "kokoro", "cosyvoice", "xtts")),
    *map(_language, "en zh ja de fr es it pt nl pl ru tr ko".split()),
    Kind("place to run", "process", ("tts_engine/backends/process*.py",)),
    Kind("place to run", "cluster", ("gateway/cluster/*",)),
    Kind("bench", "bench", ("gateway/cli/bench/*",)),
)
# By sort of kind, the files of its kit.
KITS: Final = {
    "language": ("tts_engine/reading/kit/table_rules/*", "tts_engine/reading/kit/han/*"),
}


def kit_of(path: PurePosixPath) -> str | None:
    """The sort of kind whose kit has a file; None for other files."""
    found = (sort for sort, files in KITS.items() if any(fnmatch(str(path), each) for each in files))
    return next(found, None)


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


def main(root: Path) -> None:
    """Print the lines of the core and of each kind."""
    lines = lines_by_owner(modules(root))
    for sort in dict.fromkeys(("core", "kit", *(kind.sort for kind in KINDS))):
        of_sort = {name: count for (owner, name), count in lines.items() if owner == sort}
        print(f"{sum(of_sort.values()):7} {sort}")
        for name, count in sorted(of_sort.items(), key=lambda each: -each[1]):
            print(f"{count:15} {name}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1])
