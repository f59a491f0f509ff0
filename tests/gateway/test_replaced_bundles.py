"""Bundles that are loaded, replaced and retired while a server speaks with them."""

import asyncio
import gc
import logging
import os
import shutil
import signal
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from shared.engine.engine_streams import pcm, speak
from shared.gateways.bundled_gateway import settings_with
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.gateway.cli.commands.serve.process import serve
from vivavoce.gateway.cli.commands.serve.served_bundles import ServedBundles
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.configuration.settings_table import SettingsError
from vivavoce.gateway.engine_opening import open_engine
from vivavoce.gateway.engine_settings import BundleTable, FurtherBundleTable
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.voice_registry import VoicePolicy, VoiceRegistry
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.engine_set import EngineSet
from vivavoce.tts_engine.errors import BadRequest, UnknownVoice
from vivavoce.tts_engine.stream import Stream

OTTO = "de_DE-otto-low"


def german(folder: Path) -> FurtherBundleTable:
    voice = write_tiny_piper(folder, name=OTTO, config={"language": {"code": "de_DE"}})
    return FurtherBundleTable(folder=str(voice.parent))


def niceness(engine: Engine) -> set[int]:
    """Of the threads that render."""
    return {os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) for thread in engine._threads}


def is_open(engine: Engine) -> bool:
    return any(thread.is_alive() for thread in engine._threads)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def within_a_minute(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


@asynccontextmanager
async def served(settings: Settings) -> AsyncIterator[tuple[ServedBundles, EngineSet]]:
    async with await open_engine(settings) as engine:
        assert isinstance(engine, EngineSet)
        with closing(VoiceRegistry(engine.voices, VoicePolicy(aliases=settings.voices.aliases))) as voices:
            yield ServedBundles(engine, settings, voices), engine


async def speak_to_the_end(stream: Stream) -> int:
    stream.push_text("eins two three")
    stream.end_input()
    return sum([len(chunk.pcm) async for chunk in stream])


def test_a_stream_ends_on_the_bundle_on_which_it_began(tmp_path: Path) -> None:
    first, second = german(tmp_path / "one"), german(tmp_path / "two")

    async def test() -> None:
        settings = settings_with(tmp_path, bundles={"german": first})
        changed = settings.model_copy(update={"bundles": {"german": second}})
        async with served(settings) as (bundles, engine):
            old, _ = engine.voices.owner(OTTO)
            async with engine.stream(voice=OTTO) as stream:
                await bundles.replace(changed)
                new, _ = engine.voices.owner(OTTO)
                assert new is not old
                assert niceness(new) == niceness(old)
                async with engine.stream(voice=OTTO) as later:
                    assert (old.active_streams, new.active_streams, engine.active_streams) == (1, 1, 2)
                    assert await speak_to_the_end(stream) == await speak_to_the_end(later) > 0
            await until(lambda: not is_open(old))
            await bundles.replace(changed)
            assert engine.voices.owner(OTTO)[0] is new  # an unchanged one is not loaded again

    within_a_minute(test)


def test_a_replaced_bundle_says_words_as_the_lexicon_has_them_that_all_bundles_share(tmp_path: Path) -> None:
    lexicon = tmp_path / "lexicon.toml"
    lexicon.write_text('[words]\nnginx = "eins"\n', "utf-8")
    settings = settings_with(tmp_path, bundles={"german": german(tmp_path / "one")}, lexicons_default=lexicon)
    second = german(tmp_path / "two")

    async def test() -> None:
        async with served(settings) as (bundles, engine):
            lexicon.write_text("[words\n", "utf-8")  # it is being edited
            await bundles.replace(settings.model_copy(update={"bundles": {"german": second}}))
            new, _ = engine.voices.owner(OTTO)
            assert new.lexicon is engine.voices.members[0].engine.lexicon
            expected = pcm(await speak(engine, "zwei eins drei", voice=OTTO))
            assert pcm(await speak(engine, "zwei nginx drei", voice=OTTO)) == expected
            lexicon.write_text('[words]\nnginx = "vierundvierzig"\n', "utf-8")
            changed = pcm(await speak(engine, "zwei vierundvierzig drei", voice=OTTO))
            while pcm(await speak(engine, "zwei nginx drei", voice=OTTO)) != changed:
                await asyncio.sleep(0.01)  # a thread reads the change

    within_a_minute(test)


def test_the_main_bundle_is_replaced_and_its_memory_freed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = settings_with(tmp_path, bundles={})
    folder = str(write_tiny_piper(tmp_path / "next", name="en_US-berta-low").parent)

    async def test() -> None:
        async with served(settings) as (bundles, engine):
            old = engine.voices.members[0].engine
            freed, thread = weakref.ref(old._backend), old._threads[0]
            async with engine.stream() as stream:
                await bundles.replace(settings.model_copy(update={"bundle": BundleTable(folder=folder)}))
                assert [voice.id for voice in engine.voices] == ["en_US-berta-low"]
                async with engine.stream() as later:
                    assert await speak_to_the_end(later) == await speak_to_the_end(stream) > 0
            assert engine.refusal() is None and f"bundles served: vivavoce of {folder}" in caplog.text
            del old, stream
            await until(lambda: not thread.is_alive() and freed() is None)

            missing = BundleTable(folder=str(tmp_path / "none"))
            await bundles.replace(settings.model_copy(update={"bundle": missing}))
            assert "the bundle vivavoce was not loaded: " in caplog.text
            async with engine.stream(voice="en_US-berta-low") as stream:
                assert await speak_to_the_end(stream)

    caplog.set_level(logging.INFO)
    gc.collect()
    gc.disable()  # a server excludes what it loads at its start from collection
    try:
        within_a_minute(test)
    finally:
        gc.enable()


def test_a_bundle_comes_and_goes_and_a_broken_one_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = german(tmp_path / "one")
    settings = settings_with(tmp_path, bundles={})

    async def test() -> None:
        async with aclosing(await Gateway.open(settings)) as gateway:
            engine, (host, port) = gateway.engine, gateway.addresses.http
            assert isinstance(engine, EngineSet)
            bundles = ServedBundles(engine, settings, gateway.voices)
            async with httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client:

                async def models() -> list[str]:
                    return [one["id"] for one in (await client.get("/v1/models")).json()["data"]]

                async def status(model: str) -> int:
                    body = {"input": "eins", "model": model, "voice": "alloy", "response_format": "pcm"}
                    return (await client.post("/v1/audio/speech", json=body)).status_code

                assert "german" not in await models()
                await bundles.replace(settings.model_copy(update={"bundles": {"german": bundle}}))
                assert "german" in await models() and await status("german") == 200
                assert OTTO in (await client.get("/v1/audio/voices")).text

                broken = bundle.model_copy(update={"folder": str(tmp_path / "none")})
                with caplog.at_level(logging.ERROR):
                    await bundles.replace(settings.model_copy(update={"bundles": {"german": broken}}))
                [line] = [record.getMessage() for record in caplog.records]
                assert line.startswith(
                    f"the bundle german was not loaded: {tmp_path / 'none'}: no such folder"
                )
                assert await status("german") == 200 and OTTO in engine.voices

                await bundles.replace(settings)
                assert "german" not in await models()
                with pytest.raises(UnknownVoice):
                    engine.stream(voice=OTTO)

    within_a_minute(test)


def test_a_bundle_whose_folder_is_gone_is_spoken_with_until_another_one_loads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = german(tmp_path / "one")
    settings = settings_with(tmp_path, bundles={"german": bundle})

    async def test() -> None:
        async with served(settings) as (bundles, engine):
            before, _ = engine.voices.owner(OTTO)
            async with engine.stream(voice=OTTO) as stream:
                shutil.rmtree(tmp_path / "one")
                await bundles.replace(settings)
                assert engine.voices.owner(OTTO)[0] is before
                later = bundle.model_copy(
                    update={"folder": f"{bundle.folder}/."}
                )  # which asks for the files again
                await bundles.replace(settings.model_copy(update={"bundles": {"german": later}}))
                assert "the bundle german was not loaded: " in caplog.text
                async with engine.stream(voice=OTTO) as another:
                    assert await speak_to_the_end(stream) == await speak_to_the_end(another) > 0

    within_a_minute(test)


def test_a_voice_that_the_settings_name_keeps_its_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changed = {"bundles": {"german": german(tmp_path / "one")}, "voices_aliases": {"hans": OTTO}}

    async def test() -> None:
        settings = settings_with(tmp_path, **changed)
        async with served(settings) as (bundles, engine):
            await bundles.replace(settings.model_copy(update={"bundles": {}}))
            assert OTTO in engine.voices
            assert f"the bundles stay as they are: no voice '{OTTO}'" in caplog.text

    within_a_minute(test)


def test_a_canary_takes_its_share_of_the_streams(tmp_path: Path) -> None:
    tried = german(tmp_path / "one").model_copy(update={"canaries": {"next": 0.25}})
    bundles = {"next": german(tmp_path / "two"), "german": tried}  # the order does not matter

    async def test() -> None:
        async with await open_engine(settings_with(tmp_path, bundles=bundles)) as engine:
            assert isinstance(engine, EngineSet)
            assert [each.id for each in engine.voices] == ["en_US-anna-low", OTTO, f"next/{OTTO}"]
            trial = engine.voices.owner(f"next/{OTTO}")[0]
            taken = []
            for _ in range(8):
                async with engine.stream(voice=OTTO):
                    taken.append(trial.active_streams)
            assert taken == [0, 0, 0, 1, 0, 0, 0, 1]
            async with engine.stream(voice=f"next/{OTTO}"):  # named by itself
                assert trial.active_streams == 1
            with pytest.raises(BadRequest, match=r"next is the canary of 'german'; there are vivavoce"):
                engine.exchange((*(each for each in engine.voices.members if each.name != "german"),))

    within_a_minute(test)


def test_sighup_reads_the_bundles_of_a_server_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "isatty", lambda number: False)
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup
    settings = settings_with(tmp_path, bundles={})
    outcomes: list[Settings | SettingsError] = [
        SettingsError("bundles: unknown key"),
        settings.model_copy(update={"bundles": {"german": german(tmp_path / "one")}}),
    ]

    def read() -> Settings:
        outcome = outcomes.pop(0)
        if isinstance(outcome, SettingsError):
            raise outcome
        return outcome

    async def test() -> None:
        ready = asyncio.Event()
        serving = asyncio.create_task(serve(settings, announce=lambda line: ready.set(), read_settings=read))
        try:
            await ready.wait()
            for logged in (
                "the bundles stay as they are: bundles: unknown key",
                f"bundles served: vivavoce of {settings.bundle.folder}, german of {tmp_path / 'one'}",
            ):
                os.kill(os.getpid(), signal.SIGHUP)
                await until(lambda logged=logged: logged in caplog.text)  # type: ignore[misc]
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await serving

    caplog.set_level(logging.INFO)
    try:
        within_a_minute(test)
    finally:
        signal.signal(signal.SIGHUP, before)
