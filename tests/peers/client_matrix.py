"""Run every client program against one gateway, and write the table of ``README.md``.

``PYTHONPATH=tests:.links PEERS_IDLE_S=300 .venv/bin/python tests/peers/client_matrix.py``

A cell counts the cases that passed and are of its column. A program that fails leaves a row that says so.
``PEERS_PYTHON`` names a Python 3.12 or later for the programs that need one, if this one is older.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from shared.gateways.client_programs import node_program, python_with, run_gateway
from shared.gateways.tls_proxy import tls_proxy

HERE: Final = Path(__file__).parent
README: Final = HERE / "README.md"
BEGIN: Final = "<!-- written by client_matrix.py -->"
TIMEOUT_S: Final = 900.0
START_GAP_S: Final = 5.0  # between programs that idle, so that their starts do not disturb each other
AT_ONCE: Final = 3  # programs that do not idle
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
# What a client cannot do; README.md says why.
WORDS: Final = ("words",)
HTTP: Final = ("after idling", "20 turns")


@dataclass(frozen=True, slots=True)
class Client:
    """A client program: the package that it drives, and its file below this folder."""

    package: str  # as pip or npm takes it; without a version, it is an installed one or a name
    program: str
    lacks: Sequence[str] = ()  # columns
    python: str = sys.executable
    needs_tls: bool = False

    def command(self) -> list[str]:
        """Return how to run the program, without its arguments; installs the package."""
        path = HERE / self.program
        if path.suffix == ".mjs":
            return ["node", str(node_program(self.package, path))]
        installed = "==" not in self.package
        return [self.python if installed else python_with(self.package, self.python), str(path)]

    @property
    def name(self) -> str:
        """The package and its version."""
        if self.program.endswith(".mjs"):
            return ", ".join(" ".join(package.rsplit("@", 1)) for package in reversed(self.package.split()))
        if self.package == "pipecat-ai":
            return f"Pipecat {version('pipecat-ai')}, {self.program.partition('/')[0]}"
        return self.package.replace("==", " ")


CLIENTS: Final = (
    Client("openai==1.109.1", "openai/sdk.py", WORDS + HTTP),
    Client("openai==3.54.0", "openai/sdk.py", WORDS + HTTP),
    Client("openai@7.57.0", "openai/sdk.mjs", WORDS + HTTP),
    Client("openai-agents[voice]==0.24.0", "openai/agents_voice.py", (*WORDS, "after idling")),
    Client("@ai-sdk/openai@4.0.118 ai@7.0.173", "openai/ai_sdk.mjs", WORDS + HTTP),
    Client(
        "wyoming-openai==0.8.0",
        "openai/wyoming_proxy.py",
        WORDS,
        os.environ.get("PEERS_PYTHON", sys.executable),
    ),
    Client("dashscope==1.25.24", "dashscope/sdk.py"),
    Client("dashscope==2.0.2", "dashscope/sdk.py"),
    Client("elevenlabs==2.78.0", "elevenlabs/sdk.py", ("after idling",)),
    Client("@elevenlabs/elevenlabs-js@2.73.0", "elevenlabs/sdk.mjs", HTTP),
    Client("cartesia[websockets]==4.2.0", "cartesia/sdk.py"),
    Client("ws@8.23.0 @cartesia/cartesia-js@4.2.0", "cartesia/sdk.mjs", needs_tls=True),
    Client("deepgram-sdk==7.17.0", "deepgram/sdk.py"),
    Client("@deepgram/sdk@5.13.0", "deepgram/sdk.mjs"),
    Client("requests of coqui's xtts-streaming-server", "xtts/coqui_requests.py", WORDS + HTTP),
    Client("requests of SillyTavern 1.13.0", "xtts/sillytavern_requests.py", WORDS + HTTP),
    Client("livekit-plugins-openai==1.8.9", "openai/livekit_tts.py", WORDS + HTTP),
    Client("livekit-plugins-elevenlabs==1.8.9", "elevenlabs/livekit_tts.py"),
    Client("livekit-plugins-cartesia==1.8.9", "cartesia/livekit_tts.py"),
    Client("livekit-plugins-deepgram==1.8.9", "deepgram/livekit_tts.py", WORDS),
    Client("livekit-plugins-inworld==1.8.9", "inworld/livekit_tts.py"),
    Client("pipecat-ai", "openai/pipecat_tts.py", WORDS + HTTP),
    Client("pipecat-ai", "xtts/pipecat_tts.py", WORDS + HTTP),
    Client("pipecat-ai", "elevenlabs/pipecat_tts.py"),
    Client("pipecat-ai", "cartesia/pipecat_tts.py"),
    Client("pipecat-ai", "deepgram/pipecat_tts.py", WORDS),
    Client("pipecat-ai", "inworld/pipecat_tts.py"),
)


def passed_cases(name: str, command: Sequence[str], chosen: str) -> list[str] | None:
    """Run a program with the cases that ``client_cases.py`` chooses; return those that passed."""
    environment = {**os.environ, "PEERS_CASES": chosen}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True, env=environment
        )
    except subprocess.SubprocessError as error:
        print(name, chosen, error, str(getattr(error, "stderr", ""))[-2_000:], file=sys.stderr)
        return None
    return list(json.loads(done.stdout.splitlines()[-1])["passed"])


def row_of(client: Client, *runs: list[str] | None) -> str:
    """Return a client's row of the table, from the cases that each of its runs passed."""
    if None in runs:
        return f"| {client.name} | failed |" + " |" * (len(COLUMNS) - 1)
    cases = [case for run in runs for case in run or ()]
    return f"| {client.name} | " + " | ".join(_cell(client, column, cases) for column in COLUMNS) + " |"


