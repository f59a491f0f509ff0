"""``none``: an agent that says nothing."""

from typing import Final

from ...call import Call
from ..agent import AgentKind


class SilentAgent:
    """Says nothing and keeps the call up, for a program or a page to speak on."""

    async def run(self, call: Call) -> None:
        """Wait until the call is over."""
        await call.end.wait_closed()


SILENT: Final = AgentKind("none", lambda file: SilentAgent())
