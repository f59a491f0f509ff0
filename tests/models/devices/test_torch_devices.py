"""Free memory of the machine and of its control group."""

from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from vivavoce.models.devices import host_memory  # noqa: E402
from vivavoce.models.devices.torch_devices import CPU, free_bytes  # noqa: E402


def group(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.stat").write_text("anon 3000\nfile 90000\nkernel 10\n")
    return folder


def test_a_control_group_leaves_its_limit_less_anonymous_memory(tmp_path: Path) -> None:
    assert host_memory._cgroup_free_bytes(group(tmp_path, "8000")) == 5000


def test_a_missing_group_or_limit_leaves_everything(tmp_path: Path) -> None:
    assert host_memory._cgroup_free_bytes(tmp_path) > 1 << 60
    assert host_memory._cgroup_free_bytes(group(tmp_path, "max")) > 1 << 60


def test_free_memory_is_the_smaller_of_machine_and_group(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < free_bytes(CPU) < 1 << 50
    monkeypatch.setattr(host_memory, "_cgroup_free_bytes", lambda: 4096)
    assert free_bytes(CPU) == 4096
