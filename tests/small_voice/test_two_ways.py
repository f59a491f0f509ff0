"""The comparison of streamed speech with speech at once: its interval and its table."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

_EXTRAS = "make test EXTRAS=dev,stt,cosyvoice"
pytest.importorskip("torch", reason=f"the CosyVoice networks need torch: {_EXTRAS}")

from small_voice.two_ways import AT_ONCE, STREAMED, HeardSentence, paired_interval, read_kept, rows_of  # noqa: E402


def heard(way: str, band: str, *wrong: int) -> HeardSentence:
    return HeardSentence(way, band, "One, two.", 10, ("", ""), (wrong[0], wrong[1], wrong[2]))


def test_sentences_that_are_equal_both_ways_have_no_interval() -> None:
    assert paired_interval([0] * 20, [10] * 20) == (0.0, 0.0)


def test_the_interval_is_that_of_a_mean_of_many_sentences() -> None:
    low, high = paired_interval([1, -1] * 200, [10] * 400)
    assert low == pytest.approx(-0.98, abs=0.1) and high == pytest.approx(0.98, abs=0.1)


def test_what_was_heard_before_an_end_is_read_by_whole_sentences(tmp_path: Path) -> None:
    sentence = [heard(way, band, 1, 2, 0) for way in (STREAMED, AT_ONCE) for band in ("wide band", "u-law")]
    lines = [json.dumps(asdict(one)) + "\n" for one in sentence]
    (tmp_path / "kept").write_text("".join([*lines, *lines[:2], lines[2][:9]]), "utf-8")
    assert read_kept(tmp_path / "kept") == sentence
    assert read_kept(tmp_path / "absent") == []


def test_the_table_has_each_band_and_recogniser() -> None:
    sentences = [
        heard(way, band, wrong, 2, 1)
        for way, wrong in ((STREAMED, 2), (AT_ONCE, 3))
        for band in ("wide band", "u-law")
        for _ in range(5)
    ]
    head, _, *rows = rows_of(sentences)
    assert head.count("|") == 6 and len(rows) == 6
    assert rows[0] == "| wide band | tiny.en | 20.00 % | 30.00 % | +10.00 (+10.00 to +10.00) |"
    assert rows[5] == "| u-law | kindest | 10.00 % | 10.00 % | +0.00 (+0.00 to +0.00) |"
