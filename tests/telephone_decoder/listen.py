"""Judges decoders at 8 kHz: words that a recogniser hears wrong, and scores of perceived quality.

Each decoder speaks the same lines, through the product's vocoder, a filter of 300 to 3,400 Hz and u-law. The
sentences are those of the benches, which no student was taught. DNSMOS (ITU-T P.835, overall) and PLCMOS are
the models in the package ``speechmos``; differences are of the same sentence, student less teacher.

Source: Reddy et al. 2022, DNSMOS P.835, arXiv:2110.01763; Diener et al. 2023, PLCMOS, arXiv:2305.15127;
speechmos 0.0.1.1 (MIT), dnsmos.py and plcmos.py.
"""

import hashlib
import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Self

import numpy as np
import onnxruntime
import soxr
from numpy.typing import NDArray

from benches.transcript_scoring import MistakeKind, score
from benches.two_recognisers import MissingRecogniser, load_base
from benches.word_errors import PLAIN_SENTENCES, load_recogniser, sentences, transcribe
from telephone_decoder.teacher import Teacher
from vivavoce.adapters.audio.formats.g711 import ulaw_decode, ulaw_encode
from vivavoce.models.devices.onnx_sessions import CPU_SESSIONS, session_options
from vivavoce.models.hibari import voice as hibari
from vivavoce.models.hibari.decoder import Decoder, TelephoneDecoder
from vivavoce.models.hibari.harmonic_vocoder import TELEPHONE_BAND
from vivavoce.models.hibari.telephone_graph import make_telephone_decoder, read_weights
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.hibari.backend import VOICE
from vivavoce.tts_engine.reading.prosody import NEUTRAL_PROSODY
from vivavoce.tts_engine.segmenter import Segmenter

