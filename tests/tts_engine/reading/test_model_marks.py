"""Marks of fine-grained control in the text: in place for a model that has them, silent for another."""

import re

import pytest

from vivavoce.tts_engine.cosyvoice.generation_segmenter import GenerationSegmenter
from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, Segmenter
from vivavoce.tts_engine.voice_kit.spoken_words import group_written_words

pytest.importorskip("unicode_rbnf")
pytest.importorskip("wetext")

MARKS = (
    "<strong> </strong> [laughter] [breath] [sigh] [vocalized-noise] [j] [ǐ] [M] [AY0] [N] [UW1] [T]".split()
)
MARK = re.compile(r"\[[^]]*\]|<[^>]*>")
LANGUAGES = LanguageGrammars.load()


def segments(text: str, language: str) -> list[Segment]:
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer(language, MARKS))
    return [*segmenter.push(text), *segmenter.flush()]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("zh", "对报道[j][ǐ]予好评。", "对报道[j][ǐ]予好评。"),
        ("zh", "对报道[j][i\u030c]予好评。", "对报道[j][ǐ]予好评。"),
        # The letters of marks do not decide the language of a clause.
        (
            "en",
            "他[laughter]停[breath]下[vocalized-noise]3次。",
            "他[laughter]停[breath]下[vocalized-noise]三次。",
        ),
        ("en", "A [M][AY0][N][UW1][T] part,[breath] ok.", "A [M][AY0][N][UW1][T] part,|[breath] okay."),
        ("en", "<strong>Wait.</strong>", "<strong>Wait.</strong>"),
        ("de", "[laughter]", "[laughter]."),
        ("en", "[laughs] Yes. (sighs) No, *chuckles* no.", "[laughter] Yes.|[sigh] No,|[laughter] no."),
        ("en", "[coughs] Yes. [nervously] No.", "Yes.|No."),
        ("en", "See [sigh](https://a.io/b) now.", "See sigh now."),
    ],
)
def test_marks_stand_where_they_are_written(language: str, text: str, expected: str) -> None:
    assert "|".join(segment.spoken for segment in segments(text, language)) == expected


@pytest.mark.parametrize(
    "text", ["Ha[laughter]ha, <strong>so</strong> [breath]it is", "[sigh]", "好[j][ǐ]的[laughter]"]
)
def test_marks_are_no_words(text: str) -> None:
    words = [word for segment in segments(text, "en") for word in segment.words]
    assert [word.text for word in words if word.is_mark] == MARK.findall(text)
    written = [text[word.start : word.stop] for word in group_written_words(words)]
    assert "".join(written) == re.sub(r"\W", "", MARK.sub("", text))


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "The MINUTE part.", "The [M][AY0][N][UW1][T] part."),
        ("zh", "记者 报道。", "记者[j][ǐ]报道。"),
    ],
)
def test_a_lexicon_gives_the_sounds_of_a_word_as_marks(language: str, text: str, expected: str) -> None:
    words = {"MINUTE": "[M][AY0][N][UW1][T]", "记者": "记者[j][ǐ]"}
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer(language, MARKS))
    segmenter.use_lexicons([lexicon_of(words)])
    spoken = [*segmenter.push(text), *segmenter.flush()]
    assert "|".join(segment.spoken for segment in spoken) == expected


def test_a_clause_of_marks_opens_a_generation_that_a_flush_ends() -> None:
    segmenter = GenerationSegmenter(clauses=LANGUAGES.clause_normalizer("en", MARKS))
    opened = segmenter.push("<strong>, wait")
    assert not segmenter.has_words
    assert [one.ending for one in opened + segmenter.flush()][-1] is BoundaryKind.SENTENCE
    segmenter.push("[sigh]，")
    assert segmenter.flush()[-1].ending is BoundaryKind.SENTENCE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He said [laughter] and [breath]<strong>wow</strong>.", "He said and wow"),
        ("The [M][AY0][N][UW1][T] part [AY1] is [quick_breath] small.", "The part is small"),
        ("Hao [h][ǎo] ma [ǎi]?", "Hao ma"),
        ("<laughter>Ha</laughter>, he took [a] car [see below].", "Ha he took a car see below"),
    ],
)
def test_a_voice_without_marks_leaves_them_out(text: str, expected: str) -> None:
    assert " ".join(word.text for word in normalize(text)) == expected


def test_a_text_of_marks_has_no_words_for_a_voice_without_them() -> None:
    segmenter = Segmenter()
    assert segmenter.push("[laughter] <strong></strong>") + segmenter.flush() == []
    assert not segmenter.has_words
