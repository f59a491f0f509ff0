"""Callers whom no gateway serves any more, because theirs died.

They are found at each connection to Asterisk. What a gateway that lives has is left alone. Callers of the
others go on in the dial plan, or are answered anew if the arguments of ``Stasis()`` say so. Pairs of callers
who speak with each other go on speaking, and are looked after from now on.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .client import AriClient
from .gateway_identity import GatewayIdentity, caller_of_media, is_joined, is_media, token_of
from .models import AriBridge, AriChannel

logger = logging.getLogger(__name__)

_ANSWERED_ANEW: Final = "if_gateway_dies=agent"  # argument of Stasis()


@dataclass(frozen=True, slots=True)
class Orphans:
    """What gateways that are gone have left in Asterisk."""

    callers: list[AriChannel]  # alone, or in a bridge with media
    media: list[str]  # ids of channels
    bridges: list[str]  # ids, of callers with media
    pairs: list[AriBridge]  # bridges of two callers


async def find_orphans(
    client: AriClient, identity: GatewayIdentity, is_ours: Callable[[str], bool]
) -> Orphans | None:
    """Return what is left, None if nothing is; raises AriFailed. It waits to see which gateways live.

    is_ours: whether this gateway serves a channel.
    """
    channels, bridges = await client.channels(), await client.bridges()
    ids = [*(channel.id for channel in channels), *(bridge.id for bridge in bridges)]
    tokens = {token_of(id_) for id_ in ids} - {"", identity.token}
    strangers = {channel.id for channel in channels if not token_of(channel.id) and not is_ours(channel.id)}
    if not tokens and not strangers:
        return None
    living = await identity.living(tokens)
    channels, bridges = await client.channels(), await client.bridges()
    dead = tokens - living
    kept = {channel for bridge in bridges if token_of(bridge.id) not in dead for channel in bridge.channels}
    kept |= {caller_of_media(one.id) for one in channels if is_media(one.id) and token_of(one.id) not in dead}
    pairs = [bridge for bridge in bridges if is_joined(bridge.id) and token_of(bridge.id) in dead]
    kept |= {channel for pair in pairs for channel in pair.channels}
    for token in dead:
        await identity.forget(token)
    return Orphans(
        callers=[
            channel for channel in channels if channel.id in strangers - kept and not is_ours(channel.id)
        ],
        media=[one.id for one in channels if is_media(one.id) and token_of(one.id) in dead],
        bridges=[one.id for one in bridges if is_media(one.id) and token_of(one.id) in dead],
        pairs=pairs,
    )


def place_of_orphan(caller: AriChannel) -> dict[str, str]:
    """Return where in the dial plan a caller goes on: at its ``Stasis()`` or, {}, after it."""
    place = caller.dialplan
    if place.app_name != "Stasis" or _ANSWERED_ANEW not in place.app_data.split(","):
        return {}
    return {"context": place.context, "extension": place.exten, "priority": str(place.priority)}
