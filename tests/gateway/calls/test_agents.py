"""Agents: their utterances, their timing, and interruptions."""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.gateway.calls.agents.agent import at_pace, llm_tokens
from vivavoce.gateway.calls.agents.kinds.keys import KeyMenu, KeyReply, KeysAgent
from vivavoce.gateway.calls.agents.kinds.script import (
    LoopingScriptAgent,
    ScriptAgent,
    ScriptPolicy,
    SilentAgent,
    split_script,
)
from vivavoce.gateway.calls.agents.registry import make_agent
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.tts_engine.errors import BadRequest

RunVirtually = Callable[[Coroutine[Any, Any, None]], None]
POLICY = ScriptPolicy(tokens_per_s=40, pause_s=0.5)
AFTERNOON = datetime(2026, 3, 4, 15, 7)


class FakeCall:
    """Speaks each text for ``speech_s`` seconds; ``actions`` has (seconds since the start, action)."""

    def __init__(self, speech_s: float = 1.0) -> None:
        self.actions: list[tuple[float, str]] = []
        self.outcome = UtteranceOutcome.SPOKEN
        self.is_taken_over = False
        self.speech = self.listening = self.end = self
        self.closed = asyncio.Event()
        self._start = asyncio.get_running_loop().time()
        self._speech_s = speech_s
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._interrupted = asyncio.Event()

    def record(self, action: str) -> None:
        self.actions.append((round(asyncio.get_running_loop().time() - self._start, 3), action))

    @property
    def spoken(self) -> list[str]:
        return [action.removeprefix("say ") for _, action in self.actions if action.startswith("say ")]

    async def speak(self, text: str | AsyncIterable[str]) -> UtteranceOutcome:
        interrupted = self._interrupted
        if not isinstance(text, str):
            text = "".join([delta async for delta in text])
        self.record(f"say {text}")
        try:
            await asyncio.wait_for(interrupted.wait(), self._speech_s)
        except TimeoutError:
            return self.outcome
        return UtteranceOutcome.DISCARDED

    async def wait_played(self) -> None:
        self.record("played")

    def discard(self) -> None:
        self.record("discard")
        self._interrupted.set()
        self._interrupted = asyncio.Event()

    async def wait_caller_silent(self, timeout_s: float) -> None:
        pass

    async def finish(self) -> None:
        self.record("finish")

    def press(self, digit: str) -> None:
        self._keys.put_nowait(digit)

    async def next_key(self) -> str:
        return await self._keys.get()

    async def wait_closed(self) -> None:
        await self.closed.wait()


@given(st.text())
def test_tokens_joined_are_the_text(text: str) -> None:
    assert "".join(llm_tokens(text)) == text


def test_tokens_carry_the_space_before_them_and_are_short() -> None:
    tokens = llm_tokens("Your appointment, at 10:30, costs $1250.")
    assert tokens[:4] == ["Your", " appoin", "tment", ","]
    assert tokens[-4:] == [" $", "125", "0", "."]
    assert max(map(len, tokens)) <= 7


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("One.\n\nTwo.\n", ["One.", "Two."]),
        ("One,\nstill one.\n \t\n\n\nTwo.", ["One, still one.", "Two."]),
        ("\r\nOne.\r\n\r\nTwo.\r\n", ["One.", "Two."]),
        ("  \n\n", []),
    ],
)
def test_blank_lines_separate_utterances(script: str, expected: list[str]) -> None:
    assert split_script(script) == expected


