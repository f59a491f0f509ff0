"""How much memory a machine and its control group leave."""

from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.cosyvoice import devices  # noqa: E402
from vivavoce.models.cosyvoice.devices import CPU, free_bytes  # noqa: E402


def group(folder: Path, most: str) -> Path:
    (folder / "memory.max").write_text(f"{most}\n")
    (folder / "memory.stat").write_text("anon 3000\nfile 90000\nkernel 10\n")
    return folder


def test_a_control_group_leaves_what_its_limit_is_above_what_cannot_give_way(tmp_path: Path) -> None:
    assert devices._cgroup_free_bytes(group(tmp_path, "8000")) == 5000


def test_a_group_without_a_limit_or_none_at_all_leaves_everything(tmp_path: Path) -> None:
    assert devices._cgroup_free_bytes(tmp_path) > 1 << 60
    assert devices._cgroup_free_bytes(group(tmp_path, "max")) > 1 << 60


def test_what_can_be_had_is_what_both_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 << 20 < free_bytes(CPU) < 1 << 50
    monkeypatch.setattr(devices, "_cgroup_free_bytes", lambda: 4096)
    assert free_bytes(CPU) == 4096
