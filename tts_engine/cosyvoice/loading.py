"""Loads the networks of a CosyVoice bundle: all of them, or those of one stage.

one process            CosyVoiceBackend.load, load_hosted_renderer
stages apart           CosyVoiceBackend.load_decoder     and     load_render_host
"""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.config import CosyVoiceVersion
from ...models.cosyvoice.onnx_graphs.graph_files import bundle_digest
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.onnx_runtime.networks import (
    ArrayNetworks,
    ArrayRenderNetworks,
    can_run_policy,
    load_array_lm,
    load_array_networks,
    load_array_render_networks,
)
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ...models.networks.execution import Executor, Precision
from ...models.onnx_providers import find_onnx_device
from ...models.onnx_sessions import OnnxSessions
from ..backends.base import Stage
from ..backends.hosted_backend import HostedBackend
from .checkpoints import bundle_errors
from .policy import CosyVoicePolicy
from .renderer import CosyVoiceRenderer
from .rendering.array_render_runner import ArrayRenderRunner
from .rendering.render_host import RenderHost
from .rendering.render_stage import LocalRenderStage

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.speech_lm import LmNetwork
    from ...models.cosyvoice.networks import CosyVoiceNetworks, RenderNetworks


def load_hosted_renderer(folder: Path, policy: CosyVoicePolicy) -> HostedBackend:
    """Load a checkpoint folder in a child process; the front end stays in the parent. Raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
        files = voice_files_of(bundle, policy)
        networks = load_bundle_networks(bundle, policy)
        renderer = CosyVoiceRenderer(
            bundle.version,
            networks.lm,
            local_render_stage(bundle.version, networks, policy, files),
            bundle.text_tokenizer(),
            policy,
            files,
        )
    return HostedBackend(renderer, renderer.open_prepared, Stage.DECODE)


def load_render_host(folder: Path, policy: CosyVoicePolicy, replica: str, bundle_digest: str) -> RenderHost:
    """Load the render stage of a checkpoint folder for decode replicas. Raises BundleError."""
    policy = replace(policy, voice_store=None)
    with bundle_errors():
        bundle = open_bundle(folder)
        stage = local_render_stage(bundle.version, _load_render_networks(bundle, policy), policy, None)
    return RenderHost(stage, replica, bundle_digest, slots=policy.slots, max_rows=policy.max_render_rows)


def load_bundle_networks(
    bundle: CosyVoiceBundle, policy: CosyVoicePolicy
) -> "CosyVoiceNetworks | ArrayNetworks":
    """Load the networks of a bundle with the policy's executor; only ``onnxruntime`` works without torch.

    Raises InvalidBundleError and DeviceError.
    """
    if _runs_without_torch(policy):
        return load_array_networks(bundle, policy.flow, policy.precision, _sessions_of(policy))
    from ...models.cosyvoice.networks import load_networks
    from ...models.networks.devices import find_device

    device = find_device(policy.device)
    return load_networks(bundle, policy.flow, policy.precision, device, policy.executor)


def load_lm_of_bundle(bundle: CosyVoiceBundle, policy: CosyVoicePolicy) -> "LmNetwork | ArraySpeechLm":
    """Load the language model only, as ``load_bundle_networks`` does."""
    if _runs_without_torch(policy):
        return load_array_lm(bundle, policy.precision, _sessions_of(policy))
    from ...models.cosyvoice.networks import load_decode_network
    from ...models.networks.devices import find_device

    return load_decode_network(bundle, policy.precision, find_device(policy.device), policy.executor)


def local_render_stage(
    version: CosyVoiceVersion,
    networks: "RenderNetworks | ArrayRenderNetworks",
    policy: CosyVoicePolicy,
    voice_files: PreparedVoiceFolder | None,
) -> LocalRenderStage:
    """The render stage of loaded networks."""
    if isinstance(networks, ArrayRenderNetworks):
        return LocalRenderStage(ArrayRenderRunner(networks, policy, voice_files), policy)
    from .rendering.render_runner import RenderRunner

    return LocalRenderStage(RenderRunner(version, networks, policy, voice_files), policy)


def voice_files_of(bundle: CosyVoiceBundle, policy: CosyVoicePolicy) -> PreparedVoiceFolder | None:
    """The prepared voices on file for a bundle, if there is a voice store. Raises OSError."""
    if policy.voice_store is None:
        return None
    key = repr(
        (bundle_digest(bundle), policy.precision.value, policy.interleave.value, policy.max_prompt_ids)
    )
    return PreparedVoiceFolder(policy.voice_store, key, policy.max_prepared_bytes)


def _load_render_networks(
    bundle: CosyVoiceBundle, policy: CosyVoicePolicy
) -> "RenderNetworks | ArrayRenderNetworks":
    if _runs_without_torch(policy):
        return load_array_render_networks(bundle, policy.flow, policy.precision, _sessions_of(policy))
    from ...models.cosyvoice.networks import load_render_networks
    from ...models.networks.devices import find_device

    device = find_device(policy.device)
    return load_render_networks(bundle, policy.flow, policy.precision, device, policy.executor)


def _sessions_of(policy: CosyVoicePolicy) -> OnnxSessions:
    return OnnxSessions(find_onnx_device(policy.device))


def _runs_without_torch(policy: CosyVoicePolicy) -> bool:
    # The flow in int8 exists as exported graphs only.
    is_chosen = policy.executor is Executor.AUTO and policy.precision is Precision.INT4_INT8
    return (is_chosen or policy.executor is Executor.ONNXRUNTIME) and can_run_policy(policy.flow)
