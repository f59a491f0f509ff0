"""Text as a language model writes it: in tokens, at its pace."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable

_TOKEN = re.compile(r"\s*[^\W\d_]{1,6}|\s*\d{1,3}|\s*[^\w\s]|\s*_|\s+")


def llm_tokens(text: str) -> list[str]:
    """Split ``text`` like a language model's tokens: words with the space before them, long ones in pieces.

    The tokens joined are ``text``, character for character.
    """
    return _TOKEN.findall(text)


async def at_pace(
    tokens: list[str], tokens_per_s: float, *, now: Callable[[], float] = time.monotonic
) -> AsyncGenerator[str, None]:
    """Yield tokens on an absolute schedule, the first one at once."""
    start = now()
    for number, token in enumerate(tokens):
        wait_s = start + number / tokens_per_s - now()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        yield token
