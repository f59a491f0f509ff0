"""How large the networks of a CosyVoice bundle are: the released sizes by default, any other for tests.

Numbers only; the networks are elsewhere, and nothing here needs torch.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml and the
config.json of the Qwen2-0.5B folder that a release carries.
"""

from dataclasses import dataclass
from enum import Enum


class Version(Enum):
    """Which released family a checkpoint belongs to."""

    V2 = 2
    V3 = 3


@dataclass(frozen=True, slots=True)
class SpeechLmConfig:
    """Sizes of the language model. rope_base: of the rotary positions' frequencies."""

    version: Version = Version.V2
    hidden: int = 896
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    intermediate: int = 4864
    text_rows: int = 151_936
    speech_codes: int = 6561
    rope_base: float = 1e6
    norm_epsilon: float = 1e-6

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.hidden // self.heads

    @property
    def speech_rows(self) -> int:
        """Rows of the speech embedding and of the head: the codec's sounds, and what controls the flow."""
        return self.speech_codes + control_ids(self.version)


def control_ids(version: Version) -> int:
    """How many speech ids are no sounds."""
    return 3 if version is Version.V2 else 200
