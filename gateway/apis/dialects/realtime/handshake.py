"""The handshake of a Realtime client: its key, its model, and whether it speaks the beta's events.

Browsers cannot set headers, and name their key in a subprotocol. The answer names ``realtime``.

Source: openai-node 7.57.0 (src/realtime/websocket.ts); platform.openai.com/docs/guides/realtime-websocket.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from fastapi import WebSocket

_SUBPROTOCOL: Final = "realtime"
_KEY_PREFIX: Final = "openai-insecure-api-key."
_BETA_SUBPROTOCOL: Final = "openai-beta.realtime-v1"
_BETA_HEADER: Final = "realtime=v1"


@dataclass(frozen=True, slots=True)
class RealtimeHandshake:
    """What a client asked for."""

    headers: Mapping[str, str]  # with the key of a subprotocol as a header
    model: str | None
    is_beta: bool
    subprotocol: str | None  # of the answer

    @classmethod
    def of(cls, socket: WebSocket) -> Self:
        """Read a handshake."""
        offered = [one.strip() for one in socket.headers.get("sec-websocket-protocol", "").split(",")]
        keys = [one.removeprefix(_KEY_PREFIX) for one in offered if one.startswith(_KEY_PREFIX)]
        named = {"authorization": f"Bearer {keys[0]}"} if keys else {}
        return cls(
            {**named, **socket.headers},
            socket.query_params.get("model") or None,
            _BETA_HEADER in socket.headers.get("openai-beta", "") or _BETA_SUBPROTOCOL in offered,
            _SUBPROTOCOL if _SUBPROTOCOL in offered else None,
        )
