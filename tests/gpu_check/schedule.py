"""Runs the steps of the check, each in a process of its own with a limit of time, and keeps what they found.

    OUT/gpu-check.json    {"step": {"status": "done", "findings": [{"name", "value", "unit"}, ...]}, ...}

A step that is done is not run again, so a check that was broken off goes on where it stopped.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_check.findings import Finding

DONE, FAILED, TIMED_OUT = "done", "failed", "timed out"
RESULTS_FILE = "gpu-check.json"


@dataclass(frozen=True, slots=True)
class CheckStep:
    """A step: its name, and the seconds that it may take."""

    name: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step found until it ended."""

    status: str
    findings: tuple[Finding, ...]


def run_steps(
    steps: Sequence[CheckStep],
    command: Callable[[str], Sequence[str]],
    out: Path,
    show: Callable[[str], object],
) -> dict[str, StepResult]:
    """Run the steps that are not done; show every line as soon as it is known.

    command: of a step by its name; it prints a finding a line, as JSON.
    """
    results = read_results(out)
    for step in steps:
        if step.name in results and results[step.name].status == DONE:
            show(f"{step.name}: done before")
        else:
            results[step.name] = _run_step(step, command(step.name), show)
            _write_results(out, results)
    return results


def read_results(out: Path) -> dict[str, StepResult]:
    """The results of a folder by step; empty without any."""
    path = out / RESULTS_FILE
    if not path.exists():
        return {}
    return {
        name: StepResult(entry["status"], tuple(Finding(**each) for each in entry["findings"]))
        for name, entry in json.loads(path.read_text()).items()
    }


def _write_results(out: Path, results: dict[str, StepResult]) -> None:
    entries = {
        name: {"status": result.status, "findings": [asdict(each) for each in result.findings]}
        for name, result in results.items()
    }
    incomplete = out / f"{RESULTS_FILE}.incomplete"
    incomplete.write_text(json.dumps(entries, indent=2))
    incomplete.replace(out / RESULTS_FILE)


def _run_step(step: CheckStep, command: Sequence[str], show: Callable[[str], object]) -> StepResult:
    show(f"{step.name}: begins, at most {step.limit_s:g} s")
    began, findings, timed_out = time.monotonic(), list[Finding](), threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:

        def end() -> None:
            timed_out.set()
            process.kill()

        timer = threading.Timer(step.limit_s, end)
        timer.start()
        assert process.stdout is not None
        for line in process.stdout:
            findings.append(Finding(**json.loads(line)))
            show(f"  {findings[-1]}")
        process.wait()
        timer.cancel()
    status = TIMED_OUT if timed_out.is_set() else FAILED if process.returncode else DONE
    show(f"{step.name}: {status} after {time.monotonic() - began:.1f} s")
    return StepResult(status, tuple(findings))


def python_command(module: str, *arguments: str) -> list[str]:
    """A command that runs a module with this interpreter."""
    return [sys.executable, "-u", "-m", module, *arguments]
