"""Long documents are parsed, and given to a stream, in slices of little work."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from shared.counted_work import counted_calls
from shared.dense_documents import DENSE_UNITS, dense_document
from vivavoce.adapters.ssml.document import BadSsml
from vivavoce.adapters.ssml.input import (
    SsmlInput,
    parse_ssml,
    parse_ssml_in_slices,
    push_document,
    push_document_in_slices,
)
from vivavoce.adapters.ssml.markup import SlicedWork, run_whole

MAX_CALLS = 12_000  # of functions in a slice; the whole documents take up to a million


class _Stream:
    def __init__(self) -> None:
        self.taken: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.taken.append((name, *arguments))


def max_calls_of(work: SlicedWork[Any]) -> int:
    """The most functions that a slice calls."""
    most = 0
    while True:
        try:
            with counted_calls() as calls:
                next(work)
        except StopIteration:
            return max(most, calls[0])
        most = max(most, calls[0])


@pytest.mark.parametrize("unit", DENSE_UNITS)
def test_each_slice_of_the_densest_documents_is_little_work(unit: str) -> None:
    document = dense_document(unit, attributes=' rate="1.5"')
    assert max_calls_of(SsmlInput().push_in_slices(document)) < MAX_CALLS
    stream = _Stream()
    assert max_calls_of(push_document_in_slices(stream, parse_ssml(document))) < MAX_CALLS  # type: ignore[arg-type]
    in_one = _Stream()
    push_document(in_one, parse_ssml(document))  # type: ignore[arg-type]
    assert stream.taken == in_one.taken


def test_many_documents_in_one_text_are_little_work_a_slice() -> None:
    documents = "<speak>{}</speak>".format("<break/>a" * 20) * 990
    assert max_calls_of(SsmlInput().push_in_slices(documents)) < MAX_CALLS


def test_a_usual_document_is_one_slice() -> None:
    document = '<speak>Hello <sub alias="World Wide Web">WWW</sub>, <break time="1s"/>and goodbye.</speak>'
    assert list(SsmlInput().push_in_slices(document)) == []
    assert list(push_document_in_slices(_Stream(), parse_ssml(document))) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("padding", [0, 900, 1_010, 1_024, 5_000])
def test_the_place_of_a_fault_does_not_depend_on_slices(padding: int) -> None:
    document = "<speak>\n" + "é" * padding + "<b>no</c></speak>"
    column = padding + 8
    with pytest.raises(BadSsml, match=f"line 2, column {column}: mismatched tag"):
        run_whole(parse_ssml_in_slices(document))
    with pytest.raises(BadSsml, match=f"line 3, column {padding + 1}: got break time"):
        parse_ssml("<speak>\n\n" + "a" * padding + '<break time="soon"/></speak>')


def test_text_that_slices_cut_is_whole() -> None:
    text = "One  two &amp; three, \n é. " * 2_000
    assert parse_ssml(f"<speak>{text}</speak>").text == ("One two & three, é. " * 2_000).rstrip()


@pytest.mark.parametrize("end", ["</speak>", "<b></speak>"])
def test_a_parsed_document_leaves_nothing_to_the_garbage_collector(end: str) -> None:
    gc.collect()
    gc.disable()
    try:
        with suppress(BadSsml):
            parse_ssml("<speak>" + "<break/>a" * 100 + end)
        assert gc.collect() < 20  # objects; each piece is one
    finally:
        gc.enable()
