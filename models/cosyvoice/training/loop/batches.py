"""The order of the utterances in an epoch, and their batches: a function of the seed and the epoch alone.

Utterances are shuffled, sorted by length within some hundreds, cut into batches of bounded size, and the
batches are shuffled. Every process computes the same order and takes every n-th row of each batch.

Source: FunAudioLLM/CosyVoice@ace7c47 dataset/processor.py:267-366 (shuffle, sort, dynamic batch).
"""

from collections.abc import Iterator, Sequence
from itertools import chain

from ..draws import DrawSeed

_SORTED_TOGETHER = 500  # utterances
_ORDER, _BATCH_ORDER = 3, 4  # purposes of the draws


def plan_epoch(
    numbers: Sequence[int], frames: Sequence[int], seed: DrawSeed, max_frames: int
) -> list[list[int]]:
    """Batches of utterances.

    numbers: the utterances to train with. frames: mel frames of each utterance of the data set. A batch has
    at most ``max_frames`` times as many frames as its longest row times its rows, but at least one row.
    """
    shuffled = seed.generator(_ORDER).permutation(len(numbers))
    order = [numbers[place] for place in shuffled]
    sorted_parts = (
        sorted(order[first : first + _SORTED_TOGETHER], key=lambda number: frames[number])
        for first in range(0, len(order), _SORTED_TOGETHER)
    )
    cut = list(cut_batches(list(chain.from_iterable(sorted_parts)), frames, max_frames))
    return [cut[place] for place in seed.generator(_BATCH_ORDER).permutation(len(cut))]


def cut_batches(numbers: Sequence[int], frames: Sequence[int], max_frames: int) -> Iterator[list[int]]:
    """Cut utterances, in order, into batches of at most ``max_frames``: the longest times the rows."""
    batch: list[int] = []
    longest = 0
    for number in numbers:
        longest = max(longest, frames[number])
        if batch and longest * (len(batch) + 1) > max_frames:
            yield batch
            batch, longest = [], frames[number]
        batch.append(number)
    if batch:
        yield batch
