"""The markups of text. A new one is a file or folder in ``markups`` with a record, listed here."""

from typing import Final

from ..sliced_work import SlicedWork, run_whole
from .document import SsmlDocument
from .markups.ssml.parser import SSML
from .markups.voice_tags import VOICE_TAGS

DOCUMENT_MARKUPS: Final = (SSML,)
VOICE_MARKUP: Final = VOICE_TAGS


def parse_ssml(document: str) -> SsmlDocument:
    """Parse an SSML document; raises BadSsml."""
    return run_whole(parse_ssml_in_slices(document))


def parse_ssml_in_slices(document: str) -> SlicedWork[SsmlDocument]:
    """As ``parse_ssml``."""
    return SSML.parse(document)
