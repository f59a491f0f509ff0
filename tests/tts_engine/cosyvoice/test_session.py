"""Tests of a session on the host: sentences, chunks and pauses, with scripted answers of the model."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.cosyvoice.config import SPEECH_IDS_PER_S, CosyVoiceVersion
from vivavoce.models.cosyvoice.lm.generation import BistreamGeneration, LmPrompt, SpecialIds, SpeechLengthRule
from vivavoce.models.cosyvoice.lm.sampling import SamplingParameters, SilenceFilter
from vivavoce.tts_engine.cosyvoice.conditioning import FlowPrompt, VoiceConditioning
from vivavoce.tts_engine.cosyvoice.sentence import SentenceConfig
from vivavoce.tts_engine.cosyvoice.session import CosyVoiceSession
from vivavoce.tts_engine.cosyvoice.text_encoder import CosyVoiceTextEncoder
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, SpokenWord
from vivavoce.tts_engine.voice_kit.spoken_words import estimate_seconds
from vivavoce.tts_engine.voice_kit.word_timing import SpeakingPace, VoicePaces

IDS = SpecialIds(CosyVoiceVersion.V2)
SPEAKER = FlowPrompt(
    "speaker", np.zeros(192, np.float32), np.zeros(0, np.int32), np.zeros((80, 0), np.float32)
)


def words(*texts: str, start: int = 0) -> tuple[SpokenWord, ...]:
    spoken_words = []
    for text in texts:
        spoken_words.append(SpokenWord(text, "", start, start + len(text)))
        start += len(text) + 1
    return tuple(spoken_words)


def segment(text: str, ending: BoundaryKind, start: int = 0) -> Segment:
    return Segment(words(*text.split(), start=start), start, start + len(text), ending)


def new_session(*, max_text_ids: int = 30, min_ratio: float = 2, filtered: bool = False) -> CosyVoiceSession:
    config = SentenceConfig(
        text_encoder=CosyVoiceTextEncoder(lambda text: list(range(len(text))), ()),
        new_generation=lambda prompt: BistreamGeneration(IDS, prompt, SpeechLengthRule(min_ratio, 4)),
        new_filter=SilenceFilter if filtered else None,
        ids=IDS,
        first_hop=25,
        max_hop=50,
        max_text_ids=max_text_ids,
        pause_share=0.5,
        paces=VoicePaces(),
    )
    return CosyVoiceSession(config, VoiceConditioning(SPEAKER, LmPrompt(), SamplingParameters(), 1.0), 0)


def speak(session: CosyVoiceSession, answer: int = 100) -> list[tuple[int, int]]:
    """Answer and render until the session is drained; the ranges of speech ids rendered."""
    ranges = []
    while not session.is_drained:
        if session.is_chunk_ready:
            sentence = session.sentence
            assert sentence is not None and sentence.next_chunk is not None
            new = sentence.next_chunk.stop - sentence.next_chunk.start
            rendered = session.render_result(np.zeros(960 * new, np.float32))
            assert rendered.speech_ids is not None
            ranges.append(rendered.speech_ids)
        else:
            turn = session.decoding_turn()
            assert turn is not None
            turn.generation.answer(answer)
            session.collect_and_feed()
    return ranges


def test_clauses_continue_one_sentence() -> None:
    one = new_session()
    one.begin(segment("well then,", BoundaryKind.CLAUSE), 0.0)
    assert speak(one) == [(0, 25)]
    sentence = one.sentence
    one.begin(segment("who is it?", BoundaryKind.SENTENCE, 11), 0.0)
    assert one.sentence is sentence
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * len("well then, who is it?")


def test_the_next_sentence_is_a_new_generation() -> None:
    one = new_session()
    one.begin(segment("it is me", BoundaryKind.SENTENCE), 0.0)
    first = speak(one)
    one.begin(segment("who else", BoundaryKind.SENTENCE, 9), 0.0)
    second = speak(one)
    assert first == [(0, 25), (25, 32)]
    assert second == [(32, 57), (57, 64)]


def test_a_segment_that_does_not_fit_begins_another_sentence() -> None:
    one = new_session(max_text_ids=12)
    one.begin(segment("ten letter", BoundaryKind.CLAUSE), 0.0)
    speak(one)
    first = one.sentence
    one.begin(segment("five", BoundaryKind.SENTENCE, 11), 0.0)
    assert one.sentence is first
    ranges = speak(one)
    assert one.sentence is None
    assert ranges[-1][1] == 4 * (len("ten letter") + len(" five"))


def test_a_long_segment_is_cut_between_words_and_an_endless_word_anywhere() -> None:
    one = new_session(max_text_ids=12)
    one.begin(segment("one two three four five six", BoundaryKind.SENTENCE), 0.0)
    assert speak(one)[-1][1] == 4 * len("one two three four five six")
    two = new_session(max_text_ids=12)
    two.begin(segment("x" * 40, BoundaryKind.SENTENCE), 0.0)
    assert speak(two)[-1][1] == 4 * 40


def test_an_empty_segment_ends_an_open_sentence_only() -> None:
    one = new_session()
    one.begin(Segment((), 0, 0, BoundaryKind.SENTENCE), 0.0)
    assert one.is_drained and one.sentence is None
    one.begin(segment("abc", BoundaryKind.CLAUSE), 0.0)
    assert one.is_drained and one.sentence is not None
    one.begin(Segment((), 3, 3, BoundaryKind.SENTENCE), 0.0)
    assert speak(one) == [(0, 12)]
    assert one.sentence is None


def test_a_pause_follows_the_sentence_and_is_part_of_its_last_chunk() -> None:
    one = new_session()
    one.begin(segment("hello", BoundaryKind.SENTENCE), 0.4)
    while not one.is_chunk_ready:
        turn = one.decoding_turn()
        assert turn is not None
        turn.generation.answer(100)
        one.collect_and_feed()
    rendered = one.render_result(np.zeros(960 * 20, np.float32))
    assert rendered.segment_done
    assert len(rendered.samples) == 960 * 20 + round(0.4 * 0.5 * 24_000)


def test_a_sentence_is_measured_for_the_next_words_of_its_voice() -> None:
    session = new_session()
    said = segment("one two three", BoundaryKind.SENTENCE)
    session.begin(said, 0.0)
    (_, stop) = speak(session)[-1]
    usual_s = estimate_seconds(said.words)
    expected = SpeakingPace()
    expected.measure(usual_s, stop / SPEECH_IDS_PER_S)
    assert expected.ratio != 1.0
    voice = (SPEAKER.id, LmPrompt())
    assert session._config.paces.pace_of(voice, 1.0).ratio == pytest.approx(expected.ratio)


def test_a_sentence_without_speech_ids_is_dropped() -> None:
    one = new_session(min_ratio=0)
    one.begin(segment("hey", BoundaryKind.SENTENCE), 0.0)
    assert speak(one, answer=IDS.end) == []
    assert one.sentence is None


def test_a_long_silence_is_shortened_by_the_filter() -> None:
    one = new_session(filtered=True)
    one.begin(segment("hello", BoundaryKind.SENTENCE), 0.0)
    assert speak(one, answer=1) == [(0, 5)]
