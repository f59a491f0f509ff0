"""An agent that announces a call which is put through."""

import asyncio

from ..call import Call


class AnnouncingAgent:
    """Speaks an announcement, and keeps the call up."""

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
