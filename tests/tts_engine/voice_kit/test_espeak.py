"""espeak-ng as processes: no answer depends on another text, waits are bounded, a dead one is replaced."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vivavoce.tts_engine.errors import BundleError, SynthesisFailed
from vivavoce.tts_engine.voice_kit.espeak import EspeakPhonemizer, PhonemeWord, align_words

# Answers in capital letters; "hang" is never answered, "die" ends it, "once" does if FILE is absent, and
# "late" goes on to write when its answer is complete.
PROGRAM = """#!/bin/bash
while read -r line; do
    case "$line" in
        hang) while :; do sleep 0.05; done ;;
        late) trap '' TERM; while echo secret; do sleep 0.05; done ;;
        die) exit 3 ;;
        once) [ -e {flag} ] || { touch {flag}; exit 3; } ;;
    esac
    echo "${line^^}"
done
"""
# Each stands for one way in which espeak-ng may split, join or change the end of a text.
LURE = "vrrp"
FORGERIES = [
    *(LURE, LURE.upper(), LURE.title(), LURE + LURE, "v.r.r.p", "V.R.R.P.", "v r r p"),
    *(f"{LURE}{end}" for end in ("'", "\u2019", ";", "!", "?", ":", "-", "/", "\\", "*", "_", ")")),
    *(f"{LURE}{end}" for end in ("\u2026", "\u05c3", "\u05be", "\u061f", "\u00b7", "\u3002", "\u0301")),
    *(f"{LURE}{end}" for end in ("\u200b", "\u200d", "\u00ad", "\ufeff")),
    *(f"{start}{LURE}" for start in ("\u200b", "\u202e", "\u3002", "\u201c", "(", "<break/>")),
    *(
        f"hello{between}{LURE}"
        for between in ("; ", ". ", ", ", " . ", "\uff1b", "\u2028", "\u2029", "\u0085")
    ),
    *(f"<{LURE}>", f"&{LURE};", f"\u00ab{LURE}\u00bb", f"\u202a{LURE}\u202c", f"{LURE}, hello"),
    *("a, " * 30 + LURE, "ab " * 400 + LURE),
]
ACCOUNT = "my account number is four"


def program(folder: Path) -> str:
    path = folder / "espeak-ng"
    path.write_text(PROGRAM.replace("{flag}", str(folder / "flag")))
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def capitals(tmp_path: Path) -> Iterator[EspeakPhonemizer]:
    phonemizer = EspeakPhonemizer("de", program(tmp_path), timeout_s=1.0)
    yield phonemizer
    phonemizer.close()


def phonemes(phonemizer: EspeakPhonemizer, text: str) -> list[str]:
    return [word.phonemes for word in phonemizer.phonemize(text.split())]


def test_a_missing_program_is_one_sentence_with_the_package() -> None:
    with pytest.raises(BundleError, match="not installed: apt-get install espeak-ng"):
        EspeakPhonemizer("de", "no-such-program")


def test_a_process_that_hangs_is_ended_in_time_and_another_answers_the_next_request(
    capitals: EspeakPhonemizer,
) -> None:
    started = time.monotonic()
    with pytest.raises(SynthesisFailed, match="does not answer"):
        phonemes(capitals, "hang")
    assert time.monotonic() - started < 10
    assert phonemes(capitals, "one two") == ["ONE", "TWO"]


def test_a_process_that_dies_is_replaced_within_the_request(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path))
    assert phonemes(phonemizer, "once") == ["ONCE"]
    with pytest.raises(SynthesisFailed):
        phonemes(phonemizer, "die")
    assert phonemes(phonemizer, "one") == ["ONE"]
    phonemizer.close()


def test_a_closed_phonemizer_leaves_no_process(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path))
    phonemes(phonemizer, "one")
    phonemizer._starter.submit(int).result()  # what is started ahead has started
    waiting = list(phonemizer._started_ahead)
    phonemizer.close()
    assert waiting
    assert all(process.returncode is not None for process in waiting)
    assert not phonemizer._started_ahead


def test_a_late_answer_reaches_no_other_request(capitals: EspeakPhonemizer) -> None:
    with pytest.raises(SynthesisFailed):
        phonemes(capitals, "late")
    assert [phonemes(capitals, f"word {index}") for index in range(10)] == [
        ["WORD", str(index)] for index in range(10)
    ]


def test_threads_at_once_get_their_own_answers(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path), timeout_s=10.0)
    answers: dict[str, list[str]] = {}

    def ask(name: str) -> None:
        answers[name] = [phonemes(phonemizer, f"{name}{index}")[0] for index in range(20)]

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("anna", "bert", "carl")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    phonemizer.close()
    assert answers == {name: [f"{name}{index}".upper() for index in range(20)] for name in answers}
    assert len(answers) == 3


def test_text_cannot_leave_its_line_or_pose_as_phonemes(capitals: EspeakPhonemizer) -> None:
    assert phonemes(capitals, "vrrp") == ["VRRP"]
    assert capitals.phonemize(["a\nvrrp\nb"])[0].phonemes == "A VRRP B"
    assert capitals.phonemize(["[[h@l'oU]]"])[0].phonemes == "H@L'OU"
    assert capitals.phonemize(["\ud800", "b"])[1].phonemes == "B"
    assert phonemes(capitals, "one") == ["ONE"]


@pytest.mark.parametrize(
    ("parts", "words", "shared"),
    [
        ("ʌvðə pˈiːpəl", "of the people", ["ʌv", "ðə", "pˈiːpəl"]),
        ("twˈɛnti wˈʌn pˈiːpəl", "twentyone people", ["twˈɛnti wˈʌn", "pˈiːpəl"]),
        ("", "a b", ["", ""]),
    ],
)
def test_joined_words_share_their_phonemes(parts: str, words: str, shared: list[str]) -> None:
    assert [word.phonemes for word in align_words(parts.split(), words.split())] == shared


needs_espeak = pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")


@needs_espeak
def test_espeak_gives_a_word_of_phonemes_for_each_word() -> None:
    english, german = EspeakPhonemizer("en-us"), EspeakPhonemizer("de")
    assert phonemes(english, "hello world") == ["həlˈoʊ", "wˈɜːld"]
    assert len(phonemes(english, "some of the people in the house")) == 7
    assert phonemes(german, "ein Meeting") == ["aɪn", "mˈeːtɪŋ"]
    with pytest.raises(BundleError, match="no voice 'xx-none'"):
        EspeakPhonemizer("xx-none")
    english.close()
    german.close()


def answer_of_a_new_process(voice: str) -> list[PhonemeWord]:
    phonemizer = EspeakPhonemizer(voice)
    answer = phonemizer.phonemize(ACCOUNT.split())
    phonemizer.close()
    return answer


def ask_two_callers(phonemizer: EspeakPhonemizer, first: str) -> list[PhonemeWord]:
    """The answer to ACCOUNT after another caller's text, which may end its process."""
    with suppress(SynthesisFailed):
        phonemizer.phonemize([first])
    return phonemizer.phonemize(ACCOUNT.split())


