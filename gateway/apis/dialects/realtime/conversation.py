"""The items of one Realtime connection, and what of them a response speaks.

There is no language model: a response speaks text that the client has written. It is the first of these that
there is:

    the messages in the ``input`` of ``response.create``
    the messages that the client added since the last response
    the ``instructions`` of ``response.create``

Of messages those of the assistant are spoken; if there are none, those of the user. No I/O.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from .....tts_engine.chunk import Word
from ...kits.openai.errors import InvalidRequestError
from .models import RealtimeContent, RealtimeItem, RealtimeResponseSettings

MAX_ITEMS: Final = 256  # of a conversation; the oldest go
MAX_CHARACTERS: Final = 256 * 1024  # of all its items
ROOT: Final = "root"  # the place before the first item


def new_id(kind: str) -> str:
    """Return an id in the service's form, such as item_..."""
    return f"{kind}_{uuid4().hex}"


@dataclass(slots=True)
class ConversationEntry:
    """An item, and the words of its audio if a response made it."""

    item: RealtimeItem
    words: list[Word] = field(default_factory=list)  # written ones, with seconds of its audio
    audio_s: float = 0.0

    def heard_text(self, audio_s: float) -> str:
        """The text whose words have been heard, up to their middle at least."""
        heard = (word.text_stop for word in self.words if (word.start_s + word.stop_s) / 2 <= audio_s)
        return self.item.text[: max(heard, default=0)]

    def truncate(self, audio_end_ms: int) -> str:
        """Cut it to what has been heard, and return that; raises InvalidRequestError."""
        if not self.audio_s:
            message = "Only model output audio messages can be truncated"
            raise InvalidRequestError(message, "item_id", "unsupported_content_type")
        audio_ms = round(1_000 * self.audio_s)
        if audio_end_ms > audio_ms:
            message = f"Audio content of {audio_ms}ms is already shorter than {audio_end_ms}ms"
            raise InvalidRequestError(message, "audio_end_ms", "invalid_value")
        heard = self.heard_text(audio_end_ms / 1_000)
        self.audio_s = audio_end_ms / 1_000
        self.item.content = [RealtimeContent(type="output_audio", transcript=heard)]
        return heard


class RealtimeConversation:
    """The items in their order."""

    def __init__(self) -> None:
        self.id = new_id("conv")
        self._entries: dict[str, ConversationEntry] = {}
        self._unanswered: list[str] = []  # ids of messages that no response has spoken

    def add(self, item: RealtimeItem, previous_id: str | None = None) -> str | None:
        """Add a client's item; return the id of the one before it, None for the first.

        Raises InvalidRequestError.
        """
        item.id = item.id or new_id("item")
        if item.id in self._entries:
            raise InvalidRequestError(
                f"Item with id {item.id!r} already exists", "item.id", "item_create_duplicate_item_id"
            )
        before = self._insert(ConversationEntry(item), item.id, previous_id)
        if item.type == "message":
            item.status = item.status or "completed"
            self._unanswered = [*(one for one in self._unanswered if one in self._entries), item.id]
        return before

    def append(self, entry: ConversationEntry) -> str | None:
        """Add the item of a response; return the id of the one before it."""
        assert entry.item.id is not None
        return self._insert(entry, entry.item.id, None)

    def get(self, item_id: str, purpose: str) -> ConversationEntry:
        """Return an entry; raises InvalidRequestError, whose code has the purpose: "retrieve"."""
        if item_id not in self._entries:
            raise InvalidRequestError(
                f"Item with id {item_id!r} does not exist", "item_id", f"item_{purpose}_invalid_item_id"
            )
        return self._entries[item_id]

    def delete(self, item_id: str) -> None:
        """Remove an item; raises InvalidRequestError."""
        self.get(item_id, "delete")
        del self._entries[item_id]

    def take_text(self, response: RealtimeResponseSettings) -> str:
        """Return what a response speaks; its messages are spoken then. Raises InvalidRequestError."""
        if response.input is not None:
            items = [self._resolve(item) for item in response.input]
        else:
            items = [self._entries[one].item for one in self._unanswered if one in self._entries]
            self._unanswered.clear()
        text = _text_of(items) or response.instructions or ""
        if not text.strip():
            raise InvalidRequestError(
                "there is no text to speak: this server has no language model. Add a message of the "
                "assistant with conversation.item.create, or text in 'input' or 'instructions' of "
                "response.create",
                "response.input",
                "missing_required_parameter",
            )
        return text

    def _resolve(self, item: RealtimeItem) -> RealtimeItem:
        if item.type == "item_reference" and item.id is not None:
            return self.get(item.id, "reference").item
        return item

    def _insert(self, entry: ConversationEntry, item_id: str, previous_id: str | None) -> str | None:
        order = list(self._entries)
        if previous_id == ROOT:
            place = 0
        elif previous_id is None:
            place = len(order)
        else:
            self.get(previous_id, "create")
            place = order.index(previous_id) + 1
        entries = [*self._entries.items()]
        entries.insert(place, (item_id, entry))
        self._entries = dict(entries)
        self._forget_oldest()
        return order[place - 1] if place else None

    def _forget_oldest(self) -> None:
        characters = sum(entry.item.characters for entry in self._entries.values())
        while len(self._entries) > MAX_ITEMS or (characters > MAX_CHARACTERS and len(self._entries) > 1):
            oldest = next(iter(self._entries))
            characters -= self._entries.pop(oldest).item.characters


def _text_of(items: Sequence[RealtimeItem]) -> str:
    return _texts_of(items, "assistant") or _texts_of(items, "user")


def _texts_of(items: Iterable[RealtimeItem], role: str) -> str:
    texts = (item.text for item in items if item.type == "message" and item.role == role)
    return "\n".join(text for text in texts if text.strip())
