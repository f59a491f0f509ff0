"""Number words for the text cleaning of XTTS, from Unicode's rule-based number format.

Used for languages without a grammar in ``reading/``, and for numbers that a grammar leaves as digits.
Source: Unicode CLDR RBNF by unicode-rbnf (MIT). Upstream takes num2words, which is LGPL.
"""

from functools import lru_cache

from ...models.xtts.text.language_tables import DEFAULT_MONEY_JOINT, MONEY_JOINTS
from ..reading.number_formatter import NumberFormatter

_RULES = "spellout-numbering"
_ORDINAL_RULES = {
    **dict.fromkeys(("en", "de", "fr", "nl", "tr", "hu"), "spellout-ordinal"),
    "ko": "spellout-cardinal-native-attributive",
    **dict.fromkeys(("es", "it", "pt", "ru", "hi"), "spellout-ordinal-masculine"),
}
_DECIMAL_WORDS = {
    "en": "point",
    "de": "Komma",
    "fr": "virgule",
    "es": "coma",
    "it": "virgola",
    "pt": "vírgula",
    "pl": "przecinek",
    "tr": "virgül",
    "ru": "запятая",
    "nl": "komma",
    "cs": "celá",
    "ar": "فاصل",
    "hu": "egész",
    "hi": "दशमलव",
}
_CURRENCY_WORDS = {
    "en": {"EUR": "euros", "USD": "dollars", "GBP": "pounds"},
    "de": {"EUR": "Euro", "USD": "Dollar", "GBP": "Pfund"},
    "fr": {"EUR": "euros", "USD": "dollars", "GBP": "livres"},
    "es": {"EUR": "euros", "USD": "dólares", "GBP": "libras"},
    "it": {"EUR": "euro", "USD": "dollari", "GBP": "sterline"},
    "pt": {"EUR": "euros", "USD": "dólares", "GBP": "libras"},
    "pl": {"EUR": "euro", "USD": "dolarów", "GBP": "funtów"},
    "tr": {"EUR": "avro", "USD": "dolar", "GBP": "sterlin"},
    "ru": {"EUR": "евро", "USD": "долларов", "GBP": "фунтов"},
    "nl": {"EUR": "euro", "USD": "dollar", "GBP": "pond"},
    "cs": {"EUR": "eur", "USD": "dolarů", "GBP": "liber"},
    "ar": {"EUR": "يورو", "USD": "دولار", "GBP": "جنيه"},
    "hu": {"EUR": "euró", "USD": "dollár", "GBP": "font"},
    "hi": {"EUR": "यूरो", "USD": "डॉलर", "GBP": "पाउंड"},
}


class CldrNumberWords:
    """``NumberWords`` of every language of XTTS. Results are lower case where upstream's text is."""

    def cardinal(self, number: int, language: str) -> str | None:
        """A whole number."""
        return _spelled(number, language, _RULES)

    def decimal(self, number: float, language: str) -> str | None:
        """A number with decimals, these digit by digit."""
        whole, _, digits = f"{number:.10f}".rstrip("0").partition(".")
        if language not in _DECIMAL_WORDS:
            return None
        words = [self.cardinal(int(whole), language)]
        if digits:
            words += [
                _DECIMAL_WORDS[language].lower(),
                *(self.cardinal(int(digit), language) for digit in digits),
            ]
        return " ".join(word for word in words if word)

    def ordinal(self, number: int, language: str) -> str | None:
        """A place in an order; None where the form depends on more than the number."""
        rules = _ORDINAL_RULES.get(language)
        if rules is None:
            return None
        if language == "ko":
            return f"{'첫' if number == 1 else _spelled(number, language, rules)} 번째"
        return _spelled(number, language, rules)

    def money(self, amount: float, currency: str, language: str) -> str | None:
        """An amount in GBP, USD, EUR: units, the currency, and hundredths without a name, zero ones too."""
        names = _CURRENCY_WORDS.get(language)
        if names is None:
            return None
        units, cents = divmod(round(100 * amount), 100)
        joint = MONEY_JOINTS.get(language, DEFAULT_MONEY_JOINT)
        return f"{self.cardinal(units, language)} {names[currency]}{joint}{self.cardinal(cents, language)}"


def _spelled(number: int, language: str, rules: str) -> str:
    # The cleaned text is lower case, and so is what the model was trained on.
    return _formatter(language).spell_out(number, rules).replace("\u00ad", "").lower()


@lru_cache(maxsize=32)
def _formatter(language: str) -> NumberFormatter:
    return NumberFormatter(language, _RULES)