@needs_espeak
@pytest.mark.parametrize("voice", ["de", "en-us", "fr-fr", "ja", "cmn"])
def test_no_text_changes_the_phonemes_of_the_next_request(voice: str) -> None:
    expected = answer_of_a_new_process(voice)
    phonemizer = EspeakPhonemizer(voice)
    changed = [text for text in FORGERIES if ask_two_callers(phonemizer, text) != expected]
    phonemizer.close()
    assert not changed
    assert len(FORGERIES) == 51


@needs_espeak
def test_no_generated_text_changes_the_phonemes_of_the_next_request() -> None:
    expected = answer_of_a_new_process("de")
    phonemizer = EspeakPhonemizer("de")

    @settings(max_examples=40, deadline=None)
    @given(st.text(max_size=200), st.sampled_from(FORGERIES))
    def check(text: str, forgery: str) -> None:
        assert ask_two_callers(phonemizer, text + forgery) == expected

    check()
    phonemizer.close()


@needs_espeak
def test_text_that_espeak_keeps_for_the_next_line_stays_with_its_request() -> None:
    """In one process, espeak-ng 1.51 repeats the last word before the signs of the next line."""
    phonemizer = EspeakPhonemizer("cmn")
    secret = phonemizer.phonemize(["vrrp"])[0].phonemes
    phonemizer.phonemize("the Dr. a@b.c 3.5 A.B.C. vrrp".split())
    signs: list[PhonemeWord] = []
    with suppress(SynthesisFailed):  # it crashes at some signs
        signs = phonemizer.phonemize(["\u2602\u2492\u097e\u2c65\u0bef\u059d\u214d"])
    phonemizer.close()
    assert all(secret not in word.phonemes for word in signs)
