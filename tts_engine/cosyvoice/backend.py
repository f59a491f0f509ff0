"""CosyVoice 2 or 3 as a backend in this process: the front end and the renderer of one bundle."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...models.cosyvoice.checkpoint.bundle import open_bundle
from ...models.cosyvoice.config import CosyVoiceVersion
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.onnx_runtime.language_model import ArraySpeechLm
from ...models.cosyvoice.prepared_voice_files import PreparedVoiceFolder
from ..backends.base import SlotRequest
from ..segmenter import Segmenter
from .checkpoints import bundle_errors
from .front_end import CosyVoiceFrontEnd
from .loading import (
    lm_memory_bytes,
    load_lm,
    load_render_stage,
    loading_networks,
    voice_files_of,
    with_executor,
)
from .policy import CosyVoicePolicy
from .renderer import CosyVoiceRenderer
from .rendering.render_stage import RenderStage

if TYPE_CHECKING:
    from ...models.cosyvoice.lm.speech_lm import SpeechLm


class CosyVoiceBackend(CosyVoiceRenderer):
    """A bundle that speaks in this process. ``load`` builds one."""

    warm_up_text = CosyVoiceFrontEnd.warm_up_text

    def __init__(
        self,
        front_end: CosyVoiceFrontEnd,
        version: CosyVoiceVersion,
        lm: "SpeechLm | ArraySpeechLm",
        render_stage: RenderStage,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
        voice_files: PreparedVoiceFolder | None = None,
    ) -> None:
        super().__init__(version, lm, render_stage, tokenizer, policy, voice_files)
        self._front_end = front_end
        self.voices = front_end.voices

    @classmethod
    def load(
        cls, folder: Path, policy: CosyVoicePolicy | None = None, voices: Path | None = None
    ) -> "CosyVoiceBackend":
        """Check a checkpoint folder and load its networks. Raises BundleError.

        voices: folder of a ``VoiceStore``; without one, enrolled voices are kept in memory only.
        """
        policy = replace(policy or CosyVoicePolicy(), voice_store=voices)
        with bundle_errors():
            bundle = open_bundle(folder)
            tokenizer = bundle.text_tokenizer()
            front_end = CosyVoiceFrontEnd.from_bundle(bundle, tokenizer, policy, voices)
            policy = with_executor(policy, bundle)
            files = voice_files_of(bundle, policy)
            with loading_networks(bundle, policy):
                lm = load_lm(bundle, policy)
                stage = load_render_stage(bundle, policy, files, lm_memory_bytes(lm, policy))
                return cls(front_end, bundle.version, lm, stage, tokenizer, policy, files)

    @classmethod
    def load_decoder(
        cls, folder: Path, policy: CosyVoicePolicy, render_stage: RenderStage
    ) -> "CosyVoiceBackend":
        """Load the front end and the language model; another process renders. Raises BundleError."""
        policy = replace(policy, overlap=True, max_render_rows=1)  # the stage's workers wait for one each
        with bundle_errors():
            bundle = open_bundle(folder)
            tokenizer = bundle.text_tokenizer()
            front_end = CosyVoiceFrontEnd.from_bundle(bundle, tokenizer, policy, None)
            chosen = with_executor(policy, bundle)
            with loading_networks(bundle, chosen):
                lm = load_lm(bundle, chosen)
                return cls(front_end, bundle.version, lm, render_stage, tokenizer, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """The front end's segmenter for the request. Raises BadRequest if the language is not supported."""
        return self._front_end.segmenter(request)

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot. Raises BadRequest if the voice or the model cannot do what is asked."""
        return self.open_prepared(self._front_end.prepare_request(request))

    def close(self) -> None:
        """Close every slot and the voice store."""
        self._sessions.clear()
        self._front_end.close()
