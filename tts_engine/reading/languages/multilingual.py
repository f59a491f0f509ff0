"""The reader of text in several languages, for voices that take text as it is written.

Apart from the registry of languages, which it uses.
"""

from .mul.rules import MULTILINGUAL_VOICE_SCRIPTS, LanguageGrammars

__all__ = ["MULTILINGUAL_VOICE_SCRIPTS", "LanguageGrammars"]
