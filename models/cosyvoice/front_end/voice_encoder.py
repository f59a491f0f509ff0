"""A recording of a voice made into what the networks are conditioned on: the prompt of a voice.

    encoder = VoiceEncoder.load(bundle.speaker_encoder, bundle.speech_tokenizer, ...)
    prompt = encoder.enroll(samples, 16_000, "what is said in it")
    prompt.save(path); VoicePrompt.load(path)          one file of arrays, without pickle

A prompt says who speaks (embedding), how it sounds (mel) and what is said (speech ids). Where voices are kept
and found is the engine's; this is one value and how it is made.

The mel and the ids that go with it are cut at their beginning to whole chunks of 25 ids, so that the first
chunk of speech needs no padding and the seam to it stays as it was recorded:

    speech_ids    |..|-------------------------|-------------------------|   all of it, for the language model
    flow_ids, mel    |  whole chunks of 25 ids, 50 mel frames, 1 second  |   for the flow

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:95-126, 167-185 (features, alignment).
"""

import hashlib
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import ArrayLike, NDArray

from ..config import CosyVoiceVersion
from . import features

Float = NDArray[np.float32]
Ids = NDArray[np.int32]

MIN_RECORDING_S, MAX_RECORDING_S = 3.0, 30.0
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 16_000, 192_000  # Hz
SAMPLE_RATE_STEP = 25  # Hz; others would need kernels of many megabytes
MAX_TRANSCRIPT_CHARACTERS = 1000  # characters; 30 s of speech have about 500
MIN_LEVEL_DBFS = -50.0  # of the loudest 20 ms
SPEAKER_EMBEDDING_WIDTH = 192
FLOW_BLOCK_IDS = 25
FRAMES_PER_ID = 2

_FILE_FORMAT = 1
_MAX_PROMPT_BYTES = 4_000_000  # of a saved prompt; 30 s take 490 kB


