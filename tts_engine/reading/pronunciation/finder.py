"""Search for the parts of a clause that have a pronunciation of their own, for the tokenizer.

In this order: ranges that the caller pronounced, as SSML's ``phoneme`` and ``sub`` do; words with phonemes
in the text; entries of lexicons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .lexicon import Lexicon, PronouncedRange, find_inline, with_possessive


@dataclass(slots=True)
class PronunciationFinder:
    """Pronunciations of one stream."""

    lexicons: Sequence[Lexicon] = ()  # the first that has a word decides
    # Ranges that the caller pronounced, by where they begin in the clause that is read next.
    ranges: Mapping[int, PronouncedRange] = field(default_factory=dict)

    def find(self, view: str, at: int) -> PronouncedRange | None:
        """Return the pronounced range at a position of a clause, if there is one."""
        if at in self.ranges:
            return with_possessive(view, self.ranges[at])
        if view[at] == "[":
            return find_inline(view, at)
        for lexicon in self.lexicons:
            found = lexicon.find(view, at)
            if found is not None:
                return found
        return None
