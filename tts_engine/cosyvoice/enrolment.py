"""The encoders of a CosyVoice bundle: loads them, and opens them without its networks."""

import functools
import hashlib
import json
import logging
from pathlib import Path

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.devices.execution import DeviceError, Executor, is_torch_installed
from ...models.devices.onnx_providers import CPU, OnnxDevice, find_onnx_device
from ...models.devices.onnx_sessions import CPU_SESSIONS, OnnxSessions
from ..voice_kit.policy import require_device
from .bundle_voices import BundleVoices
from .policy import CosyVoicePolicy

logger = logging.getLogger(__name__)

_ENCODER_VERSION = 1  # of this program's part of the encoding; to be raised with every change of its result


def load_voice_encoder(bundle: CosyVoiceBundle, policy: CosyVoicePolicy | None = None) -> VoiceEncoder:
    """Load the speaker encoder and the speech tokenizer of a checked bundle, about 1 GB.

    policy: of the bundle's networks, whose device the encoders follow; None for the CPU.
    """
    return VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.yaml_config.mel_max_hz,
        bundle.network_config.lm.codebook_size,
        OnnxSessions(encoder_device(policy)) if policy else CPU_SESSIONS,
    )


def encoder_device(policy: CosyVoicePolicy) -> OnnxDevice:
    """The device of ONNX Runtime on which encoders follow the networks; the CPU where it has no such one.

    Raises DeviceError for an unknown device.
    """
    if policy.executor is Executor.ONNXRUNTIME or not is_torch_installed():
        return find_onnx_device(policy.device)
    device = require_device(policy.device)
    try:
        return find_onnx_device(device)
    except DeviceError as fault:
        logger.info("the CPU encodes recordings: %s", fault)
        return CPU


def digest_voice_encoder(bundle: CosyVoiceBundle) -> str:
    """SHA-256 of everything that decides how a recording is encoded, in hexadecimal. Takes about a second."""
    about = [_ENCODER_VERSION, bundle.version.value, bundle.yaml_config.mel_max_hz]
    digest = hashlib.sha256(json.dumps(about).encode())
    for path in (bundle.speaker_encoder, bundle.speech_tokenizer):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def open_encoders(folder: Path) -> BundleVoices:
    """As ``Checkpoints.open_encoders``."""
    bundle = open_bundle(folder)
    return BundleVoices(
        {},
        functools.partial(load_voice_encoder, bundle),
        bundle.languages,
        digest_encoders=functools.partial(digest_voice_encoder, bundle),
        version=bundle.version,
    )
