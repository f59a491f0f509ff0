"""When the flow runs, and on what: hops of speech ids, and the few ids ahead that each needs.

    schedule = HopSchedule(prompt_ids=0)
    while (chunk := schedule.next(available, ended)) is not None:
        chunk.start, chunk.stop, chunk.fed, chunk.final

A chunk speaks ids ``start`` to ``stop`` and hears up to ``fed``, 3 further; the last one speaks all that is
left:

    ids      0 ........ 25 ................. 75 ........ 90
    chunk 1  |----------|+++
    chunk 2             |--------------------|+++
    chunk 3 (last)                           |------------|

Hops start small, because someone is waiting, and double, because a longer hop costs less. They belong to one
session.

The flow was trained to see whole blocks of 25 ids and 3 ids further, so every multiple of 25 gives the same
mel, and none of them is an approximation; a chunk that ends inside a block would show its ids, and through
them all later ones, less of the block than in training. So 25 is the least, and what a first hop depends on
is only how long someone is to wait.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/model.py:308-375; upstream keeps the hop on the shared
model, so that one request's growth makes the next one wait: give ``hop`` to repeat that.
"""

from dataclasses import dataclass

LOOKAHEAD_IDS = 3
FIRST_HOP = 25
MAX_HOP = 100
HOP_GROWTH = 2


@dataclass(frozen=True, slots=True)
class SpeechIdChunk:
    """Ids from ``start`` to ``stop`` are spoken, with ids up to ``fed`` known. final: nothing follows."""

    start: int
    stop: int
    lookahead_stop: int
    final: bool


class HopSchedule:
    """The chunks of one utterance, in order.

    Attributes:
        hop: ids of the next chunk.
    """

    def __init__(self, prompt_ids: int = 0, hop: int = FIRST_HOP, max_hop: int = MAX_HOP) -> None:
        self.hop = hop
        self._max_hop = max_hop
        # The first chunk also fills the block that the prompt leaves unfinished.
        self._first_hop_extra = -prompt_ids % hop
        self._start = 0
        self._finished = False

    def next(self, available: int, ended: bool) -> SpeechIdChunk | None:
        """The next chunk, or None while too few ids are there.

        available: ids so far; ended: no more will come.
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
