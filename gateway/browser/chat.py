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

_MAX_MESSAGES = 40  # of the history; older ones are forgotten
_MAX_LINE_CHARACTERS = 64 * 1024  # characters of one event
_MAX_ANSWER_CHARACTERS = 20_000  # characters; nobody listens to more
_DEFAULT_SYSTEM_PROMPT = (
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
    system_prompt: str = _DEFAULT_SYSTEM_PROMPT
    timeout_s: float = 20.0  # between two tokens


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn of the history."""

    role: Literal["user", "assistant"]
    content: str


class ChatHistory:
    """Who said what, as far as it was heard."""

    def __init__(self, system_prompt: str) -> None:
        self.entries: deque[ChatMessage] = deque(maxlen=_MAX_MESSAGES)
        self._system_prompt = system_prompt

    def add_question(self, text: str) -> None:
        """The caller said this."""
        self.entries.append(ChatMessage("user", text))

    def add_heard_answer(self, text: str) -> None:
        """The caller heard this of us; nothing heard is nothing said."""
        if text.strip():
            self.entries.append(ChatMessage("assistant", text.strip()))

    def request_messages(self) -> list[dict[str, str]]:
        """The system prompt and the turns as the server wants them."""
        messages = [{"role": entry.role, "content": entry.content} for entry in self.entries]
        return [{"role": "system", "content": self._system_prompt}, *messages]


async def stream_answer(history: ChatHistory, settings: ChatSettings) -> AsyncGenerator[str, None]:
    """Yield the model's answer as it is written. Raises ChatFailed."""
    timeout = httpx.Timeout(settings.timeout_s)
    try:
        async with (
            httpx.AsyncClient(timeout=timeout) as client,
            client.stream(
                "POST",
                settings.base_url.rstrip("/") + "/chat/completions",
                headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {},
                json={"model": settings.model, "messages": history.request_messages(), "stream": True},
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
        if not line.startswith("data:") or len(line) > _MAX_LINE_CHARACTERS:
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            return
        token = parse_token(data)
        characters += len(token)
        if characters > _MAX_ANSWER_CHARACTERS:
            return
        if token:
            yield token


def parse_token(data: str) -> str:
    """The text in one event, "" for events without any; raises ChatFailed for what is no event."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise ChatFailed("the language model's server reported an error while it wrote")
        choices = event.get("choices") or [{}]
        return str((choices[0].get("delta") or {}).get("content") or "")
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise ChatFailed("the language model's server sent what is no completion") from None