class VoicePromptError(ValueError):
    """A recording or a saved prompt cannot be used; the message says what was got and what is allowed."""


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """A voice, ready to condition the networks. Equal content has an equal ``id``.

    speech_ids: (N,) int32, 25 a second. mel: (80, 2 * M) float32, natural log, 50 frames/s, M = N // 25 * 25.
    embedding: (192,) float32. transcript: what is said in it, may be empty.
    """

    version: CosyVoiceVersion
    transcript: str
    speech_ids: Ids
    mel: Float
    embedding: Float

    @property
    def flow_ids(self) -> Ids:
        """(M,): the last ids, those that the mel belongs to."""
        return self.speech_ids[len(self.speech_ids) - self.mel.shape[1] // FRAMES_PER_ID :]

    @property
    def duration_s(self) -> float:
        """Seconds of speech."""
        return len(self.speech_ids) / 25

    @property
    def id(self) -> str:
        """32 hexadecimal digits of the content's SHA-256."""
        digest = hashlib.sha256(json.dumps([_FILE_FORMAT, self.version.value, self.transcript]).encode())
        for array in (self.speech_ids, self.mel, self.embedding):
            digest.update(json.dumps([array.shape, str(array.dtype)]).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    def save(self, path: Path) -> None:
        """Write to a file, complete or not at all."""
        about = json.dumps(
            {"format": _FILE_FORMAT, "version": self.version.value, "transcript": self.transcript}
        )
        packed = io.BytesIO()
        np.savez(
            packed,
            about=np.frombuffer(about.encode(), np.uint8),
            speech_ids=self.speech_ids,
            mel=self.mel,
            embedding=self.embedding,
        )
        partial = path.with_name(path.name + ".partial")
        try:
            partial.write_bytes(packed.getvalue())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> "VoicePrompt":
        """Read a saved prompt; raises VoicePromptError, and OSError where there is no file."""
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
            if size > _MAX_PROMPT_BYTES:
                raise VoicePromptError(
                    f"{path.name}: holds {size:,} bytes, a prompt has at most {_MAX_PROMPT_BYTES:,}"
                )
            with np.load(path, allow_pickle=False) as stored:
                return _parse_arrays(dict(stored))
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
            raise VoicePromptError(
                f"{path.name}: no saved prompt, or a damaged one ({error}); enrol again"
            ) from error


class VoiceEncoder:
    """Hears recordings through the two encoders of a bundle; one thread at a time."""

    def __init__(
        self,
        speaker: onnxruntime.InferenceSession,
        speech: onnxruntime.InferenceSession,
        version: CosyVoiceVersion,
        mel_max_hz: float | None,
        codebook_size: int = 6561,
    ) -> None:
        self._speaker, self._speech = speaker, speech
        self._version, self._mel_highest_hz, self._codebook_size = version, mel_max_hz, codebook_size

    @classmethod
    def load(
        cls,
        speaker: Path,
        speech: Path,
        version: CosyVoiceVersion,
        mel_max_hz: float | None,
        codebook_size: int = 6561,
    ) -> "VoiceEncoder":
        """Open the ONNX models of a bundle. mel_max_hz and codes: as the bundle's settings say."""
        return cls(
            _inference_session(speaker), _inference_session(speech), version, mel_max_hz, codebook_size
        )

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        """Make a recording a prompt.

        samples: (N,) mono, floats in [-1, 1] or int16; 3 to 30 s. sample_rate: Hz, 16,000 to 192,000.
        Raises VoicePromptError.
        """
        if len(transcript) > MAX_TRANSCRIPT_CHARACTERS:
            raise VoicePromptError(
                f"the transcript has {len(transcript):,} characters; at most {MAX_TRANSCRIPT_CHARACTERS:,} may be"
            )
        speech = check_recording(samples, sample_rate)
        speech_16k = features.resample(speech, sample_rate, features.SPEECH_RATE)
        speech_24k = features.resample(speech, sample_rate, features.MEL_RATE)
        mel = features.mel_spectrogram(speech_24k, self._mel_highest_hz)
        ids, mel = _align(self._speech_ids(speech_16k), mel)
        return VoicePrompt(self._version, transcript.strip(), ids, mel, self._embedding(speech_16k))

    def tokenize_speech(self, samples: ArrayLike, sample_rate: int) -> Ids:
        """What is said, as (N,) int32 speech ids at 25 a second: the source of a voice conversion.

        Same limits as ``enroll``; raises VoicePromptError.
        """
        speech = check_recording(samples, sample_rate)
        return self._speech_ids(features.resample(speech, sample_rate, features.SPEECH_RATE))

    def _speech_ids(self, speech_16k: Float) -> Ids:
        mel = features.whisper_log_mel(speech_16k)[None]
        frames, length = self._speech.get_inputs()[:2]
        feed = {frames.name: mel, length.name: np.array([mel.shape[2]], np.int32)}
        ids = np.asarray(self._speech.run(None, feed)[0]).reshape(-1).astype(np.int32)
        if len(ids) == 0 or ids.min() < 0 or ids.max() >= self._codebook_size:
            raise VoicePromptError(
                f"the speech tokenizer answered {len(ids)} ids outside 0 to {self._codebook_size - 1}; "
                "is it of the same release as the bundle?"
            )
        return ids

    def _embedding(self, speech_16k: Float) -> Float:
        filter_bank = features.kaldi_filter_bank(speech_16k)
        centred = filter_bank - filter_bank.mean(axis=0, keepdims=True)
        output = self._speaker.run(None, {self._speaker.get_inputs()[0].name: centred[None]})[0]
        embedding = np.asarray(output, np.float32).reshape(-1)
        if embedding.shape != (SPEAKER_EMBEDDING_WIDTH,) or not np.isfinite(embedding).all():
            raise VoicePromptError("the speaker encoder heard nobody; give a recording of one clear voice")
        return embedding


def check_recording(samples: ArrayLike, sample_rate: int) -> Float:
    """The samples as (N,) float32 in [-1, 1]; raises VoicePromptError with the limit that they break."""
    _check_rate(sample_rate)
    speech = _as_floats(np.asarray(samples))
    seconds = len(speech) / sample_rate
    if not MIN_RECORDING_S <= seconds <= MAX_RECORDING_S:
        raise VoicePromptError(
            f"the recording is {seconds:.1f} s long; {MIN_RECORDING_S:g} to {MAX_RECORDING_S:g} s are allowed"
        )
    if not np.isfinite(speech).all():
        raise VoicePromptError("the recording holds NaN or infinite samples; give numbers in [-1, 1]")
    peak = float(np.abs(speech).max())
    if peak > 1:
        raise VoicePromptError(f"the recording reaches {peak:.4g}; floats in [-1, 1] or int16 are allowed")
    level = _loudest_dbfs(speech, sample_rate)
    if level < MIN_LEVEL_DBFS:
        raise VoicePromptError(
            f"the recording is silent: its loudest 20 ms are at {level:.0f} dBFS; "
            f"a voice above {MIN_LEVEL_DBFS:.0f} dBFS is needed"
        )
    return speech


def _check_rate(sample_rate: int) -> None:
    if not MIN_SAMPLE_RATE <= sample_rate <= MAX_SAMPLE_RATE:
        raise VoicePromptError(
            f"the recording has {sample_rate:,} Hz; {MIN_SAMPLE_RATE:,} to {MAX_SAMPLE_RATE:,} Hz are allowed"
        )
    if sample_rate % SAMPLE_RATE_STEP:
        raise VoicePromptError(
            f"the recording has {sample_rate:,} Hz; a whole multiple of {SAMPLE_RATE_STEP} Hz is needed"
        )


def _as_floats(samples: NDArray[Any]) -> Float:
    if samples.ndim == 2 and 1 in samples.shape:
        samples = samples.reshape(-1)
    if samples.ndim != 1:
        raise VoicePromptError(
            f"the recording has shape {samples.shape}; one channel is allowed, give (samples,)"
        )
    if samples.dtype == np.int16:
        return samples.astype(np.float32) / np.float32(32_768)
    if not np.issubdtype(samples.dtype, np.floating):
        raise VoicePromptError(f"the recording holds {samples.dtype}; floats in [-1, 1] or int16 are allowed")
    return samples.astype(np.float32)


def _loudest_dbfs(speech: Float, sample_rate: int) -> float:
    window = sample_rate // 50
    windows = speech[: len(speech) // window * window].reshape(-1, window).astype(np.float64)
    power = float(np.max(np.mean(windows**2, axis=1)))
    return 10 * float(np.log10(max(power, 1e-12)))


def _align(ids: Ids, mel: Float) -> tuple[Ids, Float]:
    """As many ids as have a mel, and the mel of the last whole chunks of them."""
    count = min(mel.shape[1] // FRAMES_PER_ID, len(ids))
    whole = count // FLOW_BLOCK_IDS * FLOW_BLOCK_IDS
    frames = mel[:, FRAMES_PER_ID * (count - whole) : FRAMES_PER_ID * count]
    return ids[:count].copy(), np.ascontiguousarray(frames)


def _parse_arrays(stored: dict[str, NDArray[Any]]) -> VoicePrompt:
    about = json.loads(stored["about"].tobytes())
    if about["format"] != _FILE_FORMAT:
        raise VoicePromptError(f"format {about['format']}, this version reads {_FILE_FORMAT}")
    ids, mel, embedding = stored["speech_ids"], stored["mel"], stored["embedding"]
    whole = len(ids) // FLOW_BLOCK_IDS * FLOW_BLOCK_IDS
    shapes = (ids.ndim, mel.shape, embedding.shape)
    if shapes != (1, (80, FRAMES_PER_ID * whole), (SPEAKER_EMBEDDING_WIDTH,)):
        raise VoicePromptError(f"arrays of shapes {ids.shape}, {mel.shape}, {embedding.shape}")
    if [str(array.dtype) for array in (ids, mel, embedding)] != ["int32", "float32", "float32"]:
        raise VoicePromptError(f"arrays of {ids.dtype}, {mel.dtype}, {embedding.dtype}")
    return VoicePrompt(CosyVoiceVersion(about["version"]), str(about["transcript"]), ids, mel, embedding)


def _inference_session(model: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
