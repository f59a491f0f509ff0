"""Enrolled voices that gateways share through Redis: a name given at one gateway is spoken at all.

Each gateway's ``VoiceStore`` has all voices, so no request waits for Redis. A task exchanges changes several
times a second:

    voices              hash; ID: the row of a voice, or when it was removed. The later change of an id counts
    voice-content:HASH  the prompt of a row, as in ``conditioning``
    voices-version      another random text after each change

While Redis is away, changes are each gateway's own; they are exchanged when it is back. A row or a prompt
that is damaged, or of another model than the gateway's, is not taken. A change is later than the one that its
gateway knew, whatever the clocks say; of two that did not know each other, the clocks decide.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from ....tts_engine.engine_set import enrollable_of
from ....tts_engine.errors import UnknownVoice, VivavoceError
from ....tts_engine.voices.enrollable import EnrollableVoices
from ....tts_engine.voices.store import StoredVoice, VoiceMetadata, VoiceStore
from ....tts_engine.voices.voices import Voices
from .conditioning import pack_value, unpack_value
from .redis_link import EXCHANGED_EVERY_S, PREFIX, RedisAway, RedisFull, RedisLink, send

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_VOICES: Final = f"{PREFIX}voices"
_VERSION: Final = f"{PREFIX}voices-version"
_FULL_RETRY_S: Final = 1.0  # every exchange compares all voices then


@dataclass(frozen=True, slots=True)
class SharedRow:
    """What is known of an id: its voice, or that it was removed."""

    changed_at: float  # seconds since 1970
    voice: StoredVoice | None  # None: it was removed


class VoiceSharing:
    """Shares the voices to which a gateway adds recordings, also when another bundle has them.

    Belongs to the event loop of its link.
    """

    def __init__(self, link: RedisLink, voices: Voices) -> None:
        self._link, self._voices = link, voices
        self._shared: SharedVoices | None = None

    async def run(self) -> None:
        """Exchange until the task is cancelled."""
        while True:
            try:
                await self.exchange()
            except RedisFull:
                await asyncio.sleep(_FULL_RETRY_S)
            except RedisAway:
                self._shared = None  # it may have lost its data
            except VivavoceError as error:
                logger.warning("voices are not exchanged: %s", error)
            await asyncio.sleep(EXCHANGED_EVERY_S)

    async def exchange(self) -> None:
        """Exchange once, if voices are stored. Raises as ``SharedVoices.exchange``."""
        voices = enrollable_of(self._voices)
        if voices is None or voices.store is None:
            return
        if self._shared is None or self._shared.store is not voices.store:
            self._shared = SharedVoices(self._link, voices, voices.store)
        await self._shared.exchange()


class SharedVoices:
    """The voices of one store, and what of them was exchanged last. Belongs to the event loop of its link."""

    def __init__(self, link: RedisLink, voices: EnrollableVoices, store: VoiceStore) -> None:
        self._link, self._voices, self.store = link, voices, store
        self._known: tuple[bytes | None, int] | None = None

    async def exchange(self) -> None:
        """Exchange once. Raises RedisAway, and Overloaded or BundleError of the store."""
        # Both are read before what they stand for, so a change meanwhile is found the next time.
        known = (await self._link.run(lambda redis: redis.get(_VERSION)), self.store.changes)
        if known == self._known and known[0] is not None:
            return
        theirs = _parse_rows(await self._link.run(lambda redis: send(redis, "HGETALL", _VOICES)))
        ours = await asyncio.to_thread(self._own_rows)
        for id, row in theirs.items():
            if id not in ours or row.changed_at > ours[id].changed_at:
                await self._take(id, row)
        ours = await asyncio.to_thread(self._own_rows)
        news = {id: row for id, row in ours.items() if _is_newer(row, theirs.get(id))}
        lost = await self._contents_lost(ours)
        if news or lost or known[0] is None:
            await self._publish(news, lost, ours)
        self._known = known

    def _own_rows(self) -> dict[str, SharedRow]:
        store = self.store
        rows = {id: SharedRow(at, None) for id, at in store.removals().items()}
        voices = store.list(version=store.version)
        return rows | {voice.id: SharedRow(voice.changed_at, voice) for voice in voices}

    async def _take(self, id: str, row: SharedRow) -> None:
        """Do here what another gateway did; what cannot be done is a warning in the log."""
        try:
            if row.voice is None:
                with suppress(UnknownVoice):
                    await asyncio.to_thread(self.store.remove, id, row.changed_at)
            elif row.voice.version == self.store.version:
                await self._adopt(row.voice)
        except RedisAway:
            raise
        except (VivavoceError, ValueError) as error:
            logger.warning("a voice in Redis is not taken: %s", error)

    async def _adopt(self, voice: StoredVoice) -> None:
        name = _content_name(voice.content)
        value = await self._link.run(lambda redis: redis.get(name))
        if value is None:
            return  # its gateway sends it again
        prompt = unpack_value(name, value, voice.transcript, self._voices.read_prompt)
        if (prompt.id, prompt.model_version) != (voice.content, voice.version):
            raise ValueError("its prompt is of another content")
        await asyncio.to_thread(self.store.adopt, voice, prompt)

    async def _contents_lost(self, ours: Mapping[str, SharedRow]) -> frozenset[str]:
        """The contents of own voices that Redis has not, or no longer."""
        contents = sorted({row.voice.content for row in ours.values() if row.voice})

        async def find(redis: "Redis") -> list[int]:
            async with redis.pipeline(transaction=False) as pipeline:
                for content in contents:
                    pipeline.exists(_content_name(content))
                found: list[int] = await pipeline.execute()
            return found

        if not contents:
            return frozenset()
        found = await self._link.run(find)
        return frozenset(content for content, count in zip(contents, found, strict=True) if not count)

    async def _publish(
        self, news: Mapping[str, SharedRow], lost: frozenset[str], ours: Mapping[str, SharedRow]
    ) -> None:
        ids = {row.voice.content: id for id, row in ours.items() if row.voice}
        for content in lost:
            value = pack_value(_content_name(content), await asyncio.to_thread(self.store.get, ids[content]))
            await self._put(content, value)

        async def publish(redis: "Redis") -> None:
            async with redis.pipeline() as pipeline:
                if news:
                    pipeline.hset(_VOICES, mapping={id: json.dumps(asdict(row)) for id, row in news.items()})
                pipeline.set(_VERSION, secrets.token_hex(8))
                await pipeline.execute()
            await _delete_unused(redis)

        await self._link.run(publish)

    async def _put(self, content: str, value: bytes) -> None:
        await self._link.run(lambda redis: redis.set(_content_name(content), value))


async def _delete_unused(redis: "Redis") -> None:
    """Delete the contents that no row refers to; one that is added meanwhile is sent again."""
    rows = _parse_rows(await send(redis, "HGETALL", _VOICES))
    used = {_content_name(row.voice.content).encode() for row in rows.values() if row.voice}
    unused = [name async for name in redis.scan_iter(_content_name("*")) if name not in used]
    if unused:
        await redis.delete(*unused)


def _is_newer(row: SharedRow, other: SharedRow | None) -> bool:
    return other is None or row.changed_at > other.changed_at


def _content_name(content: str) -> str:
    return f"{PREFIX}voice-content:{content}"


def _parse_rows(values: Mapping[bytes, bytes]) -> dict[str, SharedRow]:
    """The rows by id, without those that another program wrote, which are a warning in the log."""
    rows = {}
    for id, value in values.items():
        try:
            found = json.loads(value)
            voice = found["voice"]
            if voice is not None:
                voice = StoredVoice(**{**voice, "about": VoiceMetadata(**voice["about"])})
                if voice.id.encode() != id:
                    raise ValueError(f"it has the id {voice.id!r}")
            rows[id.decode()] = SharedRow(float(found["changed_at"]), voice)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            logger.warning("a voice in Redis is ignored: %r", error)
    return rows
