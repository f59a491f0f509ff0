"""DashScope's HTTP API: speech as a link and as events, voice enrolment, and refusals."""

import asyncio
import base64
import io
import json
import wave
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import av
import httpx
import pytest
from fastapi.responses import FileResponse

from shared.engine.standin_backend import StandInBackend
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.url_guard import UrlGuard, UrlPolicy
from vivavoce.gateway.apis.dialects.dashscope.audio_store import MAX_BYTES, AudioStore
from vivavoce.gateway.apis.dialects.dashscope.http_api import PATH, DashScopeHttpApi
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from vivavoce.gateway.voice_registry import NewVoice, VoiceRegistry
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import Overloaded, UnknownVoice
from vivavoce.tts_engine.voices.store import StoredVoice, VoiceMetadata

TIMEOUT_S = 30.0
RECORDING = "data:audio/wav;base64," + base64.b64encode(b"RIFF pretend").decode()


class FakeVoiceRegistry:
    """Stores voices without encoding their recordings; the default voice speaks for each."""

    def __init__(self, engine: Engine) -> None:
        self._voices = engine.voices
        self.recordings: list[tuple[bytes, NewVoice]] = []
        self._stored: dict[str, StoredVoice] = {}

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        return self._voices.get(None if name in self._stored else name).id

    def enrolled_voices(self, grant: Grant) -> tuple[StoredVoice, ...]:
        return tuple(self._stored.values())

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        if voice_id not in self._stored:
            raise UnknownVoice(f"no voice {voice_id!r}")
        return self._stored[voice_id]

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        self.recordings.append((data, new))
        about, at = VoiceMetadata(new.language, grant.key_id), 1_700_000_000.0 + len(self._stored)
        voice = StoredVoice(str(new.voice_id), new.name, "", 1, len(data), new.transcript, at, at, about)
        self._stored[voice.id] = voice
        return voice

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        self.recordings.append((data, new))
        self._stored[voice_id] = replace(self.find(voice_id, grant), changed_at=1_800_000_000.0)
        return self._stored[voice_id]

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        self.find(voice_id, grant)
        return self._stored.pop(voice_id)


class HttpApiClient:
    """The API in process and an HTTP client of it."""

    def __init__(self, api: DashScopeHttpApi, voices: Any, http: httpx.AsyncClient) -> None:
        self.api = api
        self.voices = voices
        self.http = http

    async def synthesize(
        self, model: Any = "cosyvoice-v3-flash", *, events: bool = False, **fields: Any
    ) -> httpx.Response:
        fields = {"text": "One two. Three.", "voice": "longanyang", **fields}
        headers = {"X-DashScope-SSE": "enable"} if events else {}
        body = {"model": model, "input": fields}
        return await self.http.post(f"{PATH}/SpeechSynthesizer", json=body, headers=headers)

    async def customize(self, action: Any, **fields: Any) -> httpx.Response:
        body = {"model": "voice-enrollment", "input": {"action": action, **fields}}
        return await self.http.post(f"{PATH}/customization", json=body)

    async def enroll(self, prefix: str = "anna", **more: Any) -> str:
        answer = await self.customize(
            "create_voice", target_model="cosyvoice-v3", prefix=prefix, url=RECORDING, **more
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["output"]["voice_id"])


def with_api(
    test: Callable[[HttpApiClient], Awaitable[None]],
    *,
    access: AccessControl | None = None,
    fake_registry: bool = True,
    key: str = "",
    backend: StandInBackend | None = None,
) -> None:
    async def run() -> None:
        voice = backend or StandInBackend((440, 660))
        access_ = access or AccessControl.open_to_all()
        async with await Engine.open(backend=voice) as engine:
            real = VoiceRegistry(engine.voices)
            voices: Any = FakeVoiceRegistry(engine) if fake_registry else real
            guard = UrlGuard(UrlPolicy())
            server = SpeechServer(engine, access_, voices, guard, SpeechApiPolicy())
            api = DashScopeHttpApi(server, guard, store)
            app = make_app(
                unready=lambda: None,
                registry=engine.metrics.registry,
                access=access_,
                mounts=[Mount(api.routes(), None)],
            )
            transport = httpx.ASGITransport(app, raise_app_exceptions=True)
            key_headers = {"Authorization": f"Bearer {key}"} if key else {}
            async with (
                asyncio.timeout(TIMEOUT_S),
                httpx.AsyncClient(
                    transport=transport, base_url="http://127.0.0.1", headers=key_headers
                ) as client,
            ):
                await test(HttpApiClient(api, voices, client))
            assert voice.open_slots == 0
            real.close()

    with closing(AudioStore()) as store:
        asyncio.run(run())


