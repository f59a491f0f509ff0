"""The shared store of one gateway: opened at its start, closed at its end."""

from contextlib import AsyncExitStack, suppress
from typing import Self

from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.voices import Voices
from ...access.access_control import AccessControl
from ...background_tasks import start_background_task
from .conditioning import SharedConditioning
from .redis_link import RedisAway, RedisLink
from .shared_access import SharedAccess
from .shared_voices import SharedVoices


class SharedStore:
    """What one gateway shares with others through Redis. Made by ``open``."""

    def __init__(self, link: RedisLink, resources: AsyncExitStack) -> None:
        self.conditioning = SharedConditioning(link)
        self._link = link
        self._resources = resources

    @classmethod
    def open(cls, url: str, resources: AsyncExitStack) -> Self:
        """Open a store that ``resources`` closes; Redis may be away. Raises MissingExtra and BadRequest."""
        link = RedisLink(url)
        resources.push_async_callback(link.aclose)
        return cls(link, resources)

    def share_access(self, access: AccessControl) -> None:
        """Share keys and limits from now on; nothing happens on a server without keys."""
        if access.keys is not None:
            sharing = SharedAccess(self._link, access, access.keys)
            start_background_task(sharing.run(), "shared access", self._resources)

    async def share_voices(self, voices: Voices) -> None:
        """Share stored voices from now on; those of other gateways are here when it returns, if Redis is."""
        if not isinstance(voices, EnrollableVoices) or voices.store is None:
            return
        sharing = SharedVoices(self._link, voices, voices.store)
        with suppress(RedisAway):
            await sharing.exchange()
        start_background_task(sharing.run(), "shared voices", self._resources)
