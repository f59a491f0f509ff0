"""SSML documents found in text that arrives in pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.ssml.document import BadSsml, SsmlDocument
from vivavoce.adapters.ssml.input import SsmlInput

TEXTS = [
    ("Hello <speak>", ["Hello <speak>"]),
    (" \n<speak>One.</speak>", ["One."]),
    ("<speak>One</speak><speak>two</speak>", ["One", " two"]),
    ("<speak/> <speak a='b'/>\n<speak>One</speak > two", ["", " ", " One", " two"]),
    ("<speak>One</speak>Two <speak>x</speak>", ["One", " Two <speak>x</speak>"]),
    ("<speak>One</speak> <spea", ["One", " <spea"]),
    ("<speaker>", ["<speaker>"]),
    ("<", ["<"]),
    ("  ", ["  "]),
]


def documents_of(pieces: list[str]) -> list[SsmlDocument]:
    found = SsmlInput()
    return [*(document for piece in pieces for document in found.push(piece)), *found.flush()]


@pytest.mark.parametrize(("text", "documents"), TEXTS)
def test_documents_and_plain_text_are_told_apart(text: str, documents: list[str]) -> None:
    assert [document.text for document in documents_of([text])] == documents


@given(st.sampled_from(TEXTS), st.lists(st.integers(0, 50), max_size=6))
def test_any_split_gives_the_same_documents(case: tuple[str, list[str]], cuts: list[int]) -> None:
    text, documents = case
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:stop] for start, stop in pairwise(places)]
    assert "".join(document.text for document in documents_of(pieces)) == "".join(documents)


def test_the_number_of_documents_is_bounded() -> None:
    assert len(documents_of(["<speak>a</speak>" * 1_000])) == 1_000
    with pytest.raises(BadSsml, match="more than 1000 documents"):
        documents_of(["<speak/>" * 1_001])
    with pytest.raises(BadSsml, match="without end; at most 200000"):
        documents_of(["<speak>"] + ["x" * 50_000] * 4)