def events_in(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        if line.startswith("data:"):
            yield json.loads(line.removeprefix("data:"))


def seconds(audio: bytes) -> float:
    with av.open(io.BytesIO(audio)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


# Speech


def test_the_answer_is_a_link_to_the_audio() -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize()
        assert answer.status_code == 200
        body = answer.json()
        assert set(body) == {"request_id", "output", "usage"}
        assert body["usage"] == {"characters": 15}
        output = body["output"]
        assert (output["finish_reason"], output["audio"]["data"]) == ("stop", "")
        assert isinstance(output["audio"]["expires_at"], int)
        audio = await api_client.http.get(output["audio"]["url"])
        assert (audio.status_code, audio.headers["content-type"]) == (200, "audio/wav")
        assert 0.6 <= seconds(audio.content) <= 1.1

    with_api(test)


@pytest.mark.parametrize("text", ["One \ud800 two.", "<speak>One \ud800 two.</speak>"])
def test_a_lone_surrogate_is_read_as_the_replacement_character(text: str) -> None:
    async def test(api_client: HttpApiClient) -> None:
        given = {"text": text, "voice": "longanyang", "enable_ssml": True}
        body = json.dumps({"model": "cosyvoice-v3-flash", "input": given})  # in ASCII, escaped
        answer = await api_client.http.post(f"{PATH}/SpeechSynthesizer", content=body)
        assert answer.json()["usage"] == {"characters": len("One ? two.")}

    with_api(test)


def test_the_prosody_of_an_ssml_document_is_applied() -> None:
    async def test(api_client: HttpApiClient) -> None:
        document = '<speak><prosody volume="silent">One two.</prosody></speak>'
        output = (await api_client.synthesize(text=document, enable_ssml=True, format="pcm")).json()["output"]
        audio = (await api_client.http.get(output["audio"]["url"])).content
        assert len(audio) > 9_600
        assert not any(audio)

    with_api(test)


@pytest.mark.parametrize("codec", ["wav", "pcm", "mp3", "opus"])
def test_every_format_is_stored_with_its_content_type(codec: str) -> None:
    async def test(api_client: HttpApiClient) -> None:
        output = (await api_client.synthesize(format=codec, sample_rate=16_000, volume=50, rate=1.0)).json()[
            "output"
        ]
        audio = await api_client.http.get(output["audio"]["url"])
        types = {"wav": "audio/wav", "pcm": "audio/pcm", "mp3": "audio/mpeg", "opus": "audio/ogg"}
        assert audio.headers["content-type"] == types[codec]
        length_s = len(audio.content) / 32_000 if codec == "pcm" else seconds(audio.content)
        assert 0.6 <= length_s <= 1.2

    with_api(test)


def test_events_carry_the_same_audio_and_end_with_its_link() -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize(events=True, word_timestamp_enabled=True)
        assert answer.headers["content-type"] == "text/event-stream"
        *earlier, last = events_in(answer.text)
        assert [event["output"]["type"] for event in earlier[:2]] == ["sentence-begin", "sentence-synthesis"]
        audio = b"".join(
            base64.b64decode(event["output"]["audio"]["data"])
            for event in earlier
            if event["output"]["type"] == "sentence-synthesis"
        )
        ends = [event["output"]["sentence"] for event in earlier if event["output"]["type"] == "sentence-end"]
        assert [[word["text"] for word in end["words"]] for end in ends] == [["One", "two."], ["Three."]]
        assert "type" not in last["output"]
        assert (last["output"]["finish_reason"], last["usage"]) == ("stop", {"characters": 15})
        stored = (await api_client.http.get(last["output"]["audio"]["url"])).content
        # The header of the stored WAV states the length, which that of the events cannot.
        assert stored[44:] == audio[44:] and stored[:4] == audio[:4] == b"RIFF"
        assert len({event["request_id"] for event in (*earlier, last)}) == 1

    with_api(test)


def test_a_link_has_subtitles_beside_the_audio() -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize(text="One & two. Three.", format="mp3")
        url = answer.json()["output"]["audio"]["url"]
        heard = {suffix: await api_client.http.get(f"{url}.{suffix}") for suffix in ("srt", "vtt", "json")}
        assert {suffix: one.headers["content-type"].partition(";")[0] for suffix, one in heard.items()} == {
            **{"srt": "application/x-subrip", "vtt": "text/vtt", "json": "application/json"}
        }
        first, second = heard["json"].json()
        assert (first["text"], second["text"]) == ("One & two.", "Three.")
        assert 0 == first["start"] < first["end"] <= second["start"] < second["end"]
        assert heard["srt"].text.startswith("1\n00:00:00,000 --> 00:00:00,")
        assert heard["srt"].text.endswith("\nThree.\n")
        assert heard["vtt"].text.startswith("WEBVTT") and "One &amp; two." in heard["vtt"].text
        head = await api_client.http.head(f"{url}.srt")
        assert (head.status_code, head.content) == (200, b"")
        for wrong in (f"{url}.ass", f"{url}.srt.srt", f"{url}."):
            assert (await api_client.http.get(wrong)).status_code == (200 if wrong.endswith(".") else 404)

    with_api(test)


def test_a_link_to_unknown_audio_is_404() -> None:
    async def test(api_client: HttpApiClient) -> None:
        for id in ("nothing", "nothing.srt", ".json", "..%2f..%2fetc%2fpasswd", "x" * 3_000):
            assert (await api_client.http.get(f"{PATH}/results/{id}")).status_code == 404

    with_api(test)


def test_a_link_is_answered_even_if_its_file_leaves_the_full_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(api_client: HttpApiClient) -> None:
        url = (await api_client.synthesize()).json()["output"]["audio"]["url"]
        complete = (await api_client.http.get(url)).content
        send_file = FileResponse.__call__

        async def evict_and_send(response: FileResponse, *asgi: Any) -> None:
            with pytest.raises(Overloaded):
                api_client.api.store.reserve_bytes("-", MAX_BYTES + 1)
            await send_file(response, *asgi)

        monkeypatch.setattr(FileResponse, "__call__", evict_and_send)
        assert (await api_client.http.get(url)).content == complete
        assert (await api_client.http.get(url)).status_code == 404

    with_api(test)


BAD_SPEECH: dict[str, tuple[dict[str, Any], int, str]] = {
    "no text": ({"text": None}, 400, "InvalidParameter"),
    "empty text": ({"text": ""}, 400, "InvalidParameter"),
    "20,001 characters": ({"text": "x" * 20_001}, 400, "InvalidParameter"),
    "no voice": ({"voice": None}, 400, "InvalidParameter"),
    "unknown voice": ({"voice": "nobody"}, 400, "InvalidParameter"),
    "unknown format": ({"format": "amr"}, 400, "InvalidParameter"),
    "unknown model": ({"model": "paraformer-v2"}, 404, "ModelNotFound"),
    "no model": ({"model": None}, 400, "InvalidParameter"),
    "bad SSML": ({"text": "<speak>", "enable_ssml": True}, 400, "InvalidParameter"),
}


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("bad", BAD_SPEECH.values(), ids=BAD_SPEECH)
def test_an_invalid_synthesis_request_is_refused_with_dashscopes_code(
    bad: tuple[dict[str, Any], int, str], events: bool
) -> None:
    fields, status, code = bad

    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize(events=events, **fields)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert set(answer.json()) == {"request_id", "code", "message"}

    with_api(test)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"3", b"{}", b'{"input": 3}', b"\xff", b"[" * 100_000, b"x" * (1 << 20)]
)
@pytest.mark.parametrize("path", ["SpeechSynthesizer", "customization"])
def test_a_body_that_is_not_a_request_is_refused(body: bytes, path: str) -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.http.post(f"{PATH}/{path}", content=body)
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")

    with_api(test)


