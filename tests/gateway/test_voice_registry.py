"""Tests of the voice registry: names, owners, enrolment, and a folder of speakers."""

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
from vivavoce.models.cosyvoice.front_end.recording import check_recording
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
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
OPERATOR = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))


class Encoder:
    """A fake encoder whose prompts hold the length and the loudness of a recording."""

    def __init__(self, version: CosyVoiceVersion) -> None:
        self.version = version
        self.encoded_s: list[float] = []
        self.may_continue = threading.Event()
        self.may_continue.set()
        self.is_encoding = threading.Event()

    def enroll(self, samples: ArrayLike, sample_rate: int, transcript: str = "") -> VoicePrompt:
        speech = check_recording(samples, sample_rate)
        self.is_encoding.set()
        assert self.may_continue.wait(30)
        self.encoded_s.append(len(speech) / sample_rate)
        loudness = np.full(192, np.abs(speech).max(), np.float32)
        ids = np.full(25, len(speech) % 6561, np.int32)
        return VoicePrompt(self.version, transcript, ids, np.zeros((80, 50), np.float32), loudness)


class RegistrySetup:
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
def setup(tmp_path: Path) -> Iterator[RegistrySetup]:
    opened = RegistrySetup(tmp_path / "voices")
    yield opened
    opened.close()


def created(setup: RegistrySetup, grant: Grant, name: str = "Anna", **about: str) -> str:
    return asyncio.run(setup.registry.create(recording(), NewVoice(name, **about), grant)).id  # type: ignore[arg-type]


def seen(setup: RegistrySetup, grant: Grant) -> list[str]:
    return [voice.id for voice in setup.registry.usable_voices(grant)]


# Names


def test_the_default_is_the_first_voice_of_the_bundle_or_the_configured_one(
    setup: RegistrySetup, tmp_path: Path
) -> None:
    assert setup.registry.resolve(None, SPEAKER) == "first"
    configured = RegistrySetup(tmp_path / "other", policy=VoicePolicy(default="second"))
    assert configured.registry.resolve(None, SPEAKER) == "second"
    configured.close()


def test_without_speakers_the_default_is_the_oldest_voice_of_the_operator(tmp_path: Path) -> None:
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


def test_the_voice_names_of_openai_resolve_to_the_default(setup: RegistrySetup) -> None:
    assert len(OPENAI_VOICE_NAMES) == 13
    assert {setup.registry.resolve(name, SPEAKER) for name in OPENAI_VOICE_NAMES} == {"first"}
    assert set(setup.registry.aliases()) == set(OPENAI_VOICE_NAMES)


def test_an_alias_resolves_to_its_configured_voice(tmp_path: Path) -> None:
    setup = RegistrySetup(tmp_path, policy=VoicePolicy(aliases={"alloy": "second", "reception": "second"}))
    assert setup.registry.resolve("alloy", SPEAKER) == "second"
    assert setup.registry.resolve("reception", SPEAKER) == "second"
    assert setup.registry.resolve("nova", SPEAKER) == "first"
    assert setup.registry.aliases()["alloy"] == "second"
    setup.close()


def test_a_stored_voice_is_found_by_id_and_by_name_the_newest_first(setup: RegistrySetup) -> None:
    older, newer = created(setup, ANNA, "Anna"), created(setup, ANNA, "Anna")
    assert setup.registry.resolve(older, ANNA) == older
    assert setup.registry.resolve("Anna", ANNA) == newer
    alloy = created(setup, ANNA, "alloy")
    assert setup.registry.resolve("alloy", ANNA) == alloy
    assert setup.registry.resolve("alloy", BO) == "first"
    assert setup.registry.resolve("alloy", ADMIN) == "first"
    assert setup.registry.resolve(alloy, ADMIN) == alloy


def test_the_error_for_an_unknown_name_lists_the_voices(setup: RegistrySetup) -> None:
    with pytest.raises(UnknownVoice, match=r"no voice 'Zoë'; there are: first, second$"):
        setup.registry.resolve("Zoë", SPEAKER)
    for bad in (" ", "../first", "a" * 100_000, "\0", "\ud83d"):
        with pytest.raises(UnknownVoice):
            setup.registry.resolve(bad, SPEAKER)


def test_a_default_or_alias_without_a_voice_prevents_the_start(setup: RegistrySetup) -> None:
    for policy in (VoicePolicy(default="nobody"), VoicePolicy(aliases={"alloy": "nobody"})):
        with pytest.raises(UnknownVoice, match="nobody"):
            asyncio.run(VoiceRegistry.open(setup.voices, policy))


