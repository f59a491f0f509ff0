"""The chunks of an utterance: hops of speech ids, and the lookahead that each chunk needs.

    schedule = HopSchedule(prompt_ids=0)
    while (chunk := schedule.next(available, ended)) is not None:
        chunk.start, chunk.stop, chunk.lookahead_stop, chunk.final

A chunk renders ids ``start`` to ``stop`` and needs ids up to ``lookahead_stop``, 3 more; the last chunk
renders all that are left:

    ids      0 ........ 25 ................. 75 ........ 90
    chunk 1  |----------|+++
    chunk 2             |--------------------|+++
    chunk 3 (last)                           |------------|

Hops start small, so that the first sound comes early, and double, because longer hops cost less. Each session
has its own schedule.

The flow was trained on whole blocks of 25 ids with 3 ids of lookahead, so every multiple of 25 gives the same
mel. A chunk that ended inside a block would let its frames, and through them all later ones, attend to less
of the block than in training. So 25 is the smallest hop, and the first hop only decides how long a listener
waits.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:308-375. Upstream keeps the hop on the shared
model, so that one request's growth delays the first chunk of the next.
"""

from dataclasses import dataclass

from ..config import BLOCK_IDS, LOOKAHEAD_IDS

FIRST_HOP = BLOCK_IDS
MAX_HOP = 100
HOP_GROWTH = 2


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
        hop: ids of the next chunk; the first chunk adds what fills the last block of the prompt.
    """

    def __init__(self, prompt_ids: int = 0, hop: int = FIRST_HOP, max_hop: int = MAX_HOP) -> None:
        self.hop = hop
        self._max_hop = max_hop
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
            self.hop = min(self._max_hop, HOP_GROWTH * self.hop)
            return SpeechIdChunk(start, start + hop, start + hop + LOOKAHEAD_IDS, final=False)
        if not ended:
            return None
        self._finished = True
        return SpeechIdChunk(start, available, available, final=True)
