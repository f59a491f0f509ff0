"""The answers of a gateway against its OpenAPI document: schemathesis sends what it allows and forbids."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from .client_programs import TIMEOUT_S, python_with

EVERY_PATH: Final = "^/"
_CHECKS: Final = ("status_code", "content_type", "response_schema", "response_headers")
# Each value of each parameter, and each method, is tried where the expression matches.
_SETTINGS: Final = """
[[operations]]
exclude-path-regex = '{covered}'
phases.coverage.enabled = false
"""


def check_documented_answers(gateway: Mapping[str, str], folder: Path, covered: str) -> None:
    """Send random requests to all operations, and those with each boundary to some; check the answers.

    covered: a regular expression of the paths of those operations. folder: an empty one.
    """
    url, key = gateway["url"], gateway["admin_key"]
    (folder / "schemathesis.toml").write_text(_SETTINGS.format(covered=covered), encoding="utf-8")
    checks = ["not_a_server_error", *(f"{name}_conformance" for name in _CHECKS)]
    command = [
        str(Path(python_with("schemathesis==4.32.5")).with_name("schemathesis")),
        *("run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {key}", "--checks", ",".join(checks)),
        *("--phases", "examples,coverage,fuzzing,stateful", "--max-examples", "6", "--no-color"),
        *("--request-timeout", "150"),  # a call answers when a text has been heard; some are a minute long
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder)
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    count = sum(len(methods) for methods in paths.values()) - 1
    assert done.returncode == 0, done.stdout[-8_000:]
    assert f"{count} selected / {count} total" in done.stdout  # every operation except /openapi.json
