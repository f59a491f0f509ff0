"""Clients of XTTS's servers with only the URL changed: Pipecat's service, the requests of other programs."""

from pathlib import Path

from shared.gateways.client_programs import run_pipecat_program, run_requests_program

PROGRAMS = Path(__file__).with_name("xtts")


def test_the_requests_of_coquis_server_work(server: tuple[str, str, str]) -> None:
    assert run_requests_program(PROGRAMS / "coqui_requests.py", server) == 6


def test_sillytaverns_requests_work(server: tuple[str, str, str]) -> None:
    assert run_requests_program(PROGRAMS / "sillytavern_requests.py", server) == 6


def test_pipecats_service_works(server: tuple[str, str, str]) -> None:
    assert run_pipecat_program(PROGRAMS / "pipecat_tts.py", server) == 3
