"""XTTS v2 as a backend in this process: voices, checked requests and segmenters over the renderer."""

import logging
from functools import partial
from pathlib import Path

from ...models.devices.torch_devices import find_device, loading_onto
from ...models.xtts.checkpoint.bundle import LICENSE_NOTICE, XttsBundle, open_bundle
from ...models.xtts.checkpoint.settings import XttsBundleSettings
from ...models.xtts.checkpoint.weight_file import model_path
from ...models.xtts.config import XTTS_IDS_PER_S
from ...models.xtts.networks import XttsNetworks, load_networks, load_voice_encoder
from ...models.xtts.text.tokenizer import XttsTokenizer
from ...models.xtts.voice import XttsVoice
from ..backends.base import SlotRequest
from ..errors import BadRequest
from ..reading.languages.multilingual import LanguageGrammars
from ..reading.normalizer import TextNormalizer
from ..segmenter import Segmenter
from ..voice_kit.policy import requested_sampling
from .bundle_voices import XttsVoices
from .checkpoints import bundle_errors
from .languages import readable_scripts, xtts_language
from .number_words import CldrNumberWords
from .policy import XttsPolicy
from .renderer import XttsRenderer
from .session import XttsConditioning
from .speakers_folder import SPEAKERS_FOLDER, add_speakers
from .text_encoder import XttsTextEncoder

logger = logging.getLogger(__name__)

_PINYIN = "zh"  # its grammar would read the tones of pinyin as numbers; without it, the script decides
_DELIVERY_IDS_PER_S = 25  # of ``Delivery.first_hop``


class XttsBackend(XttsRenderer):
    """A bundle that speaks in this process. ``load`` builds one."""

    # Short, because one second of speech takes several seconds on a small machine.
    warm_up_text = "Hello."

    def __init__(
        self,
        settings: XttsBundleSettings,
        networks: XttsNetworks,
        tokenizer: XttsTokenizer,
        voices: XttsVoices,
        policy: XttsPolicy,
    ) -> None:
        numbers = CldrNumberWords()
        super().__init__(
            networks, XttsTextEncoder(tokenizer, numbers, networks.gpt.config.max_text_ids), policy
        )
        self.voices = voices
        self._settings = settings
        self._grammars = LanguageGrammars.load().with_written_numbers()

    @classmethod
    def load(
        cls, folder: Path, policy: XttsPolicy | None = None, voices: Path | None = None
    ) -> "XttsBackend":
        """Check a folder and load its networks. Raises BundleError; logs the licence of the weights.

        voices: folder of a ``VoiceStore``; without one, enrolled voices are kept in memory only.
        """
        policy = policy or XttsPolicy()
        with bundle_errors():
            bundle = open_bundle(folder)
            device = find_device(policy.device)
            with loading_onto(device, model_path(bundle.folder).stat().st_size):
                networks = load_networks(bundle, device, policy.precision)
                return cls.from_bundle(bundle, networks, policy, voices)

    @classmethod
    def from_bundle(
        cls, bundle: XttsBundle, networks: XttsNetworks, policy: XttsPolicy, voices: Path | None = None
    ) -> "XttsBackend":
        """The backend of loaded networks, as ``load``."""
        logger.warning("%s", LICENSE_NOTICE)
        settings = bundle.settings
        with bundle_errors():
            bundle_voices = XttsVoices(
                bundle.voices(),
                partial(load_voice_encoder, bundle),
                settings.conditioning,
                settings.languages,
                voices,
            )
        add_speakers(bundle.folder / SPEAKERS_FOLDER, bundle_voices)
        return cls(settings, networks, bundle.tokenizer(), bundle_voices, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter for the request. Raises BadRequest for a language that the bundle does not speak."""
        language = xtts_language(request.delivery.language, self._settings.languages)
        read_as = language or "en"
        clauses = self._grammars.any_clause_normalizer("" if read_as == _PINYIN else read_as)
        return Segmenter(self._policy.segments, TextNormalizer(clauses), readable_scripts(language))

    def open_slot(self, request: SlotRequest) -> int:
        """Open a slot. Raises BadRequest if the voice or the model cannot do what is asked."""
        voice = request.speaker_profile or self.voices.speaker_profile(request.voice)
        assert isinstance(voice, XttsVoice)
        delivery = request.delivery
        conditioning = XttsConditioning(
            voice,
            xtts_language(delivery.language, self._settings.languages),
            requested_sampling(self._settings.sampling, delivery),
            request.speed,
            _first_hop(delivery.first_hop),
        )
        return self.open_prepared(conditioning, request.seed)

    def close(self) -> None:
        """Close every slot and the voice store."""
        self._sessions.clear()
        self.voices.close()


def _first_hop(delivery_ids: int | None) -> int | None:
    """Speech ids of the first chunk, from ids at 25 a second. Raises BadRequest below 1."""
    if delivery_ids is None:
        return None
    if delivery_ids < 1:
        raise BadRequest(f"first_hop is {delivery_ids}; it must be at least 1")
    return max(1, round(delivery_ids * XTTS_IDS_PER_S / _DELIVERY_IDS_PER_S))
