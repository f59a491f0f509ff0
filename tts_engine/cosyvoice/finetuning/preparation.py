"""Makes a data set of a folder of recordings: decodes, screens, encodes, and keeps what was done before.

A recording is decoded in a process of its own, a few ahead of the one being encoded, so that memory does not
grow with the folder. A second run encodes what is new or changed and forgets what is gone.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np

from ....models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ....models.cosyvoice.config import QWEN_FOLDER
from ....models.cosyvoice.front_end.lm_prompts import cross_lingual_prompt
from ....models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ....models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ....models.cosyvoice.front_end.voice_prompt import VoicePromptError
from ....models.cosyvoice.training.dataset import (
    DatasetAbout,
    DatasetIndex,
    DatasetWriter,
    PreparedUtterance,
    TrainingDataset,
)
from ...errors import BadRequest
from ...voices.recording import Recording, RecordingLimits, read_recording
from ..enrolment import digest_voice_encoder, load_voice_encoder
from .recordings import TranscribedRecording, find_recordings
from .screening import (
    MAX_UTTERANCE_S,
    MIN_SAMPLE_RATE,
    fault_of_sound,
    fault_of_voices,
    find_outliers,
    measure_levels,
    windows_of_speech,
)

MAX_TEXT_IDS = 200
RECOMMENDED_S = 30 * 60.0
_DECODED_AHEAD = 3  # recordings
_MAX_FILE_BYTES = 64 * 2**20
# A recording that is too long is decoded to a little more, to be left out with its reason.
_LIMITS = RecordingLimits(
    min_duration_s=0.05,
    max_duration_s=MAX_UTTERANCE_S + 1,
    max_excerpted_s=0.0,  # its transcript is of all of it
    min_sample_rate=MIN_SAMPLE_RATE,
    max_bytes=_MAX_FILE_BYTES,
)


@dataclass(frozen=True, slots=True)
class PreparationReport:
    """What a data set holds after a preparation."""

    dataset: Path
    kept: int
    new: int
    seconds: float  # of all that is kept
    durations: tuple[float, ...]  # s, of each
    peaks: tuple[float, ...]  # dBFS, of each
    left_out: dict[str, str]  # by name, why
    is_complete: bool  # False: it was interrupted

    @property
    def is_short(self) -> bool:
        """Whether there is less than is recommended for a voice."""
        return self.seconds < RECOMMENDED_S


def digest_of_bundle(bundle: CosyVoiceBundle) -> str:
    """What a data set depends on in a bundle: its encoders, mel and text tokenizer."""
    digest = sha256(digest_voice_encoder(bundle).encode())
    for name in ("vocab.json", "merges.txt"):
        digest.update((bundle.folder / QWEN_FOLDER / name).read_bytes())
    return digest.hexdigest()[:32]


def about_dataset(bundle: CosyVoiceBundle, tokenizer: TextTokenizer) -> DatasetAbout:
    """How a data set is described that is prepared with a bundle."""
    instruct = cross_lingual_prompt(tokenizer, bundle.version).text_ids
    return DatasetAbout(bundle.version.value, digest_of_bundle(bundle), tuple(instruct))


def prepare(
    recordings: Path,
    bundle_folder: Path,
    out: Path,
    *,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> PreparationReport:
    """Prepare a data set, or bring one up to date.

    on_progress: called with the recordings done and all. Raises BadRequest for a folder without recordings,
    InvalidBundleError, DatasetError for a data set of another bundle, and OSError for a full disk: what was
    written before is kept.
    """
    found = find_recordings(recordings)
    bundle = open_bundle(bundle_folder)
    tokenizer = bundle.text_tokenizer()
    writer = DatasetWriter(out, about_dataset(bundle, tokenizer))
    writer.index.bundle = str(bundle_folder.resolve())
    wanted = _forget_changed(writer.index, found.recordings)
    preparation = _Preparation(writer, tokenizer, load_voice_encoder(bundle))
    done = 0
    try:
        for done, (recording, decoded) in enumerate(_decode_ahead(wanted), 1):
            preparation.add(recording, decoded)
            on_progress(done, len(wanted))
            if should_stop():
                break
    finally:
        writer.flush()
    if writer.index.entries:
        _leave_outliers_out(writer.index, out)
    left_out = {name: why for name, (_, why) in writer.index.left_out.items()} | dict(found.unusable)
    entries = writer.index.entries
    durations = tuple(entry.seconds for entry in entries)
    peaks = tuple(entry.peak_dbfs for entry in entries if entry.peak_dbfs is not None)
    return PreparationReport(
        out,
        len(durations),
        preparation.new,
        sum(durations),
        durations,
        peaks,
        dict(sorted(left_out.items())),
        done == len(wanted),
    )


def _forget_changed(
    index: DatasetIndex, recordings: Iterable[TranscribedRecording]
) -> list[TranscribedRecording]:
    """Drop entries whose recording is gone or changed; returns the recordings to encode."""
    stamps = {recording.name: recording.stamp for recording in recordings}
    index.entries = [entry for entry in index.entries if stamps.get(entry.name) == entry.stamp]
    index.left_out = {name: about for name, about in index.left_out.items() if stamps.get(name) == about[0]}
    done = {entry.name for entry in index.entries} | index.left_out.keys()
    return [recording for recording in recordings if recording.name not in done]


def _decode_ahead(
    recordings: Iterable[TranscribedRecording],
) -> Iterator[tuple[TranscribedRecording, Recording | str]]:
    """Each recording decoded, or why it cannot be."""
    waiting: deque[tuple[TranscribedRecording, Future[Recording | str]]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for recording in recordings:
            waiting.append((recording, pool.submit(_decode, recording)))
            if len(waiting) > _DECODED_AHEAD:
                first, future = waiting.popleft()
                yield first, future.result()
        for first, future in waiting:
            yield first, future.result()


def _decode(recording: TranscribedRecording) -> Recording | str:
    try:
        size = recording.path.stat().st_size
        if size > _MAX_FILE_BYTES:
            return f"too long: the file has {size / 2**20:.0f} MiB; cut it into utterances of up to 30 s"
        return read_recording(recording.path.read_bytes(), _LIMITS)
    except OSError as error:
        return f"no audio: {error.strerror}"
    except BadRequest as error:
        return str(error)


class _Preparation:
    """Screens and encodes recordings, one after the other."""

    def __init__(self, writer: DatasetWriter, tokenizer: TextTokenizer, encoder: VoiceEncoder) -> None:
        self._writer, self._tokenizer, self._encoder = writer, tokenizer, encoder
        self.new = 0  # added to the data set

    def add(self, recording: TranscribedRecording, decoded: Recording | str) -> None:
        """Add a recording to the data set, or the reason why it is left out."""
        prepared = decoded if isinstance(decoded, str) else self._encode(recording, decoded)
        if isinstance(prepared, str):
            self._writer.index.left_out[recording.name] = [recording.stamp, prepared]
        else:
            self._writer.add(prepared)
            self.new += 1

    def _encode(self, recording: TranscribedRecording, sound: Recording) -> PreparedUtterance | str:
        if fault := fault_of_sound(sound.samples, sound.sample_rate, recording.text):
            return fault
        text_ids = self._tokenizer.encode(recording.text)
        if not 1 <= len(text_ids) <= MAX_TEXT_IDS:
            return f"its transcript has {len(text_ids)} text ids; 1 to {MAX_TEXT_IDS} are used"
        try:
            encoded = self._encoder.encode_utterance(sound.samples, sound.sample_rate)
            windows = windows_of_speech(sound.samples, sound.sample_rate)
            voices = [self._encoder.embed_speaker(window, sound.sample_rate) for window in windows]
        except VoicePromptError as error:
            return str(error)
        if fault := fault_of_voices(voices):
            return fault
        return PreparedUtterance(
            recording.name,
            recording.text,
            recording.speaker,
            tuple(text_ids),
            encoded.speech_ids,
            encoded.mel,
            encoded.embedding,
            (encoded.samples.clip(-1, 1) * 32_767).astype(np.int16),
            str(recording.path.resolve()),
            recording.stamp,
            measure_levels(sound.samples, sound.sample_rate).peak_dbfs,
        )


def _leave_outliers_out(index: DatasetIndex, folder: Path) -> None:
    """Move utterances that differ from the others of their speaker out of the index."""
    dataset = TrainingDataset(folder)
    similarities = {}
    for number, entry in enumerate(dataset.entries):
        embedding = dataset.arrays(number)["embedding"]
        mean = dataset.speaker_embedding(entry.speaker)
        similarities[entry.name] = float(embedding @ mean) / max(float(np.linalg.norm(embedding)), 1e-12)
    outliers = find_outliers(dataset.entries, similarities)
    stamps = {entry.name: entry.stamp for entry in dataset.entries}
    index.left_out |= {name: [stamps[name], why] for name, why in outliers.items()}
    index.entries = [entry for entry in index.entries if entry.name not in outliers]
    index.write(folder)
