"""Cancelled tasks are waited for, and a caller that is cancelled meanwhile is."""

import asyncio

import pytest

from vivavoce.gateway.background_tasks import cancel_and_wait


def test_tasks_have_ended_whatever_they_raise() -> None:
    async def run() -> None:
        cleaned: list[str] = []

        async def clean_up(name: str) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0)
                cleaned.append(name)

        async def fail() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                raise ValueError

        one, other, failing = (
            asyncio.create_task(work) for work in (clean_up("one"), clean_up("other"), fail())
        )
        await asyncio.sleep(0)  # all begin
        await cancel_and_wait(one, other, failing)
        assert cleaned == ["one", "other"]
        assert one.cancelled() and other.cancelled()
        assert isinstance(failing.exception(), ValueError)
        await cancel_and_wait()
        await cancel_and_wait(one)

    asyncio.run(run())


def test_a_caller_that_is_cancelled_meanwhile_ends() -> None:
    """A caller that awaited the task itself would take its own cancellation for the task's."""

    async def run() -> None:
        cancelled, may_end = asyncio.Event(), asyncio.Event()

        async def end_slowly() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
                await may_end.wait()

        ending = asyncio.create_task(end_slowly())
        await asyncio.sleep(0)
        caller = asyncio.create_task(cancel_and_wait(ending))
        await cancelled.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not ending.done()
        may_end.set()
        await asyncio.wait({ending})

    asyncio.run(run())
