"""Clients of Cartesia's API with only the URL changed: its SDK, LiveKit's plugin, Pipecat's service."""

from pathlib import Path

from shared.gateways.client_programs import run_pipecat_program, run_python_program

PROGRAMS = Path(__file__).with_name("cartesia")


def test_cartesias_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("cartesia[websockets]==4.2.0", PROGRAMS / "sdk.py", server) == 10


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-cartesia==1.8.9", PROGRAMS / "livekit_tts.py", server) == 6


def test_pipecats_service_works(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 7
