"""The setting ``lexicons``: words of every stream, changes while the server runs, and faults at the start."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.engine.engine_streams import pcm, speak
from shared.gateways.bundled_gateway import client_of
from shared.gateways.made_settings import make_settings
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.engine_opening import open_engine
from vivavoce.tts_engine.errors import BadRequest

VOICE = {"mode": "id", "id": "a0e99841-438c-4a64-b679-ae501e7d6091"}  # of Cartesia's catalogue


def settings_with(folder: Path, lexicon: str, **changed: Any) -> Settings:
    bundle = write_tiny_piper(folder / "voice").parent
    file = folder / "lexicon.toml"
    file.write_text(lexicon, encoding="utf-8")
    return make_settings(
        **{"http_port": 0, "audiosocket_port": 0, "agents_default": "none", "lexicons_default": file},
        bundle_folder=str(bundle),
        **changed,
    )


def test_a_word_is_said_as_the_file_has_it_and_follows_its_changes(tmp_path: Path) -> None:
    async def test() -> None:
        settings = settings_with(tmp_path, '[words]\nnginx = "engine ex"\n')
        lexicon = settings.lexicons["default"]
        async with await open_engine(settings) as engine:
            respelled = await speak(engine, "We use nginx here.")
            assert pcm(respelled) == pcm(await speak(engine, "We use engine ex here."))
            words = [word.text for chunk in respelled for word in chunk.words]
            assert words == ["We", "use", "nginx", "here"]
            lexicon.write_text('[words]\nnginx = "a web server"\n', encoding="utf-8")
            expected = pcm(await speak(engine, "We use a web server here."))
            while pcm(await speak(engine, "We use nginx here.")) != expected:
                await asyncio.sleep(0.01)  # a thread reads the change

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_fault_of_the_file_ends_the_start_with_file_and_line(tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(BadRequest, match=r"lexicon\.toml, line 2: 'Siobhan': .*is not IPA"):
            await open_engine(settings_with(tmp_path, '[words]\nSiobhan = "/SH IH/"\n'))

    asyncio.run(asyncio.wait_for(test(), 60))


def test_words_of_a_request_come_before_those_of_its_key_and_these_before_the_servers(tmp_path: Path) -> None:
    words = '[words]\nnginx = "one"\nredis = "two"\nkafka = "three"\n'
    settings = settings_with(tmp_path, words, access_keys_file=tmp_path / "keys.json")
    of_key = tmp_path / "key.toml"
    of_key.write_text('[words]\nnginx = "four"\nredis = "five"\n', encoding="utf-8")
    keys = KeysFile(tmp_path / "keys.json")
    with_lexicon = keys.add("with", (Scope.SPEAK,), KeyLimits(), str(of_key))
    without = keys.add("without", (Scope.SPEAK,), KeyLimits())
    gone = keys.add("gone", (Scope.SPEAK,), KeyLimits(), str(tmp_path / "gone.toml"))

    async def test() -> None:
        async with client_of(settings) as client:

            async def speak(text: str, key: str, **hot_fix: Any) -> bytes:
                fields = {"text": text, "voice": "longanyang", "format": "pcm", "seed": 1, **hot_fix}
                body = {"model": "cosyvoice-v3-flash", "input": fields}
                path = "/api/v1/services/audio/tts/SpeechSynthesizer"
                answer = await client.post(path, json=body, headers={"authorization": f"Bearer {key}"})
                assert answer.status_code == 200, answer.text
                return (await client.get(answer.json()["output"]["audio"]["url"])).content

            text, of_request = "nginx, redis, kafka.", {"hot_fix": {"replace": [{"nginx": "six"}]}}
            assert await speak(text, with_lexicon) == await speak("four, five, three.", without)
            assert await speak(text, with_lexicon, **of_request) == await speak("six, five, three.", without)
            for key in (without, gone):
                assert await speak(text, key) == await speak("one, two, three.", without)

            of_key.write_text('[words]\nnginx = "seven"\n', encoding="utf-8")
            expected = await speak("seven, two, three.", without)
            while await speak(text, with_lexicon) != expected:
                await asyncio.sleep(0.01)  # a thread reads the change

    asyncio.run(asyncio.wait_for(test(), 60))


def test_requests_of_cartesias_and_elevenlabs_clients_choose_lexicons_by_name(tmp_path: Path) -> None:
    for name, text in (("web", 'nginx = "four"\nredis = "five"'), ("data", 'redis = "two"\nkafka = "six"')):
        (tmp_path / f"{name}.toml").write_text(f"[words]\n{text}\n", encoding="utf-8")
    lexicons = {f"lexicons_{name}": tmp_path / f"{name}.toml" for name in ("web", "data")}
    settings = settings_with(tmp_path, '[words]\nnginx = "one"\nkafka = "three"\n', **lexicons)

    async def test() -> None:
        async with client_of(settings) as client:

            async def elevenlabs(text: str, *names: str) -> httpx.Response:
                locators = [{"pronunciation_dictionary_id": name, "version_id": "v"} for name in names]
                body = {"text": text, "pronunciation_dictionary_locators": locators}
                path = f"/v1/text-to-speech/{'a' * 20}?output_format=pcm_24000"
                return await client.post(path, json=body)

            async def cartesia(text: str, name: str | None = None) -> httpx.Response:
                raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
                body = {"model_id": "sonic-3", "transcript": text, "voice": VOICE, "output_format": raw}
                return await client.post("/tts/bytes", json=body | {"pronunciation_dict_id": name})

            text = "nginx, redis, kafka."
            expected = (await elevenlabs("four, five, six.")).content
            assert (await elevenlabs(text, "web", "data")).content == expected
            assert (await elevenlabs(text, "data")).content != expected
            assert (await cartesia(text, "web")).content == (await cartesia("four, five, three.")).content
            for refused in (await elevenlabs(text, "none"), await cartesia(text, "none")):
                assert refused.status_code == 400
                assert "no lexicon 'none'; there are data, web" in refused.text

    asyncio.run(asyncio.wait_for(test(), 60))
