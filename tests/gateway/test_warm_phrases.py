"""Speech that a gateway keeps: phrases rendered at the start, keys without it, faults of the settings."""

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.engine.kept_noise import wait_until_written
from shared.gateways.bundled_gateway import client_of
from shared.gateways.made_settings import make_settings
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.gateway import call_servers
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.tts_engine.errors import VivavoceError

PHRASE = "Thank you for calling."


@pytest.fixture(autouse=True)
def no_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers render no words but those of a test."""
    ways = tuple(replace(way, greeting="") for way in call_servers.WAYS_IN)
    monkeypatch.setattr(call_servers, "WAYS_IN", ways)


def settings_with(folder: Path, **changed: Any) -> Settings:
    defaults = {"http_port": 0, "audiosocket_port": 0}
    bundle = write_tiny_piper(folder / "voice").parent
    return make_settings(**{**defaults, "bundle_folder": str(bundle), "agents_default": "none", **changed})


async def seconds(client: httpx.AsyncClient, which: str) -> float:
    """The value of a counter of seconds of speech."""
    text = (await client.get("/metrics")).text
    return float(re.findall(rf"^vivavoce_{which}_seconds_total (\S+)", text, re.M)[0])


async def speech(client: httpx.AsyncClient, text: str, key: str = "none") -> bytes:
    body = {"input": text, "model": "tts-1", "voice": "alloy", "response_format": "pcm"}
    answer = await client.post("/v1/audio/speech", json=body, headers={"Authorization": f"Bearer {key}"})
    return answer.raise_for_status().content


def test_phrases_and_greetings_are_there_before_a_request_says_them(tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text("Good morning.\n\nHow are you?\n", encoding="utf-8")
    phrases = tmp_path / "phrases.txt"
    phrases.write_text(f"{PHRASE}\n\n", encoding="utf-8")
    settings = settings_with(
        tmp_path, kept_speech_phrases={"default": str(phrases)}, agents_default=f"script:{script}"
    )

    async def test() -> None:
        async with client_of(settings) as client:
            rendered = 0.0
            while not rendered or rendered != await seconds(client, "audio"):
                rendered = await seconds(client, "audio")
                await asyncio.sleep(0.2)  # until all phrases are rendered
            before = await seconds(client, "repeated_audio")
            for text in (PHRASE, "Good morning."):
                spoken = await speech(client, text)
                repeated = await seconds(client, "repeated_audio") - before
                assert spoken and repeated == pytest.approx(
                    len(spoken) / 2 / 24_000, abs=0.03
                )  # a word's end
                before += repeated
            await speech(client, "How are you?")
            assert await seconds(client, "repeated_audio") == before

    asyncio.run(asyncio.wait_for(test(), 60))


def test_speech_of_a_key_that_asks_for_it_is_neither_kept_nor_taken_from_others(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    usual = keys.add("usual", (Scope.ADMIN,), KeyLimits())
    private = keys.add("private", (Scope.SPEAK,), KeyLimits(), keeps_speech=False)

    async def test() -> None:
        settings = settings_with(tmp_path, access_keys_file=tmp_path / "keys.json")
        async with client_of(settings) as client:
            client.headers["Authorization"] = f"Bearer {usual}"  # to read the metrics

            async def repeats(key: str) -> bool:
                before = await seconds(client, "repeated_audio")
                await speech(client, PHRASE, key)
                return await seconds(client, "repeated_audio") > before

            assert [await repeats(key) for key in (private, usual, private, usual)] == [*(False,) * 3, True]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_speech_is_on_file_for_the_next_server_but_for_keys_that_ask_that_it_is_not(tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    usual = keys.add("usual", (Scope.ADMIN,), KeyLimits())
    private = keys.add("private", (Scope.SPEAK,), KeyLimits(), keeps_speech=False)
    kept = tmp_path / "kept"
    settings = settings_with(
        tmp_path, access_keys_file=tmp_path / "keys.json", kept_speech_folder=kept, kept_speech_max_mb="10"
    )

    async def served(*requests: tuple[str, str]) -> float:
        """Seconds that were read from files."""
        async with client_of(settings) as client:
            client.headers["Authorization"] = f"Bearer {usual}"  # to read the metrics
            before = await seconds(client, "filed_audio")
            for text, key in requests:
                await speech(client, text, key)
            return await seconds(client, "filed_audio") - before

    async def test() -> None:
        await served(("It is a secret.", private))
        wait_until_written()
        filed = len(list(kept.rglob("*.speech")))  # of the sentence that an engine speaks first
        await served((PHRASE, usual))
        wait_until_written()
        assert len(list(kept.rglob("*.speech"))) == filed + 1
        assert await served((PHRASE, private)) == 0 and await served((PHRASE, usual)) > 0

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("phrases", "fault"),
    [
        ({"nobody": ["Hello."]}, "no voice 'nobody'"),
        ({"default": "gone.txt"}, "gone.txt: No such file or directory"),
        ({"default": ["a" * 2_001]}, "a phrase has 2001 characters, beginning 'aaa"),
    ],
)
def test_a_fault_of_the_phrases_ends_the_start(tmp_path: Path, phrases: dict[str, Any], fault: str) -> None:
    async def test() -> None:
        with pytest.raises(VivavoceError, match=fault):
            async with client_of(settings_with(tmp_path, kept_speech_phrases=phrases)):
                pass

    asyncio.run(asyncio.wait_for(test(), 60))
