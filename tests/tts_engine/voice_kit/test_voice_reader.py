"""Segmenters of voices in languages with a reader, without one, and in scripts that a voice lacks."""

import pytest

from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.voice_kit.voice_reader import VoiceReader


def words_of(language: str, text: str) -> tuple[list[str], int]:
    segmenter = VoiceReader(language).segmenter(SlotRequest("any", 1.0, 0))
    segments = segmenter.push(text) + segmenter.flush()
    return [word.text for segment in segments for word in segment.words], segmenter.unread_characters


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en-US", "Room 12, fine", ["Room", "twelve", "fine"]),
        ("sv", "Jag har 12 saker.", ["Jag", "har", "12", "saker"]),  # espeak-ng reads the number
        ("nl", "Ik heb 12 boeken.", ["Ik", "heb", "twaalf", "boeken"]),
        ("pl", "Masz 2 wiadomości.", ["Masz", "dwie", "wiadomości"]),
        ("ar", "مرحبا بالعالم", ["مرحبا", "بالعالم"]),
        ("de", "Guten Morgen my friend", ["Guten", "Morgen", "my", "friend"]),
    ],
)
def test_words_of_a_language(language: str, text: str, words: list[str]) -> None:
    assert words_of(language, text) == (words, 0)


@pytest.mark.parametrize(
    ("language", "text"), [("nl", "שלום"), ("en-GB", "مرحبا"), ("de", "你好"), ("ru", "สวัสดี")]
)
def test_words_in_other_scripts_are_counted_and_left_out(language: str, text: str) -> None:
    words, unread = words_of(language, text)
    assert words == [] and unread > 0
