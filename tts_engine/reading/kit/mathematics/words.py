"""Words of mathematics in one language, loaded from the file ``mathematics.toml`` in its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..data_files import expand_names, load_tables
from .signs import GREEK_NAMES

_FILE = "mathematics.toml"


@dataclass(frozen=True, slots=True)
class MathematicsWords:
    """Words of mathematics in one language.

    A template has ``{}`` where its part is said; a fraction has ``{above}`` and ``{below}``.

    Attributes:
        signs: words of relations, operators, Greek letters and other signs, by the names in ``signs.py``. A
            relation with ``{}`` has its right side there. "lone ge" is the ">=" of ">= 80", "at least".
        functions: names of functions; one that is not here is said as it is written.
        exponents: words of exponents after their base, by the exponent; "" has ``{}``.
        roots: templates of roots by their degree; "" has ``{degree}``.
        fractions: words of common fractions: "1/2".
        fraction: template of other fractions.
        index: template of an index.
        log_base: template of the base of a logarithm.
        application: template of the argument of a function.
        absolute: template of an absolute value.
        brackets: template of a part in brackets.
        vector: template of a vector.
        bounds: templates by "sum", "product", "integral" and "limit", each with " below" for a lower bound
            ``{below}``, and " between" for ``{below}`` and ``{above}``.
    """

    signs: Mapping[str, str]
    functions: Mapping[str, str]
    exponents: Mapping[str, str]
    roots: Mapping[str, str]
    fractions: Mapping[str, str]
    fraction: str
    index: str
    log_base: str
    application: str
    absolute: str
    brackets: str
    vector: str
    bounds: Mapping[str, str]


def load_words(module_file: str) -> MathematicsWords | None:
    """Return the words of the language in whose folder ``module_file`` is; None if it has no file of them."""
    if not Path(module_file).with_name(_FILE).exists():
        return None
    values = load_tables(module_file, _FILE)
    greek = dict(zip(GREEK_NAMES, values.pop("greek").split(), strict=True))
    lone = {f"lone {name}": words for name, words in values.pop("lone_relations").items()}
    signs = greek | expand_names(values["signs"]) | lone
    return MathematicsWords(**values | {"signs": signs})
