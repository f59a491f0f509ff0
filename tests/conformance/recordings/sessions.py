"""Sessions of clients as they are recorded: what a client sends and when, and what it received.

A session is one HTTP exchange or one WebSocket. Each way of a WebSocket is a list: bytes are in base64 under
``bytes``. A client's message names the number of answers after which it is sent, so that a replay does not
depend on the machine.
"""

import base64
import json
import lzma
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
KEY = "vv_00000000_" + "A" * 43  # in place of the key of the server under test


@dataclass(slots=True)
class ClientMessage:
    """A message of a client on a WebSocket."""

    data: str  # text, or base64
    is_binary: bool = False
    after: int = 0  # answers that the client has received before
    after_type: str = ""  # while a session is made: the type of the answer to wait for instead


@dataclass(slots=True)
class RecordedSession:
    """One exchange. The order of its fields is that of the file."""

    method: str  # of HTTP, or WEBSOCKET
    path: str  # with its query
    headers: list[list[str]] = field(default_factory=list)
    body: str = ""  # base64
    messages: list[ClientMessage] = field(default_factory=list)  # of a WebSocket
    on_call: str = ""  # id of a call that a phone opens before and ends after the session
    needs_key: bool = False  # played at the server that asks for keys
    per_stream: bool = False  # streams of a WebSocket are independent, so only the order of each is compared
    answers: int = 0  # messages of the server on a WebSocket
    received: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """One line that names the session in a report."""
        first = (
            self.messages[0].data if self.messages else base64.b64decode(self.body).decode(errors="replace")
        )
        return f"{self.method} {self.path} {first[:160]}"

    @property
    def question(self) -> str:
        """What the client says, which makes a session distinct."""
        said, names = asdict(self), ("method", "path", "headers", "body", "messages", "needs_key")
        return json.dumps([said[name] for name in names])


def load(path: Path) -> list[RecordedSession]:
    """Read the sessions of a file."""
    entries = json.loads(lzma.decompress(path.read_bytes()))
    for entry in entries:
        entry["messages"] = [ClientMessage(**message) for message in entry.get("messages", ())]
    return [RecordedSession(**entry) for entry in entries]


def save(path: Path, sessions: Iterable[RecordedSession]) -> None:
    """Write sessions to a file, without fields that have their defaults."""
    entries = [_short(asdict(session)) for session in sessions]
    for entry in entries:
        if "messages" in entry:
            entry["messages"] = [_short(message) for message in entry["messages"]]
    text = json.dumps(entries, ensure_ascii=False, indent=0)
    path.write_bytes(lzma.compress(text.encode("utf-8", "surrogatepass"), preset=9 | lzma.PRESET_EXTREME))


def _short(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if value or name in ("data",)}
