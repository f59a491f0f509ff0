"""Reports of benches say which processor they ran on."""

import json
from pathlib import Path

import pytest

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport, processor_kind

_X86 = "processor\t: {number}\nmodel name\t: {name}\nflags\t\t: fpu sse2 {flags}\n\n"


@pytest.mark.parametrize(
    ("name", "flags", "kind"),
    [
        ("AMD EPYC 9B45", "avx2 avx512bw avx512_vnni avx_vnni", "AMD EPYC 9B45, VNNI"),
        ("Intel(R) Xeon(R) 6975P", "avx2 avx512bw avx512_vnni amx_int8", "Intel(R) Xeon(R) 6975P, AMX"),
        ("Intel(R) Xeon(R) 2.50GHz", "avx2 avx512bw", "Intel(R) Xeon(R) 2.50GHz, AVX-512 without VNNI"),
        ("AMD EPYC 7B13", "avx2", "AMD EPYC 7B13, AVX2"),
        ("Old", "ssse3", "Old"),
    ],
)
def test_the_kind_of_an_x86_processor_is_how_it_multiplies(
    tmp_path: Path, name: str, flags: str, kind: str
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("".join(_X86.format(number=number, name=name, flags=flags) for number in range(2)))
    assert processor_kind(cpuinfo) == kind


def test_the_kind_of_an_arm_processor_is_found_without_a_model_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nFeatures\t: fp asimd asimddp i8mm\nCPU part\t: 0xd40\n")
    assert processor_kind(cpuinfo) == "aarch64, I8MM"
    assert processor_kind(tmp_path / "absent") == "aarch64"


def test_a_report_names_the_processor() -> None:
    report = BenchReport("call", (BenchFigure("calls", 3, ""),))
    assert json.loads(report.as_json())["machine"]["processor"] == processor_kind()
