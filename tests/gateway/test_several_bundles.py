"""One server with several bundles: voices, models, languages, faults of the settings."""

import asyncio
from functools import partial
from pathlib import Path

import httpx
import pytest

from shared.gateways.bundled_gateway import client_of, settings_with
from vivavoce.gateway.cli.configuration.settings_loader import load_settings, read_settings
from vivavoce.gateway.configuration.settings_table import SettingsError
from vivavoce.gateway.engine_opening import open_engine
from vivavoce.gateway.engine_settings import FurtherBundleTable
from vivavoce.tts_engine.errors import BadRequest, BundleError, LanguageNotSpoken, UnknownVoice
from vivavoce.tts_engine.stream_request import Delivery


def test_voice_and_model_choose_a_bundle_and_the_lists_show_them(tmp_path: Path) -> None:
    async def speak(client: httpx.AsyncClient, **fields: str) -> httpx.Response:
        body = {"input": "eins two", "response_format": "pcm", "model": "tts-1", **fields}
        return await client.post("/v1/audio/speech", json=body)

    async def test() -> None:
        async with client_of(settings_with(tmp_path)) as client:
            models = [model["id"] for model in (await client.get("/v1/models")).json()["data"]]
            assert {"vivavoce", "german", "kokoro"} <= set(models)
            spoken = {
                voice: (await speak(client, voice=voice)).content
                for voice in ("alloy", "en_US-anna-low", "de_DE-otto-low/s1", "af_one", "af_one+am_two(3)")
            }
            assert spoken["alloy"] == spoken["en_US-anna-low"]
            assert len(set(spoken.values())) == 4 and all(spoken.values())
            by_model = {
                model: (await speak(client, voice="alloy", model=model)).content
                for model in ("german", "kokoro")
            }
            assert by_model == {"german": spoken["de_DE-otto-low/s1"], "kokoro": spoken["af_one"]}
            refused = await speak(client, voice="af_one", language="de")
            assert refused.status_code == 400 and "af_one speaks en-US" in refused.text
            assert (await speak(client, voice="nobody")).status_code == 400

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("other_language", "voice", "speaks"),
    [
        ("refuse", None, "de_DE-otto-low/s1"),  # left open: the default voice of the language
        ("refuse", "af_one", None),
        ("other-voice", "af_one", "de_DE-otto-low/s1"),
        ("warn", "af_one", "af_one"),
        ("other-voice", "de_DE-otto-low/s0", "de_DE-otto-low/s0"),  # it speaks the language itself
    ],
)
def test_a_text_in_another_language(
    tmp_path: Path, other_language: str, voice: str | None, speaks: str | None
) -> None:
    async def test() -> None:
        async with await open_engine(
            settings_with(tmp_path, reading_other_language=other_language)
        ) as engine:

            async def pcm(voice: str | None, language: str | None) -> bytes:
                async with engine.stream(voice=voice, delivery=Delivery(language=language)) as stream:
                    stream.push_text("eins")
                    stream.end_input()
                    return b"".join([chunk.pcm async for chunk in stream])

            if speaks is None:
                with pytest.raises(BadRequest, match="af_one speaks en-US"):
                    await pcm(voice, "de-AT")
            else:
                assert await pcm(voice, "de-AT") == await pcm(speaks, None)
            with pytest.raises(BadRequest):
                await pcm("en_US-anna-low" if other_language == "refuse" else "nobody", "xx")

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_voice_that_two_bundles_have_is_named_by_its_bundle(tmp_path: Path) -> None:
    settings = settings_with(tmp_path)
    twice = {"again": FurtherBundleTable(folder=settings.bundle.folder)}

    async def test() -> None:
        async with await open_engine(settings.model_copy(update={"bundles": twice})) as engine:
            assert [voice.id for voice in engine.voices] == ["en_US-anna-low", "again/en_US-anna-low"]
            async with engine.stream(voice="again/en_US-anna-low") as stream:
                assert engine.active_streams == 1
                stream.cancel()
            with pytest.raises(UnknownVoice):
                engine.stream(voice="again/nobody")

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_fault_of_one_bundle_closes_the_others(tmp_path: Path) -> None:
    settings = settings_with(tmp_path)

    async def opening(bundle: FurtherBundleTable) -> None:
        async with await open_engine(settings.model_copy(update={"bundles": {"other": bundle}})):
            pass

    with pytest.raises(BundleError, match="no such folder"):
        asyncio.run(opening(FurtherBundleTable(folder=str(tmp_path / "none"))))
    with pytest.raises(BadRequest, match=r"bundles.other: no voice 'nobody'; it has de_DE-otto-low/s0"):
        asyncio.run(opening(FurtherBundleTable(folder=str(tmp_path / "de"), voice="nobody")))


def test_the_table_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "vivavoce.toml"
    file.write_text('[bundles.german]\nfolder = "/srv/de"\ncanaries = {german-next = 0.2}\n')
    assert read_settings(file).bundles == {
        "german": FurtherBundleTable(folder="/srv/de", canaries={"german-next": 0.2})
    }
    for wrong in (
        '[bundles.vivavoce]\nfolder = "/srv/de"',
        '[bundles.german]\nvoice = "x"',
        '[bundles."A/b"]\nfolder = "x"',
        "[bundles.a]\nfile = 1",
    ):
        file.write_text(wrong)
        with pytest.raises(SettingsError, match="bundles"):
            load_settings(file)


@pytest.mark.parametrize("other_language", ["refuse", "other-voice", "warn"])
def test_a_part_of_a_text_in_another_language_keeps_the_voice(tmp_path: Path, other_language: str) -> None:
    async def test() -> None:
        async with await open_engine(
            settings_with(tmp_path, reading_other_language=other_language)
        ) as engine:
            async with engine.stream(voice="de_DE-otto-low/s0") as german:
                german.set_language("de-AT")
            async with engine.stream(voice="en_US-anna-low") as english:
                if other_language == "warn":
                    english.set_language("de")
                    assert engine.language_spoken("en_US-anna-low", "de") is None
                    return
                for refuse in (english.set_language, partial(engine.language_spoken, "en_US-anna-low")):
                    with pytest.raises(LanguageNotSpoken, match="anna-low speaks en-US"):
                        refuse("de")
                assert engine.language_spoken(None, "en-GB") == "en-GB"

    asyncio.run(asyncio.wait_for(test(), 60))