_BENCHES = Path(__file__).parents[1] / "benches"
_STEPS = (16, 32, 64)
_PAUSE_S = 0.2
_HIGHEST_HZ, _LOWEST_HZ = 3_400, 300
_FILTER_TAPS = 255
_RATE = 16_000  # Hz, of all judges
_DNSMOS_SAMPLES = round(9.01 * _RATE)
_DNSMOS_OVERALL = np.poly1d([-0.06766283, 1.11546468, 0.04602535])
_RATERS = 5

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class JudgedText:
    """A sentence, and the words that are to be heard."""

    text: str
    reference: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Of one sentence of one decoder."""

    words: int
    wrong: int  # for the recogniser that hears the fewest wrong
    dnsmos: float
    plcmos: float


def judged_texts() -> list[JudgedText]:
    """Sentences of the benches: of call centres, of clauses, questions, and those of an unseen list."""
    melody = tomllib.loads((_BENCHES / "voices/melody.toml").read_text("utf-8"))
    questions = tomllib.loads((_BENCHES / "voices/questions.toml").read_text("utf-8"))
    unseen = (_BENCHES / "unseen/list_3.txt").read_text("utf-8").splitlines()
    others = [
        *PLAIN_SENTENCES,
        *(joint.replace(" | ", " ") for joint in melody["joints"]),
        *(phrase + "." for phrase in melody["phrases"]),
        *chain.from_iterable(texts for kinds in questions.values() for texts in kinds.values()),
        *(line[4:].split(" => ")[0] for line in unseen if line.startswith("en: ")),
    ]
    known = [JudgedText(sentence.text, sentence.reference) for sentence in sentences()]
    return known + [JudgedText(text, _spoken(text)) for text in others]


def _spoken(text: str) -> str:
    segmenter = Segmenter()
    segments = segmenter.push(text) + segmenter.flush()
    return " ".join(word.text for segment in segments for word in segment.words).lower()


class Speakers:
    """The packaged voice with its own decoder, and with students, at 8 kHz.

    Args:
        students: by name.
    """

    def __init__(self, students: Mapping[str, Decoder]) -> None:
        self._teacher = Teacher()
        voice = self._teacher.voice
        (line, *_) = self.lines(PLAIN_SENTENCES[0])
        self.decoders: dict[str, Decoder] = {"teacher": voice.init_state(line, 0).decoder, **students}
        self._voices = {
            name: hibari.HibariVoice(voice._encoder, decoder, decoder, voice.phonemizer)
            for name, decoder in self.decoders.items()
        }

    def lines(self, text: str) -> list[hibari.EncodedLine]:
        """The lines of a text, as the product cuts them."""
        return self._teacher.lines(text, SlotRequest(VOICE.id, seed=7), NEUTRAL_PROSODY)

    @classmethod
    def of(cls, weights: Path) -> Self:
        """With one student, whose weights are as ``export`` writes them."""
        graph = make_telephone_decoder(read_weights(weights.read_bytes()))
        return cls({"student": TelephoneDecoder(CPU_SESSIONS.open(graph))})

    def speak(self, name: str, lines: Sequence[hibari.EncodedLine], steps: Sequence[int] = _STEPS) -> Float:
        """The samples of lines, at 8 kHz, with pauses between them; steps: as of ``render``."""
        pause = np.zeros(round(_PAUSE_S * TELEPHONE_BAND.sample_rate), np.float32)
        parts = [part for line in lines for part in (*self.render(name, line, steps), pause)]
        return np.concatenate(parts[:-1])

    def render(self, name: str, line: hibari.EncodedLine, steps: Sequence[int] = _STEPS) -> list[Float]:
        """Samples of a line, step by step; the last of ``steps`` is repeated."""
        voice, samples = self._voices[name], list[Float]()
        state = voice.init_state(line, 0, TELEPHONE_BAND)
        while not hibari.is_finished(line, state):
            frames = steps[min(len(samples), len(steps) - 1)]
            rendered, state = voice.step(line, state, frames)
            samples.append(rendered)
        return samples


def over_telephone(samples: Float) -> Float:
    """8 kHz samples through 300 to 3,400 Hz and u-law, at 16 kHz."""
    filtered = np.convolve(samples, _band_pass(TELEPHONE_BAND.sample_rate), "same")
    pcm = np.clip(np.rint(filtered * 32767), -32768, 32767).astype("<i2").tobytes()
    heard = np.frombuffer(ulaw_decode(ulaw_encode(pcm)), "<i2").astype(np.float32) / np.float32(32768)
    return np.asarray(soxr.resample(heard, TELEPHONE_BAND.sample_rate, _RATE), np.float32).clip(-1, 1)


def _band_pass(rate: int) -> NDArray[np.float64]:
    at = np.arange(_FILTER_TAPS) - _FILTER_TAPS // 2
    ideal = [2 * edge / rate * np.sinc(2 * edge / rate * at) for edge in (_HIGHEST_HZ, _LOWEST_HZ)]
    taps: NDArray[np.float64] = (ideal[0] - ideal[1]) * np.hamming(_FILTER_TAPS)
    return taps


class Judges:
    """Whisper tiny.en, and Whisper base if it is installed, DNSMOS and PLCMOS.

    What was judged before is read from a file.

    Raises ModuleNotFoundError without ``speechmos``.
    """

    def __init__(self, known: Path) -> None:
        package = find_spec("speechmos")
        if package is None or package.origin is None:
            raise ModuleNotFoundError("the judges need speechmos: pip install --no-deps speechmos==0.0.1.1")
        models = Path(package.origin).parent
        self._dnsmos = _session(models / "dnsmos_models/sig_bak_ovr.onnx")
        self._plcmos = _session(models / "plcmos_models/plcmos_v2.onnx")
        self._recognisers = [load_recogniser()]
        with suppress(MissingRecogniser):
            self._recognisers.append(load_base())
        self._path = known
        self._known = json.loads(known.read_text("utf-8")) if known.exists() else {}

    def judge(self, text: JudgedText, samples: Float) -> Judgement:
        """Judge 8 kHz samples."""
        recognisers = bytes([len(self._recognisers)])
        key = hashlib.sha256(recognisers + text.text.encode() + samples.tobytes()).hexdigest()
        if key not in self._known:
            heard = over_telephone(samples)
            transcripts = (transcribe(each, heard).text for each in self._recognisers)
            results = [score(text.reference, transcript, ()) for transcript in transcripts]
            wrong = min(result.count_wrong(MistakeKind.WORD) for result in results)
            judgement = Judgement(results[0].words, wrong, self._overall(heard), self._packets(heard))
            self._known[key] = asdict(judgement)
            self._path.write_text(json.dumps(self._known), "utf-8")
        return Judgement(**self._known[key])

    def _overall(self, heard: Float) -> float:
        """DNSMOS, the mean over windows of 9 s; shorter speech is repeated."""
        while len(heard) < _DNSMOS_SAMPLES:
            heard = np.concatenate([heard, heard])
        starts = range(0, len(heard) - _DNSMOS_SAMPLES + 1, _RATE)
        raw = [
            self._dnsmos.run(None, {"input_1": heard[None, start : start + _DNSMOS_SAMPLES]})[0][0][2]
            for start in starts
        ]
        return float(np.mean(_DNSMOS_OVERALL(raw)))

    def _packets(self, heard: Float) -> float:
        """PLCMOS, the mean of raters that are the same for all speech."""
        size, hop = 512, 256
        count = math.ceil((len(heard) + hop) / hop)
        padded = np.zeros((count - 1) * hop + size)
        padded[hop : hop + len(heard)] = heard
        frames = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
        power = np.abs(np.fft.rfft(frames * np.hamming(size + 1)[:-1])) ** 2
        feature = (np.log(np.maximum(power, power[power > 0].min() * 1e-12)) / 20).astype(np.float32)
        raters = np.random.default_rng(0).standard_normal((_RATERS, 1, 64)).astype(np.float32)
        feeds = ({"degraded_audio": feature[None, None], "rater_embed": rater} for rater in raters)
        return float(np.mean([np.ravel(self._plcmos.run(None, feed)[0])[0] for feed in feeds]))


def _session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), session_options(), providers=["CPUExecutionProvider"])


def compare(
    weights: Path, known: Path, count: int, names: Sequence[str] = ("teacher", "student")
) -> dict[str, list[Judgement]]:
    """Judge ``count`` sentences of each decoder and print the figures; the paired ones, if there are two."""
    speakers, judges = Speakers.of(weights), Judges(known)
    found: dict[str, list[Judgement]] = {name: [] for name in names}
    for text in judged_texts()[:count]:
        lines = speakers.lines(text.text)
        for name in names:
            found[name].append(judges.judge(text, speakers.speak(name, lines)))
    for name, judgements in found.items():
        words, wrong = (sum(getattr(each, key) for each in judgements) for key in ("words", "wrong"))
        dnsmos, plcmos = (
            np.mean([getattr(each, key) for each in judgements]) for key in ("dnsmos", "plcmos")
        )
        print(
            f"{name:8} {len(judgements)} sentences: {wrong} of {words} words wrong "
            f"({100 * wrong / words:.2f} %), DNSMOS {dnsmos:.3f}, PLCMOS {plcmos:.3f}"
        )
    if len(found) == 2:
        for key in ("wrong", "dnsmos", "plcmos"):
            print(f"student less teacher, {key}: {paired(found['student'], found['teacher'], key)}")
    return found


def paired(students: Sequence[Judgement], teachers: Sequence[Judgement], key: str) -> str:
    """Mean difference of a figure and its 95 % interval."""
    pairs = zip(students, teachers, strict=True)
    differences = np.array([getattr(one, key) - getattr(other, key) for one, other in pairs])
    interval = 1.96 * differences.std(ddof=1) / math.sqrt(len(differences))
    return f"{differences.mean():+.3f} ± {interval:.3f}"
