"""A bounded table: a value is made once, and the one that was not used longest is dropped."""

from vivavoce.tts_engine.backends.recently_used import RecentlyUsed


def test_the_value_that_was_not_used_longest_is_made_again() -> None:
    kept, made = RecentlyUsed[str, str](2), []
    for key in "abacbac":
        kept.get(key, lambda key=key: made.append(key) or key.upper())  # type: ignore[misc]
    assert made == ["a", "b", "c", "b", "a", "c"]
    assert kept.values == ("A", "C")
    assert "a" in kept and "b" not in kept
