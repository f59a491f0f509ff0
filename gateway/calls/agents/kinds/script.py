"""``script:FILE`` and ``loop:FILE``: a text, spoken at a language model's pace; ``none``: nothing."""

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .....tts_engine.errors import BadRequest
from ...call import Call
from ...utterance_tracker import UtteranceOutcome
from ..agent import AgentKind, at_pace, llm_tokens

_MAX_CALLER_SPEECH_S = 10.0  # waited for after an interruption; longer sounds are taken for noise
_RETRY_DELAY_S = 1.0  # after a failure, so that a looping script does not flood an overloaded engine


def split_script(script: str) -> list[str]:
    """Return the paragraphs of a script, separated by blank lines; line ends inside one become spaces."""
    return [" ".join(part.split()) for part in re.split(r"\n[^\S\n]*\n", script) if part.strip()]


@dataclass(frozen=True, slots=True)
class ScriptPolicy:
    """Pace of a script."""

    tokens_per_s: float = 40.0  # the speed of a hosted language model of medium size
    pause_s: float = 0.7  # between two utterances; usual between two turns of one speaker


class ScriptAgent:
    """Speaks a text at a language model's pace; after an interruption it goes on with the next utterance.

    It ends when the caller takes the call over, as the page of a browser call does with typed text.
    """

    def __init__(self, script: str, policy: ScriptPolicy) -> None:
        self._utterances = split_script(script)
        self._policy = policy
        self.greeting = self._utterances[0] if self._utterances else ""

    async def run(self, call: Call) -> None:
        """Speak every utterance once, each after the one before has been heard."""
        for number, text in enumerate(self._utterances):
            if number:
                await asyncio.sleep(self._policy.pause_s)
                await call.listening.wait_caller_silent(_MAX_CALLER_SPEECH_S)
            if call.is_taken_over:
                return
            outcome = await call.speech.speak(at_pace(llm_tokens(text), self._policy.tokens_per_s))
            if outcome is UtteranceOutcome.CUT_SHORT:
                return
            if outcome in (UtteranceOutcome.FAILED, UtteranceOutcome.UNREADABLE):
                await asyncio.sleep(_RETRY_DELAY_S)
            await call.speech.wait_played()


class LoopingScriptAgent(ScriptAgent):
    """Repeats a text until the caller hangs up or takes the call over."""

    async def run(self, call: Call) -> None:
        """Speak the script, pause, and repeat."""
        while not call.is_taken_over:
            await super().run(call)
            await asyncio.sleep(self._policy.pause_s)


def _read_script(file: Path) -> str:
    try:
        script = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadRequest(f"agent: cannot read the script {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadRequest(f"agent: the script {file} is not UTF-8 text") from None
    if not script.strip():
        raise BadRequest(f"agent: the script {file} is empty")
    return script


def _make_script(file: str) -> ScriptAgent:
    return ScriptAgent(_read_script(Path(file)), ScriptPolicy())


def _make_loop(file: str) -> LoopingScriptAgent:
    return LoopingScriptAgent(_read_script(Path(file)), ScriptPolicy())


class SilentAgent:
    """Says nothing and keeps the call up, for a program or a page to speak on."""

    async def run(self, call: Call) -> None:
        """Wait until the call is over."""
        await call.end.wait_closed()


SCRIPT: Final = AgentKind("script", _make_script)
LOOP: Final = AgentKind("loop", _make_loop)
SILENT: Final = AgentKind("none", lambda file: SilentAgent())
