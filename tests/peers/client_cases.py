"""The end of each client program: run its cases and print those that passed."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from importlib.metadata import version


def run_cases(distribution: str, *cases: Callable[[], Coroutine[None, None, None] | None]) -> None:
    """Run the cases; print the version of the client and the names of the cases as JSON."""
    for case in cases:
        coroutine = case()
        if coroutine is not None:
            asyncio.run(coroutine)
    print(json.dumps({"version": version(distribution), "passed": [case.__name__ for case in cases]}))
