"""Kokoro-82M: phonemes and a style in, the samples of a clause and the time of each phoneme out.

The network renders a clause as a whole: its decoder normalizes each channel over the whole clause
(AdaIN), so that no piece of it can be rendered before the rest. On a CPU the convolutions of an int8 file are
computed in the form that is fastest there (``integer_convolutions``).
Styles are rows of 256 values, one for each number of phonemes; a mixture of voices is the weighted mean of
their styles.

Source: hexgrad/Kokoro-82M (Apache-2.0); the ONNX exports of thewh1teagle/kokoro-onnx (MIT) and their
voices-v1.0.bin, which is an npz archive.
"""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from numpy.typing import NDArray
from onnx import TensorProto, helper

from ..devices.onnx_sessions import CPU_SESSIONS, ONNX_RUNTIME_ERRORS, OnnxSessions, session_options
from ..onnx_graphs.exact_products import signed_products_are_exact, use_unsigned_weights
from ..phonemes.english_ipa import IPA_OF_SIGNS
from ..phonemes.timed_sounds import TimedSounds, timed_sounds
from .integer_convolutions import fastest_form, replace_convolutions

SAMPLE_RATE = 24_000
MAX_PHONEMES = 500  # in one call; the network takes 510
_STYLE_ROWS, _STYLE_VALUES = 510, 256
_DURATION_S = 0.025  # of one unit of the durations
# Sounds are heard this much before the nominal time of their phonemes: 85 % of the windows of 10 ms of hisses
# and vowels lie in their phonemes then, and 65 % without it.
_HEARD_BEFORE_S = 0.045
_MAX_PHONEME_S = 0.15  # of a word's last phoneme; what follows is a pause
_IDS_INPUTS = ("tokens", "input_ids")  # of exports of different ages
_MARKS = frozenset(';:,.!?—…"()“” ')

Float = NDArray[np.float32]


class KokoroError(ValueError):
    """A file is missing or damaged; the message names it."""


@dataclass(frozen=True, slots=True)
class RenderedClause:
    """samples: (N,) float32 at 24 kHz. Times of each word are not known of some exports.

    words: (start, stop) s. sounds: in s.
    """

    samples: Float
    words: tuple[tuple[float, float], ...] | None
    sounds: tuple[TimedSounds[float], ...] | None


class KokoroModel:
    """The network, for several threads.

    Args:
        phoneme_ids: Kokoro's alphabet.
        threads: that compute one clause.
        sessions: open the network's session.
    Attributes:
        missing: phonemes so far that the alphabet lacks; they are left out.
    """

    def __init__(
        self,
        path: Path,
        phoneme_ids: Mapping[str, int],
        threads: int,
        sessions: OnnxSessions = CPU_SESSIONS,
    ) -> None:
        try:
            model = onnx.load(path)
            self._durations = _expose_durations(model)
            if sessions.device.is_cpu:
                replace_convolutions(model, fastest_form(threads))
                if not signed_products_are_exact():
                    use_unsigned_weights(model)
            self._session = sessions.open(model.SerializeToString(), session_options(threads))
        except OSError as error:
            raise KokoroError(f"{path}: cannot be read: {error.strerror}") from error
        except DecodeError as error:
            raise KokoroError(f"{path}: is no ONNX model: {error}") from error
        except ONNX_RUNTIME_ERRORS as error:
            raise KokoroError(f"{path}: cannot be computed: {error}") from error
        inputs = {each.name: each.type for each in self._session.get_inputs()}
        found = [name for name in _IDS_INPUTS if name in inputs]
        if not found or not {"style", "speed"} <= inputs.keys():
            raise KokoroError(
                f"{path}: is no Kokoro model: its inputs are {', '.join(inputs)}; it has tokens, style, speed"
            )
        self._ids_input, self._phoneme_ids = found[0], phoneme_ids
        self.missing: set[str] = set()
        self._audio = self._session.get_outputs()[0].name
        self._speed_type = np.float32 if "float" in inputs["speed"] else np.int32

    def has_sound(self, phonemes: str) -> bool:
        """Whether any phoneme is in the alphabet."""
        return any(symbol in self._phoneme_ids and symbol not in _MARKS for symbol in phonemes)

    def render(
        self, words: Sequence[str], joined: Sequence[bool], style: Float, speed: float
    ) -> RenderedClause:
        """Render words, given as phonemes with their punctuation; at most 500 phonemes.

        joined: whether a word follows the one before without a blank. style: as ``read_styles``.
        """
        ids, ranges, signs = [0], [], []
        for phonemes, follows in zip(words, joined, strict=True):
            if len(ids) > 1 and not follows:
                ids.append(self._phoneme_ids[" "])
            known = [symbol for symbol in phonemes if symbol in self._phoneme_ids]
            self.missing |= set(phonemes).difference(self._phoneme_ids, _MARKS)
            count = max((index + 1 for index, symbol in enumerate(known) if symbol not in _MARKS), default=0)
            ranges.append((len(ids), len(ids) + count))
            signs.append([_ipa(symbol) for symbol in known[:count]])
            ids += [self._phoneme_ids[symbol] for symbol in known]
        ids.append(0)
        row = min(len(ids) - 2, len(style)) - 1
        feed = {
            self._ids_input: np.array([ids], np.int64),
            "style": style[max(0, row)][None],
            "speed": np.array([speed], self._speed_type),
        }
        names = [self._audio, *([self._durations] if self._durations else [])]
        samples, *durations = self._session.run(names, feed)
        samples = samples.reshape(-1).astype(np.float32)
        if not durations:
            return RenderedClause(samples, None, None)
        ends = np.cumsum(durations[0].reshape(-1)) * _DURATION_S - _HEARD_BEFORE_S
        times = tuple(_word_time(ends, *word) for word in ranges)
        sounds = tuple(
            _sounds(ends, word, first, stop_s)
            for word, (first, _), (_, stop_s) in zip(signs, ranges, times, strict=True)
        )
        return RenderedClause(samples, times, sounds)


