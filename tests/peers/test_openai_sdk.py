"""Unmodified clients of OpenAI's API with only the base URL changed, and schemathesis on documented routes.

The clients are OpenAI's SDKs for Python and Node and its Agents SDK, LiveKit's plugin, Pipecat's service,
Vercel's AI SDK and wyoming-openai. schemathesis sends requests that the OpenAPI document allows and
forbids, and checks the answers against it.
"""

import sys
from pathlib import Path

import pytest

from shared.gateways.client_programs import run_node_program, run_pipecat_program, run_python_program
from shared.gateways.documented_answers import check_documented_answers
from shared.gateways.tls_proxy import tls_proxy

PROGRAMS = Path(__file__).with_name("openai")
NODE_SDK = "ws@8.23.0 openai@7.57.0"  # Realtime connections need ws


@pytest.mark.parametrize(("version", "cases"), [("1.109.1", 13), ("3.54.0", 14)])
def test_openais_python_sdk_works(version: str, cases: int, server: tuple[str, str, str]) -> None:
    assert run_python_program(f"openai=={version}", PROGRAMS / "sdk.py", server) == cases


def test_openais_python_sdk_works_over_realtime(server: tuple[str, str, str]) -> None:
    assert run_python_program("openai[realtime]==3.54.0", PROGRAMS / "realtime.py", server) == 8


def test_openais_node_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_node_program(NODE_SDK, PROGRAMS / "sdk.mjs", server) == 10


def test_openais_node_sdk_works_over_realtime(server: tuple[str, str, str], tmp_path: Path) -> None:
    """The SDK connects over TLS only."""
    url, *keys = server
    with tls_proxy(tmp_path, url) as secure_url:
        program, certificate = PROGRAMS / "realtime.mjs", tmp_path / "cert.pem"
        assert run_node_program(NODE_SDK, program, (secure_url, *keys), certificate) == 5


def test_the_voice_pipeline_of_openais_agents_sdk_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("openai-agents[voice]==0.24.0", PROGRAMS / "agents_voice.py", server) == 4


def test_vercels_ai_sdk_works(server: tuple[str, str, str]) -> None:
    packages = "@ai-sdk/openai@4.0.118 ai@7.0.173"
    assert run_node_program(packages, PROGRAMS / "ai_sdk.mjs", server) == 4


if sys.version_info >= (3, 12):  # which the proxy needs

    def test_wyoming_openai_works(server: tuple[str, str, str]) -> None:
        assert run_python_program("wyoming-openai==0.8.0", PROGRAMS / "wyoming_proxy.py", server) == 6


def test_livekits_plugin_works(server: tuple[str, str, str]) -> None:
    assert run_python_program("livekit-plugins-openai==1.8.9", PROGRAMS / "livekit_tts.py", server) == 5


def test_pipecats_service_works(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 4


def test_schemathesis_finds_no_undocumented_answer(gateway: dict[str, str], tmp_path: Path) -> None:
    """``test_every_documented_answer.py`` tries the boundaries of all operations."""
    check_documented_answers(gateway, tmp_path, "^/v1/(audio/speech|calls|text-to-speech)")
