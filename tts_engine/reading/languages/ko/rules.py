"""Korean, which the rules of the kit read with its table."""

from dataclasses import replace
from typing import Final

from ...clause_boundaries import BoundaryRules
from ...kit.table_rules.normalizer import table_language
from ...unicode_scripts import HAN, HANGUL, LATIN

KOREAN: Final = replace(
    table_language(__file__, "Korean", scripts=(LATIN, HAN, HANGUL), is_latin=False),
    boundary_rules=BoundaryRules,  # its clauses end as those of English do
)
