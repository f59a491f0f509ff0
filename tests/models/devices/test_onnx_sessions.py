"""Devices of ONNX Runtime by name, and sessions that the CPU takes over."""

import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnx_errors

from vivavoce.models.devices import onnx_sessions
from vivavoce.models.devices.execution import DeviceError
from vivavoce.models.devices.onnx_providers import (
    CPU,
    PROVIDERS,
    OnnxDevice,
    find_onnx_device,
    installed_devices,
    is_for_onnxruntime_only,
)
from vivavoce.models.devices.onnx_sessions import ONNX_RUNTIME_ERRORS, OnnxSessions

CPU_PROVIDER = ("CPUExecutionProvider", {})
CUDA_OPTIONS = {"use_tf32": "0"}


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [provider.name for provider in PROVIDERS.values()]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["AzureExecutionProvider", *names])


@pytest.fixture
def doubling() -> bytes:
    """A graph: y = x + x."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N"]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "doubling", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("name", "providers"),
    [
        ("auto", [CPU_PROVIDER]),
        ("cpu", [CPU_PROVIDER]),
        ("cuda", [("CUDAExecutionProvider", CUDA_OPTIONS), CPU_PROVIDER]),
        ("cuda:12", [("CUDAExecutionProvider", {**CUDA_OPTIONS, "device_id": "12"}), CPU_PROVIDER]),
        (
            "tensorrt:1",
            [
                ("TensorrtExecutionProvider", {"device_id": "1"}),
                ("CUDAExecutionProvider", {**CUDA_OPTIONS, "device_id": "1"}),
                CPU_PROVIDER,
            ],
        ),
        ("migraphx:0", [("MIGraphXExecutionProvider", {"device_id": "0"}), CPU_PROVIDER]),
        ("rocm", [("ROCMExecutionProvider", {}), CPU_PROVIDER]),
        (
            "openvino:GPU",
            [("OpenVINOExecutionProvider", {"device_type": "GPU", "num_of_threads": "2"}), CPU_PROVIDER],
        ),
        ("openvino", [("OpenVINOExecutionProvider", {"num_of_threads": "2"}), CPU_PROVIDER]),
        ("directml:1", [("DmlExecutionProvider", {"device_id": "1"}), CPU_PROVIDER]),
        ("coreml", [("CoreMLExecutionProvider", {}), CPU_PROVIDER]),
    ],
)
@pytest.mark.usefixtures("everything_installed")
def test_a_device_is_a_provider_with_its_options(name: str, providers: list[Any]) -> None:
    device = find_onnx_device(name)
    assert device.providers(threads=2) == providers
    assert is_for_onnxruntime_only(name) == (name.partition(":")[0] not in ("auto", "cpu", "cuda"))
    assert str(device) == ("cpu" if name == "auto" else name)


@pytest.mark.parametrize(
    "name", ["", "gpu", "CUDA", "cuda:", "cuda:1000", "cpu:1", "openvino:TPU", "cuda:0\n"]
)
@pytest.mark.usefixtures("everything_installed")
def test_an_unknown_device_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(DeviceError, match=re.escape("it must be one of auto, cpu, cuda[:N], tensorrt[:N], ")):
        find_onnx_device(name)


def test_a_device_that_the_installed_package_lacks_is_refused_with_the_package_that_has_it() -> None:
    installed = installed_devices()
    assert "cpu" in installed
    for name in PROVIDERS.keys() - set(installed):
        with pytest.raises(DeviceError, match=rf"^device is '{name}'; ONNX Runtime has cpu.* here") as error:
            find_onnx_device(name)
        assert PROVIDERS[name].package in str(error.value)


def test_a_provider_that_onnxruntime_leaves_out_is_named_once_and_the_cpu_computes(
    doubling: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = stand_in_for_sessions(monkeypatch, left_out=True)
    sessions = OnnxSessions(OnnxDevice("cuda", "1"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert_doubles(sessions.open(doubling))
    assert [record.message for record in caplog.records] == [
        "the CPU computes what the device cuda:1 cannot: it did not start; "
        "ONNX Runtime wrote the cause to the standard error"
    ]
    assert asked == ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert sessions.device == CPU


def test_the_fault_of_a_providers_library_is_the_cause(
    doubling: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in_for_sessions(monkeypatch, left_out=True)
    library = tmp_path / "capi" / "libonnxruntime_providers_cuda.so"
    library.parent.mkdir()
    library.write_text("no library")
    monkeypatch.setattr(onnxruntime, "__file__", str(tmp_path / "__init__.py"))
    assert_doubles(OnnxSessions(OnnxDevice("cuda")).open(doubling))
    (record,) = caplog.records
    assert record.message.startswith(f"the CPU computes what the device cuda cannot: {library}: ")


def test_the_cpu_computes_the_graphs_that_a_provider_does_not_load(
    doubling: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fault = onnx_errors.Fail("while reading\nlacks the operator Add\n\n")
    asked = stand_in_for_sessions(monkeypatch, fault=fault)
    sessions = OnnxSessions(OnnxDevice("coreml"))
    for _ in range(2):
        assert_doubles(sessions.open(doubling))
    assert [record.message for record in caplog.records] == [
        "the CPU computes what the device coreml cannot: lacks the operator Add"
    ]
    assert asked == ["CoreMLExecutionProvider", "CPUExecutionProvider"] * 2


def test_a_graph_that_no_provider_loads_is_an_error_and_not_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in_for_sessions(monkeypatch, fault=onnx_errors.EPFail("lacks everything"))
    with pytest.raises(ONNX_RUNTIME_ERRORS):
        OnnxSessions(OnnxDevice("coreml")).open(b"no graph")
    assert caplog.records == []


def test_onnxruntime_itself_leaves_out_a_provider_that_it_lacks(
    doubling: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (name, *_) = sorted(PROVIDERS.keys() - set(installed_devices()))
    with pytest.warns(UserWarning, match="is not in available provider names"):
        assert_doubles(OnnxSessions(OnnxDevice(name)).open(doubling))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("name", installed_devices())
def test_every_installed_device_computes(name: str, doubling: bytes, tmp_path: Path) -> None:
    file = tmp_path / "doubling.onnx"
    file.write_bytes(doubling)
    for model in (doubling, file):
        assert_doubles(OnnxSessions(find_onnx_device(name)).open(model))


def assert_doubles(session: onnxruntime.InferenceSession) -> None:
    (doubled,) = session.run(None, {"x": np.array([1, 2.5], np.float32)})
    assert doubled.tolist() == [2, 5]


def stand_in_for_sessions(
    monkeypatch: pytest.MonkeyPatch, *, left_out: bool = False, fault: Exception | None = None
) -> list[str]:
    """Sessions whose first provider is left out, or fails with a fault; the first providers asked for."""
    real, asked = onnxruntime.InferenceSession, []

    def open_session(*arguments: Any, providers: Any, **options: Any) -> onnxruntime.InferenceSession:
        asked.append(providers[0][0])
        if fault is not None and providers[0] != CPU_PROVIDER:
            raise fault
        return real(*arguments, providers=providers[-1:], **options)

    assert left_out or fault
    monkeypatch.setattr(onnx_sessions.onnxruntime, "InferenceSession", open_session)
    return asked
