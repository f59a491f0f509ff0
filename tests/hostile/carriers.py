"""Hostile conversations of carriers' media streams and of Asterisk's WebSocket channel."""

import json
from dataclasses import dataclass
from random import Random
from uuid import UUID

from hostile.messages import conversation
from shared.calls.peers.kinds import MAKE_PEER
from shared.calls.peers.peer import Message

_QUERIES = ("", "", "?call=x", "?rate=16000", "?rate=x&caller=1555", "?call=" + "y" * 5_000)


@dataclass(frozen=True, slots=True)
class CarrierConversation:
    """A stream that a carrier opens, and what it sends."""

    path: str  # with its query
    subprotocols: tuple[str, ...]
    messages: list[Message]


def carrier_conversation(random: Random, call_id: UUID) -> CarrierConversation:
    """Return a stream: valid messages, changed ones, and sometimes those of another carrier."""
    kinds = sorted(MAKE_PEER)
    peer = MAKE_PEER[random.choice(kinds)](str(call_id))
    messages = [] if random.random() < 0.1 else list(peer.start())
    speaker = MAKE_PEER[random.choice(kinds)](str(call_id)) if random.random() < 0.1 else peer
    for _ in range(random.randrange(40)):
        match random.randrange(12):
            case 0:
                messages += speaker.press(random.choice("0123456789*#x"))
            case 1:
                messages.append(random.randbytes(random.randrange(400)))
            case 2:
                messages += peer.start()
            case 3:
                messages += speaker.hang_up()
            case _:
                messages += speaker.step().messages
    return CarrierConversation(
        peer.path + random.choice(_QUERIES), peer.subprotocols, _changed(messages, random)
    )


def _changed(messages: list[Message], random: Random) -> list[Message]:
    """Change some messages that are JSON objects as those of other wires are, and cut some texts."""
    changed: list[Message] = []
    for message in messages:
        if isinstance(message, str) and random.random() < 0.2:
            fields = _json_object(message)
            changed += (
                [message[: random.randrange(len(message))]]
                if fields is None
                else conversation([fields], random)
            )
        else:
            changed.append(message)
    return changed


def _json_object(text: str) -> dict[str, object] | None:
    try:
        fields = json.loads(text)
    except ValueError:
        return None
    return fields if isinstance(fields, dict) else None
