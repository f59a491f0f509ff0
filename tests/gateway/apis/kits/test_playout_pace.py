"""The pace of a conversation's speech, in virtual time."""

import asyncio
from typing import Any

from vivavoce.gateway.apis.kits.speech_socket import PlayoutPace


def test_speech_is_kept_a_lead_ahead_of_its_playout(run_virtually: Any) -> None:
    async def test() -> None:
        clock = asyncio.get_running_loop().time
        pace, begun_at, sent_at = PlayoutPace(5.0), clock(), []
        for _ in range(8):
            sent_at.append(clock() - begun_at)
            await pace.follow(2.0)
        assert sent_at == [0, 0, 0, 1, 3, 5, 7, 9]

    run_virtually(test())


def test_a_pause_of_the_speech_gives_no_more_lead(run_virtually: Any) -> None:
    async def test() -> None:
        clock = asyncio.get_running_loop().time
        pace = PlayoutPace(5.0)
        await pace.follow(1.0)
        await asyncio.sleep(100.0)
        begun_at = clock()
        await pace.follow(4.0)
        assert clock() == begun_at
        await pace.follow(4.0)
        assert clock() == begun_at + 3.0

    run_virtually(test())


def test_an_interruption_ends_the_wait(run_virtually: Any) -> None:
    async def test() -> None:
        clock = asyncio.get_running_loop().time
        pace, begun_at = PlayoutPace(5.0), clock()
        asyncio.get_running_loop().call_later(2.0, pace.end)
        await pace.follow(60.0)
        assert clock() == begun_at + 2.0

    run_virtually(test())
