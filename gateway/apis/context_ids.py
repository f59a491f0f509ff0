"""Ids of contexts that errors of refused messages name."""

import re
from typing import Final

MAX_CONTEXT_ID_CHARACTERS: Final = 256
_LONE_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")  # half of a UTF-16 pair: JSON has it, UTF-8 has not


def reported_context_id(named: object) -> str | None:
    """Return the beginning of what a message names as its context, None if no answer can name it."""
    if not isinstance(named, str):
        return None
    context_id = named[:MAX_CONTEXT_ID_CHARACTERS]
    return None if _LONE_SURROGATE.search(context_id) else context_id
