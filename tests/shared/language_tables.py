"""Tables of the languages that the rules of the kit read."""

from pathlib import Path
from typing import Final

from vivavoce.tts_engine.reading import languages
from vivavoce.tts_engine.reading.kit.table_rules import language_table as tables

TABLE_LANGUAGES: Final = ("de", "fr", "es", "it", "pt", "nl", "pl", "ru", "tr", "ko")


def language_table(code: str) -> tables.LanguageTable:
    """Return the table of one of ``TABLE_LANGUAGES``."""
    return tables.language_table(str(Path(languages.__file__).parent / code / "rules.py"))
