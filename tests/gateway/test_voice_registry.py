"""Who may speak with which voice: names, owners, recordings on their way, and a folder of speakers."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from shared.recordings import recording
from shared.standin_backend import StandInBackend
from vivavoce.gateway.access.access_control import ANONYMOUS_KEY_ID, Grant
from vivavoce.gateway.access.errors import ScopeMissing
from vivavoce.gateway.access.keys import Scope
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.settings import Settings
from vivavoce.gateway.voice_registry import OPENAI_VOICE_NAMES, NewVoice, VoicePolicy, VoiceRegistry
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_encoder import VoicePrompt, check_recording
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, BundleError, Overloaded, UnknownVoice
from vivavoce.tts_engine.voices.recording import RecordingLimits
from vivavoce.tts_engine.voices.store import VoiceMetadata, VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

ANNA = Grant("anna-key", frozenset({Scope.SPEAK, Scope.ENROLL}))
BO = Grant("bo-key", frozenset({Scope.SPEAK, Scope.ENROLL}))
SPEAKER = Grant("anna-key", frozenset({Scope.SPEAK}))
ADMIN = Grant("admin-key", frozenset({Scope.ADMIN}))
EVERYBODY = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))


class Encoder:
    """Hears how long and how loud a recording is, and counts."""

    def __init__(self, version: CosyVoiceVersion) -> None:
        self.version = version
        self.heard: list[float] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.hears = threading.Event()

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        speech = check_recording(samples, sample_rate)
        self.hears.set()
        assert self.may_go_on.wait(30)
        self.heard.append(len(speech) / sample_rate)
        loudness = np.full(192, np.abs(speech).max(), np.float32)
        ids = np.full(25, len(speech) % 6561, np.int32)
        return VoicePrompt(self.version, transcript, ids, np.zeros((80, 50), np.float32), loudness)


class House:
    """A registry over a store, and the encoder behind it."""

    def __init__(
        self, folder: Path, version: CosyVoiceVersion = CosyVoiceVersion.V2, policy: VoicePolicy | None = None
    ) -> None:
        self.encoder = Encoder(version)
        self.store = VoiceStore(folder, version.value)
        speakers = {name: np.zeros(192, np.float32) for name in ("first", "second")}
        self.voices = BundleVoices(speakers, lambda: self.encoder, ("en",), self.store)  # type: ignore[arg-type,return-value]
        self.registry = VoiceRegistry(self.voices, policy)

    def close(self) -> None:
        self.registry.close()
        self.store.close()


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = House(tmp_path / "voices")
    yield opened
    opened.close()


def created(house: House, grant: Grant, name: str = "Anna", **about: str) -> str:
    return asyncio.run(house.registry.create(recording(), NewVoice(name, **about), grant)).id  # type: ignore[arg-type]


def seen(house: House, grant: Grant) -> list[str]:
    return [voice.id for voice in house.registry.usable_voices(grant)]


# Names


def test_no_name_is_the_bundles_first_voice_or_the_one_configured(house: House, tmp_path: Path) -> None:
    assert house.registry.resolve(None, SPEAKER) == "first"
    configured = House(tmp_path / "other", policy=VoicePolicy(default="second"))
    assert configured.registry.resolve(None, SPEAKER) == "second"
    configured.close()


def test_a_bundle_without_speakers_speaks_with_the_operators_oldest(tmp_path: Path) -> None:
    with VoiceStore(tmp_path, 2) as store:
        registry = VoiceRegistry(BundleVoices({}, lambda: pytest.fail("not needed"), ("en",), store))
        with pytest.raises(UnknownVoice, match="enrol one"):
            registry.resolve(None, ADMIN)
        prompt = Encoder(CosyVoiceVersion.V2).enroll(np.sin(np.arange(48_000.0)), 16_000)
        store.add(prompt, name="x", about=VoiceMetadata(owner="anna-key"), voice_id="annas")
        store.add(prompt, name="x", voice_id="oldest")
        store.add(prompt, name="x", voice_id="newest")
        assert registry.resolve(None, SPEAKER) == "oldest"
        registry.close()


def test_the_names_that_openais_clients_insist_on_are_the_default(house: House) -> None:
    assert len(OPENAI_VOICE_NAMES) == 13
    assert {house.registry.resolve(name, SPEAKER) for name in OPENAI_VOICE_NAMES} == {"first"}
    assert set(house.registry.aliases()) == set(OPENAI_VOICE_NAMES)


def test_an_alias_is_the_voice_that_it_is_configured_for(tmp_path: Path) -> None:
    house = House(tmp_path, policy=VoicePolicy(aliases={"alloy": "second", "reception": "second"}))
    assert house.registry.resolve("alloy", SPEAKER) == "second"
    assert house.registry.resolve("reception", SPEAKER) == "second"
    assert house.registry.resolve("nova", SPEAKER) == "first"
    assert house.registry.aliases()["alloy"] == "second"
    house.close()


def test_a_cloned_voice_is_found_by_id_and_by_name_the_newest_first(house: House) -> None:
    older, newer = created(house, ANNA, "Anna"), created(house, ANNA, "Anna")
    assert house.registry.resolve(older, ANNA) == older
    assert house.registry.resolve("Anna", ANNA) == newer
    alloy = created(house, ANNA, "alloy")
    assert house.registry.resolve("alloy", ANNA) == alloy
    assert house.registry.resolve("alloy", BO) == "first"
    assert house.registry.resolve("alloy", ADMIN) == "first"
    assert house.registry.resolve(alloy, ADMIN) == alloy


def test_an_unknown_name_is_told_with_what_there_is(house: House) -> None:
    with pytest.raises(UnknownVoice, match=r"no voice 'Zoë'; there are: first, second$"):
        house.registry.resolve("Zoë", SPEAKER)
    for bad in ("", "../first", "a" * 100_000, "\0", "\ud83d"):
        with pytest.raises(UnknownVoice):
            house.registry.resolve(bad, SPEAKER)


def test_a_default_or_an_alias_of_no_voice_stops_the_start(house: House) -> None:
    for policy in (VoicePolicy(default="nobody"), VoicePolicy(aliases={"alloy": "nobody"})):
        with pytest.raises(UnknownVoice, match="nobody"):
            asyncio.run(VoiceRegistry.open(house.voices, policy))


def test_a_default_of_another_release_or_a_damaged_one_stops_the_start(house: House, tmp_path: Path) -> None:
    asyncio.run(house.registry.create(recording(), NewVoice("Anna", voice_id="anna"), EVERYBODY))
    later = House(tmp_path / "voices", CosyVoiceVersion.V3)
    with pytest.raises(BadRequest, match="voice: voice 'anna' was enrolled with CosyVoice 2"):
        asyncio.run(VoiceRegistry.open(later.voices, VoicePolicy(default="anna")))
    later.close()
    (content,) = (house.store.folder / "contents").iterdir()
    content.write_bytes(b"")
    with pytest.raises(BundleError, match="voice_aliases: alloy: voice 'anna'"):
        asyncio.run(VoiceRegistry.open(house.voices, VoicePolicy(aliases={"alloy": "anna"})))


# Owners


def test_a_key_sees_its_own_voices_and_the_operators(house: House) -> None:
    annas, bos, admins, operators = (
        created(house, ANNA),
        created(house, BO),
        created(house, ADMIN),
        created(house, EVERYBODY),
    )
    assert seen(house, ANNA) == ["first", "second", annas, operators]
    assert seen(house, BO) == ["first", "second", bos, operators]
    assert seen(house, ADMIN) == ["first", "second", annas, bos, admins, operators]


def test_to_other_keys_a_voice_is_not_there(house: House) -> None:
    annas = created(house, ANNA, "Anna")
    unknown = "voice_" + "0" * 32
    attempts: tuple[Callable[[str], object], ...] = (
        lambda voice: house.registry.resolve(voice, BO),
        lambda voice: house.registry.find(voice, BO),
        lambda voice: asyncio.run(house.registry.rename(voice, "Bo", BO)),
        lambda voice: asyncio.run(house.registry.remove(voice, BO)),
        lambda voice: asyncio.run(house.registry.replace(voice, recording(), NewVoice("Bo"), BO)),
    )
    for attempt in attempts:
        answers = set()
        for voice in (annas, unknown):
            with pytest.raises(UnknownVoice) as refusal:
                attempt(voice)
            answers.add(str(refusal.value).replace(voice, "ID"))
        assert len(answers) == 1
    with pytest.raises(UnknownVoice):
        house.registry.resolve("Anna", BO)
    assert house.registry.find(annas, ANNA).name == "Anna"


def test_a_key_changes_its_own_and_an_administrator_all(house: House) -> None:
    annas = created(house, ANNA, "Anna")
    operators = created(house, EVERYBODY, "Desk")
    assert asyncio.run(house.registry.rename(annas, "Anna K.", ANNA)).name == "Anna K."
    with pytest.raises(BadRequest, match="is the operator's"):
        asyncio.run(house.registry.remove(operators, ANNA))
    asyncio.run(house.registry.remove(annas, ADMIN))
    asyncio.run(house.registry.remove(operators, ADMIN))
    assert seen(house, ADMIN) == ["first", "second"]


def test_only_a_key_that_may_enrol_does(house: House) -> None:
    annas = created(house, ANNA)
    changes: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: house.registry.create(recording(), NewVoice("Anna"), SPEAKER),
        lambda: house.registry.replace(annas, recording(), NewVoice("Anna"), SPEAKER),
        lambda: house.registry.rename(annas, "Anna", SPEAKER),
        lambda: house.registry.remove(annas, SPEAKER),
    )
    for change in changes:
        with pytest.raises(ScopeMissing):
            asyncio.run(change())  # type: ignore[arg-type]
    assert len(house.encoder.heard) == 1


# Recordings


def test_what_is_told_with_a_recording_is_kept(house: House) -> None:
    new = NewVoice("Anna", "Some words.", "en-GB", "I agree.", "upload", "cosyvoice-v2-anna-1")
    voice = asyncio.run(house.registry.create(recording(), new, ANNA))
    assert voice.id == "cosyvoice-v2-anna-1"
    assert (voice.transcript, voice.language, voice.version) == ("Some words.", "en-GB", 2)
    about = voice.about
    assert (about.owner, about.consent, about.provenance) == ("anna-key", "I agree.", "upload")
    assert len(about.source) == 64
    with pytest.raises(BadRequest, match="already"):
        asyncio.run(house.registry.create(recording(), new, BO))
    with pytest.raises(BadRequest, match="already"):
        asyncio.run(house.registry.create(recording(), NewVoice("x", voice_id="first"), BO))


def test_another_recording_leaves_what_is_not_told_anew(house: House) -> None:
    annas = created(house, ANNA, "Anna", consent="I agree.", language="en")
    after = asyncio.run(house.registry.replace(annas, recording(4.5), NewVoice("", provenance="again"), ANNA))
    assert (after.name, after.about.consent, after.language) == ("Anna", "I agree.", "en")
    assert (after.about.owner, after.about.provenance) == ("anna-key", "again")
    assert house.encoder.heard == [3.5, 4.5]


def test_only_the_beginning_is_used_where_that_is_asked_for(house: House) -> None:
    new = NewVoice("Anna", max_prompt_s=10.0, limits=RecordingLimits(max_duration_s=60))
    asyncio.run(house.registry.create(recording(45), new, ANNA))
    assert house.encoder.heard == [10.0]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [(b"", "empty"), (b"not sound", "no recording"), (recording(2), "2.0 s"), (recording(level=0), "silent")],
)
def test_a_bad_recording_leaves_nothing(house: House, data: bytes, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        asyncio.run(house.registry.create(data, NewVoice("Anna"), ANNA))
    assert house.store.list() == ()
    assert list((house.store.folder / "contents").iterdir()) == []


def test_the_loop_goes_on_while_a_recording_is_heard(house: House) -> None:
    async def scenario() -> None:
        house.encoder.may_go_on.clear()
        creating = asyncio.create_task(house.registry.create(recording(), NewVoice("Anna"), ANNA))
        await asyncio.to_thread(house.encoder.hears.wait, 30)
        assert house.registry.resolve(None, ANNA) == "first"
        house.encoder.may_go_on.set()
        assert (await creating).name == "Anna"

    asyncio.run(scenario())


def test_whoever_comes_when_too_many_wait_is_refused_at_once(tmp_path: Path) -> None:
    house = House(tmp_path, policy=VoicePolicy(max_waiting=2))

    async def scenario() -> None:
        house.encoder.may_go_on.clear()
        async with asyncio.TaskGroup() as tasks:
            for name in ("1", "2"):
                tasks.create_task(house.registry.create(recording(), NewVoice(name), ANNA))
            await asyncio.to_thread(house.encoder.hears.wait, 30)
            with pytest.raises(Overloaded) as refusal:
                await house.registry.create(recording(), NewVoice("3"), ANNA)
            assert refusal.value.reason == "enrolments"
            house.encoder.may_go_on.set()
        await house.registry.create(recording(), NewVoice("4"), ANNA)

    asyncio.run(scenario())
    assert sorted(voice.name for voice in house.store.list()) == ["1", "2", "4"]
    house.close()


def test_of_a_sender_who_has_gone_nothing_is_kept(house: House) -> None:
    async def scenario() -> None:
        house.encoder.may_go_on.clear()
        first = asyncio.create_task(house.registry.create(recording(), NewVoice("gone"), ANNA))
        await asyncio.to_thread(house.encoder.hears.wait, 30)
        waiting = asyncio.create_task(house.registry.create(recording(), NewVoice("gone too"), ANNA))
        await asyncio.sleep(0)
        for task in (first, waiting):
            task.cancel()
        await asyncio.wait({first, waiting})
        house.encoder.may_go_on.set()
        await house.registry.create(recording(4), NewVoice("stays"), ANNA)

    asyncio.run(scenario())
    assert [voice.name for voice in house.store.list()] == ["stays"]
    assert house.encoder.heard == [3.5, 4]


def test_many_at_once_are_all_enrolled_and_none_mixed_up(house: House) -> None:
    async def scenario() -> None:
        lengths = [3 + tenth / 10 for tenth in range(10)]
        voices = await asyncio.gather(
            *(house.registry.create(recording(s), NewVoice(f"{s:.1f}"), ANNA) for s in lengths)
        )
        for seconds, voice in zip(lengths, voices, strict=True):
            ids = house.store.get(voice.id).speech_ids
            assert set(ids) == {round(16_000 * seconds) % 6561}

    asyncio.run(scenario())


def test_a_borrowed_voice_lasts_as_long_as_it_is_used(house: House) -> None:
    async def scenario() -> None:
        new = NewVoice("", "Some words.")
        async with house.registry.temporary(recording(), new, ANNA) as first:
            async with house.registry.temporary(recording(), new, BO) as second:
                assert first == second
            assert house.voices.speaker_profile(first).prompt is not None
            assert seen(house, ADMIN) == ["first", "second"]
            with pytest.raises(UnknownVoice):
                house.registry.resolve(first, ANNA)
        assert first not in house.voices
        with pytest.raises(ZeroDivisionError):
            async with house.registry.temporary(recording(), new, ANNA) as third:
                raise ZeroDivisionError
        assert third not in house.voices
        with pytest.raises(ScopeMissing):
            await house.registry.temporary(recording(), new, SPEAKER).__aenter__()

    asyncio.run(scenario())
    assert house.store.list() == ()


def test_a_model_that_clones_nobody_says_which_does() -> None:
    registry = VoiceRegistry(StandInBackend((440, 880)).voices)
    assert registry.resolve(None, ANNA) == "tone-440"
    assert registry.resolve("tone-880", ANNA) == "tone-880"
    assert registry.resolve("shimmer", ANNA) == "tone-440"
    assert [voice.id for voice in registry.usable_voices(ANNA)] == ["tone-440", "tone-880"]
    with pytest.raises(BadRequest, match=r"clones nobody; a server of CosyVoice 2 or 3 does"):
        asyncio.run(registry.create(recording(), NewVoice("Anna"), ANNA))
    with pytest.raises(UnknownVoice):
        registry.find("tone-440", ANNA)
    registry.close()


def test_a_server_without_a_folder_for_voices_keeps_none_and_says_so_but_lends_them() -> None:
    async def lent() -> bool:
        registry.check_cloning()
        async with registry.temporary(recording(), NewVoice(""), ANNA) as voice:
            return voice in voices

    voices = BundleVoices({}, lambda: Encoder(CosyVoiceVersion.V2), ("en",), None)  # type: ignore[arg-type,return-value]
    registry = VoiceRegistry(voices)
    with pytest.raises(BadRequest, match="'voice_store'"):
        asyncio.run(registry.create(recording(), NewVoice("Anna"), ANNA))
    assert asyncio.run(lent())
    registry.close()


def test_voices_of_another_release_are_not_offered(house: House, tmp_path: Path) -> None:
    annas = created(house, ANNA, "Anna")
    later = House(tmp_path / "voices", CosyVoiceVersion.V3)
    assert seen(later, ANNA) == ["first", "second"]
    assert later.registry.find(annas, ANNA).version == 2
    asyncio.run(later.registry.remove(annas, ANNA))
    later.close()


def test_a_server_opens_with_the_voices_of_its_settings(tmp_path: Path) -> None:
    def settings(**named: object) -> Settings:
        return Settings(http_port=0, audiosocket_port=0, agent="none", **named)  # type: ignore[arg-type]

    async def scenario() -> None:
        async with await Engine.open(backend=StandInBackend((440, 880))) as engine:
            named = settings(voice="tone-880", voice_aliases={"reception": "tone-440"})
            async with contextlib.aclosing(await Gateway.open(named, engine=engine)) as gateway:
                assert gateway.voices.resolve("alloy", ANNA) == "tone-880"
                assert gateway.voices.resolve("reception", ANNA) == "tone-440"
            with pytest.raises(UnknownVoice, match="voice_aliases: alloy: no voice 'nobody'"):
                await Gateway.open(settings(voice_aliases={"alloy": "nobody"}), engine=engine)
            with pytest.raises(BadRequest, match="clones nobody"):
                await Gateway.open(settings(speakers=tmp_path), engine=engine)

    asyncio.run(scenario())


# A folder of speakers


@pytest.fixture
def speakers(tmp_path: Path) -> Path:
    folder = tmp_path / "speakers"
    folder.mkdir()
    (folder / "anna.wav").write_bytes(recording(3.5))
    (folder / "anna.txt").write_text("What Anna says.\n", "utf-8")
    (folder / "bo.WAV").write_bytes(recording(4.0))
    (folder / "README.md").write_text("no speaker")
    return folder


def enrolled(house: House, folder: Path) -> int:
    return asyncio.run(house.registry.enroll_folder(folder))


def test_speakers_of_a_folder_are_everybodys_voices(house: House, speakers: Path) -> None:
    assert enrolled(house, speakers) == 2
    assert seen(house, BO) == ["first", "second", "anna", "bo"]
    anna = house.registry.find("anna", BO)
    assert (anna.transcript, anna.about.owner, anna.about.provenance) == (
        "What Anna says.",
        "",
        "speakers folder, anna.wav",
    )


def test_what_has_not_changed_is_not_heard_again(house: House, speakers: Path, tmp_path: Path) -> None:
    assert enrolled(house, speakers) == 2
    assert enrolled(house, speakers) == 0
    again = House(tmp_path / "voices")
    assert enrolled(again, speakers) == 0
    assert again.encoder.heard == []
    (speakers / "anna.txt").write_text("What Anna really says.", "utf-8")
    assert enrolled(again, speakers) == 1
    assert again.registry.find("anna", BO).transcript == "What Anna really says."
    (speakers / "bo.WAV").write_bytes(recording(5.0))
    assert enrolled(again, speakers) == 1
    assert again.encoder.heard == [3.5, 5.0]
    again.close()


def test_another_release_hears_the_folder_again(house: House, speakers: Path, tmp_path: Path) -> None:
    enrolled(house, speakers)
    later = House(tmp_path / "voices", CosyVoiceVersion.V3)
    assert enrolled(later, speakers) == 2
    assert later.registry.resolve("anna", BO) == "anna"
    later.close()


def test_a_bad_file_is_one_warning_and_not_a_failed_start(
    house: House, speakers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (speakers / "broken.mp3").write_bytes(b"not sound")
    (speakers / "an id with spaces.wav").write_bytes(recording())
    (speakers / "first.wav").write_bytes(recording())
    (speakers / "latin.wav").write_bytes(recording())
    (speakers / "latin.txt").write_bytes(b"\xe9t\xe9")
    (speakers / "folder.wav").mkdir()
    asyncio.run(house.registry.create(recording(), NewVoice("Mine", voice_id="mine"), ANNA))
    (speakers / "mine.wav").write_bytes(recording())
    with caplog.at_level(logging.WARNING):
        assert enrolled(house, speakers) == 2
    assert len(caplog.records) == 6
    assert house.registry.find("mine", ANNA).about.owner == "anna-key"


def test_a_folder_that_is_none_stops_the_start(house: House, tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no such folder of speakers"):
        asyncio.run(VoiceRegistry.open(house.voices, speakers=tmp_path / "nowhere"))
    with pytest.raises(BadRequest, match="clones nobody"):
        asyncio.run(VoiceRegistry.open(StandInBackend().voices, speakers=tmp_path))


def test_an_alias_may_be_a_speaker_of_the_folder(house: House, speakers: Path) -> None:
    policy = VoicePolicy(default="bo", aliases={"alloy": "anna"})
    registry = asyncio.run(VoiceRegistry.open(house.voices, policy, speakers))
    assert registry.resolve(None, BO) == "bo"
    assert registry.resolve("alloy", BO) == "anna"
    registry.close()


def test_two_servers_that_start_at_once_enrol_a_folder_once(tmp_path: Path, speakers: Path) -> None:
    houses = [House(tmp_path / "voices") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: enrolled(one, speakers), houses))
    assert [voice.id for voice in houses[0].store.list()] == ["anna", "bo"]
    for house in houses:
        house.close()
