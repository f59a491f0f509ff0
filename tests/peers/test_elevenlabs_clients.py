"""Clients of ElevenLabs' API with only the URL changed: its SDKs, LiveKit's plugin, Pipecat's services."""

from pathlib import Path

from shared.gateways.client_programs import run_node_program, run_pipecat_program, run_python_program

PROGRAMS = Path(__file__).with_name("elevenlabs")


def test_elevenlabs_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("elevenlabs==2.78.0", PROGRAMS / "sdk.py", server) == 7


def test_elevenlabs_sdk_for_node_works(server: tuple[str, str, str]) -> None:
    assert run_node_program("@elevenlabs/elevenlabs-js@2.73.0", PROGRAMS / "sdk.mjs", server) == 5


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-elevenlabs==1.8.9", PROGRAMS / "livekit_tts.py", server) == 7


def test_pipecats_services_work(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 7
