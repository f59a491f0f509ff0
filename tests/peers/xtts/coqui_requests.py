"""The requests of coqui's xtts-streaming-server, as its documentation and test client send them.

``python coqui_requests.py URL KEY POOR_KEY`` sends them to ``../server.py`` and prints the passed cases as
JSON. coqui's server has no keys: here the header is added.
"""

import base64
import io
import math
import struct
import sys
import wave
from typing import Any

import httpx

from peers.client_cases import run_cases

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six."
client = httpx.Client(base_url=URL, headers={"Authorization": f"Bearer {KEY}"}, timeout=60.0)


def recording() -> bytes:
    """Return two seconds of a tone as WAV."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((1, 2, 24_000, 0, "NONE", ""))
        samples = (round(9_000 * math.sin(step / 10)) for step in range(84_000))
        writer.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return file.getvalue()


def body_of(speaker: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"text": TEXT, "language": "en", "stream_chunk_size": "20", **speaker, **fields}


def studio_speaker() -> dict[str, Any]:
    return dict(client.get("/studio_speakers").json()["tone-330"])


def studio_speakers_are_listed() -> None:
    speaker = studio_speaker()
    assert len(speaker["speaker_embedding"]) == 512
    assert {len(row) for row in speaker["gpt_cond_latent"]} == {1024}


def a_studio_speaker_streams() -> None:
    for add_wav_header in (True, False):
        body = body_of(studio_speaker(), add_wav_header=add_wav_header)
        with client.stream("POST", "/tts_stream", json=body) as answer:
            assert answer.status_code == 200
            audio = b"".join(answer.iter_bytes(512))
        assert (audio[:4] == b"RIFF") == add_wav_header
        assert 1.1 < len(audio) / 48_000 < 1.5, len(audio)


def a_text_is_spoken_whole() -> None:
    answer = client.post("/tts", json=body_of(studio_speaker()))
    with wave.open(io.BytesIO(base64.b64decode(answer.json()))) as reader:
        assert 1.1 < reader.getnframes() / reader.getframerate() < 1.5


def a_cloned_speaker_speaks() -> None:
    speaker = client.post("/clone_speaker", files={"wav_file": recording()}).json()
    answer = client.post("/tts_stream", json=body_of(speaker, add_wav_header=False))
    assert 1.1 < len(answer.content) / 48_000 < 1.5, answer.content[:200]


def an_interruption_does_not_reach_the_next_answer() -> None:
    with client.stream("POST", "/tts_stream", json=body_of(studio_speaker(), text=TEXT * 100)) as answer:
        next(answer.iter_bytes(512))
    a_studio_speaker_streams()


def errors_have_a_detail() -> None:
    wrong = body_of({"speaker_embedding": [0.5] * 512, "gpt_cond_latent": [[0.0] * 1024]})
    answer = client.post("/tts_stream", json=wrong)
    assert answer.status_code == 400 and answer.json()["detail"], answer.text
    answer = client.get("/studio_speakers", headers={"Authorization": "Bearer wrong"})
    assert answer.status_code == 401 and answer.json()["detail"], answer.text


if __name__ == "__main__":
    run_cases(
        "httpx",
        studio_speakers_are_listed,
        a_studio_speaker_streams,
        a_text_is_spoken_whole,
        a_cloned_speaker_speaks,
        an_interruption_does_not_reach_the_next_answer,
        errors_have_a_detail,
    )
