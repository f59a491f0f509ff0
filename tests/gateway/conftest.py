"""Fixtures of the gateway's tests: a stand-in voice, and an environment without settings."""

import os

import pytest

from shared.engine.standin_backend import StandInBackend
from vivavoce.gateway import call_servers
from vivavoce.tts_engine.engine import Engine


@pytest.fixture
def stand_in_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every engine opened has the stand-in backend, whose words are tones of 0.2 s."""
    real_open = Engine.open

    async def open_stand_in(*args: object, **keywords: object) -> Engine:
        return await real_open(backend=StandInBackend((440, 880)))

    monkeypatch.setattr(Engine, "open", open_stand_in)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("VIVAVOCE_"):
            monkeypatch.delenv(name)
    # A thread starts at once. ``calls/audiosocket/test_media_processes.py`` tests processes.
    monkeypatch.setattr(call_servers, "media_processes", lambda max_calls: 0)


@pytest.fixture
def media_processes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The number of media processes of gateways, as the test's parameter says."""
    number: int = request.param
    monkeypatch.setattr(call_servers, "media_processes", lambda max_calls: number)
    return number
