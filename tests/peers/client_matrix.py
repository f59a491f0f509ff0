"""Run every client program against one gateway, and write the table of ``README.md``.

``PYTHONPATH=tests:.links PEERS_IDLE_S=300 .venv/bin/python tests/peers/client_matrix.py``

A cell counts the cases that passed and are of its column. A program that fails leaves a row that says so.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from shared.gateways.client_programs import node_program, python_with, run_gateway

HERE: Final = Path(__file__).parent
README: Final = HERE / "README.md"
BEGIN: Final = "<!-- written by client_matrix.py -->"
TIMEOUT_S: Final = 600.0
# Words of a case's name, by column; no word: all cases but those of errors.
ERRORS: Final = ("error", "key", "limit")
COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "audio": (),
    "words": ("words", "times", "captions"),
    "interruption": ("interruption", "cancel", "disconnect"),
    "own errors": ERRORS,
    "after idling": ("idle",),
    "20 turns": ("twenty",),
}


@dataclass(frozen=True, slots=True)
class Client:
    """A client program: the package that it drives, and its file below this folder."""

    package: str  # as pip or npm takes it; "pipecat-ai" is the installed one
    program: str

    def command(self) -> list[str]:
        """Return how to run the program, without its arguments; installs the package."""
        path = HERE / self.program
        if path.suffix == ".mjs":
            return ["node", str(node_program(self.package, path))]
        python = sys.executable if self.package == "pipecat-ai" else python_with(self.package)
        return [python, str(path)]

    @property
    def name(self) -> str:
        """The package and its version."""
        if self.package == "pipecat-ai":
            return f"Pipecat {version('pipecat-ai')}, {self.program.partition('/')[0]}"
        return (
            self.package.replace("==", " ") if "==" in self.package else " ".join(self.package.rsplit("@", 1))
        )


CLIENTS: Final = (
    Client("openai==1.109.1", "openai/sdk.py"),
    Client("openai==3.54.0", "openai/sdk.py"),
    Client("openai@7.57.0", "openai/sdk.mjs"),
    Client("elevenlabs==2.78.0", "elevenlabs/sdk.py"),
    Client("@elevenlabs/elevenlabs-js@2.73.0", "elevenlabs/sdk.mjs"),
    Client("cartesia[websockets]==4.2.0", "cartesia/sdk.py"),
    Client("deepgram-sdk==7.17.0", "deepgram/sdk.py"),
    Client("@deepgram/sdk@5.13.0", "deepgram/sdk.mjs"),
    *(
        Client(f"livekit-plugins-{service}==1.8.9", f"{service}/livekit_tts.py")
        for service in ("openai", "elevenlabs", "cartesia", "deepgram", "inworld")
    ),
    *(
        Client("pipecat-ai", f"{service}/pipecat_tts.py")
        for service in ("openai", "elevenlabs", "cartesia", "deepgram", "inworld")
    ),
)


def row_of(client: Client, arguments: Sequence[str]) -> str:
    """Run a client; return its row of the table."""
    done = subprocess.run(
        [*client.command(), *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        print(client.name, done.stderr[-2_000:], file=sys.stderr)
        return f"| {client.name} | failed |" + " |" * (len(COLUMNS) - 1)
    cases = json.loads(done.stdout.splitlines()[-1])["passed"]
    counts = [sum(_is_of(case, words) for case in cases) for words in COLUMNS.values()]
    return f"| {client.name} | " + " | ".join(str(count or "") for count in counts) + " |"


def _is_of(case: str, words: Sequence[str]) -> bool:
    if not words:
        return not _is_of(case, ERRORS)
    return any(word in case for word in words)


def main() -> None:
    """Write the table below the mark in the README."""
    with tempfile.TemporaryDirectory() as folder, run_gateway(Path(folder)) as gateway:
        arguments = [gateway["url"], gateway["key"], gateway["poor_key"]]
        with ThreadPoolExecutor(6) as pool:
            rows = list(pool.map(lambda client: row_of(client, arguments), CLIENTS))
    idle = os.environ.get("PEERS_IDLE_S", "0.1")
    names = [f"{name} ({idle} s)" if name == "after idling" else name for name in COLUMNS]
    head = f"| client | {' | '.join(names)} |\n|---|{'---|' * len(COLUMNS)}\n"
    before = README.read_text().partition(BEGIN)[0]
    README.write_text(before + BEGIN + "\n\n" + head + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