class FailingBackend(StandInBackend):
    """Fails at the second sentence."""

    def step(self, worker: int, turns: Any) -> Any:
        if any(turn.segment is not None and turn.segment.start > 0 for turn in turns):
            raise RuntimeError("out of memory")
        return super().step(worker, turns)


def test_a_failing_voice_ends_the_events_with_an_error() -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize(events=True)
        assert "event:error\nstatus:500\n" in answer.text
        assert list(events_in(answer.text))[-1]["code"] == "InternalError"
        plain = await api_client.synthesize()
        assert (plain.status_code, plain.json()["code"]) == (500, "InternalError")

    with_api(test, backend=FailingBackend((440, 660)))


# Voices


def test_a_voice_is_created_listed_queried_updated_and_deleted() -> None:
    async def test(api_client: HttpApiClient) -> None:
        voice = await api_client.enroll("anna", transcript="Hello.", max_prompt_audio_length=5)
        assert voice.startswith("cosyvoice-v3-anna-")
        assert len(voice.rpartition("-")[2]) == 32
        assert isinstance(api_client.voices, FakeVoiceRegistry)
        data, new = api_client.voices.recordings[0]
        assert (data, new.transcript, new.max_prompt_s, new.name) == (b"RIFF pretend", "Hello.", 5.0, "anna")
        assert new.limits is not None and new.limits.max_duration_s == 60.0
        listed = (await api_client.customize("list_voice", page_index=0, page_size=10)).json()["output"][
            "voice_list"
        ]
        assert listed == [
            {
                "voice_id": voice,
                "gmt_create": "2023-11-14 22:13:20",
                "gmt_modified": "2023-11-14 22:13:20",
                "status": "OK",
            }
        ]
        details = (await api_client.customize("query_voice", voice_id=voice)).json()["output"]
        assert (details["status"], details["target_model"]) == ("OK", "cosyvoice-v3")
        assert set(details) >= {"resource_link", "gmt_create", "gmt_modified"}
        assert (await api_client.customize("update_voice", voice_id=voice, url=RECORDING)).json()[
            "output"
        ] == {}
        assert len(api_client.voices.recordings) == 2
        assert (await api_client.synthesize(voice=voice)).status_code == 200
        deleted = (await api_client.customize("delete_voice", voice_id=voice)).json()
        assert (deleted["output"], deleted["usage"]) == ({}, {"count": 1})
        assert (await api_client.customize("list_voice")).json()["output"]["voice_list"] == []

    with_api(test)


