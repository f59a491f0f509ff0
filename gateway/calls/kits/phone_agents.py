"""Agents on phone calls: how one is run, and the one that announces a call which is put through."""

import asyncio

from ..agents.agent import Agent
from ..call import Call


async def run_agent(call: Call, agent: Agent) -> None:
    """Run an agent on a phone call, and hang up when it has nothing more to say."""
    try:
        await agent.run(call)
        await call.end.finish()
    finally:
        call.end.hang_up("its agent returned")


class AnnouncingAgent:
    """Announces a call which is put through, and keeps it up."""

    def __init__(self, announcement: str) -> None:
        self.announced = asyncio.Event()
        self._announcement = announcement

    async def run(self, call: Call) -> None:
        """Speak, and wait until the call is over."""
        if self._announcement:
            await call.speech.speak(self._announcement)
            await call.speech.wait_played()
        self.announced.set()
        await call.end.wait_closed()
