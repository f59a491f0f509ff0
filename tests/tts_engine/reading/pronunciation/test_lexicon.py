"""Lexicons in the reader: which words an entry says, and the text that the spoken words keep."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.reading.pronunciation.ipa import BadIpa, read_ipa
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon
from vivavoce.tts_engine.segmenter import Segment, Segmenter

LEXICON = lexicon_of(
    {
        "nginx": "engine x",
        "SQL": "sequel",
        "C++": "see plus plus",
        "Polish": "Poe lish",
        "Siobhan": "/ʃɪˈvɔːn/",
        "New York": "/ˈnuː ˈjɔːrk/",
        "New York Times": "the paper",
        "Ives Co": "/aɪvz/",
        "W3C": {"ipa": "/ˈwɛb/", "say": "World Wide Web Consortium"},
        "x5": "ex five",
        "Dr. Who": "Doctor Who",
    }
)


def spoken(*parts: str, lexicon: Lexicon = LEXICON) -> list[Segment]:
    segmenter = Segmenter()
    segmenter.use_lexicons([lexicon])
    return [segment for part in parts for segment in segmenter.push(part)] + segmenter.flush()


def said(text: str) -> str:
    """The spoken words, those with phonemes as /phonemes/."""
    words = [word for segment in spoken(text) for word in segment.words]
    return " ".join(
        (word.text if word.phonemes is None else f"/{word.phonemes}/") + word.punctuation for word in words
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Restart nginx, then Nginx and NGINX.", "Restart engine x, then engine x and engine x."),
        ("nginx.org", "nginx dot org."),
        ("Write to nginx@example.com.", "Write to nginx at example dot com."),
        ("nginxes and phpnginx", "nginxes and phpnginx."),
        ("nginx's log", "engine x's log."),
        ("An nginx-based proxy", "An engine x based proxy."),
        ("SQL, not Sql", "sequel, not S Q L."),
        ("Polish it. Polish shoes. polish it.", "Poe lish it. Poe lish shoes. polish it."),
        ("C++ and C", "see plus plus and C."),
        ("Siobhan!", "/ʃɪˈvɔːn/!"),
        ("Siobhan’s cat", "/ʃɪˈvɔːnz/ cat."),
        ("In New York.", "In /ˈnuː/ /ˈjɔːrk/."),
        ("The New York Times.", "The the paper."),
        ("In new york.", "In new york."),
        ("Ives Co pays.", "/aɪvz/ // pays."),
        ("The X5 costs $5.", "The ex five costs five dollars."),
        ("Ask [Nguyen](/ŋwiən/)'s wife.", "Ask /ŋwiənz/ wife."),
        ("See [docs](/docs/) and [win](/.win/).", "See docs and /win/."),
        ("Dr. Who said so.", "Doctor Who said so."),
    ],
)
def test_an_entry_says_whole_words_in_the_case_it_has(text: str, expected: str) -> None:
    assert said(text) == expected


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("phpnginx runs", 3),
        ("24nginx", 2),
        ("my_nginx", 3),
        ("o'nginx", 2),
        ("nginxes", 0),
        ("nginx_conf", 0),
    ],
)
def test_an_entry_inside_a_longer_word_is_not_found(text: str, at: int) -> None:
    assert LEXICON.find(text, at) is None
    assert LEXICON.find(text.replace(text[:at], text[:at] + " "), at + 1) is not None or at == 0


def test_a_word_too_long_to_be_read_at_once_has_no_entry_inside() -> None:
    assert said("a" * 60 + "nginx") == "a" * 60 + " nginx."


def test_words_keep_the_text_as_it_was_written() -> None:
    text = "Ask Siobhan’s friend about W3C in New York."
    words = [word for segment in spoken(text) for word in segment.words]
    assert [text[word.start : word.stop] for word in words] == [
        *("Ask", "Siobhan’s", "friend", "about", "W3C", "W3C", "W3C", "W3C", "in", "New York", "New York")
    ]
    assert words[4].text == "World"  # for voices without phonemes
    assert words[4].phonemes == "ˈwɛb"


def test_the_first_of_two_lexicons_decides() -> None:
    segmenter = Segmenter()
    segmenter.use_lexicons([lexicon_of({"nginx": "first"}), LEXICON])
    segmenter.push("nginx and SQL")
    (segment,) = segmenter.flush()
    assert segment.spoken == "first and sequel."


FRAGMENTS = st.sampled_from(
    "nginx|'s| |, |. |New| York| Times|Siobhan|[Tea](/ˈtiː/)|[|](|C|+|++|$5|W3C|x5|-|Dr|Who|\n".split("|")
)


@settings(max_examples=150)
@given(st.lists(FRAGMENTS, max_size=25).map("".join), st.integers(1, 7))
def test_any_split_gives_the_same_words(text: str, size: int) -> None:
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    assert spoken(*parts) == spoken(text)


def test_a_clause_without_a_boundary_finds_its_entries_too() -> None:
    text = "so " * 200 + "New York " * 60
    words = [word for segment in spoken(text) for word in segment.words]
    assert [word.phonemes for word in words if word.phonemes] == ["ˈnuː", "ˈjɔːrk"] * 60


class CountedPhrases(dict[str, object]):
    """A dictionary that counts its look-ups."""

    lookups = 0

    def get(self, key: str, default: object = None) -> object:
        """As ``dict.get``."""
        self.lookups += 1
        return super().get(key, default)


def test_the_work_of_a_sentence_does_not_grow_with_the_lexicon() -> None:
    sentence = "The new service of the town restarts nginx in New York on Tuesday."
    counts = []
    for size in (10, 10_000):
        lexicon = lexicon_of({f"New word{number}": "so" for number in range(size)} | {"nginx": "engine x"})
        phrases = CountedPhrases(lexicon._as_written)
        object.__setattr__(lexicon, "_as_written", phrases)
        spoken(sentence, lexicon=lexicon)
        counts.append(phrases.lookups)
    assert counts[1] <= counts[0] + 10  # an attempt for each length of an entry that begins with "New"


def test_phonemes_in_words_of_another_script_are_spoken() -> None:
    segmenter = Segmenter()
    segmenter.use_lexicons([lexicon_of({"北京": "/beɪˈdʒɪŋ/"})])
    segmenter.push("Fly to 北京 today.")
    (segment,) = segmenter.flush()
    assert [word.phonemes for word in segment.words] == [None, None, "beɪˈdʒɪŋ", None]
    assert segmenter.unread_characters == 0


@pytest.mark.parametrize(
    ("written", "phonemes"),
    [
        ("/ʃɪˈvɔːn/", "ʃɪˈvɔːn"),
        ("[t͡ʃɜːrt͡ʃ]", "tʃɜːrtʃ"),
        ("nu: 'jork", "nuː ˈjork"),
        ("gəˈrɑʒ", "ɡəˈrɑʒ"),
        ("bɔ̃.ʒuʁ", "bɔ\u0303ʒuʁ"),
        ("ɪç", "ɪç"),
    ],
)
def test_ipa_is_read_as_dictionaries_print_it(written: str, phonemes: str) -> None:
    assert read_ipa(written) == phonemes


@pytest.mark.parametrize("written", ["", "//", "ˈ", "SH AO N", "vɔːn3", "ʃ" * 200, "<b>", "шива"])
def test_a_text_that_is_no_ipa_is_refused(written: str) -> None:
    with pytest.raises(BadIpa):
        read_ipa(written)


@pytest.mark.parametrize(
    ("text", "at", "found"),
    [
        ("我在重庆市", 2, "重庆"),
        ("在KTV重庆", 4, "重庆"),
        ("重庆KTV", 0, "重庆"),
        ("买A股吧", 1, "A股"),
        ("买AA股吧", 2, None),
        ("東京タワー", 2, "タワー"),
    ],
)
def test_an_entry_matches_anywhere_in_scripts_without_blanks(text: str, at: int, found: str | None) -> None:
    lexicon = lexicon_of({"重庆": {"pinyin": "chong2 qing4"}, "A股": "A gu", "タワー": "tower"})
    match = lexicon.find(text, at)
    assert (match and match.text) == found
