"""XTTS servers' APIs: the requests of their own clients, the errors, and the folder of files.

The requests are those of xtts-streaming-server's test client, of SillyTavern and of clients of a Flask server
that writes files.
"""

import asyncio
import base64
import io
import wave
from pathlib import Path
from typing import Any

import pytest

from shared.audio.recordings import recording
from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy
from vivavoce.tts_engine.voices.store import VoiceStore

FOREIGN = {"gpt_cond_latent": [[0.0]], "text": "One.", "language": "en"}
TEXT = "One two three."
WORDS_BYTES = round(3 * WORD_S * 24_000) * 2
NAMED = {"text": TEXT, "speaker_wav": "tone-330", "language": "en"}


def wav_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.wav")}


def pcm_of(file: bytes) -> bytes:
    assert file[:4] == b"RIFF" and file[36:40] == b"data"
    return file[44:]


def test_clients_of_the_streaming_server_clone_and_speak(run_every_api: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        client = served.client
        answer = await client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
        latents = answer.json()
        assert answer.status_code == 200
        assert len(latents["speaker_embedding"]) == 512 and len(latents["gpt_cond_latent"][0]) == 1_024
        again = await client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
        assert again.json() == latents and len(list((await client.get("/speakers_list")).json())) == 3
        body = {**latents, "text": TEXT, "language": "en", "add_wav_header": False, "stream_chunk_size": "20"}
        streamed = await client.post("/tts_stream", json=body)
        assert (streamed.status_code, streamed.headers["content-type"]) == (200, "audio/wav")
        assert len(streamed.content) >= WORDS_BYTES
        assert pitch_of(streamed.content) == pytest.approx(220, rel=0.02)
        assert served.backend.requests[-1].delivery.first_hop == 23  # 20 ids of 46 ms are 23 of 40 ms
        body = {name: value for name, value in body.items() if "wav" not in name and "chunk" not in name}
        whole = await client.post("/tts", json=body)
        file = base64.b64decode(whole.json())
        with wave.open(io.BytesIO(file)) as reader:
            assert (reader.getframerate(), reader.readframes(2**20)) == (24_000, streamed.content)

    run_every_api(test, store=store)


def test_sessions_that_clone_the_same_recording_at_once_share_the_voice(
    run_every_api: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        files = {"wav_file": ("anna.wav", recording())}
        answers = await asyncio.gather(*(served.client.post("/clone_speaker", files=files) for _ in range(4)))
        assert [answer.status_code for answer in answers] == [200] * 4
        assert all(answer.json() == answers[0].json() for answer in answers)
        assert len(store.list()) == 1

    run_every_api(test, store=store)


def test_studio_speakers_speak_with_their_numbers(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        speakers = (await served.client.get("/studio_speakers")).json()
        assert list(speakers) == ["tone-440", "tone-330"]
        body = {**speakers["tone-330"], "text": TEXT, "language": "en"}
        answer = await served.client.post("/tts_stream", json=body)
        assert pitch_of(pcm_of(answer.content)) == pytest.approx(330, rel=0.02)

    run_every_api(test)


def test_sillytavern_lists_sets_and_speaks(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        client = served.client
        voices = (await client.get("/speakers")).json()
        assert [(voice["name"], voice["voice_id"]) for voice in voices] == [
            ("tone-440",) * 2,
            ("tone-330",) * 2,
        ]
        settings = {
            "temperature": 0.6, "speed": 2.0, "length_penalty": 1.0, "repetition_penalty": 1.0, "top_p": 0.9,
            "top_k": 30, "enable_text_splitting": True, "stream_chunk_size": 100,
        }  # fmt: skip
        answer = await client.post("/set_tts_settings", json=settings)
        assert answer.status_code == 200 and answer.json()["message"]
        assert (await client.get("/get_tts_settings")).json() == settings
        answer = await client.post("/tts_to_audio/", json=NAMED)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        with wave.open(io.BytesIO(answer.content)) as reader:
            seconds = reader.getnframes() / reader.getframerate()
        request = served.backend.requests[-1]
        assert request.speed == 2.0 and seconds > 0
        delivery = request.delivery
        assert (delivery.temperature, delivery.top_p, delivery.top_k) == (0.6, 0.9, 30)
        assert (delivery.repetition_window, delivery.first_hop, delivery.language) == (0, 116, "en")
        assert delivery.repetition_penalty == 1.0  # of XTTS itself
        streamed = await client.get("/tts_stream", params=NAMED)
        assert streamed.headers["content-type"] == "audio/x-wav"
        assert streamed.content[:4] == b"RIFF"
        assert pitch_of(streamed.content[44:]) == pytest.approx(330, rel=0.02)
        preview = await client.get(voices[1]["preview_url"])
        assert preview.status_code == 200 and preview.content[:4] == b"RIFF"

    run_every_api(test)


def test_settings_that_no_client_has_set_are_the_voices(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        await served.client.post("/tts_to_audio/", json=NAMED)
        delivery = served.backend.requests[-1].delivery
        assert (delivery.temperature, delivery.top_k, delivery.first_hop) == (None, None, None)

    run_every_api(test)


@pytest.mark.parametrize(
    ("accept", "content_type"), [("*/*", "audio/L16; rate=24000; channels=1"), ("audio/pcm",) * 2]
)
def test_a_speakers_stream_is_linear_audio_low_byte_first(
    run_every_api: Any, accept: str, content_type: str
) -> None:
    async def test(served: Any) -> None:
        body = {"text": TEXT, "language": "en", "temperature": 0.75, "top_k": 50, "top_p": 0.85}
        answer = await served.client.post("/tts_stream", json=body, headers={"accept": accept})
        assert (answer.status_code, answer.headers["content-type"]) == (200, content_type)
        assert pitch_of(answer.content) == pytest.approx(440, rel=0.02)
        assert served.backend.requests[-1].delivery.temperature == 0.75

    run_every_api(test)


def test_files_are_written_in_the_folder_and_nowhere_else(run_every_api: Any, tmp_path: Path) -> None:
    folder = tmp_path / "exchange"

    async def test(served: Any) -> None:
        answer = await served.client.post("/tts", json={"text": TEXT, "speaker": "tone-330"})
        path = Path(answer.json()["output_path"])
        assert answer.json()["message"] and path == folder / "speech" / "-" / "output.wav"
        assert answer.headers["x-request-id"] and answer.headers["cache-control"] == "no-store"
        with wave.open(str(path)) as reader:
            assert reader.getnframes() * 2 >= WORDS_BYTES
        named = {**NAMED, "file_name_or_path": "a/b.wav"}
        answer = await served.client.post("/tts_to_file", json=named)
        assert Path(answer.json()["output_path"]) == folder / "speech" / "-" / "a" / "b.wav"
        (folder / "speech" / "-" / "link").symlink_to(tmp_path)
        steps = served.backend.steps
        for name in (
            "/etc/x.wav",
            "../x.wav",
            "a/../../x.wav",
            "link/x.wav",
            "",
            "..",
            "C:\\..\\x",
            ".x",
            "x\0",
        ):
            for answer in (
                await served.client.post("/tts_to_file", json={**NAMED, "file_name_or_path": name}),
                await served.client.post("/tts", json={"text": TEXT, "output_path": name}),
            ):
                assert answer.status_code == 400, name
                assert set(answer.json()) == {"error", "detail"}
        assert served.backend.steps == steps  # refused before any speech is made
        found = await asyncio.to_thread(wav_files, tmp_path)
        assert found == {"exchange/speech/-/output.wav", "exchange/speech/-/a/b.wav"}

    run_every_api(test, policy=SpeechApiPolicy(exchange_folder=folder))


def test_a_server_without_a_folder_writes_no_file(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post("/tts", json={"text": TEXT})
        assert answer.status_code == 400 and "exchange_folder" in answer.json()["error"]

    run_every_api(test)


@pytest.mark.parametrize(
    ("path", "body", "status", "word"),
    [
        ("/tts", {}, 400, "text"),
        ("/tts_stream", {"text": ""}, 400, "text"),
        ("/tts_stream", {"text": TEXT, "speaker": "nobody"}, 404, "nobody"),
        ("/tts_stream", {"text": TEXT, "temperature": 0}, 400, "temperature"),
        ("/tts_stream", {"text": TEXT, "top_p": 1.5}, 400, "top_p"),
        ("/tts_to_audio", {**NAMED, "language": "xx"}, 400, "language"),
        ("/tts_to_audio", {**NAMED, "speaker_wav": "../../etc/passwd"}, 404, "passwd"),
        ("/tts_to_audio", {**NAMED, "text": "a" * 5_000}, 400, "5000"),
        ("/tts", {**FOREIGN, "speaker_embedding": [0.5] * 512},
         400, "clone_speaker"),
        ("/tts", {**FOREIGN, "speaker_embedding": [1e300]},
         400, "clone_speaker"),
        ("/tts", {**FOREIGN, "speaker_embedding": [0.5], "gpt_cond_latent": None},
         400, "gpt_cond_latent"),
        ("/set_tts_settings", {"temperature": 2.0}, 400, "temperature"),
        ("/set_tts_settings", {"length_penalty": "inf"}, 400, "length_penalty"),
        ("/set_tts_settings", {"length_penalty": "nan"}, 400, "length_penalty"),
        ("/switch_model", {"model_name": "x"}, 400, "model"),
        ("/clone_speaker", {}, 400, "wav_file"),
    ],
)  # fmt: skip
def test_errors_have_the_fields_of_every_server(
    run_every_api: Any, path: str, body: dict[str, Any], status: int, word: str
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(path, json=body)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == {"error", "detail"} and word in answer.json()["detail"]
        assert served.backend.open_slots == 0

    run_every_api(test)


def test_a_model_that_clones_no_voice_says_so(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
        assert (answer.status_code, "cannot clone" in answer.json()["detail"]) == (400, True)

    run_every_api(test)


def test_a_voice_of_another_key_is_unknown_and_settings_are_of_one_key(
    run_every_api: Any, store: VoiceStore, tmp_path: Path
) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    anna, ben = (
        {"authorization": f"Bearer {keys.add(name, (Scope.SPEAK, Scope.ENROLL), KeyLimits())}"}
        for name in ("anna", "ben")
    )

    async def test(served: Any) -> None:
        client = served.client
        files = {"wav_file": ("anna.wav", recording())}
        latents = (await client.post("/clone_speaker", files=files, headers=anna)).json()
        body = {**latents, "text": TEXT, "language": "en"}
        assert (await client.post("/tts", json=body, headers=anna)).status_code == 200
        assert (await client.post("/tts", json=body, headers=ben)).status_code == 404
        assert (await client.post("/tts", json=body)).status_code == 401
        await client.post("/set_tts_settings", json={"speed": 2.0}, headers=anna)
        assert (await client.get("/get_tts_settings", headers=ben)).json()["speed"] == 1.0

    run_every_api(test, store=store, access=AccessControl(keys))


def test_lists_have_the_shapes_of_xtts_api_server(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        assert (await served.client.get("/speakers_list")).json() == ["tone-440", "tone-330"]
        assert (await served.client.get("/languages")).json()["languages"]["German"] == "de"
        assert (await served.client.get("/get_models_list")).json() == ["vivavoce"]
        assert set((await served.client.get("/get_folders")).json()) == {
            "speaker_folder", "output_folder", "model_folder",
        }  # fmt: skip

    run_every_api(test)