def test_an_unusable_default_voice_prevents_the_start(setup: RegistrySetup, tmp_path: Path) -> None:
    asyncio.run(setup.registry.create(recording(), NewVoice("Anna", voice_id="anna"), OPERATOR))
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
    with pytest.raises(BadRequest, match="voice: voice 'anna' was enrolled with CosyVoice 2"):
        asyncio.run(VoiceRegistry.open(later.voices, VoicePolicy(default="anna")))
    later.close()
    (content,) = (setup.store.folder / "contents").iterdir()
    content.write_bytes(b"")
    with pytest.raises(BundleError, match="voice_aliases: alloy: voice 'anna'"):
        asyncio.run(VoiceRegistry.open(setup.voices, VoicePolicy(aliases={"alloy": "anna"})))


# Owners


def test_a_key_sees_its_own_voices_and_the_operators(setup: RegistrySetup) -> None:
    annas, bos, admins, operators = (
        created(setup, ANNA),
        created(setup, BO),
        created(setup, ADMIN),
        created(setup, OPERATOR),
    )
    assert seen(setup, ANNA) == ["first", "second", annas, operators]
    assert seen(setup, BO) == ["first", "second", bos, operators]
    assert seen(setup, ADMIN) == ["first", "second", annas, bos, admins, operators]


def test_another_keys_voice_is_reported_as_unknown(setup: RegistrySetup) -> None:
    annas = created(setup, ANNA, "Anna")
    unknown = "voice_" + "0" * 32
    attempts: tuple[Callable[[str], object], ...] = (
        lambda voice: setup.registry.resolve(voice, BO),
        lambda voice: setup.registry.find(voice, BO),
        lambda voice: asyncio.run(setup.registry.rename(voice, "Bo", BO)),
        lambda voice: asyncio.run(setup.registry.remove(voice, BO)),
        lambda voice: asyncio.run(setup.registry.replace(voice, recording(), NewVoice("Bo"), BO)),
    )
    for attempt in attempts:
        answers = set()
        for voice in (annas, unknown):
            with pytest.raises(UnknownVoice) as refusal:
                attempt(voice)
            answers.add(str(refusal.value).replace(voice, "ID"))
        assert len(answers) == 1
    with pytest.raises(UnknownVoice):
        setup.registry.resolve("Anna", BO)
    assert setup.registry.find(annas, ANNA).name == "Anna"


def test_a_key_changes_its_own_voices_and_an_administrator_all(setup: RegistrySetup) -> None:
    annas = created(setup, ANNA, "Anna")
    operators = created(setup, OPERATOR, "Desk")
    assert asyncio.run(setup.registry.rename(annas, "Anna K.", ANNA)).name == "Anna K."
    with pytest.raises(BadRequest, match="is the operator's"):
        asyncio.run(setup.registry.remove(operators, ANNA))
    asyncio.run(setup.registry.remove(annas, ADMIN))
    asyncio.run(setup.registry.remove(operators, ADMIN))
    assert seen(setup, ADMIN) == ["first", "second"]


def test_a_key_without_the_enrol_scope_changes_nothing(setup: RegistrySetup) -> None:
    annas = created(setup, ANNA)
    changes: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: setup.registry.create(recording(), NewVoice("Anna"), SPEAKER),
        lambda: setup.registry.replace(annas, recording(), NewVoice("Anna"), SPEAKER),
        lambda: setup.registry.rename(annas, "Anna", SPEAKER),
        lambda: setup.registry.remove(annas, SPEAKER),
    )
    for change in changes:
        with pytest.raises(ScopeMissing):
            asyncio.run(change())  # type: ignore[arg-type]
    assert len(setup.encoder.encoded_s) == 1


# Recordings


def test_the_metadata_of_a_recording_is_stored(setup: RegistrySetup) -> None:
    new = NewVoice("Anna", "Some words.", "en-GB", "I agree.", "upload", "cosyvoice-v2-anna-1")
    voice = asyncio.run(setup.registry.create(recording(), new, ANNA))
    assert voice.id == "cosyvoice-v2-anna-1"
    assert (voice.transcript, voice.language, voice.version) == ("Some words.", "en-GB", 2)
    about = voice.about
    assert (about.owner, about.consent, about.provenance) == ("anna-key", "I agree.", "upload")
    assert len(about.source) == 64
    with pytest.raises(BadRequest, match="already"):
        asyncio.run(setup.registry.create(recording(), new, BO))
    with pytest.raises(BadRequest, match="already"):
        asyncio.run(setup.registry.create(recording(), NewVoice("x", voice_id="first"), BO))


def test_a_replaced_recording_keeps_the_metadata_that_is_not_given(setup: RegistrySetup) -> None:
    annas = created(setup, ANNA, "Anna", consent="I agree.", language="en")
    after = asyncio.run(setup.registry.replace(annas, recording(4.5), NewVoice("", provenance="again"), ANNA))
    assert (after.name, after.about.consent, after.language) == ("Anna", "I agree.", "en")
    assert (after.about.owner, after.about.provenance) == ("anna-key", "again")
    assert setup.encoder.encoded_s == [3.5, 4.5]


