"""Callers who speak with each other after an attended transfer, without the gateway's media."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from .client import AriClient, AriFailed, AriNotFound

_BRIDGE_PREFIX: Final = "vivavoce-joined-"


@dataclass(frozen=True, slots=True)
class _Pair:
    """Ids of the bridge and of the two channels in it."""

    bridge: str
    channels: tuple[str, str]


class JoinedCallers:
    """Pairs of channels, each in a bridge of its own, until one of the two is gone."""

    def __init__(self, client: AriClient) -> None:
        self._client = client
        self._pairs: dict[str, _Pair] = {}  # by the ids of both channels

    def __len__(self) -> int:
        return len(self._pairs) // 2

    def __contains__(self, channel: str) -> bool:
        return channel in self._pairs

    async def join(self, first: str, second: str) -> None:
        """Bridge two channels; raises AriFailed, and then neither is in a pair."""
        pair = _Pair(_BRIDGE_PREFIX + str(uuid4()), (first, second))
        self._pairs |= dict.fromkeys(pair.channels, pair)
        try:
            await self._client.open_bridge(pair.bridge, *pair.channels)
        except AriFailed:
            for channel in pair.channels:
                self._pairs.pop(channel, None)
            raise

    async def part(self, gone: str) -> None:
        """Hang up on the other channel of the pair of one that is gone; raises AriFailed."""
        pair = self._pairs.pop(gone, None)
        if pair is None:
            return
        (other,) = (channel for channel in pair.channels if channel != gone)
        self._pairs.pop(other, None)
        with suppress(AriNotFound):
            await self._client.hang_up(other)
        with suppress(AriNotFound):
            await self._client.close_bridge(pair.bridge)

    async def part_lost(self) -> None:
        """Part the pairs of which a channel has gone unnoticed; raises AriFailed."""
        for channel in tuple(self._pairs):
            try:
                await self._client.get_channel(channel)
            except AriNotFound:
                await self.part(channel)
