"""Turkish, which the rules of the kit read with its table."""

from typing import Final

from ...kit.table_rules.normalizer import table_language

TURKISH: Final = table_language(__file__, "Turkish")
