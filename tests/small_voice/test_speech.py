"""The small bundle on every path of CosyVoice: a recogniser writes down what was said.

Random weights show that the arithmetic is right; only speech shows that a sentence comes out whole.
"""

import asyncio
import re
import shutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

_EXTRAS = "make test EXTRAS=dev,stt,cosyvoice"
pytest.importorskip("torch", reason=f"the CosyVoice networks need torch: {_EXTRAS}")
pytest.importorskip("faster_whisper", reason=f"a recogniser listens: {_EXTRAS}")

from benches.transcript_scoring import canonical_words  # noqa: E402
from benches.word_errors import (  # noqa: E402
    RecognizedText,
    load_recogniser,
    to_telephone_band,
    to_wide_band,
    transcribe,
    word_time_errors_ms,
)
from shared.calls.call_server import call_server, until, words  # noqa: E402
from small_voice import world  # noqa: E402
from small_voice.listen import unseen_sentences, words_written_wrong, words_wrong  # noqa: E402
from small_voice.recipe import SEED, SENTENCES  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.onnx_graphs.export import export_bundle  # noqa: E402
from vivavoce.models.devices.execution import Precision  # noqa: E402
from vivavoce.tts_engine.chunk import AudioChunk  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.finetuning.evaluation import AT_ONCE_POLICY  # noqa: E402
from vivavoce.tts_engine.engine import Engine, EngineConfig  # noqa: E402
from vivavoce.tts_engine.scheduler import SchedulerPolicy  # noqa: E402

_BUNDLE = Path(__file__).parents[1] / "data/small_voice"
_MAX_WORD_START_ERROR_MS = 150.0  # median; those of the recogniser are within 60
# Percent of the words of eight sentences: 1.9 in float32; in int8 1.0 of torch, 6.8 of ONNX Runtime (AVX2).
_MOST_WRONG = 9.0
# Sentences that are heard of each; torch takes twice as long to speak one.
_SENTENCES = {"torch": 4, "onnxruntime": 8}
_ONE_WORD = 6.0  # percent of the 17 words of the first sentence
_ANY_LOAD = EngineConfig(scheduler=SchedulerPolicy(max_load=1e9))

pytestmark = pytest.mark.asr


