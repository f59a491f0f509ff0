"""Records sessions, renews their answers, and compares them with today's code.

PYTHONPATH=tests python -m conformance.recordings record FOLDER    of the plugin harvest
PYTHONPATH=tests python -m conformance.recordings renew [NAME...]
PYTHONPATH=tests python -m conformance.recordings compare [NAME...]    audio to the last bit
"""

import argparse
import asyncio
import logging
from dataclasses import replace
from pathlib import Path

from .answers import difference
from .calls import call_sessions
from .recorder import play_all, record
from .sessions import DATA, load, save


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("record", "renew", "compare"))
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("conformance").setLevel(logging.INFO)
    if arguments.command == "record":
        for folder in map(Path, arguments.names):
            harvested = {file.name: load(file) for file in sorted(folder.glob("*.json.xz"))}
            for name, sessions in {**harvested, "calls_api.json.xz": call_sessions()}.items():
                save(DATA / name, record(sessions))
        return
    for file in sorted(DATA.glob("*.json.xz")):
        if not arguments.names or file.name.partition(".")[0] in arguments.names:
            _renew(file) if arguments.command == "renew" else _compare(file)


def _renew(file: Path) -> None:
    sessions = load(file)
    answers = asyncio.run(play_all(sessions))
    save(file, [replace(session, received=answer) for session, answer in zip(sessions, answers, strict=True)])


def _compare(file: Path) -> None:
    sessions = load(file)
    answers = asyncio.run(play_all(sessions))
    pairs = zip(sessions, answers, strict=True)
    found = [(one, difference(one.received, answer, exact=True)) for one, answer in pairs]
    changed = [(one, what) for one, what in found if what]
    print(f"{file.name}: {len(sessions)} sessions, {len(changed)} changed")
    for one, what in changed:
        print(f"{one.title}\n{what}")


if __name__ == "__main__":
    main()
