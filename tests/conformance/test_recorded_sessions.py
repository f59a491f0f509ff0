"""The sessions of every dialect get the answers that were recorded: status, headers, bodies, each message."""

import asyncio
from pathlib import Path

import pytest
from conformance.recordings.answers import Normalizer, describe_audio, difference
from conformance.recordings.recorder import play_all
from conformance.recordings.sessions import DATA, load

FILES = sorted(DATA.glob("*.json.xz"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.partition(".")[0])
def test_every_recorded_session_gets_the_answers_that_were_recorded(
    file: Path, decoded_in_this_process: None
) -> None:
    sessions = load(file)
    answers = asyncio.run(play_all(sessions, tries=3))
    changed = []
    for session, answer in zip(sessions, answers, strict=True):
        if found := difference(session.received, answer):
            changed.append(f"{session.title}\n{found}")
    assert not changed, f"{len(changed)} of {len(sessions)} sessions differ\n" + "\n".join(changed[:5])


# A session is recorded over HTTP or a WebSocket; each answer of Realtime has ids and times of its own.
NOT_RECORDED = {"wyoming", "realtime"}


def test_no_kind_of_session_is_missing() -> None:
    names = {file.name.partition(".")[0] for file in FILES}
    dialects = {
        folder.name
        for folder in (Path(__file__).parents[1] / "gateway/apis/dialects").iterdir()
        if any(folder.glob("test_*.py"))
    }
    assert names >= dialects - NOT_RECORDED | {"calls_api"}


def test_ids_keep_their_numbers_and_what_the_client_sent_stays() -> None:
    normalizer = Normalizer(sent="abcdef0123456789")
    text = "abcdef0123456789 req_00ff00ff00ff00ff req_11ff00ff00ff00ff req_00ff00ff00ff00ff "
    text += '"step_time": 3.5'
    plain = normalizer.text(text)
    assert plain.startswith("abcdef0123456789 req_<id 1> req_<id 2> req_<id 1> ")
    assert plain.endswith('"step_time": <time>')
    assert (
        normalizer.text("2026-11-28T10:00:00Z http://127.0.0.1:45123/") == "<time> http://127.0.0.1:<port>/"
    )


def test_audio_that_is_rounded_differently_is_the_same_and_other_audio_is_not() -> None:
    data = bytes(range(256)) * 40
    rounded = bytes([*data[:-1], data[-1] - 1])
    assert difference(describe_audio(data), describe_audio(rounded)) == ""
    assert difference(describe_audio(data), describe_audio(rounded), exact=True)
    swept = bytes(place // 40 for place in range(len(data)))  # each of sixteen parts has its own mean
    for audio, other in ((data, data[:-2]), (data, bytes(len(data))), (swept, swept[::-1])):
        assert difference(describe_audio(audio), describe_audio(other))
