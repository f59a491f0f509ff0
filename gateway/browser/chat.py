"""A conversation with a language model behind an OpenAI-compatible server: turns in, tokens out.

The history holds what was heard, not what was written: after an interruption the model knows where it was
cut. No tools, no images, nothing of the caller's but the text.

Source: the Chat Completions streaming format (``data: {...}`` lines, ``data: [DONE]``), as OpenAI, vLLM,
llama.cpp and Ollama serve it.
"""

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Literal

import httpx

from ...tts_engine.errors import VivavoceError

_MOST_TURNS = 40  # of the history; older ones are forgotten
_MOST_LINE = 64 * 1024  # characters of one event
_MOST_ANSWER = 20_000  # characters; nobody listens to more
_FOR_SPEECH = (
    "You are on the phone. Answer in one to three short sentences of plain spoken English, "
    "without lists, markup or emoji."
)


class ChatFailed(VivavoceError):
    """The model's server could not be asked or did not answer; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Where the model is and how it is asked. ``base_url`` ends before ``/chat/completions``."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    system_prompt: str = _FOR_SPEECH
    timeout_s: float = 20.0  # between two tokens


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the history."""

    role: Literal["user", "assistant"]
    content: str


class Conversation:
    """Who said what, as far as it was heard."""

    def __init__(self, system_prompt: str) -> None:
        self.turns: deque[Turn] = deque(maxlen=_MOST_TURNS)
        self._system_prompt = system_prompt

    def asked(self, text: str) -> None:
        """The caller said this."""
        self.turns.append(Turn("user", text))

    def heard(self, text: str) -> None:
        """The caller heard this of us; nothing heard is nothing said."""
        if text.strip():
            self.turns.append(Turn("assistant", text.strip()))

    def messages(self) -> list[dict[str, str]]:
        """The system prompt and the turns as the server wants them."""
        turns = [{"role": turn.role, "content": turn.content} for turn in self.turns]
        return [{"role": "system", "content": self._system_prompt}, *turns]


async def answer(conversation: Conversation, settings: ChatSettings) -> AsyncGenerator[str, None]:
    """Yield the model's answer as it is written. Raises ChatFailed."""
    timeout = httpx.Timeout(settings.timeout_s)
    try:
        async with (
            httpx.AsyncClient(timeout=timeout) as client,
            client.stream(
                "POST",
                settings.base_url.rstrip("/") + "/chat/completions",
                headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {},
                json={"model": settings.model, "messages": conversation.messages(), "stream": True},
            ) as response,
        ):
            if response.status_code != httpx.codes.OK:
                raise ChatFailed(f"the language model's server answered {response.status_code}")
            async with aclosing(_tokens(response)) as tokens:
                async for token in tokens:
                    yield token
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ChatFailed(f"the language model's server failed: {error or type(error).__name__}") from None


async def _tokens(response: httpx.Response) -> AsyncGenerator[str, None]:
    characters = 0
    async for line in response.aiter_lines():
        if not line.startswith("data:") or len(line) > _MOST_LINE:
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        token = token_of(data)
        characters += len(token)
        if characters > _MOST_ANSWER:
            return
        if token:
            yield token


def token_of(data: str) -> str:
    """The text in one event, "" for events without any; raises ChatFailed for what is no event."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise ChatFailed("the language model's server reported an error while it wrote")
        choices = event.get("choices") or [{}]
        return str((choices[0].get("delta") or {}).get("content") or "")
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise ChatFailed("the language model's server sent what is no completion") from None
