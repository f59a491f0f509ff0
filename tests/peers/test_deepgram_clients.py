"""Clients of Deepgram's API with only the URL changed: its SDKs, LiveKit's plugins, Pipecat's services."""

from pathlib import Path

from shared.gateways.client_programs import run_node_program, run_pipecat_program, run_python_program

PROGRAMS = Path(__file__).with_name("deepgram")


def test_deepgrams_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("deepgram-sdk==7.17.0", PROGRAMS / "sdk.py", server) == 6


def test_deepgrams_sdk_for_node_works(server: tuple[str, str, str]) -> None:
    assert run_node_program("@deepgram/sdk@5.13.0", PROGRAMS / "sdk.mjs", server) == 6


def test_livekits_plugins_work(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-deepgram==1.8.9", PROGRAMS / "livekit_tts.py", server) == 7


def test_pipecats_services_work(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 7
