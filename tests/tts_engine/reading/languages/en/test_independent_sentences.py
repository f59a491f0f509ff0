"""Share of sentences that are read as a careful person reads them; their authors had not seen the rules."""

import pytest

from benches.english_readings import MIN_RIGHT_PERCENT, misreadings, read_sentences, sentence_lists


@pytest.mark.parametrize("name", sentence_lists())
def test_19_of_20_sentences_are_read_as_a_careful_person_reads_them(name: str) -> None:
    wrong = misreadings(name)
    assert len(wrong) <= (1 - MIN_RIGHT_PERCENT / 100) * len(read_sentences(name)), wrong
