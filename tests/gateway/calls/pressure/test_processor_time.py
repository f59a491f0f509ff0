"""Processor time of processes, and the cores of a control group."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vivavoce.gateway.calls.pressure.processor_time import ProcessorQuota, ProcessorUse


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="reads Linux's account of processor time")
def test_the_time_of_this_process_and_of_a_named_one_is_read() -> None:
    spin = "import time\nwhile time.process_time() < 0.5: pass\nprint('done', flush=True)\ninput()"
    worker = subprocess.Popen([sys.executable, "-c", spin], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    before, before_with = ProcessorUse.read(), ProcessorUse.read([worker.pid])
    assert worker.stdout is not None
    worker.stdout.readline()
    after, after_with = ProcessorUse.read(), ProcessorUse.read([worker.pid])
    taken_s = (after_with.own_s - before_with.own_s) - (after.own_s - before.own_s)
    assert taken_s >= 0.3
    assert after.machine_s - before.machine_s >= 0.3
    worker.communicate(b"\n")
    assert ProcessorUse.read([worker.pid]).own_s == pytest.approx(ProcessorUse.read().own_s, abs=0.1)


def test_time_that_the_host_withholds_is_not_left_for_this_server(tmp_path: Path) -> None:
    cores, counters = sorted(os.sched_getaffinity(0)), tmp_path / "stat"

    def machine_s(stolen_ticks: int) -> float:
        counters.write_text(
            "".join(f"cpu{core} 100 20 30 5000 40 5 6 {stolen_ticks} 0 0\n" for core in cores)
        )
        return ProcessorUse.read(counters=counters).machine_s

    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    assert machine_s(0) == pytest.approx(161 * len(cores) * tick_s)
    assert machine_s(70) - machine_s(0) == pytest.approx(70 * len(cores) * tick_s)


def test_the_cores_are_those_of_the_affinity_and_of_the_control_groups(tmp_path: Path) -> None:
    groups, own = tmp_path / "groups", tmp_path / "cgroup"
    service = groups / "system.slice" / "vivavoce.service"
    service.mkdir(parents=True)
    own.write_text("0::/system.slice/vivavoce.service\n")
    cores = float(len(os.sched_getaffinity(0)))
    assert ProcessorQuota.of_process(groups, own) == ProcessorQuota(cores, is_shared=True)
    (service / "cpu.max").write_text("max 100000\n")
    assert ProcessorQuota.of_process(groups, own) == ProcessorQuota(cores, is_shared=True)
    (groups / "system.slice" / "cpu.max").write_text("50000 100000\n")
    assert ProcessorQuota.of_process(groups, own) == ProcessorQuota(0.5, is_shared=False)
    assert ProcessorQuota.of_process(groups, tmp_path / "none") == ProcessorQuota(cores, is_shared=True)
