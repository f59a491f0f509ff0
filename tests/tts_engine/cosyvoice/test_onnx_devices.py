"""Devices of ONNX Runtime for the networks and the encoders of a CosyVoice bundle."""

import logging
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.flow.policy import EXACT_POLICY
from vivavoce.models.cosyvoice.onnx_runtime.networks import load_array_flow
from vivavoce.models.devices.execution import DeviceError, Executor, Precision
from vivavoce.models.devices.onnx_providers import CPU, PROVIDERS, OnnxDevice
from vivavoce.models.devices.onnx_sessions import OnnxSessions
from vivavoce.tts_engine.cosyvoice import enrolment, policy
from vivavoce.tts_engine.cosyvoice.enrolment import encoder_device
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy, policy_for
from vivavoce.tts_engine.errors import BadRequest, BundleError, MissingExtra


@pytest.fixture
def everything_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [provider.name for provider in PROVIDERS.values()]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)


@pytest.mark.parametrize(
    ("device", "executor", "chosen"),
    [
        ("cpu", "auto", Executor.AUTO),
        ("openvino", "auto", Executor.ONNXRUNTIME),
        ("migraphx:1", "onnxruntime", Executor.ONNXRUNTIME),
        ("cuda:1", "onnxruntime", Executor.ONNXRUNTIME),
    ],
)
@pytest.mark.usefixtures("everything_installed")
def test_onnxruntime_computes_on_devices_of_its_own(device: str, executor: str, chosen: Executor) -> None:
    expected = CosyVoicePolicy(executor=chosen, device=device)
    assert policy_for("fp32", device, executor) == expected


@pytest.mark.parametrize("executor", ["torch", "tensorrt"])
@pytest.mark.usefixtures("everything_installed")
def test_other_executors_refuse_the_devices_of_onnxruntime(executor: str) -> None:
    with pytest.raises(BundleError, match="device is 'openvino'; it must be auto, cpu, cuda or cuda:N"):
        policy_for("fp32", "openvino", executor)


def test_a_device_that_onnxruntime_lacks_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(BadRequest, match="device is 'coreml'; ONNX Runtime has cpu"):
        policy_for("fp32", "coreml")
    with pytest.raises(BadRequest, match="device is 'card'; it must be one of auto, cpu, "):
        policy_for("fp32", "card", "onnxruntime")


@pytest.mark.usefixtures("everything_installed")
def test_without_torch_onnxruntime_computes_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "is_torch_installed", lambda: False)
    for device in ("auto", "cpu", "cuda:1"):
        assert policy_for("int4", device).executor is Executor.ONNXRUNTIME
    with pytest.raises(MissingExtra, match="the executor torch needs the extra"):
        policy_for("fp32", "cpu", "torch")


def test_the_flow_in_8_bits_is_refused_where_no_provider_has_its_products(v2_folder: Path) -> None:
    bundle = open_bundle(v2_folder)
    with pytest.raises(DeviceError, match="int4-int8 is for the device cpu, and it is openvino:GPU"):
        load_array_flow(
            bundle, EXACT_POLICY, Precision.INT4_INT8, OnnxSessions(OnnxDevice("openvino", "GPU"))
        )


@pytest.mark.usefixtures("everything_installed")
def test_the_encoders_follow_the_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torch = CosyVoicePolicy(device="cuda:1", executor=Executor.TORCH)
    monkeypatch.setattr(enrolment, "require_device", lambda name: {"auto": "cuda:0"}.get(name, name))
    assert encoder_device(with_torch) == OnnxDevice("cuda", "1")
    assert encoder_device(replace(with_torch, device="auto")) == OnnxDevice("cuda", "0")
    assert encoder_device(replace(with_torch, device="cpu")) == CPU
    with_onnx = replace(with_torch, executor=Executor.ONNXRUNTIME)
    assert encoder_device(replace(with_onnx, device="openvino:NPU")) == OnnxDevice("openvino", "NPU")
    assert encoder_device(replace(with_onnx, device="auto")) == CPU


def test_the_cpu_encodes_recordings_where_onnxruntime_lacks_the_card(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr(enrolment, "require_device", lambda name: "cuda:0")
    with caplog.at_level(logging.INFO):
        assert encoder_device(CosyVoicePolicy(executor=Executor.TORCH)) == CPU
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.message.startswith(
        "the CPU encodes recordings: device is 'cuda:0'; ONNX Runtime has cpu here"
    )
