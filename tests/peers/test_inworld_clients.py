"""Clients of Inworld's API with only the URL changed: Pipecat's services and LiveKit's plugin."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.client_programs import python_with, run_client, run_gateway

pytestmark = pytest.mark.slow  # each client takes seconds to start
PROGRAMS = Path(__file__).with_name("inworld")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    with run_gateway(tmp_path_factory.mktemp("gateway")) as gateway:
        yield gateway["url"], gateway["key"], gateway["poor_key"]


def test_pipecats_services_work(server: tuple[str, str, str]) -> None:
    pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
    result = run_client([sys.executable, str(PROGRAMS / "pipecat_tts.py")], server)
    assert len(result["passed"]) == 6


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    python = python_with("livekit-plugins-inworld==1.8.9")
    result = run_client([python, str(PROGRAMS / "livekit_tts.py")], server)
    assert (result["version"], len(result["passed"])) == ("1.8.9", 5)
