"""The items of a Realtime connection are bounded."""

import pytest

from vivavoce.gateway.apis.dialects.realtime import conversation
from vivavoce.gateway.apis.dialects.realtime.conversation import RealtimeConversation
from vivavoce.gateway.apis.dialects.realtime.models import (
    RealtimeContent,
    RealtimeItem,
    RealtimeResponseSettings,
)
from vivavoce.gateway.apis.kits.openai.errors import InvalidRequestError


def message(item_id: str, text: str) -> RealtimeItem:
    content = [RealtimeContent(type="input_text", text=text)]
    return RealtimeItem(id=item_id, type="message", role="user", content=content)


@pytest.mark.parametrize(("limit", "value"), [("MAX_ITEMS", 3), ("MAX_CHARACTERS", 9)])
def test_the_oldest_items_are_forgotten(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(conversation, limit, value)
    items = RealtimeConversation()
    for number in range(10):
        items.add(message(str(number), f"x{number}."))
    assert items.take_text(RealtimeResponseSettings()) == "x7.\nx8.\nx9."
    with pytest.raises(InvalidRequestError, match="does not exist"):
        items.get("6", "retrieve")


def test_an_item_longer_than_all_may_be_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_CHARACTERS", 2)
    items = RealtimeConversation()
    for number in range(3):
        items.add(message(str(number), "A text."))
    assert items.take_text(RealtimeResponseSettings()) == "A text."
