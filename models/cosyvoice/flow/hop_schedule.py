"""The chunks of an utterance: hops of speech ids, and the lookahead that each chunk needs.

    schedule = HopSchedule(prompt_ids=0)
    while (chunk := schedule.next(available, ended)) is not None:
        chunk.start, chunk.stop, chunk.lookahead_stop, chunk.final

A chunk renders ids ``start`` to ``stop`` and needs ids up to ``lookahead_stop``, 3 more; the last chunk
renders all that are left:

    ids      0 ........ 25 ........ 50 ................. 100 ........ 115
    chunk 1  |----------|+++
    chunk 2             |-----------|+++
    chunk 3                         |--------------------|+++
    chunk 4 (last)                                        |------------|

The second hop is as long as the first, because the first has little sound to bridge it; then hops double,
because longer hops cost less. Each session has its own schedule.

The flow was trained on whole blocks of 25 ids with 3 ids of lookahead, so every multiple of 25 gives the same
mel. A chunk that ended inside a block would let its frames, and through them all later ones, attend to less
of the block than in training. So 25 is the smallest hop. It need not be 25 new ids: the first block begins
with ids whose sound is dropped, the end of the voice's recording, and ``prompt_tail_ids`` of them leave just
as many new ones as the first sound needs:

    ids        |<- recording, 25 k ->|r ... r|0 ... 13|14 15 16|        version 2, 11 of the recording
                prepared once a voice |first chunk    |lookahead

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:308-375. Upstream keeps the hop on the shared
model, so that one request's growth delays the first chunk of the next, and doubles it after the first chunk.
"""

from dataclasses import dataclass

from ..config import (
    BLOCK_IDS,
    FRAMES_PER_SPEECH_ID,
    LOOKAHEAD_IDS,
    V2_WITHHELD_FRAMES,
    VOCODER_LOOKAHEAD_FRAMES,
    CosyVoiceVersion,
)

FIRST_HOP = BLOCK_IDS
FIRST_HOPS = 2  # chunks of that length
MAX_HOP = 100
HOP_GROWTH = 2

# Mel frames that the vocoder keeps until the next chunk, and that the first chunk gives out: 160 and 120 ms,
# in which a card makes the second one.
_WITHHELD_FRAMES = {CosyVoiceVersion.V2: V2_WITHHELD_FRAMES, CosyVoiceVersion.V3: VOCODER_LOOKAHEAD_FRAMES}
_FIRST_SOUND_FRAMES = {CosyVoiceVersion.V2: 8, CosyVoiceVersion.V3: 6}


def prompt_tail_ids(version: CosyVoiceVersion, speed: float) -> int:
    """Ids before a sentence's own in its first block: of the recording's end, rendered again and dropped.

    Faster speech makes fewer frames of an id, too few to sound; it keeps what the recording's last whole
    block needs as its lookahead.
    """
    if speed > 1:
        return LOOKAHEAD_IDS
    frames = _WITHHELD_FRAMES[version] + _FIRST_SOUND_FRAMES[version]
    return BLOCK_IDS - frames // FRAMES_PER_SPEECH_ID


@dataclass(frozen=True, slots=True)
class SpeechIdChunk:
    """The ids of one chunk."""

    start: int  # first id to render
    stop: int  # one past the last id to render
    lookahead_stop: int  # one past the last id that must be known
    final: bool  # the last chunk of the utterance


class HopSchedule:
    """The chunks of one utterance, in order.

    Attributes:
        hop: ids of the next chunk; the first chunk adds what fills the last block of ``prompt_ids``.
    """

    def __init__(
        self,
        prompt_ids: int = 0,
        hop: int = FIRST_HOP,
        max_hop: int = MAX_HOP,
        first_hops: int = FIRST_HOPS,
    ) -> None:
        self.hop = hop
        self._max_hop, self._first_hops = max_hop, first_hops
        # prompt   |- 25 -|- 12 .|          chunks must end on whole blocks counted from the prompt's start:
        # chunk 1            |13 + 25 -|    the first one also fills the block that the prompt leaves open
        self._first_hop_extra = -prompt_ids % hop
        self._start = 0
        self._finished = False

    def next(self, available: int, ended: bool) -> SpeechIdChunk | None:
        """The next chunk, or None while too few ids are available.

        available: number of ids so far. ended: no more ids will follow.
        """
        if self._finished:
            return None
        start, hop = self._start, self.hop + (self._first_hop_extra if self._start == 0 else 0)
        if available - start >= hop + LOOKAHEAD_IDS:
            self._start += hop
            self._first_hops -= 1
            if self._first_hops <= 0:
                self.hop = min(self._max_hop, HOP_GROWTH * self.hop)
            return SpeechIdChunk(start, start + hop, start + hop + LOOKAHEAD_IDS, final=False)
        if not ended:
            return None
        self._finished = True
        return SpeechIdChunk(start, available, available, final=True)