def _cell(client: Client, column: str, cases: Sequence[str]) -> str:
    count = sum(_is_of(case, COLUMNS[column]) for case in cases)
    return "-" if column in client.lacks and not count else str(count)


def _is_of(case: str, words: Sequence[str]) -> bool:
    if not words:
        return not _is_of(case, ERRORS)
    return any(word in case for word in words)


def run_all(url: str, secure_url: str, keys: Sequence[str]) -> list[str]:
    """Run all clients, with the idle times of all beside each other; return the rows."""
    commands = {
        client: [*client.command(), secure_url if client.needs_tls else url, *keys] for client in CLIENTS
    }
    idling: dict[Client, Future[list[str] | None]] = {}
    with ThreadPoolExecutor(len(CLIENTS)) as idle_pool, ThreadPoolExecutor(AT_ONCE) as pool:
        for client, command in commands.items():
            if "after idling" not in client.lacks:
                idling[client] = idle_pool.submit(passed_cases, client.name, command, "idle")
                time.sleep(START_GAP_S)
        busy = {
            client: pool.submit(passed_cases, client.name, command, "busy")
            for client, command in commands.items()
        }
        return [
            row_of(client, *(runs[client].result() for runs in (busy, idling) if client in runs))
            for client in CLIENTS
        ]


def main() -> None:
    """Write the table below the mark in the README."""
    with (
        tempfile.TemporaryDirectory() as folder,
        run_gateway(Path(folder)) as gateway,
        tls_proxy(Path(folder), gateway["url"]) as secure_url,
    ):
        os.environ["NODE_EXTRA_CA_CERTS"] = str(Path(folder, "cert.pem"))
        rows = run_all(gateway["url"], secure_url, [gateway["key"], gateway["poor_key"]])
    idle = os.environ.get("PEERS_IDLE_S", "0.1")
    names = [f"{name} ({idle} s)" if name == "after idling" else name for name in COLUMNS]
    head = f"| client | {' | '.join(names)} |\n|---|{'---|' * len(COLUMNS)}\n"
    before = README.read_text().partition(BEGIN)[0]
    README.write_text(before + BEGIN + "\n\n" + head + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
