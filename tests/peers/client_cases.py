"""The end of each client program: run its cases and print those that passed.

``PEERS_CASES`` of the environment chooses cases, so that a long idle time passes beside the others: ``idle``
runs those of idle connections, ``busy`` all others. ``PEERS_IDLE_S`` is the idle time.
"""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from importlib.metadata import version

IDLE_S = float(os.environ.get("PEERS_IDLE_S", "0.1"))


def run_cases(distribution: str, *cases: Callable[[], Coroutine[None, None, None] | None]) -> None:
    """Run the cases; print the version of the client and the names of the cases as JSON."""
    chosen = [case for case in cases if _is_chosen(case.__name__)]
    for case in chosen:
        coroutine = case()
        if coroutine is not None:
            asyncio.run(coroutine)
    print(json.dumps({"version": version(distribution), "passed": [case.__name__ for case in chosen]}))


def _is_chosen(name: str) -> bool:
    wanted = os.environ.get("PEERS_CASES")
    return wanted is None or ("idle" in name) == (wanted == "idle")
