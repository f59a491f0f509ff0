"""Dutch: "BTW-nummer", dates with hyphens, and "9u30"."""

from typing import Final

from ...kit.table_rules.dates import TableDates
from ...kit.table_rules.normalizer import TableNormalizer, table_language
from ...kit.table_rules.speller import TableSpeller
from ...kit.table_rules.times import TableTimes


class DutchSpeller(TableSpeller):
    """Speller of Dutch."""

    spelled_heads = True


class DutchTimes(TableTimes):
    """Recognisers of times in Dutch."""

    hour_mark = "hu"


class DutchDates(TableDates):
    """Recognisers of dates in Dutch."""

    times_type = DutchTimes
    day_month_mark = "[-/]"


class DutchRules(TableNormalizer):
    """Recognisers of Dutch."""

    speller_type = DutchSpeller
    dates_type = DutchDates


DUTCH: Final = table_language(__file__, "Dutch", DutchRules)
