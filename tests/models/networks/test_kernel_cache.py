"""Compiled kernels beside a bundle: a folder for each card and version, and nothing is compiled twice."""

import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

pytest.importorskip("torch", reason="needs torch (EXTRAS=cosyvoice)")

from vivavoce.models.networks import kernel_cache
from vivavoce.models.networks.kernel_cache import (
    elsewhere,
    folder_name,
    keep_compiled_kernels,
    writable_folder,
)

# Compiles a kernel of ours for cards that are not there, and prints of each whether it was found on file.
_COMPILE = """
import json, sys
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from vivavoce.models.kernels import fused_kernels
found = []
triton.knobs.cache.dir = sys.argv[1]
triton.knobs.compilation.listener = lambda *, cache_hit, **rest: found.append(cache_hit)
kernel = fused_kernels._norm_mish_kernel
types = {"x": "*fp32", "weight": "*fp32", "bias": "*fp32", "result": "*fp32"}
constants = {"WIDTH": 64, "EPSILON": 1e-5, "EARLY": False}
signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
source = ASTSource(kernel, signature, constexprs=constants)
for capability in sys.argv[2:]:
    triton.compile(source, target=GPUTarget("cuda", int(capability), 32))
print(json.dumps(found))
"""


def found_on_file(folder: Path, *capabilities: int) -> list[bool]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", _COMPILE, str(folder), *map(str, capabilities)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return list(json.loads(done.stdout))


def test_a_kernel_on_file_is_not_compiled_again_and_another_card_compiles_its_own(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="needs Triton (EXTRAS=triton)")
    folder = writable_folder(tmp_path, folder_name("NVIDIA H200", "90", "3.6.0"))
    assert folder is not None
    assert found_on_file(folder, 90) == [False]
    assert found_on_file(folder, 90, 80) == [True, False]


def test_a_folder_is_named_after_the_card_and_triton() -> None:
    assert folder_name("NVIDIA A100/80GB", "80", "3.9.0+git1") == "NVIDIA-A100-80GB-sm80-triton-3.9.0-git1"


def test_kernels_of_another_card_are_named_in_one_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert writable_folder(tmp_path, "one") == tmp_path / "kernels" / "one"
    assert not caplog.messages
    assert writable_folder(tmp_path, "two") == tmp_path / "kernels" / "two"
    assert caplog.messages == [f"kernels are compiled for two; those in {tmp_path}/kernels are for one"]


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kernels").write_text("")
    assert writable_folder(tmp_path, "one") is None
    (message,) = caplog.messages
    assert message.startswith(f"compiled kernels are not kept in {tmp_path}/kernels: ")


def test_where_nothing_can_be_kept_kernels_are_compiled_at_every_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert elsewhere(tmp_path / "home" / "cache") == tmp_path / "home" / "cache"
    (tmp_path / "file").write_text("")
    folder = elsewhere(tmp_path / "file" / "cache")
    folder.rmdir()
    assert caplog.messages == [
        f"compiled kernels cannot be kept in {tmp_path}/file/cache either; they are compiled at every start"
    ]


def test_kernels_of_a_bundle_and_a_home_that_cannot_be_written_are_kept_for_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    read_only = tmp_path / "read-only"
    read_only.write_text("")  # unlike a mode, a file stops root, too
    (tmp_path / "kernels").write_text("")
    triton = ModuleType("triton")
    triton.__version__ = "3.6.0"  # type: ignore[attr-defined]
    triton.knobs = SimpleNamespace(cache=SimpleNamespace(dir=str(read_only / "cache")))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setattr(kernel_cache, "runs_triton", lambda device: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 MIG 1g.18gb")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    keep_compiled_kernels(tmp_path, torch.device("cuda", 0))
    folder = Path(triton.knobs.cache.dir)
    assert folder.is_dir() and folder.parent == tmp_path
    assert len(caplog.messages) == 2
    assert caplog.messages[1].endswith("either; they are compiled at every start")


def test_a_processor_keeps_no_kernels(tmp_path: Path) -> None:
    import torch

    keep_compiled_kernels(tmp_path, torch.device("cpu"))
    assert not list(tmp_path.iterdir())
