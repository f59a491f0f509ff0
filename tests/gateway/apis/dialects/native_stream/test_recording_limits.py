"""Recordings in native-stream configurations: refusals, scopes, charges and lengths."""

from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from shared.audio.recordings import as_data_url, recording
from shared.gateways.recording_streams import BUNDLED_VOICES, REFERENCE, open_stream, wait_voices_removed
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.tts_engine.voices.store import VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.wav",
        "http://[::ffff:127.0.0.1]/a.wav",
        "http://2130706433/a.wav",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "data:audio/wav;base64,???",
        as_data_url(b"no sound"),
        as_data_url(recording(0.2)),
    ],
)
def test_an_unusable_recording_gets_an_error_and_another_one_works(
    url: str, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio=url)
            for index in range(2):
                await client.say()
                error = await client.until("error")
                assert (error["utterance_index"], served.backend.steps) == (index, 0)
                assert (await client.until("session.done"))["total_sentences"] == 0
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store)


def test_a_model_that_does_not_clone_refuses_the_configuration(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio="http://127.0.0.1/never-fetched")
            assert "CosyVoice 2 or 3" in (await client.until("error"))["message"]
            await client.configure(voice="tone-330")
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test)


def access_with_key(tmp_path: Path, *scopes: Scope, **limits: int) -> tuple[AccessControl, dict[str, str]]:
    file = KeysFile(tmp_path / "keys.json")
    return AccessControl(file), {"Authorization": f"Bearer {file.add('test', scopes, KeyLimits(**limits))}"}


def test_a_recording_needs_the_scope(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = access_with_key(tmp_path, Scope.SPEAK)

    async def test(served: Any) -> None:
        async with open_stream(served, headers) as client:
            await client.configure(**REFERENCE)
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            await client.say()
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, access=access)


def test_making_a_voice_is_charged_as_a_request(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = access_with_key(tmp_path, Scope.SPEAK, Scope.ENROLL, requests_per_minute=2)

    async def test(served: Any) -> None:
        async with open_stream(served, headers) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            for other in (3.4, 3.6):
                await client.configure(ref_audio=as_data_url(recording(other)))
                error = await client.until("error")
                assert (error["code"], error["retry_after_s"] > 0) == ("rate_limit_exceeded", True)
            assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, access=access)


def test_a_recording_may_have_the_maximal_length_of_a_voice(
    run: Any, store: VoiceStore, encoded_lengths: list[int]
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio=as_data_url(recording(30, 48_000)))  # 3.84 MB of text
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(ref_audio="data:," + "x" * (4 << 20))
            with pytest.raises(ConnectionClosed) as closed:
                await client.until("nothing")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        await wait_voices_removed(served)

    run(test, store=store)
    assert len(encoded_lengths) == 1
