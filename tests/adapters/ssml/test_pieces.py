"""Pieces of SSML documents: pronunciations, pauses, rates and marks, and the place of a fault."""

import gc
from dataclasses import astuple
from pathlib import Path

import pytest

from vivavoce.adapters.ssml.document import MAX_DOCUMENT_CHARACTERS, BadSsml, SsmlPiece
from vivavoce.adapters.ssml.input import parse_ssml
from vivavoce.adapters.ssml.markups.ssml.prosody import emphasis
from vivavoce.adapters.ssml.markups.ssml.say_as import say_as
from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody


def pieces(content: str) -> list[SsmlPiece]:
    return list(parse_ssml(f"<speak>{content}</speak>").pieces)


def test_sub_phoneme_and_say_as_pronounce_their_content_only() -> None:
    assert pieces(
        'Ask <phoneme alphabet="ipa" ph="ʃɪˈvɔːn"> Siobhan </phoneme>at '
        '<sub alias="double you three">W3</sub> in <say-as interpret-as="characters">AB1</say-as>.'
    ) == [
        SsmlPiece("Ask "),
        SsmlPiece("Siobhan", Pronunciation(phonemes="ʃɪˈvɔːn")),
        SsmlPiece(" at "),
        SsmlPiece("W3", Pronunciation("double you three")),
        SsmlPiece(" in "),
        SsmlPiece("AB1", Pronunciation("A B 1")),
        SsmlPiece("."),
    ]


def test_phonemes_of_the_alphabet_py_are_pinyin() -> None:
    assert pieces('<phoneme alphabet="py" ph="dian3 dang4">典当</phoneme>') == [
        SsmlPiece("典当", Pronunciation(pinyin="dian3 dang4"))
    ]


def test_phonemes_of_another_alphabet_are_left_to_the_voice() -> None:
    assert pieces('<phoneme alphabet="x-sampa" ph="SI">she</phoneme>') == [SsmlPiece("she")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('One<break time="1.5s"/>two', [("One", 1.5), (" two", None)]),
        ('One, <break time="300ms"/> two', [("One,", 0.3), (" two", None)]),
        ('One<break time="1s"/> <break time="500ms"/>two', [("One", 1.5), (" two", None)]),
        ('<break time="1s"/>One<break strength="none"/> two', [("", 1.0), ("One two", None)]),
        ('<sub alias="a b">One</sub><break/> two', [("One", 0.5), (" two", None)]),
        ('One<break time="9999s"/>', [("One", 20.0)]),
    ],
)
def test_a_break_is_a_pause_after_the_text_before_it(
    content: str, expected: list[tuple[str, float | None]]
) -> None:
    assert [(piece.text, piece.pause_s) for piece in pieces(content)] == expected


def test_the_rate_of_a_part_is_relative_to_that_of_the_document() -> None:
    document = parse_ssml('<speak rate="2">One <prosody rate="50%">two</prosody>, three.</speak>')
    assert document.prosody.speed == 2.0
    assert [(piece.text, piece.prosody.speed) for piece in document.pieces] == [
        ("One ", 1.0),
        ("two", 0.5),
        (", three.", 1.0),
    ]
    # Punctuation alone belongs to the words before it.
    assert [piece.prosody.speed for piece in pieces('A <prosody rate="2">b</prosody>.')] == [1.0, 2.0, 2.0]


def test_a_part_has_the_prosody_of_all_elements_around_it_but_the_documents() -> None:
    document = parse_ssml(
        '<speak pitch="high" range="low">One <prosody volume="+6dB" range="high">two '
        '<emphasis level="strong">three</emphasis></prosody>, four.</speak>'
    )
    assert document.prosody == Prosody(pitch=1.15)
    loud, low = Prosody(volume=10 ** (6 / 20), range=1.3), Prosody(range=0.7)
    expected = [
        ("One ", low),
        ("two ", low.combined_with(loud)),
        ("three", low.combined_with(loud).combined_with(emphasis("strong"))),
        (", four.", low),
    ]
    assert [piece.text for piece in document.pieces] == [text for text, _ in expected]
    for piece, (_, prosody) in zip(document.pieces, expected, strict=True):
        assert astuple(piece.prosody) == pytest.approx(astuple(prosody))


@pytest.mark.parametrize(
    ("element", "level"),
    [
        ("<emphasis>", "moderate"),
        ('<emphasis level="reduced">', "reduced"),
        ('<emphasis level="none">', "none"),
        ('<emphasis level="very">', "moderate"),
    ],
)
def test_emphasis_of_a_whole_text_is_not_the_documents(element: str, level: str) -> None:
    document = parse_ssml(f"<speak>{element}Stop!</emphasis></speak>")
    assert document.prosody == Prosody() and document.pieces[0].prosody == emphasis(level)


