"""Language of texts whose language is not given; its words are what voices of words take.

Apart from the registry, so that a process that reads no other language does not load the others.
"""

from typing import Final

from ..unicode_scripts import ReadableScripts
from .en.rules import ENGLISH, EnglishClauseNormalizer

DEFAULT_LANGUAGE: Final = ENGLISH
DEFAULT_VOICE_SCRIPTS: Final = ReadableScripts(*DEFAULT_LANGUAGE.scripts)
WordClauseNormalizer: Final = EnglishClauseNormalizer
