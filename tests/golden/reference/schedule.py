"""Case i_schedule: the ids of each call of flow and vocoder, and the number of samples of each chunk."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from golden.reference.comparison import Comparison, compare_rows, read_rows
from vivavoce.models.cosyvoice.config import FRAMES_PER_SPEECH_ID, CosyVoiceVersion, HiftConfig
from vivavoce.models.cosyvoice.flow.hop_schedule import HopSchedule, SpeechIdChunk

_REPEATED_FRAMES = 8  # that upstream's vocoder renders again, and withholds
_SAMPLES_PER_FRAME = HiftConfig().samples_per_frame

Row = Mapping[str, Any]


def check_schedule(folder: Path) -> Iterator[Comparison]:
    """Compare every call of fresh models, of a reused model, and offline."""
    stated = read_rows(folder, "i_schedule")
    for name in ("fresh_model", "same_model_three_requests"):
        for version in CosyVoiceVersion:
            rows = stated[name][f"v{version.value}"]
            ours = [_streamed_request(row, version) for row in rows]
            yield compare_rows("i_schedule", f"{name} v{version.value}", ours, rows)
    offline = zip(stated["offline"], CosyVoiceVersion, strict=True)
    ours = [_offline_request(row, version) for row, version in offline]
    yield compare_rows("i_schedule", "offline", ours, stated["offline"])


def _streamed_request(row: Row, version: CosyVoiceVersion) -> Row:
    schedule = HopSchedule(row["P"], row["hop_before"], first_hops=1)
    chunks = list(iter(lambda: schedule.next(row["N"], ended=True), None))
    request = _request(row, [_upstream_call(chunk, version) for chunk in chunks])
    return request | {"stream": True, "hop_after": schedule.hop}


def _offline_request(row: Row, version: CosyVoiceVersion) -> Row:
    call = _upstream_call(SpeechIdChunk(0, row["N"], row["N"], final=True), version)
    return _request(row, [call]) | {"stream": False, "hop_after": row["hop_before"]}


def _request(row: Row, calls: list[dict[str, Any]]) -> dict[str, Any]:
    given = {name: row[name] for name in ("N", "P", "hop_before")}
    return given | {"calls": calls, "total_samples": sum(call["samples"] for call in calls)}


def _upstream_call(chunk: SpeechIdChunk, version: CosyVoiceVersion) -> dict[str, Any]:
    """Upstream's vocoder call for a chunk: it repeats 8 frames in version 2, all frames in version 3."""
    begin, end = FRAMES_PER_SPEECH_ID * chunk.start, FRAMES_PER_SPEECH_ID * chunk.stop
    is_v3 = version is CosyVoiceVersion.V3
    repeated = begin if is_v3 else min(_REPEATED_FRAMES, begin)
    withheld = 0 if chunk.final else _REPEATED_FRAMES
    emitted_before = 0 if chunk.start == 0 else begin - _REPEATED_FRAMES
    return {
        "token_offset": chunk.start,
        "n_tokens": chunk.lookahead_stop,
        "streaming": not chunk.final,
        "finalize": chunk.final,
        "hift_mel_frames": end - begin + repeated,
        "hift_first_mel_frame": float(0 if is_v3 else begin - repeated),
        "cache_source_len": None if is_v3 else _SAMPLES_PER_FRAME * repeated,
        "samples": _SAMPLES_PER_FRAME * (end - withheld - emitted_before),
    }
