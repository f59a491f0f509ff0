"""Callers who speak with each other after an attended transfer, without the gateway's media."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from .client import AriClient, AriFailed, AriNotFound


@dataclass(frozen=True, slots=True)
class _Pair:
    """Ids of the bridge and of the two channels in it."""

    bridge: str
    channels: tuple[str, str]


class JoinedCallers:
    """Pairs of channels, each in a bridge of its own, until one of the two is gone."""

    def __init__(self, client: AriClient, new_id: Callable[[], str]) -> None:
        self._client = client
        self._new_id = new_id  # of a bridge
        self._pairs: dict[str, _Pair] = {}  # by the ids of both channels

    def __len__(self) -> int:
        return len(self._pairs) // 2

    def __contains__(self, channel: str) -> bool:
        return channel in self._pairs

    async def join(self, first: str, second: str) -> None:
        """Bridge two channels; raises AriFailed, and then neither is in a pair."""
        pair = _Pair(self._new_id(), (first, second))
        self._add(pair)
        try:
            await self._client.open_bridge(pair.bridge, *pair.channels)
        except AriFailed:
            for channel in pair.channels:
                self._pairs.pop(channel, None)
            with suppress(AriFailed):
                await self._client.close_bridge(pair.bridge)
            raise

    def adopt(self, bridge: str, first: str, second: str) -> None:
        """Look after a pair that another gateway has joined."""
        self._add(_Pair(bridge, (first, second)))

    def _add(self, pair: _Pair) -> None:
        self._pairs |= dict.fromkeys(pair.channels, pair)

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