def test_marks_stand_before_the_text_that_follows() -> None:
    content = '<mark name="a"/>One <mark name="b"/><mark name="c"/>two<mark name="end"/>'
    assert [(piece.mark, piece.text) for piece in pieces(content)] == [
        ("a", "One "),
        ("b", ""),
        ("c", "two"),
        ("end", ""),
    ]


def test_blanks_and_line_ends_of_the_source_are_one_blank() -> None:
    document = parse_ssml("<speak>\n  <p>\n    One\n    <s>two</s>\n  </p>\n</speak>")
    assert document.text == "One two."


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("<speak>One\n <b>two</speak>", "line 2, column 10: mismatched tag"),
        ('<speak>\n<phoneme ph="SH AO N">x</phoneme></speak>', r"line 2, column 24: 'SH AO N' is not IPA"),
        ('<speak><break time="soon"/></speak>', "line 1, column 8: got break time 'soon'"),
        (f'<speak><sub alias="a">{"x" * 65}</sub></speak>', "line 1, column 88: 65 characters in sub"),
        ("<speak>" + "<mark name='m'/>" * 1_001 + "</speak>", "at most 1000 marks"),
        (f"<speak>{'x' * MAX_DOCUMENT_CHARACTERS}</speak>", "at most 200000 are allowed"),
    ],
)
def test_a_fault_is_refused_with_its_place(document: str, message: str) -> None:
    with pytest.raises(BadSsml, match=message):
        parse_ssml(document)


@pytest.mark.parametrize(
    ("text", "kind", "date_format", "expected"),
    [
        ("AB 1", "spell-out", "", "eh B one"),
        ("0417", "digits", "", "zero four one seven"),
        ("+1 (415) 555-0142", "telephone", "", "plus one, four one five, five five five, zero one four two"),
        ("4155550142", "telephone", "", "four one five, five five five, zero one four two"),
        ("21", "ordinal", "", "twenty first"),
        ("112", "ordinal", "", "one hundred twelfth"),
        ("0417", "cardinal", "", "four hundred seventeen"),
        ("03/04/2026", "date", "dmy", "April third twenty twenty six"),
        ("03/04/26", "date", "mdy", "March fourth twenty twenty six"),
        ("2026.3.4", "date", "yyyymmdd", "March fourth twenty twenty six"),
        ("2:30pm", "time", "hms12", "two thirty P M"),
        ("$12.50", "currency", "", "twelve dollars and fifty cents"),
    ],
)
def test_say_as_reads_a_text_as_asked(text: str, kind: str, date_format: str, expected: str) -> None:
    words = normalize(say_as(text, kind, date_format) or text)
    spoken = " ".join(word.text + word.punctuation for word in words).rstrip(".")
    assert spoken == expected


def test_lang_is_the_language_of_its_text_to_its_end() -> None:
    document = parse_ssml(
        '<speak>Say <lang xml:lang="fr">bonjour <lang xml:lang="de-AT">Welt</lang> '
        '<sub alias="b">a</sub></lang>!'
        " <s xml:lang='nl'>Now</s> <lang>go</lang></speak>"
    )
    assert [(piece.text, piece.language) for piece in document.pieces] == [
        ("Say ", None),
        ("bonjour ", "fr"),
        ("Welt", "de-AT"),
        (" ", "de-AT"),  # blanks and punctuation belong to the words before
        ("a", "fr"),
        ("! Now. go", None),
    ]
    assert document.languages == {"fr", "de-AT"}
    with pytest.raises(BadSsml, match="line 1, column 8: got the language 'no language'; write 'de'"):
        parse_ssml('<speak><lang xml:lang="no language">x</lang></speak>')


def test_the_example_is_well_formed() -> None:
    document = parse_ssml((Path(__file__).parents[3] / "examples" / "prompt.ssml").read_text("utf-8"))
    assert document.text.startswith("Thank you for calling W3. Your code is 0417. Again, 0417.")
    assert [piece.mark for piece in document.pieces if piece.mark] == ["menu"]


def test_pieces_of_a_long_document_are_no_work_of_a_garbage_collection() -> None:
    gc.collect()
    before = len(gc.get_objects())
    document = parse_ssml(f"<speak>{'a<break/>' * 5_000}</speak>")
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert len(document.pieces) == 5_000 and document.pieces[-1] == SsmlPiece(" a", pause_s=0.5)
    assert list(document.pieces)[:2] == [SsmlPiece("a", pause_s=0.5), SsmlPiece(" a", pause_s=0.5)]
    assert list(document.pieces.after(SsmlPiece("b")))[:2] == [SsmlPiece("b"), document.pieces[0]]