def test_a_recording_is_truncated_to_the_requested_length(setup: RegistrySetup) -> None:
    new = NewVoice("Anna", max_prompt_s=10.0, limits=RecordingLimits(max_duration_s=60))
    asyncio.run(setup.registry.create(recording(45), new, ANNA))
    assert setup.encoder.encoded_s == [10.0]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [(b"", "empty"), (b"not sound", "no recording"), (recording(2), "2.0 s"), (recording(level=0), "silent")],
)
def test_a_bad_recording_stores_nothing(setup: RegistrySetup, data: bytes, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        asyncio.run(setup.registry.create(data, NewVoice("Anna"), ANNA))
    assert setup.store.list() == ()
    assert list((setup.store.folder / "contents").iterdir()) == []


def test_the_event_loop_is_free_while_a_recording_is_encoded(setup: RegistrySetup) -> None:
    async def scenario() -> None:
        setup.encoder.may_continue.clear()
        creating = asyncio.create_task(setup.registry.create(recording(), NewVoice("Anna"), ANNA))
        await asyncio.to_thread(setup.encoder.is_encoding.wait, 30)
        assert setup.registry.resolve(None, ANNA) == "first"
        setup.encoder.may_continue.set()
        assert (await creating).name == "Anna"

    asyncio.run(scenario())


def test_a_recording_beyond_the_waiting_limit_is_refused(tmp_path: Path) -> None:
    setup = RegistrySetup(tmp_path, policy=VoicePolicy(max_waiting=2))

    async def scenario() -> None:
        setup.encoder.may_continue.clear()
        async with asyncio.TaskGroup() as tasks:
            for name in ("1", "2"):
                tasks.create_task(setup.registry.create(recording(), NewVoice(name), ANNA))
            await asyncio.to_thread(setup.encoder.is_encoding.wait, 30)
            with pytest.raises(Overloaded) as refusal:
                await setup.registry.create(recording(), NewVoice("3"), ANNA)
            assert refusal.value.reason == "enrolments"
            setup.encoder.may_continue.set()
        await setup.registry.create(recording(), NewVoice("4"), ANNA)

    asyncio.run(scenario())
    assert sorted(voice.name for voice in setup.store.list()) == ["1", "2", "4"]
    setup.close()


def test_a_cancelled_enrolment_stores_nothing(setup: RegistrySetup) -> None:
    async def scenario() -> None:
        setup.encoder.may_continue.clear()
        first = asyncio.create_task(setup.registry.create(recording(), NewVoice("gone"), ANNA))
        await asyncio.to_thread(setup.encoder.is_encoding.wait, 30)
        waiting = asyncio.create_task(setup.registry.create(recording(), NewVoice("gone too"), ANNA))
        await asyncio.sleep(0)
        for task in (first, waiting):
            task.cancel()
        await asyncio.wait({first, waiting})
        setup.encoder.may_continue.set()
        await setup.registry.create(recording(4), NewVoice("stays"), ANNA)

    asyncio.run(scenario())
    assert [voice.name for voice in setup.store.list()] == ["stays"]
    assert setup.encoder.encoded_s == [3.5, 4]


def test_concurrent_enrolments_are_not_mixed_up(setup: RegistrySetup) -> None:
    async def scenario() -> None:
        lengths = [3 + tenth / 10 for tenth in range(10)]
        voices = await asyncio.gather(
            *(setup.registry.create(recording(s), NewVoice(f"{s:.1f}"), ANNA) for s in lengths)
        )
        for seconds, voice in zip(lengths, voices, strict=True):
            ids = setup.store.get(voice.id).speech_ids
            assert set(ids) == {round(16_000 * seconds) % 6561}

    asyncio.run(scenario())


def test_a_temporary_voice_exists_while_it_is_used(setup: RegistrySetup) -> None:
    async def scenario() -> None:
        new = NewVoice("", "Some words.")
        async with setup.registry.temporary(recording(), new, ANNA) as first:
            async with setup.registry.temporary(recording(), new, BO) as second:
                assert first == second
            assert setup.voices.speaker_profile(first).prompt is not None
            assert seen(setup, ADMIN) == ["first", "second"]
            with pytest.raises(UnknownVoice):
                setup.registry.resolve(first, ANNA)
        assert first not in setup.voices
        with pytest.raises(ZeroDivisionError):
            async with setup.registry.temporary(recording(), new, ANNA) as third:
                raise ZeroDivisionError
        assert third not in setup.voices
        with pytest.raises(ScopeMissing):
            await setup.registry.temporary(recording(), new, SPEAKER).__aenter__()

    asyncio.run(scenario())
    assert setup.store.list() == ()


def test_a_model_without_cloning_names_the_models_with_it() -> None:
    registry = VoiceRegistry(StandInBackend((440, 880)).voices)
    assert registry.resolve(None, ANNA) == "tone-440"
    assert registry.resolve("tone-880", ANNA) == "tone-880"
    assert registry.resolve("shimmer", ANNA) == "tone-440"
    assert [voice.id for voice in registry.usable_voices(ANNA)] == ["tone-440", "tone-880"]
    with pytest.raises(BadRequest, match=r"cannot clone voices; CosyVoice 2 or 3 can"):
        asyncio.run(registry.create(recording(), NewVoice("Anna"), ANNA))
    with pytest.raises(UnknownVoice):
        registry.find("tone-440", ANNA)
    registry.close()


def test_without_a_store_only_temporary_voices_are_cloned() -> None:
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


def test_voices_of_another_version_are_not_listed(setup: RegistrySetup, tmp_path: Path) -> None:
    annas = created(setup, ANNA, "Anna")
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
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
            with pytest.raises(BadRequest, match="cannot clone voices"):
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


def enrolled(setup: RegistrySetup, folder: Path) -> int:
    return asyncio.run(setup.registry.enroll_folder(folder))


def test_speakers_of_a_folder_are_voices_of_the_operator(setup: RegistrySetup, speakers: Path) -> None:
    assert enrolled(setup, speakers) == 2
    assert seen(setup, BO) == ["first", "second", "anna", "bo"]
    anna = setup.registry.find("anna", BO)
    assert (anna.transcript, anna.about.owner, anna.about.provenance) == (
        "What Anna says.",
        "",
        "speakers folder, anna.wav",
    )


def test_unchanged_speakers_are_not_encoded_again(
    setup: RegistrySetup, speakers: Path, tmp_path: Path
) -> None:
    assert enrolled(setup, speakers) == 2
    assert enrolled(setup, speakers) == 0
    again = RegistrySetup(tmp_path / "voices")
    assert enrolled(again, speakers) == 0
    assert again.encoder.encoded_s == []
    (speakers / "anna.txt").write_text("What Anna really says.", "utf-8")
    assert enrolled(again, speakers) == 1
    assert again.registry.find("anna", BO).transcript == "What Anna really says."
    (speakers / "bo.WAV").write_bytes(recording(5.0))
    assert enrolled(again, speakers) == 1
    assert again.encoder.encoded_s == [3.5, 5.0]
    again.close()


def test_another_version_encodes_the_folder_again(
    setup: RegistrySetup, speakers: Path, tmp_path: Path
) -> None:
    enrolled(setup, speakers)
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
    assert enrolled(later, speakers) == 2
    assert later.registry.resolve("anna", BO) == "anna"
    later.close()


def test_a_bad_file_is_a_warning_and_does_not_prevent_the_start(
    setup: RegistrySetup, speakers: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (speakers / "broken.mp3").write_bytes(b"not sound")
    (speakers / "an id with spaces.wav").write_bytes(recording())
    (speakers / "first.wav").write_bytes(recording())
    (speakers / "latin.wav").write_bytes(recording())
    (speakers / "latin.txt").write_bytes(b"\xe9t\xe9")
    (speakers / "folder.wav").mkdir()
    asyncio.run(setup.registry.create(recording(), NewVoice("Mine", voice_id="mine"), ANNA))
    (speakers / "mine.wav").write_bytes(recording())
    with caplog.at_level(logging.WARNING):
        assert enrolled(setup, speakers) == 2
    assert len(caplog.records) == 6
    assert setup.registry.find("mine", ANNA).about.owner == "anna-key"


def test_a_missing_folder_or_model_without_cloning_prevents_the_start(
    setup: RegistrySetup, tmp_path: Path
) -> None:
    with pytest.raises(BadRequest, match="no such folder of speakers"):
        asyncio.run(VoiceRegistry.open(setup.voices, speakers=tmp_path / "nowhere"))
    with pytest.raises(BadRequest, match="cannot clone voices"):
        asyncio.run(VoiceRegistry.open(StandInBackend().voices, speakers=tmp_path))


def test_an_alias_may_be_a_speaker_of_the_folder(setup: RegistrySetup, speakers: Path) -> None:
    policy = VoicePolicy(default="bo", aliases={"alloy": "anna"})
    registry = asyncio.run(VoiceRegistry.open(setup.voices, policy, speakers))
    assert registry.resolve(None, BO) == "bo"
    assert registry.resolve("alloy", BO) == "anna"
    registry.close()


def test_two_servers_that_start_together_enrol_a_folder_once(tmp_path: Path, speakers: Path) -> None:
    setups = [RegistrySetup(tmp_path / "voices") for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda one: enrolled(one, speakers), setups))
    assert [voice.id for voice in setups[0].store.list()] == ["anna", "bo"]
    for setup in setups:
        setup.close()
