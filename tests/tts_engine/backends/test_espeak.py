"""espeak-ng as a process: answers in order, bounded waits, a new process after one that died or hangs."""

import shutil
import time
from pathlib import Path

import pytest

from vivavoce.tts_engine.backends.espeak import EspeakPhonemizer, align_words
from vivavoce.tts_engine.errors import BundleError, SynthesisFailed

# Answers lines in capital letters; "hang" is never answered, "die" ends it, "once" does if FILE is absent.
PROGRAM = """#!/bin/bash
while read -r line; do
    case "$line" in
        hang) while read -r line; do :; done ;;
        die) exit 3 ;;
        once) [ -e {flag} ] || { touch {flag}; exit 3; } ;;
    esac
    echo "${line^^}"
done
"""


def program(folder: Path) -> str:
    path = folder / "espeak-ng"
    path.write_text(PROGRAM.replace("{flag}", str(folder / "flag")))
    path.chmod(0o755)
    return str(path)


def phonemes(phonemizer: EspeakPhonemizer, text: str) -> list[str]:
    return [word.phonemes for word in phonemizer.phonemize(text.split())]


def test_a_missing_program_is_one_sentence_with_the_package() -> None:
    with pytest.raises(BundleError, match="not installed: apt-get install espeak-ng"):
        EspeakPhonemizer("de", "no-such-program")


def test_a_process_that_hangs_is_ended_in_time_and_another_answers_the_next_request(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path), timeout_s=0.3)
    started = time.monotonic()
    with pytest.raises(SynthesisFailed, match="does not answer"):
        phonemes(phonemizer, "hang")
    assert time.monotonic() - started < 10
    assert phonemes(phonemizer, "one two") == ["ONE", "TWO"]
    phonemizer.close()


def test_a_process_that_dies_is_started_again_within_the_request(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path))
    assert phonemes(phonemizer, "once") == ["ONCE"]
    with pytest.raises(SynthesisFailed):
        phonemes(phonemizer, "die")
    assert phonemes(phonemizer, "one") == ["ONE"]
    phonemizer.close()


def test_text_cannot_leave_its_line_or_pose_as_the_end_of_an_answer(tmp_path: Path) -> None:
    phonemizer = EspeakPhonemizer("de", program(tmp_path))
    assert phonemes(phonemizer, "vrrp") == [""]
    assert phonemizer.phonemize(["a\nvrrp\nb"])[0].phonemes == "A VRRP B"
    assert phonemizer.phonemize(["[[h@l'oU]]"])[0].phonemes == "H@L'OU"
    assert phonemes(phonemizer, "one") == ["ONE"]
    phonemizer.close()


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


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng")
def test_espeak_gives_a_word_of_phonemes_for_each_word() -> None:
    english, german = EspeakPhonemizer("en-us"), EspeakPhonemizer("de")
    assert phonemes(english, "hello world") == ["həlˈoʊ", "wˈɜːld"]
    assert len(phonemes(english, "some of the people in the house")) == 7
    assert phonemes(german, "ein Meeting") == ["aɪn", "mˈeːtɪŋ"]
    with pytest.raises(BundleError, match="no voice 'xx-none'"):
        EspeakPhonemizer("xx-none")
    english.close()
    german.close()
