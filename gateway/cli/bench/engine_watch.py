"""Observes a server's engine through its metrics: whether it renders, and how much it rendered."""

import contextlib
import http.client
import re
import time
from urllib.parse import urlsplit

from .report import BenchFailed

TIMEOUT_S = 30.0
_SETTLED_AFTER_S = 1.0  # without new speech: rendering has stopped


class EngineWatch:
    """Reads ``/metrics`` over a connection of its own. Counts speech from its construction on."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.initial_rendered_s = self._metric("vivavoce_audio_seconds_total")

    def idle_after_ms(self, disconnected_at: float) -> float:
        """Milliseconds from ``disconnected_at`` (``perf_counter``) until the engine has no stream.

        Raises BenchFailed after 30 s.
        """
        while self._metric("vivavoce_active_streams"):
            if time.perf_counter() > disconnected_at + TIMEOUT_S:
                raise BenchFailed(
                    f"the engine still has a stream {TIMEOUT_S:g} s after its client disconnected"
                )
        return 1_000 * (time.perf_counter() - disconnected_at)

    def rendered_until_settled(self, stopped_at: float) -> tuple[float, float]:
        """Seconds of speech rendered since construction, and ms from ``stopped_at`` to the last of it."""
        rendered, last_growth_at = self.initial_rendered_s, stopped_at
        while time.perf_counter() < last_growth_at + _SETTLED_AFTER_S:
            now = self._metric("vivavoce_audio_seconds_total")
            if now > rendered:
                rendered, last_growth_at = now, time.perf_counter()
            time.sleep(0.01)
        return rendered - self.initial_rendered_s, 1_000 * (last_growth_at - stopped_at)

    def _metric(self, name: str) -> float:
        self._connection.request("GET", "/metrics")
        text = self._connection.getresponse().read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise BenchFailed(f"the server has no metric {name}")
        return float(found[1])


def open_connection(url: str) -> contextlib.closing[http.client.HTTPConnection]:
    """A kept-alive connection to the server."""
    return contextlib.closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=TIMEOUT_S))
