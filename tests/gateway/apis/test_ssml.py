"""SSML in the utterances of every API: pauses, marks, pronunciations, faults, and documents in pieces."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.counted_work import counted_callbacks
from shared.dense_documents import DENSE_UNITS, dense_document
from shared.engine.standin_backend import WORD_S, StandInBackend
from vivavoce.adapters.ssml.document import BadSsml
from vivavoce.gateway.apis.shell.speech import EncodedChunk, EncodedStream, SynthesisOptions
from vivavoce.tts_engine.chunk import Mark, Word
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import LanguageNotSpoken, StreamClosed
from vivavoce.tts_engine.metrics import Metrics

SENTENCE_PAUSE_S = 0.32
END_S = 0.02


def with_engine(test: Callable[[Engine], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with Engine(StandInBackend(), EngineConfig(), Metrics()) as engine:
            await asyncio.wait_for(test(engine), 30)

    asyncio.run(run())


async def speak(engine: Engine, *parts: str, **options: Any) -> tuple[list[EncodedChunk], str]:
    async with EncodedStream(engine, SynthesisOptions(**options)) as utterance:
        for part in parts:
            utterance.push_text(part)
        utterance.end_input()
        return [chunk async for chunk in utterance], utterance.text


def seconds(chunks: list[EncodedChunk]) -> float:
    return chunks[-1].samples[1] / 24_000


def words(chunks: list[EncodedChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


@pytest.mark.parametrize(
    ("document", "said", "pauses_s"),
    [
        ("<speak>One two three.</speak>", 3, 0.0),
        ('<speak>One<break time="1.5s"/> two.</speak>', 2, 1.5),
        ('<speak>Thank you, <break time="1s"/>all.</speak>', 3, 1.0),
        ('<speak><break time="1s"/>Thank you all.</speak>', 3, 1.0),
        ('<speak><break time="2s"/></speak>', 0, 2.0),
        ('<?xml version="1.0"?><speak>One two three.</speak>', 3, 0.0),
        ('<speak>One two.<break time="1s"/> Three.</speak>', 3, 1.0),
        ('<speak>One. <break time="100ms"/>Two.<break time="700ms"/></speak>', 2, 0.8),
        ('<speak>The <sub alias="World Wide Web">WWW</sub>.</speak>', 4, 0.0),
        ('<speak>Pin <say-as interpret-as="digits">0417</say-as>.</speak>', 5, 0.0),
        ('<speak>On <sub alias="the third. Or fourth">3. 4.</sub> they go.</speak>', 7, 0.0),
        ('<speak>One <prosody rate="slow">two</prosody> three.</speak>', 3, 0.0),
        ('<speak>One. <prosody rate="slow">Two.</prosody></speak>', 2, SENTENCE_PAUSE_S),
    ],
)
def test_words_and_pauses_are_those_of_the_document(document: str, said: int, pauses_s: float) -> None:
    async def test(engine: Engine) -> None:
        chunks, _ = await speak(engine, document)
        assert seconds(chunks) == pytest.approx(said * WORD_S + pauses_s + END_S, abs=0.001)
        in_pieces, _ = await speak(engine, *document)
        assert words(in_pieces) == words(chunks)

    with_engine(test)


def test_words_keep_the_text_without_markup() -> None:
    async def test(engine: Engine) -> None:
        document = '<speak>The <sub alias="World Wide Web">WWW</sub><break/> of\n 3 &amp; <s>more</s></speak>'
        chunks, text = await speak(engine, document)
        assert text == "The WWW of 3 & more."
        # The stand-in gives each spoken word a time.
        said = [word.text for word in words(chunks)]
        assert said == ["The", "WWW", "WWW", "WWW", "of", "3", "&", "more"]

    with_engine(test)


def test_a_mark_is_heard_with_the_next_word_and_at_the_end() -> None:
    async def test(engine: Engine) -> None:
        document = '<speak><mark name="a"/>One two <mark name="b"/>three.<mark name="end"/></speak>'
        for speed in (1.0, 4.0):
            chunks, _ = await speak(engine, document, speed=speed)
            faster = max(1.0, speed / 2)  # the voice itself renders up to twice its pace
            expected = [Mark("a", 0.0), Mark("b", 2 * WORD_S / faster)]
            *others, last = (mark for chunk in chunks for mark in chunk.marks)
            assert others == expected
            assert (last.name, last.at_s) == ("end", pytest.approx(3 * WORD_S / faster))

    with_engine(test)


def test_a_mark_at_the_end_of_a_sentence_does_not_wait_for_more_text() -> None:
    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text("<speak>One two. <mark name='a'/> <mark name='b'/></speak>")
            utterance.flush()
            chunks = [await anext(utterance), await anext(utterance)]
            end_s = 2 * WORD_S + SENTENCE_PAUSE_S
            assert [chunk.marks for chunk in chunks] == [(), (Mark("a", end_s), Mark("b", end_s))]

    with_engine(test)


@pytest.mark.parametrize("text", ["<3 you all", "<", "<speaker> is loud", "a <speak>b</speak>", "  Hi there"])
def test_other_text_that_begins_alike_is_plain(text: str) -> None:
    async def test(engine: Engine) -> None:
        chunks, whole = await speak(engine, *text)
        assert whole == text
        plain, _ = await speak(engine, text, finds_ssml=False)
        assert words(chunks) == words(plain)

    with_engine(test)


def test_a_document_may_follow_another_and_a_flush() -> None:
    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text("<speak>One.</speak><speak>Two.</speak>")
            utterance.push_text("Three.")
            utterance.flush()
            utterance.push_text("<speak>Four.</speak>")
            utterance.end_input()
            assert [word.text async for chunk in utterance for word in chunk.words] == [
                *("One", "Two", "Three", "Four")
            ]
            assert utterance.text == "One. Two. Three.Four."

    with_engine(test)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (("<speak>One two three", " four."), "line 1, column 27: no element found"),
        (("<speak>One <b>two</speak>", " three."), "mismatched tag"),
        (('<!DOCTYPE x><speak a="1"/>',), None),
        (('<speak><phoneme ph="QQ">q</phoneme></speak>',), "is not IPA"),
        (("<speak>" * 40 + "</speak>",), "nested elements"),
        (('<speak>One <lang xml:lang="d">x</lang></speak>',), "column 12: got the language 'd'"),
        (("<speak>", *("x" * 50_000,) * 5), "at most 200000"),
    ],
)
def test_a_fault_ends_the_utterance_with_an_error(parts: tuple[str, ...], message: str | None) -> None:
    async def test(engine: Engine) -> None:
        if message is None:  # plain text
            assert words((await speak(engine, *parts))[0])
            return
        with pytest.raises(BadSsml, match=message):
            await speak(engine, *parts)
        while engine.active_streams:  # a step may be running
            await asyncio.sleep(0.001)

    with_engine(test)


def test_a_language_that_the_voice_lacks_ends_the_utterance_with_an_error() -> None:
    async def test(engine: Engine) -> None:
        with pytest.raises(LanguageNotSpoken, match="speaks zxx; the language of the text is 'de'"):
            await speak(engine, '<speak>One. <lang xml:lang="de">Zwei.</lang></speak>')
        chunks, _ = await speak(engine, '<speak>One. <lang xml:lang="ZXX">Two.</lang></speak>')
        assert [word.text for word in words(chunks)] == ["One", "Two"]

    with_engine(test)


def test_a_fault_drops_what_was_still_to_be_spoken() -> None:
    async def test(engine: Engine) -> None:
        heard: list[EncodedChunk] = []
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text("<speak>One two three. Four five six.</speak>")
            utterance.push_text("<speak><b>no</speak>")
            utterance.end_input()
            with pytest.raises(BadSsml):
                async for chunk in utterance:
                    heard.append(chunk)
        assert words(heard) == []

    with_engine(test)


def test_the_rate_of_a_part_is_rendered_by_the_voice() -> None:
    async def test() -> None:
        async with await Engine.open() as engine:
            text = "one two three four five six"
            plain, _ = await speak(engine, f"<speak>Yes. {text}</speak>")
            slow, _ = await speak(engine, f'<speak>Yes. <prosody rate="50%">{text}</prosody></speak>')
            assert seconds(slow) > 1.5 * seconds(plain)
            assert [word.text for word in words(slow)] == ["Yes", *text.split()]

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("/api/v1/audio/speech", lambda text: {"input": {"text": text}}, 400),
        ("/v1/model/cosyvoice/tts", lambda text: {"text": text}, 400),
        ("/tts_stream", lambda text: {"text": text}, 400),
        ("/tts_to_audio", lambda text: {"text": text, "speaker_wav": "tone-440"}, 400),
        ("/inference_sft", lambda text: {"tts_text": text, "spk_id": "tone-440"}, 422),
    ],
)
def test_half_a_surrogate_pair_in_a_document_is_a_fault_of_the_request(
    path: str, fields: Callable[[str], dict[str, Any]], status: int, run_every_api: Any
) -> None:
    async def test(served: Any) -> None:
        body = json.dumps(fields("<speak>One \ud800 two.</speak>"))
        headers = {"content-type": "application/json"}
        answer = await served.client.post(path, content=body, headers=headers)
        assert answer.status_code == status, answer.text
        assert "text" in answer.text

    run_every_api(test)


@pytest.mark.parametrize("unit", [DENSE_UNITS[0], '<sub alias="b">a</sub>'])  # the parser is tested with all
def test_a_long_document_is_taken_in_slices_and_text_behind_it_follows(unit: str) -> None:
    document = dense_document(unit)

    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            with counted_callbacks() as calls:
                utterance.push_text(document)
                utterance.push_text("Behind it.")
                utterance.end_input()
                while not utterance.text.endswith("Behind it."):
                    await asyncio.sleep(0)
            assert max(calls) < 20_000  # of over a million

    with_engine(test)


def test_a_fault_at_the_end_of_a_long_document_ends_its_utterance() -> None:
    document = dense_document("<break/>a", ending="<b>")

    async def test(engine: Engine) -> None:
        with pytest.raises(BadSsml, match="mismatched tag"):
            await speak(engine, document, "Behind it.")

    with_engine(test)


def test_text_behind_a_long_document_is_refused_after_the_end_of_input() -> None:
    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text(dense_document("<break/>a"))
            utterance.end_input()
            utterance.end_input()
            for push in (utterance.flush, lambda: utterance.push_text("More.")):
                with pytest.raises(StreamClosed):
                    push()

    with_engine(test)


def test_an_utterance_that_is_left_while_a_document_is_parsed_takes_no_more_of_it() -> None:
    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text(dense_document("<break/>a"))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert utterance.text == ""

    with_engine(test)


def test_a_thousand_documents_in_one_text_are_taken_in_slices() -> None:
    async def test(engine: Engine) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            with counted_callbacks() as calls:
                utterance.push_text("<speak>{}</speak>".format("<break/>a" * 20) * 990 + "End.")
                while not utterance.text.endswith("End."):
                    await asyncio.sleep(0)
            assert max(calls) < 20_000

    with_engine(test)
