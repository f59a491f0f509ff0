"""The field ``pronunciations`` of a request: how words of its text are said."""

from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .....tts_engine.reading.pronunciation.lexicon_files import BadLexicon, lexicon_of

MAX_PRONUNCIATIONS: Final = 100  # of one request


def _check(entries: dict[str, str]) -> dict[str, str]:
    try:
        if len(entries) > MAX_PRONUNCIATIONS:
            raise BadLexicon(f"{len(entries)} pronunciations; at most {MAX_PRONUNCIATIONS} are allowed")
        lexicon_of(entries)
    except BadLexicon as error:
        raise PydanticCustomError("pronunciation", "{fault}", {"fault": str(error)}) from None
    return entries


_Text = Annotated[str, Field(min_length=1)]  # without any limit, pydantic does not look for lone surrogates
Pronunciations = Annotated[
    dict[_Text, _Text],
    AfterValidator(_check),
    Field(
        description=f"How words and phrases of the text are said, ahead of the server's lexicons, at most "
        f"{MAX_PRONUNCIATIONS}: a text that is read instead, or phonemes (IPA) between slashes.",
        examples=[{"nginx": "engine x", "Siobhan": "/ʃɪˈvɔːn/"}],
    ),
]
