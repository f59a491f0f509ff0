"""Child processes of a bench: started, read line by line, measured and ended."""

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...calls.pressure.processor_time import MachineTime, process_s
from .report import BenchFailed

READY_TIMEOUT_S = 120.0  # to load and cut the voice for the first time on a slow machine
_END_TIMEOUT_S = 30.0
_READY_LINE = re.compile(r"HTTP on (http://\S+?),")
# Of CosyVoice, at most: what the interleave of text and speech gives by itself, 15 for 5.
MAX_SPEECH_IDS_A_TEXT_ID = 3
_SERVE = (
    "from vivavoce.gateway import engine_opening; from vivavoce.gateway.cli.main import main; import sys; "
    "engine_opening.KEPT_SPEECH_BYTES = 0; "  # the texts are few and come again; what a client says is new
    "sys.argv[1:1] = 'serve --http-port 0 --audiosocket-port 0 --agent none --log-level WARNING'.split(); "
    "main()"
)
_END_SPEECH = (
    "from vivavoce.tts_engine.cosyvoice import policy; "
    f"policy.SPEECH_LENGTH = policy.SpeechLengthRule(max_ratio={MAX_SPEECH_IDS_A_TEXT_ID}); "
)
# Computes for a share of every 10 ms, as long as the process that started it lives.
_NEIGHBOUR = """
import os, sys, time
parent, share = os.getppid(), float(sys.argv[1])
while os.getppid() == parent:
    stop = time.monotonic() + 0.01 * share
    while time.monotonic() < stop:
        pass
    time.sleep(0.01 * (1 - share))
"""


@contextlib.contextmanager
def run_neighbour(cores: float) -> Iterator[None]:
    """Use that many processor cores meanwhile, as another program on the machine would."""
    with contextlib.ExitStack() as stack:
        while cores > 0:
            process = subprocess.Popen([sys.executable, "-c", _NEIGHBOUR, str(min(1.0, cores))])
            stack.enter_context(process)
            stack.callback(process.kill)
            cores -= 1
        yield


@contextlib.contextmanager
def run_server_process(*flags: str, ends_speech: bool = False) -> Iterator[str]:
    """Run ``vivavoce serve`` on free ports and yield its URL; ``flags`` are appended to the command.

    ends_speech: whether CosyVoice speaks ``MAX_SPEECH_IDS_A_TEXT_ID``, for random weights, which do not end a
    sentence. Raises BenchFailed when the server ends or prints no address within ``READY_TIMEOUT_S``.
    """
    program = _END_SPEECH + _SERVE if ends_speech else _SERVE
    with (
        tempfile.TemporaryFile("w+") as log,  # a pipe that nobody reads would stop the server
        subprocess.Popen(
            [sys.executable, "-c", program, *flags], stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            printed = select.select([process.stdout], [], [], READY_TIMEOUT_S)[0]
            ready_line = _READY_LINE.search(process.stdout.readline()) if printed else None
            if ready_line is None:
                _end(process)
                log.seek(0)
                raise BenchFailed(f"the server did not start: {log.read().strip()[-300:]}")
            yield ready_line[1]
        finally:
            _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()


def process_tree(pid: int) -> list[int]:
    """Return a process and all that it started, also indirectly; only itself without /proc."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it may have ended
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            if parent:  # 0 is the kernel
                children.setdefault(parent, []).append(int(stat.parent.name))
    tree = [pid]
    for member in tree:  # grows meanwhile
        tree += children.get(member, [])
    return tree


def resident_mb(pid: int) -> float:
    """Resident memory of a process and all that it started, in MB (10^6 bytes); 0 without /proc."""
    return sum(own_resident_mb(member) for member in process_tree(pid))


def own_resident_mb(pid: int) -> float:
    """Resident memory of a process without those that it started, in MB (10^6 bytes); 0 without /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0 kB")
    return int(line.split()[1]) * 1024 / 1e6


@dataclass(frozen=True, slots=True)
class CpuUsage:
    """Processor seconds used until ``moment`` by the whole machine and by some of its processes."""

    moment: float  # monotonic seconds
    machine_s: float
    processes_s: float
    stolen_s: float = 0.0  # that this virtual machine wanted and did not get

    @classmethod
    def now(cls, *pids: int) -> Self:
        """Read the counters of the machine and of ``pids`` with all they started; zeros without /proc."""
        used_s = sum(process_s(member) for pid in pids for member in process_tree(pid))
        machine = MachineTime.read()
        return cls(time.monotonic(), machine.busy_s, used_s, machine.stolen_s)

    def other_cpu_share_since(self, start: Self) -> float:
        """Cores used by other processes since ``start``, 1.0 for one whole core."""
        others_s = (self.machine_s - start.machine_s) - (self.processes_s - start.processes_s)
        return max(0.0, others_s / (self.moment - start.moment))

    def share_since(self, start: Self) -> float:
        """Cores used by the processes since ``start``."""
        return (self.processes_s - start.processes_s) / (self.moment - start.moment)

    def stolen_share_since(self, start: Self) -> float:
        """Cores that this virtual machine wanted and did not get since ``start``."""
        return (self.stolen_s - start.stolen_s) / (self.moment - start.moment)


class BenchProcess:
    """A Python module run as a child process that prints JSON lines; leaving the context kills it."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self._module = module
        self._errors = folder / f"{module}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"},  # idle threads must not spin on two cores
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.pid = self._process.pid

    def __enter__(self) -> "BenchProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._process.wait()

    def wait_output(self, within_s: float) -> bool:
        """Wait until a line can be read or the process has ended; False after ``within_s``."""
        return bool(select.select([self._stdout], [], [], within_s)[0])

    def read_line(self, within_s: float) -> dict[str, Any]:
        """The next line as JSON; raises BenchFailed if none arrives within ``within_s``."""
        line = self._stdout.readline() if self.wait_output(within_s) else b""
        if not line:
            raise BenchFailed(
                f"{self._module} printed nothing for {within_s:g} s or ended: {self._last_error_line()}"
            )
        message: dict[str, Any] = json.loads(line)
        return message

    def close_input(self) -> None:
        """Close the process's standard input, which asks it to end."""
        self._stdin.close()

    def error_lines(self) -> list[str]:
        """The lines of its standard error so far."""
        return self._errors.read_text(encoding="utf-8", errors="replace").splitlines()

    def finish(self, within_s: float) -> None:
        """Close the process's standard input and wait for exit code 0; raises BenchFailed."""
        self.close_input()
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            raise BenchFailed(f"{self._module} did not end cleanly ({code}): {self._last_error_line()}")

    def _last_error_line(self) -> str:
        return next((line for line in reversed(self.error_lines()) if line.strip()), "no message")


def peak_resident_mb(pid: int, until: float, phones: BenchProcess) -> float:
    """Peak resident memory of a process tree up to ``until``, or until the phones print a line."""
    peak_mb = resident_mb(pid)
    while (left_s := until - time.monotonic()) > 0 and not phones.wait_output(min(0.5, left_s)):
        peak_mb = max(peak_mb, resident_mb(pid))
    return peak_mb
