"""Ordinals of languages for which Unicode's rule-based number format has no rules, from a table of words.

The last digit becomes an ordinal, in some languages the tens too: "тысяча девятьсот девяносто девятый" but
"tysiąc dziewięćset dziewięćdziesiąty dziewiąty". The rest stays a cardinal, and a round number is the ordinal
of its last part.
"""

from collections.abc import Callable, Mapping


class OrdinalWords:
    """Ordinals made of ``words`` (by number, in the base form) with other endings.

    ``endings``: by rule set; each maps an ending of the base form to another. ``cardinal``: words of a
    number. ``tens``: whether the tens before a digit are ordinals.
    """

    def __init__(
        self,
        words: Mapping[str, str],
        endings: Mapping[str, Mapping[str, str]],
        cardinal: Callable[[int], str],
        *,
        tens: bool,
    ) -> None:
        self._words = {int(number): word for number, word in words.items()}
        self._endings = {
            rules: sorted(pairs.items(), key=lambda pair: -len(pair[0])) for rules, pairs in endings.items()
        }
        self._cardinal = cardinal
        self._tens = tens

    def knows(self, rules: str) -> bool:
        """Whether ``rules`` is a rule set of these ordinals."""
        return rules in self._endings

    def spell_out(self, number: int, rules: str) -> str | None:
        """Return the words of an ordinal, or None for a number that the table does not reach."""
        head, last = self._split(number)
        ordinals = [self._words.get(part) for part in last]
        if not ordinals or None in ordinals:
            return None
        inflected = [self._inflect(word, rules) for word in ordinals if word]
        return " ".join([*([self._cardinal(head)] if head else []), *inflected])

    def _split(self, number: int) -> tuple[int, list[int]]:
        """Return the part of ``number`` that stays a cardinal, and the parts that are ordinals."""
        if number in self._words:
            return 0, [number]
        below_hundred = number % 100
        if below_hundred == 0:
            hundreds = number % 1000
            return number - hundreds, [hundreds] if hundreds else []
        head = number - below_hundred
        if below_hundred in self._words:
            return head, [below_hundred]
        digit = below_hundred % 10
        return (head, [below_hundred - digit, digit]) if self._tens else (number - digit, [digit])

    def _inflect(self, word: str, rules: str) -> str:
        for ending, other in self._endings[rules]:
            if word.endswith(ending):
                return word.removesuffix(ending) + other
        return word