def read_styles(path: Path) -> dict[str, Float]:
    """The style of each voice, (510, 256) float32, from an npz archive of any name. Raises KokoroError."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            styles = {name: archive[name] for name in archive.files}
    except OSError as error:
        raise KokoroError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError) as error:
        raise KokoroError(f"{path}: is no npz archive of voices: {error}") from error
    for name, style in styles.items():
        if style.size == 0 or style.size % _STYLE_VALUES or style.shape[0] > _STYLE_ROWS + 1:
            raise KokoroError(f"{path}: the voice {name} has the shape {style.shape}; expected (510, 1, 256)")
    if not styles:
        raise KokoroError(f"{path}: holds no voice")
    return {name: style.reshape(-1, _STYLE_VALUES).astype(np.float32) for name, style in styles.items()}


def mix_styles(styles: Mapping[str, Float], weights: Mapping[str, float]) -> Float:
    """The weighted mean of styles; the weights need not add up to 1."""
    total = sum(weights.values())
    mean = sum(styles[name] * np.float32(weight / total) for name, weight in weights.items())
    return np.asarray(mean, np.float32)


def _expose_durations(model: onnx.ModelProto) -> str | None:
    """Make the durations of the phonemes an output: the clipped result of the only rounding."""
    rounded = [node.output[0] for node in model.graph.node if node.op_type == "Round"]
    if len(rounded) != 1:
        return None
    clipped = [
        node.output[0]
        for node in model.graph.node
        if node.op_type in ("Clip", "Max") and node.input[0] == rounded[0]
    ]
    name = str((clipped or rounded)[0])
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    return name


def _word_time(ends: NDArray[np.float64], first: int, stop: int) -> tuple[float, float]:
    """(start, stop) of the word with the ids ``first`` to ``stop``, in seconds."""
    start_s = float(ends[first - 1])
    last_s = float(ends[max(first, stop - 1) - 1])  # when the last phoneme begins
    return start_s, min(float(ends[stop - 1]), last_s + _MAX_PHONEME_S) if first < stop else start_s


def _sounds(ends: NDArray[np.float64], signs: Sequence[str], first: int, stop_s: float) -> TimedSounds[float]:
    """Sounds of the word whose signs begin with the id ``first``."""
    times = ends[first - 1 : first + len(signs)].tolist()
    return timed_sounds(signs, times[:-1], [min(end, stop_s) for end in times[1:]])


def _ipa(symbol: str) -> str:
    return "" if symbol in _MARKS else IPA_OF_SIGNS.get(symbol, symbol)
