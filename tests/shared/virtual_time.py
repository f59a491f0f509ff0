"""An event loop in virtual time, which does not wait for timers."""

import asyncio
import selectors


class InstantSelector(selectors.DefaultSelector):
    """Advances a virtual clock to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if not events:
            assert timeout is not None, "the test waits without a timer"
            self.now += max(timeout, 0.0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._instant = InstantSelector()
        super().__init__(self._instant)

    def time(self) -> float:
        return self._instant.now

    def pass_time(self, seconds: float) -> None:
        """Advance the clock like a stall of the loop: due timers run late."""
        self._instant.now += seconds
