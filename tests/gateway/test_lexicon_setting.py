"""The setting ``lexicon``: words of every stream, changes while the server runs, and faults at the start."""

import asyncio
from pathlib import Path

import pytest

from shared.engine_streams import pcm, speak
from shared.tiny_piper import write_tiny_piper
from vivavoce.gateway.engine_opening import open_engine
from vivavoce.gateway.settings import Settings
from vivavoce.tts_engine.errors import BadRequest


def settings_with(folder: Path, lexicon: str) -> Settings:
    bundle = write_tiny_piper(folder / "voice").parent
    file = folder / "lexicon.toml"
    file.write_text(lexicon, encoding="utf-8")
    return Settings(bundle=str(bundle), lexicon=file)


def test_a_word_is_said_as_the_file_has_it_and_follows_its_changes(tmp_path: Path) -> None:
    async def test() -> None:
        settings = settings_with(tmp_path, '[words]\nnginx = "engine ex"\n')
        assert settings.lexicon is not None
        async with await open_engine(settings) as engine:
            respelled = await speak(engine, "We use nginx here.")
            assert pcm(respelled) == pcm(await speak(engine, "We use engine ex here."))
            words = [word.text for chunk in respelled for word in chunk.words]
            assert words == ["We", "use", "nginx", "here"]
            settings.lexicon.write_text('[words]\nnginx = "a web server"\n', encoding="utf-8")
            expected = pcm(await speak(engine, "We use a web server here."))
            while pcm(await speak(engine, "We use nginx here.")) != expected:
                await asyncio.sleep(0.01)  # a thread reads the change

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_fault_of_the_file_ends_the_start_with_file_and_line(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(BadRequest, match=r"lexicon\.toml, line 2: 'Siobhan': .*is not IPA"):
            await open_engine(settings_with(tmp_path, '[words]\nSiobhan = "/SH IH/"\n'))

    asyncio.run(asyncio.wait_for(test(), 60))
