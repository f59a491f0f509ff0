"""Spanish: thousands with commas, and "$" that is no dollar."""

from typing import Final

from ...kit.table_rules.amounts.amounts import TableAmounts
from ...kit.table_rules.amounts.money import TableMoney
from ...kit.table_rules.normalizer import TableNormalizer, table_language

_COMMA_THOUSANDS = frozenset("$ US$ U$S RD$ MXN pesos Q".split())  # with which "12,845" is a whole number
_MIN_PESOS = 10_000  # from which "$" is the peso of Colombia


class SpanishMoney(TableMoney):
    """Recognisers of money in Spanish."""

    def sum_written(self, whole: str, fraction: str | None, currency: str) -> tuple[str, str | None, str]:
        """Return the number, its fraction and the currency that are meant."""
        if currency in _COMMA_THOUSANDS and fraction and len(fraction) == 3:
            whole, fraction = whole + fraction, None
        is_peso = currency == "$" and self._numbers.value(whole) >= _MIN_PESOS
        return whole, fraction, "COP" if is_peso else currency


class SpanishAmounts(TableAmounts):
    """Recognisers of amounts in Spanish."""

    money_type = SpanishMoney
    address_number_words = frozenset({"número"})


class SpanishRules(TableNormalizer):
    """Recognisers of Spanish."""

    amounts_type = SpanishAmounts


SPANISH: Final = table_language(__file__, "Spanish", SpanishRules)
