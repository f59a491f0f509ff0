"""Clauses become sentences; each sentence begins and ends once and has its own words."""

from vivavoce.adapters.dashscope.events import SentenceBegin, SentenceEnd, SentenceSynthesis
from vivavoce.adapters.dashscope.sentence_events import SentenceEventBuilder
from vivavoce.tts_engine.chunk import Word

TEXT = "Well, hello there. 你好。"
SPANS = [(0, 5), (0, 5), (5, 18), (18, 22)]
WORDS = [Word("Well", 0.0, 0.2, 0, 4), Word("hello", 0.3, 0.5, 6, 11), Word("你好", 0.9, 1.1, 19, 21)]


def sentence_events(*, include_words: bool = True, audio: tuple[bool, ...] = (True,) * 4) -> list[object]:
    sentences = SentenceEventBuilder("t", include_words=include_words)
    events: list[object] = []
    spoken = [WORDS[:1], [], WORDS[1:2], WORDS[2:]]
    for span, words, has_audio in zip(SPANS, spoken, audio, strict=True):
        events += sentences.events_before_audio(TEXT, span, tuple(words), has_audio=has_audio)
    return [*events, *sentences.events_at_end(TEXT)]


def test_clauses_are_joined_until_the_sentence_ends() -> None:
    assert sentence_events() == [
        SentenceBegin("t", 0, "Well,"),
        SentenceSynthesis("t", 0),
        SentenceSynthesis("t", 0),
        SentenceSynthesis("t", 0),
        SentenceEnd("t", 0, "Well, hello there.", (WORDS[0], WORDS[1]), 18),
        SentenceBegin("t", 1, " 你好。"),
        SentenceSynthesis("t", 1),
        SentenceEnd("t", 1, " 你好。", (Word("你好", 0.9, 1.1, 1, 3),), 24),
    ]


def test_words_are_included_only_on_request() -> None:
    ends = [event for event in sentence_events(include_words=False) if isinstance(event, SentenceEnd)]
    assert [event.words for event in ends] == [(), ()]


def test_no_audio_is_announced_while_the_encoder_withholds_it() -> None:
    assert not any(isinstance(event, SentenceSynthesis) for event in sentence_events(audio=(False,) * 4))


def test_a_text_without_speech_has_no_sentence_and_its_silence_is_announced() -> None:
    sentences = SentenceEventBuilder("t", include_words=True)
    assert list(sentences.events_before_audio("", (0, 0), (), has_audio=True)) == [SentenceSynthesis("t", 0)]
    assert list(sentences.events_at_end("")) == []


def test_audio_after_the_last_clause_belongs_to_the_last_sentence() -> None:
    sentences = SentenceEventBuilder("t", include_words=False)
    list(sentences.events_before_audio("Hi.", (0, 3), (), has_audio=True))
    assert list(sentences.events_before_audio("Hi.", (0, 3), (), has_audio=True)) == [
        SentenceSynthesis("t", 0)
    ]
    assert [event.index for event in sentences.events_at_end("Hi.")] == [0]
    assert list(sentences.events_at_end("Hi.")) == []
