"""The voice registry: names, owners, and enrolment."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from shared.audio.recordings import recording
from shared.engine.standin_backend import StandInBackend
from shared.gateways.made_settings import make_settings
from shared.voices.voice_registry_setup import (
    ADMIN,
    ANNA,
    BO,
    OPERATOR,
    SPEAKER,
    Encoder,
    RegistrySetup,
    created,
    usable_ids,
)
from vivavoce.gateway.access.errors import ScopeMissing
from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.serve import Gateway
from vivavoce.gateway.voice_registry import OPENAI_VOICE_NAMES, NewVoice, VoicePolicy, VoiceRegistry
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, BundleError, Overloaded, UnknownVoice
from vivavoce.tts_engine.voices.recording import RecordingLimits
from vivavoce.tts_engine.voices.store import VoiceMetadata, VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[RegistrySetup]:
    opened = RegistrySetup(tmp_path / "voices")
    yield opened
    opened.close()


# Names


def test_the_default_is_the_first_voice_of_the_bundle_or_the_configured_one(
    setup: RegistrySetup, tmp_path: Path
) -> None:
    assert setup.registry.resolve(None, SPEAKER) == "first"
    configured = RegistrySetup(tmp_path / "other", policy=VoicePolicy(default="second"))
    assert configured.registry.resolve(None, SPEAKER) == "second"
    configured.close()


def test_without_speakers_the_default_is_the_oldest_voice_of_the_operator(tmp_path: Path) -> None:
    with VoiceStore(tmp_path, 2, read_prompt=VoicePrompt.load) as store:
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
    for policy in (VoicePolicy(default="unknown"), VoicePolicy(aliases={"alloy": "unknown"})):
        with pytest.raises(UnknownVoice, match="unknown"):
            asyncio.run(VoiceRegistry.open(setup.voices, policy))


def test_an_unusable_default_voice_prevents_the_start(setup: RegistrySetup, tmp_path: Path) -> None:
    asyncio.run(setup.registry.create(recording(), NewVoice("Anna", voice_id="anna"), OPERATOR))
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
    with pytest.raises(BadRequest, match="voice: voice 'anna' was enrolled with CosyVoice 2"):
        asyncio.run(VoiceRegistry.open(later.voices, VoicePolicy(default="anna")))
    later.close()
    (content,) = (setup.store.folder / "contents").iterdir()
    content.write_bytes(b"")
    with pytest.raises(BundleError, match=r"voices.aliases: alloy: voice 'anna'"):
        asyncio.run(VoiceRegistry.open(setup.voices, VoicePolicy(aliases={"alloy": "anna"})))


# Owners


def test_a_key_sees_its_own_voices_and_the_operators(setup: RegistrySetup) -> None:
    annas, bos, admins, operators = (
        created(setup, ANNA),
        created(setup, BO),
        created(setup, ADMIN),
        created(setup, OPERATOR),
    )
    assert usable_ids(setup, ANNA) == ["first", "second", annas, operators]
    assert usable_ids(setup, BO) == ["first", "second", bos, operators]
    assert usable_ids(setup, ADMIN) == ["first", "second", annas, bos, admins, operators]


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
    assert usable_ids(setup, ADMIN) == ["first", "second"]


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
            assert usable_ids(setup, ADMIN) == ["first", "second"]
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
    with pytest.raises(BadRequest, match=r"cannot clone voices; CosyVoice 2 or 3 and XTTS can"):
        asyncio.run(registry.create(recording(), NewVoice("Anna"), ANNA))
    with pytest.raises(UnknownVoice):
        registry.find("tone-440", ANNA)
    registry.close()


def test_without_a_store_only_temporary_voices_are_cloned() -> None:
    async def make_temporary() -> bool:
        registry.cloning_voices()
        async with registry.temporary(recording(), NewVoice(""), ANNA) as voice:
            return voice in voices

    voices = BundleVoices({}, lambda: Encoder(CosyVoiceVersion.V2), ("en",), None)  # type: ignore[arg-type,return-value]
    registry = VoiceRegistry(voices)
    with pytest.raises(BadRequest, match=r"'voices\.store'"):
        asyncio.run(registry.create(recording(), NewVoice("Anna"), ANNA))
    assert asyncio.run(make_temporary())
    registry.close()


def test_voices_of_another_version_are_not_listed(setup: RegistrySetup, tmp_path: Path) -> None:
    annas = created(setup, ANNA, "Anna")
    later = RegistrySetup(tmp_path / "voices", CosyVoiceVersion.V3)
    assert usable_ids(later, ANNA) == ["first", "second"]
    assert later.registry.find(annas, ANNA).version == 2
    asyncio.run(later.registry.remove(annas, ANNA))
    later.close()


def test_a_server_opens_with_the_voices_of_its_settings(tmp_path: Path) -> None:
    def settings(**named: object) -> Settings:
        return make_settings(http_port=0, audiosocket_port=0, agents_default="none", **named)  # type: ignore[arg-type]

    async def scenario() -> None:
        async with await Engine.open(backend=StandInBackend((440, 880))) as engine:
            named = settings(bundle_voice="tone-880", voices_aliases={"reception": "tone-440"})
            async with contextlib.aclosing(await Gateway.open(named, engine=engine)) as gateway:
                assert gateway.voices.resolve("alloy", ANNA) == "tone-880"
                assert gateway.voices.resolve("reception", ANNA) == "tone-440"
            with pytest.raises(UnknownVoice, match=r"voices.aliases: alloy: no voice 'unknown'"):
                await Gateway.open(settings(voices_aliases={"alloy": "unknown"}), engine=engine)
            (tmp_path / "speakers").mkdir()
            with pytest.raises(BadRequest, match="cannot clone voices"):
                await Gateway.open(settings(voices_store=tmp_path), engine=engine)

    asyncio.run(scenario())
