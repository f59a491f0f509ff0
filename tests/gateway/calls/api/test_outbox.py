"""The queue of messages to an attached program: order, bounds, and closing."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest

from vivavoce.gateway.calls.api.messages import HungUpMessage, KeyPressedMessage
from vivavoce.gateway.calls.api.outbox import Outbox, OutboxOverrun


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


KEY = KeyPressedMessage(type="dtmf", digit="1")


def test_messages_and_audio_are_read_in_order_up_to_the_close() -> None:
    async def test() -> None:
        outbox = Outbox()
        outbox.put(KEY)
        outbox.put_audio(b"\0\0")
        outbox.put(HungUpMessage(type="hung_up"))
        outbox.close()
        outbox.put(KEY)
        text, audio, end = [item async for item in outbox]
        assert json.loads(text) == {"type": "dtmf", "digit": "1"}
        assert audio == b"\0\0"
        assert json.loads(end) == {"type": "hung_up"}

    run(test())


def test_a_reader_waits_for_the_next_message() -> None:
    async def test() -> None:
        outbox = Outbox()
        asyncio.get_running_loop().call_later(0.01, outbox.put, KEY)
        assert json.loads(await anext(outbox))["type"] == "dtmf"

    run(test())


def test_excess_audio_drops_the_oldest() -> None:
    async def test() -> None:
        outbox = Outbox()
        for second in range(20):
            outbox.put_audio(bytes([second]) * 16_000)
        outbox.close()
        assert [item[0] async for item in outbox] == list(range(10, 20))

    run(test())


def test_too_many_messages_end_the_iteration_after_those_that_fit() -> None:
    async def test() -> None:
        outbox, count = Outbox(), 0
        for _ in range(5_000):
            outbox.put(KEY)
        with pytest.raises(OutboxOverrun):
            async for _ in outbox:
                count += 1
        assert count == 2_000

    run(test())