def test_voices_are_listed_in_pages_and_by_prefix() -> None:
    async def test(api_client: HttpApiClient) -> None:
        made = [await api_client.enroll(prefix) for prefix in ("anna", "bert", "anna", "anna")]

        async def ids(**fields: Any) -> list[str]:
            output = (await api_client.customize("list_voice", **fields)).json()["output"]
            return [voice["voice_id"] for voice in output["voice_list"]]

        assert await ids() == made
        assert await ids(prefix="bert") == [made[1]]
        assert await ids(prefix="anna", page_index=1, page_size=2) == [made[3]]
        assert await ids(page_index=7) == []

    with_api(test)


@pytest.mark.parametrize("action", ["query_voice", "update_voice", "delete_voice"])
def test_an_unknown_voice_is_400_resource_not_exist(action: str) -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.customize(action, voice_id="cosyvoice-v3-x-" + "0" * 32, url=RECORDING)
        assert (answer.status_code, answer.json()["code"]) == (400, "BadRequest.ResourceNotExist")

    with_api(test)


GOOD = {"target_model": "cosyvoice-v3", "prefix": "anna", "url": RECORDING}


@pytest.mark.parametrize(
    ("action", "fields", "code"),
    [
        ("steal_voice", {}, "InvalidParameter"),
        (None, {}, "InvalidParameter"),
        (["create_voice"], {}, "InvalidParameter"),
        ("create_voice", GOOD | {"prefix": "Anna"}, "InvalidParameter"),
        ("create_voice", GOOD | {"prefix": "elevenchars"}, "InvalidParameter"),
        ("create_voice", GOOD | {"prefix": "../x"}, "InvalidParameter"),
        ("create_voice", GOOD | {"target_model": "../../etc"}, "InvalidParameter"),
        ("create_voice", GOOD | {"target_model": "paraformer"}, "ModelNotFound"),
        ("create_voice", GOOD | {"url": None}, "InvalidParameter"),
        ("create_voice", GOOD | {"url": "file:///etc/passwd"}, "BadRequest.InputDownloadFailed"),
        ("create_voice", GOOD | {"url": "/etc/passwd"}, "BadRequest.InputDownloadFailed"),
        ("create_voice", GOOD | {"url": "http://127.0.0.1/a.wav"}, "BadRequest.InputDownloadFailed"),
        ("create_voice", GOOD | {"url": "http://[::1]/a.wav"}, "BadRequest.InputDownloadFailed"),
        ("create_voice", GOOD | {"url": "http://2130706433/a.wav"}, "BadRequest.InputDownloadFailed"),
        ("create_voice", GOOD | {"language_hints": [3]}, "InvalidParameter"),
        ("create_voice", GOOD | {"max_prompt_audio_length": 31}, "InvalidParameter"),
        ("list_voice", {"page_index": -1}, "InvalidParameter"),
        ("list_voice", {"page_size": 1.5}, "InvalidParameter"),
        ("list_voice", {"prefix": "%"}, "InvalidParameter"),
        ("query_voice", {}, "InvalidParameter"),
    ],
)
def test_an_invalid_action_is_refused(action: Any, fields: dict[str, Any], code: str) -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.customize(action, **fields)
        assert answer.json()["code"] == code
        assert 400 <= answer.status_code < 500

    with_api(test)


