"""CosyVoice and XTTS in ``[bundles]`` beside other voices, with networks of tiny random weights."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("torch", reason="the networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.recordings import as_data_url, recording
from shared.gateways.bundled_gateway import settings_with
from shared.voices.cosyvoice_bundles import write_random_bundle
from shared.voices.tiny_cosyvoice import BRIEF
from shared.voices.tiny_xtts import write_tiny_xtts
from vivavoce.gateway.access.access_control import ANONYMOUS_KEY_ID, Grant
from vivavoce.gateway.access.keys import Scope
from vivavoce.gateway.cli.commands.serve.served_bundles import ServedBundles
from vivavoce.gateway.engine_settings import FurtherBundleTable
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.voice_registry import NewVoice
from vivavoce.tts_engine.cosyvoice import policy
from vivavoce.tts_engine.engine_set import EngineSet

TEXT = "One."


def test_bundles_that_clone_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "policy_for", lambda *arguments: BRIEF)
    write_random_bundle(tmp_path / "cosy", 2, "tiny", 1)
    cosy = FurtherBundleTable(folder=str(tmp_path / "cosy"), device="cpu")
    xtts = FurtherBundleTable(folder=str(write_tiny_xtts(tmp_path / "xtts")), device="cpu")
    store = {"voices_store": tmp_path / "voices"}
    settings = settings_with(tmp_path, bundles={"cosy": cosy, "xtts": xtts}, **store)
    newer = cosy.model_copy(update={"folder": f"{cosy.folder}/."})  # the folder by another name

    async def test() -> None:
        async with asyncio.timeout(60), aclosing(await Gateway.open(settings)) as gateway:
            engine = gateway.engine
            assert isinstance(engine, EngineSet)
            bundles = ServedBundles(engine, settings, gateway.voices)
            host, port = gateway.addresses.http
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:

                async def speak(**fields: Any) -> bytes:
                    body = {"input": TEXT, "model": "tts-1", "voice": "alloy", "response_format": "pcm"}
                    answer = await client.post("/v1/audio/speech", json={**body, **fields}, timeout=60)
                    assert answer.status_code == 200, answer.text
                    return answer.content

                form = {"name": "anna", "consent": "yes"}
                files = {"audio_sample": ("anna.wav", recording(), "audio/wav")}
                created = await client.post("/v1/audio/voices", data=form, files=files)
                assert created.status_code == 200, created.text
                first = engine.voices.members[1].engine
                anna = gateway.voices.resolve("anna", Grant(ANONYMOUS_KEY_ID, frozenset(Scope)))
                assert engine.voices.owner(anna) == (first, anna)  # XTTS has the store too
                assert len({await speak(voice=voice) for voice in ("alloy", "nobody", "anna")}) == 3
                assert await speak(model="cosy") == await speak(voice="nobody")
                assert await speak(model="xtts") == await speak(model="xtts", voice="alloy") != b""
                clone = {"ref_audio": as_data_url(recording()), "ref_text": "a tone"}
                cloned = await speak(**clone)

                grant = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))
                async with gateway.voices.temporary(recording(), NewVoice("", "a tone"), grant) as voice:
                    replaced = settings.model_copy(update={"bundles": {"cosy": newer, "xtts": xtts}})
                    await bundles.replace(replaced)
                    second = engine.voices.members[1].engine
                    assert engine.voices.owner(voice) == (first, voice) != (second, voice)
                    assert engine.voices.owner(anna) == (second, anna)
                    assert await speak(voice="anna")  # the first engine could close meanwhile
                    async with engine.stream(voice=voice) as stream:
                        stream.push_text(TEXT)
                        stream.end_input()
                        assert b"".join([chunk.pcm async for chunk in stream]) == cloned
                while any(thread.is_alive() for thread in first._threads):
                    await asyncio.sleep(0.01)
                assert await speak(**clone) == cloned  # in the newer one

    asyncio.run(test())
