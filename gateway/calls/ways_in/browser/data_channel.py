"""The data channel of a browser call: messages in the dialect that the page speaks.

A page's first message shows its dialect. Messages sent before it are written in our own page's dialect, and
once more if the page speaks another.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from ...api.messages import ClientMessage, ServerMessage, check_message_length
from .data_channel_dialects import DataChannelDialect, PageDialect, detect_dialect

_MAX_EARLY_MESSAGES = 64  # kept to be repeated; the newest
_KEEPALIVE = "ping"  # a text that begins so is no JSON and asks for nothing


class DataChannel:
    """Translates between a page's texts and messages.

    Args:
        send_text: sends a text over the channel; must not block.
        typed_text_action: what text typed into a Pipecat client is: a question, or text to be spoken.
    """

    def __init__(self, send_text: Callable[[str], None], typed_text_action: Literal["ask", "text"]) -> None:
        self._send_text = send_text
        self._typed_text_action = typed_text_action
        self._dialect: DataChannelDialect = PageDialect()
        self._is_dialect_known = False
        self._early_messages: deque[ServerMessage] = deque(maxlen=_MAX_EARLY_MESSAGES)

    def send(self, message: ServerMessage) -> None:
        """Send a message to the page."""
        if not self._is_dialect_known:
            self._early_messages.append(message)
        for text in self._dialect.write(message):
            self._send_text(text)

    def receive(self, text: str) -> Sequence[ClientMessage]:
        """Return the messages in a text of the page; raises BadCallMessage."""
        if text.startswith(_KEEPALIVE):
            return ()
        check_message_length(text)
        if isinstance(self._dialect, PageDialect):  # a Pipecat client's first texts are not RTVI yet
            self._dialect = detect_dialect(text, self._typed_text_action)
        decoded = self._dialect.read(text)
        for reply in decoded.replies:
            self._send_text(reply)
        if not self._is_dialect_known and (decoded.replies or decoded.requests):
            self._on_dialect_known()
        return decoded.requests

    def _on_dialect_known(self) -> None:
        self._is_dialect_known = True
        if not isinstance(self._dialect, PageDialect):
            for message in self._early_messages:
                self.send(message)
        self._early_messages.clear()
