"""Clients of Inworld's API with only the URL changed: Pipecat's services and LiveKit's plugin."""

from pathlib import Path

from shared.gateways.client_programs import run_pipecat_program, run_python_program

PROGRAMS = Path(__file__).with_name("inworld")


def test_pipecats_services_work(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 8


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-inworld==1.8.9", PROGRAMS / "livekit_tts.py", server) == 7
