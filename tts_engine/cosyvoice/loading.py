"""Loads the networks of a CosyVoice bundle: all of them, or those of one stage.

one process            CosyVoiceBackend.load, load_hosted_renderer
stages apart           CosyVoiceBackend.load_decoder     and     load_render_host
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.executors import choose_executor
from ...models.cosyvoice.onnx_graphs.graph_files import bundle_digest
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.onnx_runtime.networks import load_array_lm, load_array_render_networks
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ...models.devices.execution import Executor, is_torch_installed
from ...models.devices.onnx_providers import find_onnx_device
from ...models.devices.onnx_sessions import OnnxSessions
from ..backends.base import Stage
from ..backends.hosted_backend import HostedBackend
from ..voice_kit.session_renderer import row_count
from .checkpoints import bundle_errors
from .policy import CosyVoicePolicy
from .renderer import CosyVoiceRenderer
from .rendering.array_render_runner import ArrayRenderRunner
from .rendering.render_host import RenderHost
from .rendering.render_stage import LocalRenderStage

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.speech_lm import SpeechLm


def load_hosted_renderer(folder: Path, policy: CosyVoicePolicy) -> HostedBackend:
    """Load a checkpoint folder in a child process; the front end stays in the parent. Raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
        files = voice_files_of(bundle, policy)
        policy = with_executor(policy, bundle)
        with loading_networks(bundle, policy):
            lm = load_lm(bundle, policy)
            stage = load_render_stage(bundle, policy, files, lm_memory_bytes(lm, policy))
            tokenizer = bundle.text_tokenizer()
            renderer = CosyVoiceRenderer(bundle.version, lm, stage, tokenizer, policy, files)
    return HostedBackend(renderer, renderer.open_prepared, Stage.DECODE)


def load_render_host(folder: Path, policy: CosyVoicePolicy, replica: str, bundle_digest: str) -> RenderHost:
    """Load the render stage of a checkpoint folder for decode replicas. Raises BundleError."""
    policy = replace(policy, voice_store=None)
    with bundle_errors():
        bundle = open_bundle(folder)
        policy = with_executor(policy, bundle)
        with loading_networks(bundle, policy):
            stage = load_render_stage(bundle, policy, None)
    stage.captures.capture_all()  # the host knows no lead of a listener between its requests
    return RenderHost(stage, replica, bundle_digest, slots=policy.slots, max_rows=policy.max_render_rows)


def with_executor(policy: CosyVoicePolicy, bundle: CosyVoiceBundle) -> CosyVoicePolicy:
    """The policy with the executor for its device and bundle, if it leaves the choice. Raises DeviceError."""
    if policy.executor is Executor.AUTO and not is_torch_installed():
        return replace(policy, executor=Executor.ONNXRUNTIME)
    is_on_cpu = policy.executor is Executor.AUTO and _torch_device(policy).type == "cpu"
    chosen = choose_executor(policy.executor, bundle, policy.flow, policy.precision, is_on_cpu=is_on_cpu)
    return replace(policy, executor=chosen)


def loading_networks(bundle: CosyVoiceBundle, policy: CosyVoicePolicy) -> AbstractContextManager[None]:
    """A context in which faults of a card become DeviceError. policy: with the executor chosen."""
    if policy.executor is Executor.ONNXRUNTIME:
        return nullcontext()
    from ...models.devices.torch_devices import loading_onto

    return loading_onto(_torch_device(policy), bundle.weight_bytes)


def load_lm(bundle: CosyVoiceBundle, policy: CosyVoicePolicy) -> "SpeechLm | ArraySpeechLm":
    """Load the language model with the policy's executor; torch has it beside TensorRT.

    Raises InvalidBundleError and DeviceError.
    """
    if policy.executor is Executor.ONNXRUNTIME:
        return load_array_lm(bundle, policy.precision, _sessions_of(policy))
    from ...models.cosyvoice import networks

    return networks.load_lm(bundle, policy.precision, _torch_device(policy))


def lm_memory_bytes(lm: "SpeechLm | ArraySpeechLm", policy: CosyVoicePolicy) -> int:
    """Memory of a card that the rows of the language model will take; 0 on a CPU, where it grows with use."""
    if isinstance(lm, ArraySpeechLm) or lm.device.type == "cpu":
        return 0
    return lm.state_bytes(row_count(policy), policy.lm_context_ids)


def load_render_stage(
    bundle: CosyVoiceBundle,
    policy: CosyVoicePolicy,
    voice_files: PreparedVoiceFolder | None,
    reserved_bytes: int = 0,
) -> LocalRenderStage:
    """Load flow and vocoder with the policy's executor. Raises InvalidBundleError and DeviceError.

    reserved_bytes: of the device's memory, that sentences must leave free.
    """
    if policy.executor is Executor.ONNXRUNTIME:
        networks = load_array_render_networks(bundle, policy.flow, policy.precision, _sessions_of(policy))
    elif policy.executor is Executor.TENSORRT:
        from ...models.cosyvoice.tensorrt_engines.networks import load_engines

        networks = load_engines(bundle, policy.precision, _torch_device(policy))
    else:
        from ...models.cosyvoice.networks import load_render_networks
        from .rendering.render_runner import RenderRunner

        in_torch = load_render_networks(bundle, policy.flow, _torch_device(policy))
        return LocalRenderStage(
            RenderRunner(bundle.version, in_torch, policy, voice_files, reserved_bytes), policy
        )
    return LocalRenderStage(ArrayRenderRunner(networks, policy, voice_files), policy)


def voice_files_of(bundle: CosyVoiceBundle, policy: CosyVoicePolicy) -> PreparedVoiceFolder | None:
    """The prepared voices on file for a bundle, if there is a voice store. Raises OSError."""
    if policy.voice_store is None:
        return None
    key = repr(
        (bundle_digest(bundle), policy.precision.value, policy.interleave.value, policy.max_prompt_ids)
    )
    return PreparedVoiceFolder(policy.voice_store, key, policy.max_prepared_bytes)


def _sessions_of(policy: CosyVoicePolicy) -> OnnxSessions:
    return OnnxSessions(find_onnx_device(policy.device))


def _torch_device(policy: CosyVoicePolicy) -> Any:
    from ...models.devices.torch_devices import find_device

    return find_device(policy.device)