def test_tokens_come_on_an_absolute_schedule(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        start, times = loop.time(), []
        async for _ in at_pace(["a"] * 5, 10.0, now=loop.time):
            times.append(round(loop.time() - start, 3))
            await asyncio.sleep(0.03)  # a slow consumer does not change the pace
        assert times == [0.0, 0.1, 0.2, 0.3, 0.4]

    run_virtually(scenario())


def test_a_script_is_spoken_once_with_a_pause_after_each_utterance_was_played(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        call = FakeCall()
        await ScriptAgent("One.\n\nTwo.", POLICY).run(call)
        assert [action for _, action in call.actions] == ["say One.", "played", "say Two.", "played"]
        played, second = call.actions[1][0], call.actions[2][0]
        assert second - played >= POLICY.pause_s

    run_virtually(scenario())


def test_a_script_stops_when_the_call_is_ending(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall()
        call.outcome = UtteranceOutcome.CUT_SHORT
        await ScriptAgent("One.\n\nTwo.", POLICY).run(call)
        assert call.spoken == ["One."]

    run_virtually(scenario())


def test_a_looping_script_starts_over(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall()
        running = asyncio.create_task(LoopingScriptAgent("One.\n\nTwo.", POLICY).run(call))
        await asyncio.sleep(7)
        running.cancel()
        await asyncio.wait({running})
        assert call.spoken[:4] == ["One.", "Two.", "One.", "Two."]

    run_virtually(scenario())


def test_a_looping_script_retries_at_most_once_a_second(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall(speech_s=0.0)
        call.outcome = UtteranceOutcome.FAILED
        running = asyncio.create_task(LoopingScriptAgent("One.", ScriptPolicy(1000, 0.0)).run(call))
        await asyncio.sleep(10)
        running.cancel()
        await asyncio.wait({running})
        assert 5 <= len(call.spoken) <= 11

    run_virtually(scenario())


def test_a_silent_agent_runs_until_the_caller_hangs_up(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall()
        asyncio.get_running_loop().call_later(60, call.closed.set)
        await SilentAgent().run(call)
        assert call.actions == []

    run_virtually(scenario())


def menu() -> KeyMenu:
    return KeyMenu(lambda: AFTERNOON)


def replies_to(keys: str) -> list[str]:
    key_menu = menu()
    return [key_menu.reply_to(key).text for key in keys]


def test_the_menu_is_spoken_first_and_again_at_0() -> None:
    assert KeyMenu.MENU in menu().greet().text
    assert replies_to("0") == [KeyMenu.MENU]


def test_1_tells_the_time() -> None:
    assert replies_to("1") == ["You pressed 1. It is 3:07 PM."]


def test_2_reads_back_the_digits_typed_up_to_pound() -> None:
    assert replies_to("20417#") == ["You pressed 2. Type your digits, then pound.", "", "", "", "",
                                 "You typed 0, 4, 1, 7."]  # fmt: skip
    assert replies_to("2#")[-1] == "You typed nothing."


def test_after_the_digits_keys_select_from_the_menu_again() -> None:
    assert replies_to("25#1")[-1] == "You pressed 1. It is 3:07 PM."


def test_at_40_digits_they_are_read_back_without_pound() -> None:
    replies = replies_to("2" + "7" * 41)
    assert replies[40].startswith("You typed 7, 7")
    assert replies[40].count("7") == 40
    assert replies[41] == f"You pressed 7. {KeyMenu.MENU}"


def test_other_keys_are_named_and_the_menu_is_repeated() -> None:
    assert replies_to("7A") == [f"You pressed 7. {KeyMenu.MENU}", f"You pressed A. {KeyMenu.MENU}"]


def test_star_only_interrupts_even_while_digits_are_typed() -> None:
    assert replies_to("*") == [""]
    assert replies_to("21*2#")[-1] == "You typed 1, 2."


def test_pound_ends_the_call() -> None:
    assert menu().reply_to("#") == KeyReply("You pressed pound. Goodbye.", ends_call=True)


def test_a_key_interrupts_speech_at_once(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall(speech_s=10.0)
        loop = asyncio.get_running_loop()
        loop.call_later(2.0, call.listening.press, "1")
        loop.call_later(3.0, call.listening.press, "*")
        loop.call_later(20.0, call.listening.press, "#")
        await KeysAgent(lambda: AFTERNOON).run(call)
        greeting = menu().greet().text
        assert call.actions == [
            (0.0, f"say {greeting}"),
            (2.0, "discard"),
            (2.0, "say You pressed 1. It is 3:07 PM."),
            (3.0, "discard"),
            (20.0, "discard"),
            (20.0, "say You pressed pound. Goodbye."),
            (30.0, "finish"),
        ]

    run_virtually(scenario())


def test_keys_pressed_ahead_are_all_answered(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        call = FakeCall()
        for key in "20417##":
            call.listening.press(key)
        await KeysAgent(lambda: AFTERNOON).run(call)
        assert call.spoken[-1] == "You pressed pound. Goodbye."
        assert asyncio.get_running_loop().time() < 1010

    run_virtually(scenario())


def test_the_setting_selects_the_agent(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("Hello.", encoding="utf-8")
    assert isinstance(make_agent("keys"), KeysAgent)
    assert isinstance(make_agent("none"), SilentAgent)
    assert type(make_agent(f"script:{script}")) is ScriptAgent
    assert type(make_agent(f"loop:{script}")) is LoopingScriptAgent


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot read the script"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b" \n\n", "is empty"),
    ],
)
def test_an_unusable_script_is_refused_with_the_reason(
    content: bytes | None, reason: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.txt"
    if content is not None:
        script.write_bytes(content)
    with pytest.raises(BadRequest, match=reason):
        make_agent(f"script:{script}")