def test_a_bundle_that_cannot_clone_names_the_model_that_can() -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.customize("create_voice", **GOOD)
        assert (answer.status_code, answer.json()["code"]) == (400, "InvalidParameter")
        assert "CosyVoice" in answer.json()["message"]

    with_api(test, fake_registry=False)


# Keys


def test_both_routes_require_a_key_and_links_need_none(tmp_path: Any) -> None:
    file = KeysFile(tmp_path / "keys.json")
    key = file.add("speaks", (Scope.SPEAK,), KeyLimits(requests_per_minute=2))

    async def test(api_client: HttpApiClient) -> None:
        denied = await api_client.customize("list_voice")
        assert (denied.status_code, denied.json()["code"]) == (403, "AccessDenied")
        url = (await api_client.synthesize()).json()["output"]["audio"]["url"]
        await api_client.synthesize()
        throttled = await api_client.synthesize()
        assert (throttled.status_code, throttled.json()["code"]) == (429, "Throttling.RateQuota")
        assert int(throttled.headers["retry-after"]) >= 1
        api_client.http.headers.pop("Authorization")
        unknown = await api_client.synthesize()
        assert (unknown.status_code, unknown.json()["code"]) == (401, "InvalidApiKey")
        assert (await api_client.http.get(url)).status_code == 200

    with_api(test, access=AccessControl(file), key=key)


def test_requests_are_refused_at_shutdown() -> None:
    async def test(api_client: HttpApiClient) -> None:
        await api_client.api.finish(1.0)
        assert (await api_client.synthesize()).status_code == 503

    with_api(test)


@pytest.mark.parametrize("events", [False, True])
def test_text_that_the_voice_cannot_read_is_refused_or_counted_in_a_header(events: bool) -> None:
    async def test(api_client: HttpApiClient) -> None:
        for text in UNREADABLE_TEXTS.values():
            refused = await api_client.synthesize(text=text, events=events)
            assert (refused.status_code, refused.json()["code"]) == (400, "InvalidParameter")
        partial = await api_client.synthesize(text="One 你好 two.", events=events)
        assert (partial.status_code, partial.headers["x-unread-characters"]) == (200, "2")
        whole = await api_client.synthesize(text="One two.", events=events)
        assert "x-unread-characters" not in whole.headers

    with_api(test)


@pytest.mark.parametrize("events", [False, True])
def test_a_stored_wav_states_its_length(events: bool) -> None:
    async def test(api_client: HttpApiClient) -> None:
        answer = await api_client.synthesize(format="wav", sample_rate=16_000, events=events)
        last = list(events_in(answer.text))[-1] if events else answer.json()
        audio = (await api_client.http.get(last["output"]["audio"]["url"])).content
        with wave.open(io.BytesIO(audio)) as file:
            assert file.getframerate() == 16_000
            assert 2 * file.getnframes() == len(audio) - 44 > 0
        assert int.from_bytes(audio[4:8], "little") == len(audio) - 8

    with_api(test)
