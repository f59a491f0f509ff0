"""Ids of contexts that errors of refused messages name."""

from typing import Final

from ..web.client_json import replace_lone_surrogates

MAX_CONTEXT_ID_CHARACTERS: Final = 256


def reported_context_id(named: object) -> str | None:
    """Return the beginning of what a message names as its context, None if no answer can name it."""
    if not isinstance(named, str):
        return None
    context_id = named[:MAX_CONTEXT_ID_CHARACTERS]
    return context_id if replace_lone_surrogates(context_id) == context_id else None
