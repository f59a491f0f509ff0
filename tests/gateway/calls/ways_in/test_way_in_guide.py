"""The way in of ``gateway/README.md``: another package adds it with an entry point, and it speaks."""

import asyncio
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from shared.audio.tones import pitch_of
from shared.calls.websocket_calls import WebSocketCallServer, with_server
from vivavoce.gateway.calls.call import Call
from vivavoce.tts_engine.packaging import plug_ins

GUIDE = Path(__file__).parents[4] / "gateway" / "README.md"
MODULE_NAME = "vivavoce.gateway.calls.ways_in.intercom_of_the_guide"
SECTION = GUIDE.read_text(encoding="utf-8").partition("## Add a way in")[2].partition("\n## ")[0]


class AnsweringAgent:
    """Says one sentence, and keeps the call until a key of the test ends it."""

    async def run(self, call: Call) -> None:
        await call.speech.speak("Come in, please.")
        await call.end.wait_closed()


@pytest.fixture
def intercom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The guide's code as a module, whose record is an entry point."""
    (code,) = re.findall(r"^```py\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    source = tmp_path / "intercom.py"
    source.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(MODULE_NAME, source)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MODULE_NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def entry_points(group: str, path: tuple[str, ...]) -> list[Any]:
        return [SimpleNamespace(load=lambda: module.INTERCOM)] if group == "vivavoce.ways_in" else []

    monkeypatch.setattr(plug_ins, "installed_entry_points", entry_points)
    yield module
    del sys.modules[MODULE_NAME]


def test_the_guides_intercom_is_answered_and_told_to_be_quiet(intercom: ModuleType) -> None:
    async def ring(server: WebSocketCallServer) -> None:
        async with connect(f"{server.url}/intercom") as door:
            await door.send("12")
            heard = b""
            while len(heard) < 2 * 8_000 // 5:
                packet = await door.recv()
                assert isinstance(packet, bytes)
                heard += packet
            assert pitch_of(heard[1600:], 8_000) == pytest.approx(440, abs=5)
            (listed,) = server.gateway.calls.registry
            assert (listed.kind, listed.call.caller.number) == ("intercom", "12")
            listed.call.speech.discard()
            while await door.recv() != "quiet":
                pass
            listed.call.end.hang_up()
            with pytest.raises(ConnectionClosed):
                await door.recv()

    with_server(ring, agent=AnsweringAgent())


def test_a_door_without_a_number_is_refused(intercom: ModuleType) -> None:
    async def ring(server: WebSocketCallServer) -> None:
        async with connect(f"{server.url}/intercom") as door:
            await door.send(json.dumps({"door": 12}))
            with pytest.raises(ConnectionClosed):
                async with asyncio.timeout(10):
                    await door.recv()
            assert len(server.gateway.calls.registry) == 0

    with_server(ring)


def test_every_file_that_the_guide_names_exists() -> None:
    folder = GUIDE.parent
    named = re.findall(r"\]\(([\w/.]+)\)", SECTION)
    assert len(named) > 5
    assert [name for name in named if not (folder / name).exists()] == []
