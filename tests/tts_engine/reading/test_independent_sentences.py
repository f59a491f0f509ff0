"""Share of sentences that are read as a careful person reads them; their author had not seen the rules."""

import pytest

from benches.english_readings import FILES, read_sentences, spoken


@pytest.mark.parametrize("file", FILES)
def test_19_of_20_sentences_are_read_as_a_careful_person_reads_them(file: str) -> None:
    sentences = read_sentences(file)
    wrong = [(written, spoken(written)) for written, right in sentences if spoken(written) not in right]
    assert len(wrong) <= 0.05 * len(sentences), wrong
