"""Clients of ElevenLabs' API with only the URL changed: its SDKs, LiveKit's plugin, Pipecat's services."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.client_programs import ENVIRONMENTS, node_with, python_with, run_client, run_gateway

pytestmark = pytest.mark.slow  # each client takes seconds to start
PROGRAMS = Path(__file__).with_name("elevenlabs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    with run_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway["url"], gateway["key"], gateway["poor_key"]


def test_elevenlabs_sdk_works(server: tuple[str, str, str]) -> None:
    result = run_client([python_with("elevenlabs==2.78.0"), str(PROGRAMS / "sdk.py")], server)
    assert (result["version"], len(result["passed"])) == ("2.78.0", 5)


def test_elevenlabs_sdk_for_node_works(server: tuple[str, str, str]) -> None:
    place = ENVIRONMENTS / "node-elevenlabs-2.73.0"
    node = node_with("@elevenlabs/elevenlabs-js@2.73.0", place)
    # Node resolves imports from the folder of the file.
    program = Path(shutil.copy(PROGRAMS / "sdk.mjs", place / "sdk.mjs"))
    result = run_client([node, str(program)], server)
    assert (result["version"], len(result["passed"])) == ("2.73.0", 3)


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    python = python_with("livekit-plugins-elevenlabs==1.8.9")
    result = run_client([python, str(PROGRAMS / "livekit_tts.py")], server)
    assert (result["version"], len(result["passed"])) == ("1.8.9", 5)


def test_pipecats_services_work(server: tuple[str, str, str]) -> None:
    pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
    result = run_client([sys.executable, str(PROGRAMS / "pipecat_tts.py")], server)
    assert len(result["passed"]) == 5
