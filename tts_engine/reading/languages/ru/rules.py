"""Russian, which the rules of the kit read with its table."""

from typing import Final

from ...kit.table_rules.normalizer import table_language
from ...unicode_scripts import CYRILLIC, LATIN

RUSSIAN: Final = table_language(__file__, "Russian", scripts=(LATIN, CYRILLIC), is_latin=False)
