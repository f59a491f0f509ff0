"""Conversation with a language model behind an OpenAI-compatible server: questions in, answer tokens out.

The history holds what the caller heard, not what was written: after an interruption the model knows where its
answer was cut. Text only: no tools, no images.

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

from .....tts_engine.errors import VivavoceError
from ....outgoing_tls import outgoing_tls
from ....web.client_json import replace_lone_surrogates

_MAX_MESSAGES = 40  # in the history; older ones are dropped
_MAX_LINE_CHARACTERS = 64 * 1024  # of one event; longer ones are ignored
_MAX_ANSWER_CHARACTERS = 20_000  # about 20 minutes of speech; the rest is not read
_DEFAULT_SYSTEM_PROMPT = (
    "You are on the phone. Answer in one to three short sentences of plain spoken English, "
    "without lists, markup or emoji."
)


class ChatFailed(VivavoceError):
    """The model's server failed or its answer cannot be read."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """Address of the model and parameters of a request."""

    base_url: str  # without the final "/chat/completions"
    model: str
    api_key: str = field(default="", repr=False)  # "": no Authorization header
    system_prompt: str = _DEFAULT_SYSTEM_PROMPT
    timeout_s: float = 20.0  # to connect, and between two tokens


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of the history."""

    role: Literal["user", "assistant"]
    content: str


class ChatHistory:
    """Questions of the caller and answers as far as they were heard."""

    def __init__(self, system_prompt: str) -> None:
        self.entries: deque[ChatMessage] = deque(maxlen=_MAX_MESSAGES)
        self._system_prompt = system_prompt

    def add_question(self, text: str) -> None:
        """Add a question of the caller."""
        self.entries.append(ChatMessage("user", text))

    def add_heard_answer(self, text: str) -> None:
        """Add an answer as far as the caller heard it; ignored if that is blank."""
        if text.strip():
            self.entries.append(ChatMessage("assistant", text.strip()))

    def request_messages(self) -> list[dict[str, str]]:
        """Return the system prompt and the history as a request's ``messages``."""
        messages = [{"role": entry.role, "content": entry.content} for entry in self.entries]
        return [{"role": "system", "content": self._system_prompt}, *messages]


class Conversation:
    """Answers the caller's questions (``attachment.ReplyWriter``)."""

    def __init__(self, settings: ChatSettings) -> None:
        self._settings = settings
        self._history = ChatHistory(settings.system_prompt)

    def answer(self, question: str) -> AsyncGenerator[str, None]:
        """Add the question to the history, and return the tokens of the answer; they raise ChatFailed."""
        self._history.add_question(question)
        return stream_answer(self._history, self._settings)

    def add_heard_text(self, text: str) -> None:
        """Add an answer, or what an agent or another program said, as far as the caller heard it."""
        self._history.add_heard_answer(text)


async def stream_answer(history: ChatHistory, settings: ChatSettings) -> AsyncGenerator[str, None]:
    """Yield the tokens of the model's answer as they arrive. Raises ChatFailed."""
    timeout = httpx.Timeout(settings.timeout_s)
    try:
        async with (
            httpx.AsyncClient(timeout=timeout, verify=outgoing_tls()) as client,
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
    """Return the text of one event, "" if it has none. Raises ChatFailed if it is not a completion."""
    try:
        event = json.loads(data)
        if "error" in event:
            raise ChatFailed("the language model's server reported an error in mid-answer")
        choices = event.get("choices") or [{}]
        return replace_lone_surrogates(str((choices[0].get("delta") or {}).get("content") or ""))
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise ChatFailed("the language model's server sent an event that is not a chat completion") from None
