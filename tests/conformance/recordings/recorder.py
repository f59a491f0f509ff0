"""Records the answers to sessions, keeps those that never differ, and compares them with a server's."""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import httpx
from websockets.exceptions import WebSocketException

from .answers import difference
from .player import Player
from .server import served
from .sessions import KEY, RecordedSession

logger = logging.getLogger(__name__)

_STEPS_S: Final = (0.0, 0.004, 0.0)  # the voice's, so that a race shows itself
_MAX_ANSWERS: Final = 40  # of a WebSocket; in longer speech, pieces join as the machine has time
_PATIENCE_S: Final = 20.0  # for one session
_BROKEN_SESSION: Final = (
    OSError,
    TimeoutError,
    httpx.HTTPError,
    WebSocketException,
)  # no fault of the player


async def play_all(
    sessions: Sequence[RecordedSession], step_s: float = 0.0, *, learns: bool = False, tries: int = 1
) -> list[dict[str, Any]]:
    """Play sessions one after the other, to a server without keys or with one; return their answers.

    tries: a session whose answer is not as recorded is played again, because a busy machine may join pieces.
    """
    answers = []
    for needs_key, group in groupby(sessions, lambda session: session.needs_key):
        async with served(with_keys=needs_key, step_s=step_s, learns=learns) as player:
            for session in group:
                answer = await _play(player, session)
                for _ in range(1, tries):
                    if difference(session.received, answer):
                        answer = await _play(player, session)
                answers.append(answer)
    return answers


async def _play(player: Player, session: RecordedSession) -> dict[str, Any]:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await player.play(session)
    except _BROKEN_SESSION as error:
        return {"failed": repr(error)}


def record(sessions: Sequence[RecordedSession]) -> list[RecordedSession]:
    """Return the sessions with their answers, without those whose answers are not the same each time."""
    kept = [*(each for each in sessions if not each.needs_key), *_with_keys(sessions)]
    asyncio.run(play_all(kept, learns=True))
    kept = [session for session in kept if session.answers <= _MAX_ANSWERS]
    passes = 0  # since the last one in which an answer differed
    while passes < len(_STEPS_S):
        begins = time.monotonic()
        answers = asyncio.run(play_all(kept, _STEPS_S[passes]))
        before = len(kept)
        kept = [left for one, answer in zip(kept, answers, strict=True) if (left := _checked(one, answer))]
        passes += 1 if len(kept) == before and all(one.received for one in kept) else 0
        logger.info("%d of %d sessions in %.1f s", len(kept), before, time.monotonic() - begins)
    return kept


def _checked(session: RecordedSession, answer: dict[str, Any]) -> RecordedSession | None:
    """The session with its answer, None if it is to be left out; a WebSocket is tried by stream before."""
    found = answer.get("failed") or (session.received and difference(session.received, answer, exact=True))
    if not found:
        return session if session.received else replace(session, received=answer)
    if session.method == "WEBSOCKET" and not session.per_stream and "failed" not in answer:
        return replace(session, per_stream=True, received={})
    logger.info("left out: %s\n   %s", session.title, found[:600])
    return None


def _with_keys(sessions: Sequence[RecordedSession]) -> list[RecordedSession]:
    """The sessions that name a key; then each path without a key, with a wrong one and with the right one."""
    first: dict[tuple[str, str], RecordedSession] = {}
    for session in sessions:
        first.setdefault((session.method, session.path.partition("?")[0]), session)
    variants = [
        replace(session, headers=[*_without_keys(session.headers), *key], needs_key=True, on_call="")
        for session in first.values()
        for key in ([], [["Authorization", "Bearer wrong"]], [["Authorization", f"Bearer {KEY}"]])
    ]
    return [*(session for session in sessions if session.needs_key), *variants]


def _without_keys(headers: list[list[str]]) -> list[list[str]]:
    return [header for header in headers if KEY not in header[1] and header[0].lower() != "authorization"]