@pytest.fixture(scope="module")
def sentences() -> list[str]:
    return unseen_sentences(8, 11, islice(world.sentences(SEED), SENTENCES))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle with its graphs in both precisions."""
    copied = tmp_path_factory.mktemp("bundle") / "small"
    shutil.copytree(_BUNDLE, copied)
    for precision in (Precision.FP32, Precision.INT8):
        for _ in export_bundle(open_bundle(copied), precision):
            pass
    return copied


def samples_of(chunks: Iterable[AudioChunk]) -> NDArray[np.float32]:
    pcm = b"".join(chunk.pcm for chunk in chunks)
    return np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)


async def speak(engine: Engine, pieces: Sequence[str]) -> list[AudioChunk]:
    """Chunks of a text that comes in pieces."""
    async with engine.stream(seed=7) as stream:
        for piece in pieces:
            stream.push_text(piece)
            await asyncio.sleep(0)
        stream.end_input()
        return [chunk async for chunk in stream]


def whole(texts: Sequence[str]) -> list[list[str]]:
    return [[text] for text in texts]


def speak_all(
    folder: Path, texts: Sequence[Sequence[str]], *, at_once: bool = False, **options: str
) -> list[list[AudioChunk]]:
    async def run() -> list[list[AudioChunk]]:
        async with await Engine.open(str(folder), config=_ANY_LOAD, **options) as engine:
            if at_once:
                return await asyncio.gather(*(speak(engine, pieces) for pieces in texts))
            return [await speak(engine, pieces) for pieces in texts]

    return asyncio.run(run())


SpokenSentences = Callable[[str, str], list[list[AudioChunk]]]
HeardSentences = Callable[[str, str], list[RecognizedText]]


@pytest.fixture(scope="module")
def spoken(folder: Path, sentences: list[str]) -> SpokenSentences:
    """The first sentences, one after the other, by executor and precision; each is spoken once."""
    return cache(
        lambda executor, precision: speak_all(
            folder, whole(sentences[: _SENTENCES[executor]]), executor=executor, precision=precision
        )
    )


@pytest.fixture(scope="module")
def heard(spoken: SpokenSentences) -> HeardSentences:
    """What the recogniser writes down of the sentences, by executor and precision."""
    recogniser = load_recogniser()
    return cache(
        lambda executor, precision: [
            transcribe(recogniser, to_wide_band(samples_of(chunks))) for chunks in spoken(executor, precision)
        ]
    )


@pytest.mark.parametrize("executor", ["torch", "onnxruntime"])
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_the_words_are_heard_in_each_precision_and_executor(
    heard: HeardSentences, sentences: list[str], executor: str, precision: str
) -> None:
    texts = [each.text for each in heard(executor, precision)]
    assert words_written_wrong(sentences[: _SENTENCES[executor]], texts) <= _MOST_WRONG


def test_text_that_comes_word_by_word_is_spoken_as_the_whole_text(
    folder: Path, spoken: SpokenSentences, sentences: list[str]
) -> None:
    pieces = [re.findall(r"\S+\s*", text) for text in sentences[:3]]
    by_word = speak_all(folder, pieces, executor="onnxruntime", precision="fp32")
    at_once = spoken("onnxruntime", "fp32")
    for one, other in zip(by_word, at_once[:3], strict=True):
        assert b"".join(chunk.pcm for chunk in one) == b"".join(chunk.pcm for chunk in other)


def test_the_words_are_heard_on_a_telephone(spoken: SpokenSentences, sentences: list[str]) -> None:
    speech = [samples_of(chunks) for chunks in spoken("onnxruntime", "fp32")[:4]]
    assert words_wrong(sentences[:4], speech, to_telephone_band) <= _MOST_WRONG


def test_words_have_the_times_at_which_they_are_heard(spoken: SpokenSentences, heard: HeardSentences) -> None:
    sentences = zip(spoken("onnxruntime", "fp32"), heard("onnxruntime", "fp32"), strict=True)
    errors = []
    for chunks, written in islice(sentences, 1, None):  # after the first, the pace of the voice is known
        errors += word_time_errors_ms([word for chunk in chunks for word in chunk.words], written.starts)
    assert len(errors) > 30
    assert statistics.median(errors) <= _MAX_WORD_START_ERROR_MS


def test_the_same_seed_gives_the_same_chunks(
    folder: Path, spoken: SpokenSentences, sentences: list[str]
) -> None:
    (again,) = speak_all(folder, whole(sentences[:1]), executor="onnxruntime", precision="fp32")
    assert [heard_of(chunk) for chunk in again] == [
        heard_of(chunk) for chunk in spoken("onnxruntime", "fp32")[0]
    ]


def heard_of(chunk: AudioChunk) -> tuple[object, ...]:
    """What is equal in chunks that are heard alike; the cost of making them is not."""
    made = chunk.provenance
    return chunk.pcm, made.speech_ids, made.mel_frames, chunk.words, chunk.text, chunk.final


def test_a_sentence_that_is_rendered_whole_is_heard_as_well_as_streamed(
    spoken: SpokenSentences, sentences: list[str]
) -> None:
    async def run() -> list[AudioChunk]:
        backend = CosyVoiceBackend.load(_BUNDLE, AT_ONCE_POLICY)
        async with await Engine.open(backend=backend, config=_ANY_LOAD, warm_up=False) as engine:
            return await speak(engine, sentences[:1])

    at_once, streamed = asyncio.run(run()), spoken("torch", "fp32")[0]
    assert len(at_once) < len(streamed)
    wrong = [words_wrong(sentences[:1], [samples_of(one)], to_wide_band) for one in (at_once, streamed)]
    assert wrong[0] <= wrong[1] + _ONE_WORD
    assert len(samples_of(at_once)) == len(samples_of(streamed))  # of the same speech ids
    assert not np.array_equal(samples_of(at_once), samples_of(streamed))


def test_streams_at_once_say_what_each_says_alone(
    folder: Path, spoken: SpokenSentences, sentences: list[str]
) -> None:
    alone = spoken("torch", "fp32")
    texts = whole(sentences[: len(alone)])
    together = speak_all(folder, texts, executor="torch", precision="fp32", at_once=True)
    for one, other in zip(alone, together, strict=True):
        assert [chunk.provenance.speech_ids for chunk in one] == [
            chunk.provenance.speech_ids for chunk in other
        ]
        first, second = samples_of(one), samples_of(other)
        assert np.corrcoef(first, second)[0, 1] > 0.999


def test_no_seam_is_louder_than_the_speech_around_it(spoken: SpokenSentences) -> None:
    for chunks in spoken("onnxruntime", "fp32"):
        bends = np.abs(np.diff(samples_of(chunks), 2))
        seams = np.cumsum([len(chunk.pcm) // 2 for chunk in chunks])[:-1]
        for seam in seams:
            around = bends[max(0, seam - 480) : seam + 480]
            assert bends[seam - 2 : seam + 1].max() <= max(0.01, 3 * np.quantile(around, 0.99))


def test_an_answer_of_the_openai_api_is_the_speech_of_the_engine(
    spoken: SpokenSentences, sentences: list[str]
) -> None:
    async def run() -> bytes:
        async with call_server(backend=CosyVoiceBackend.load(_BUNDLE)) as server, server.http() as client:
            url = f"http://{server.gateway.addresses.http[0]}:{server.gateway.addresses.http[1]}"
            request = {"model": "vivavoce", "input": sentences[0], "response_format": "pcm", "seed": 7}
            answer = await client.post(f"{url}/v1/audio/speech", json=request)
            answer.raise_for_status()
            return answer.content

    assert asyncio.run(run()) == b"".join(chunk.pcm for chunk in spoken("torch", "fp32")[0])


def test_what_an_interrupted_caller_heard_is_what_was_reported() -> None:
    """Over AudioSocket; the program writes token by token and discards in the middle."""
    text = "Thank you very much for your patience. I will call you back soon. Please wait a moment."

    async def run() -> tuple[list[str], bytes]:
        async with call_server(backend=CosyVoiceBackend.load(_BUNDLE)) as server:
            phone = await server.phone()
            async with server.socket(phone.call_id) as socket:
                for word in text.split(" "):
                    await socket.send(f'{{"type": "text", "text": "{word} "}}')
                await socket.send('{"type": "end"}')
                heard = []
                while len(heard) < 9:
                    heard += words(await until(socket, "word"))
                await socket.send('{"type": "discard"}')
                heard += words(await until(socket, "discarded"))
            return heard, bytes(phone.heard)

    reported, pcm = asyncio.run(asyncio.wait_for(run(), 120))
    audible = np.frombuffer(pcm, "<i2").astype(np.float32) / np.float32(32768)
    heard = canonical_words(transcribe(load_recogniser(), np.repeat(audible, 2)).text)
    assert reported == [word.strip(",.!?") for word in text.split()][: len(reported)]
    # The words have estimated times; a few are heard wrong.
    assert sum(word.lower() not in heard for word in reported) <= 4
    assert abs(len(heard) - len(reported)) <= 6
