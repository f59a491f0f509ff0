"""Polish, which the rules of the kit read with its table."""

from typing import Final

from ...kit.table_rules.normalizer import table_language

POLISH: Final = table_language(__file__, "Polish")
