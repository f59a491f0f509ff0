"""The table of strings in one block: every entry is found, and looking up does not use up memory."""

from random import Random

from vivavoce.models.hibari.string_table import StringTable, encode_table


def random_entries(count: int) -> dict[str, str]:
    random = Random(3)
    letters = "abcdefgé中\ud800 "
    return {
        "".join(random.choices(letters, k=random.randint(1, 9))): str(random.random()) for _ in range(count)
    }


def test_every_entry_is_found_and_no_other() -> None:
    entries = random_entries(3_000)
    table = StringTable(encode_table(entries.items()))
    for _ in range(2):
        assert {key: table.get(key) for key in entries} == entries
        assert [table.get(key) for key in ("", "no such key", next(iter(entries.values())))] == [None] * 3


def test_an_empty_table_has_no_entry() -> None:
    assert StringTable(encode_table([])).get("a") is None


def test_a_value_may_be_the_key_of_another_entry() -> None:
    table = StringTable(encode_table([("a", "b"), ("b", "c"), ("ab", "a")]))
    assert [table.get(key) for key in ("a", "b", "ab", "c")] == ["b", "c", "a", None]


def test_the_first_of_equal_keys_counts() -> None:
    assert StringTable(encode_table([("a", "1"), ("b", "2"), ("a", "3")])).get("a") == "1"


def test_an_object_is_parsed() -> None:
    table = StringTable(encode_table([("a", '{"NN": 1.5}')]))
    assert table.get("a") == table.get("a") == {"NN": 1.5}


def test_values_are_kept_for_the_latest_keys_only() -> None:
    entries = random_entries(20_000)
    table = StringTable(encode_table(entries.items()))
    for key in entries:
        table.get(key)
        table.get(key + "?")
    assert len(table._recent) <= 4_096
    assert all(table.get(key) == value for key, value in entries.items())
