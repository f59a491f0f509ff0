"""Clients of speech APIs with only the URL changed: SDKs, LiveKit's plugins, Pipecat's services, requests.

The clients of OpenAI's API and of DashScope have files of their own.
"""

from pathlib import Path

import pytest

from shared.gateways.client_programs import (
    run_node_program,
    run_pipecat_program,
    run_python_program,
    run_requests_program,
)
from shared.gateways.tls_proxy import tls_proxy

PROGRAMS = Path(__file__).parent


@pytest.mark.parametrize(
    ("requirement", "program", "cases"),
    [
        ("cartesia[websockets]==4.2.0", "cartesia/sdk.py", 10),
        ("deepgram-sdk==7.17.0", "deepgram/sdk.py", 6),
        ("elevenlabs==2.78.0", "elevenlabs/sdk.py", 7),
        ("livekit-plugins-cartesia==1.8.9", "cartesia/livekit_tts.py", 6),
        ("livekit-plugins-deepgram==1.8.9", "deepgram/livekit_tts.py", 7),
        ("livekit-plugins-elevenlabs==1.8.9", "elevenlabs/livekit_tts.py", 7),
        ("livekit-plugins-inworld==1.8.9", "inworld/livekit_tts.py", 7),
    ],
)
def test_a_client_for_python_works(
    requirement: str, program: str, cases: int, server: tuple[str, str, str]
) -> None:
    assert run_python_program(requirement, PROGRAMS / program, server) == cases


@pytest.mark.parametrize(
    ("packages", "program", "cases"),
    [
        ("@deepgram/sdk@5.13.0", "deepgram/sdk.mjs", 6),
        ("@elevenlabs/elevenlabs-js@2.73.0", "elevenlabs/sdk.mjs", 5),
    ],
)
def test_a_client_for_node_works(
    packages: str, program: str, cases: int, server: tuple[str, str, str]
) -> None:
    assert run_node_program(packages, PROGRAMS / program, server) == cases


def test_cartesias_sdk_for_node_works_over_tls(server: tuple[str, str, str], tmp_path: Path) -> None:
    url, *keys = server
    with tls_proxy(tmp_path, url) as secure_url:
        passed = run_node_program(
            "ws@8.23.0 @cartesia/cartesia-js@4.2.0",
            PROGRAMS / "cartesia" / "sdk.mjs",
            (secure_url, *keys),
            tmp_path / "cert.pem",
        )
    assert passed == 7


@pytest.mark.parametrize(
    ("service", "cases"), [("cartesia", 7), ("deepgram", 7), ("elevenlabs", 7), ("inworld", 8), ("xtts", 3)]
)
def test_pipecats_services_work(service: str, cases: int, server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / service / "pipecat_tts.py", server) == cases


@pytest.mark.parametrize("program", ["coqui_requests.py", "sillytavern_requests.py"])
def test_the_requests_of_clients_of_xtts_servers_work(program: str, server: tuple[str, str, str]) -> None:
    assert run_requests_program(PROGRAMS / "xtts" / program, server) == 6
