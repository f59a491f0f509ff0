"""Clients of Cartesia's API with only the URL changed: its SDKs, LiveKit's plugin, Pipecat's service."""

from pathlib import Path

from shared.gateways.client_programs import run_node_program, run_pipecat_program, run_python_program
from shared.gateways.tls_proxy import tls_proxy

PROGRAMS = Path(__file__).with_name("cartesia")


def test_cartesias_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("cartesia[websockets]==4.2.0", PROGRAMS / "sdk.py", server) == 10


def test_cartesias_sdk_for_node_works_over_tls(server: tuple[str, str, str], tmp_path: Path) -> None:
    url, *keys = server
    with tls_proxy(tmp_path, url) as secure_url:
        passed = run_node_program(
            "ws@8.18.3 @cartesia/cartesia-js@4.2.0",
            PROGRAMS / "sdk.mjs",
            (secure_url, *keys),
            tmp_path / "cert.pem",
        )
    assert passed == 7


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-cartesia==1.8.9", PROGRAMS / "livekit_tts.py", server) == 6


def test_pipecats_service_works(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 7
