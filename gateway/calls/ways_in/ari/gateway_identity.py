"""Which gateway a channel of the media or a bridge belongs to, and whether that gateway lives.

The ids that a gateway gives begin with its token; those of media end with the caller's, who is in no bridge
while a transfer is under way. While a gateway has calls, it counts up a global variable of Asterisk; another
gateway, or the next one after a crash, sees from the count whether it still does.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from secrets import token_hex
from typing import Final
from uuid import uuid4

from .client import AriClient, AriFailed

logger = logging.getLogger(__name__)

_PREFIX: Final = "vivavoce-"
_MEDIA, _JOINED = "media", "joined"  # what an id is of
_VARIABLE: Final = "VIVAVOCE_ALIVE_"
_COUNT_EVERY_S: Final = 0.5
WATCH_S: Final = 1.5  # in which a gateway that lives counts at least once, also when it is busy


class GatewayIdentity:
    """The token of this gateway, and its count. ``run`` counts until it is cancelled."""

    def __init__(self, client: AriClient) -> None:
        self.token = token_hex(4)
        self._client = client

    def new_media_id(self, caller: str) -> str:
        """Return an id for the media of a caller's channel, and for the bridge of both."""
        return f"{_PREFIX}{_MEDIA}-{self.token}-{token_hex(4)}-{caller}"

    def new_joined_id(self) -> str:
        """Return an id for the bridge of two callers who speak with each other."""
        return f"{_PREFIX}{_JOINED}-{self.token}-{uuid4()}"

    async def run(self, is_needed: Callable[[], bool]) -> None:
        """Count up the variable while ``is_needed``."""
        count = 0
        while True:
            await asyncio.sleep(_COUNT_EVERY_S)
            if is_needed():
                count += 1
                try:
                    await self._client.set_variable(_VARIABLE + self.token, str(count))
                except AriFailed as error:
                    logger.debug("%s", error)

    async def living(self, tokens: Iterable[str]) -> set[str]:
        """Return those of the tokens of other gateways that count, after ``WATCH_S``; raises AriFailed."""
        before = {token: await self._client.get_variable(_VARIABLE + token) for token in set(tokens)}
        await asyncio.sleep(WATCH_S)
        after = {token: await self._client.get_variable(_VARIABLE + token) for token in before}
        return {token for token, count in after.items() if count != before[token]}

    async def forget(self, token: str) -> None:
        """Remove the variable of a gateway that is gone; raises AriFailed."""
        await self._client.set_variable(_VARIABLE + token, "")


def is_media(id_: str) -> bool:
    """Return whether an id is of a caller's media, or of their bridge, of any gateway."""
    return id_.startswith(f"{_PREFIX}{_MEDIA}-")


def is_joined(id_: str) -> bool:
    """Return whether an id is of a bridge of two callers, of any gateway."""
    return id_.startswith(f"{_PREFIX}{_JOINED}-")


def caller_of_media(id_: str) -> str:
    """Return the id of the caller's channel; id_: of its media."""
    return id_.split("-", 4)[-1]


def token_of(id_: str) -> str:
    """Return the token of the gateway that gave an id; "" if none did."""
    return id_.split("-")[2] if is_media(id_) or is_joined(id_) else ""
