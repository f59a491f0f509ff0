"""The voices of a server, and the access of each API key to them. Every API resolves voice names here.

    bundle's voices   usable by every key
    stored voices     the operator's: usable by every key; a key's: by that key and by administrators
    aliases           further names for any voice

A name is looked up as: a usable id, an alias, the name of a stored voice, a name of OpenAI's (the default
voice); first as it is written, then without regard to case. To a key, a voice that it may not use does not
exist. Work that takes longer than an index lookup runs on a thread, one recording at a time; beyond a number
of waiting recordings, requests are refused.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

from ..tts_engine.engine_set import enrollable_of
from ..tts_engine.errors import BadRequest, BundleError, UnknownVoice
from ..tts_engine.voices.enrollable import EnrollableVoices
from ..tts_engine.voices.packed_prompt import StorablePrompt
from ..tts_engine.voices.recording import (
    Recording,
    RecordingLimits,
    check_transcript,
    hash_recording,
    read_recordings,
)
from ..tts_engine.voices.store import StoredVoice, VoiceMetadata, VoiceStore, checked_id
from ..tts_engine.voices.voices import MULTIPLE_LANGUAGES, Voice, Voices
from .access.access_control import ANONYMOUS_KEY_ID, Grant
from .access.keys import Scope
from .enrolment import PromptSharing, RecordingEncoder, enroll_speakers

logger = logging.getLogger(__name__)

OPENAI_VOICE_NAMES: Final = tuple(
    "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split()
)
_NO_OWNER = ""  # owner of voices enrolled by the operator, or by anybody on a server without keys
_MAX_NAMES_SHOWN = 20  # names in an error


@dataclass(frozen=True, slots=True)
class VoicePolicy:
    """Settings of a registry."""

    default: str | None = None  # id of the voice for requests that name none; None: the bundle's first
    aliases: Mapping[str, str] = field(default_factory=dict)  # id of a voice by further name
    max_waiting: int = 16  # recordings waiting to be encoded; each takes about a second


@dataclass(frozen=True, slots=True)
class ListedVoice:
    """A voice that a key may use."""

    id: str
    name: str
    language: str  # BCP 47
    description: str
    stored: StoredVoice | None = None  # None for a voice of the bundle
    further_languages: tuple[str, ...] = ()  # that it speaks too, with an accent
    follows_instructions: bool = False


@dataclass(frozen=True, slots=True)
class NewVoice:
    """What a client sends with a recording. "" leaves a field unknown."""

    name: str
    transcript: str = ""  # of the recording
    language: str = ""  # BCP 47
    consent: str = ""  # what the speaker agreed to
    provenance: str = ""  # where the recording comes from
    voice_id: str | None = None  # None generates one
    max_prompt_s: float | None = None  # use only this much of the recording's beginning
    limits: RecordingLimits | None = None  # None: the default limits
    further_recordings: tuple[bytes, ...] = ()  # of the same voice, for a model that takes several

    def source(self, data: bytes) -> str:
        """``VoiceMetadata.source`` of the first recording and the further ones."""
        return hash_recording(b"".join((data, *self.further_recordings)))

    def read(self, data: bytes) -> list[Recording]:
        """The first recording and the further ones. Raises BadRequest."""
        recordings = read_recordings((data, *self.further_recordings), self.limits)
        recordings = [recording.truncated(self.max_prompt_s) for recording in recordings]
        check_transcript(recordings, self.transcript)
        return recordings


class KeyVoices:
    """The voices that one key may use."""

    def __init__(self, registry: "VoiceRegistry", grant: Grant) -> None:
        self._registry, self._grant = registry, grant

    def resolve(self, name: str | None) -> str:
        """The id of the voice with a name or id, the default for None and "". Raises UnknownVoice."""
        return self._registry.resolve(name, self._grant)

    def usable_voices(self) -> tuple[ListedVoice, ...]:
        """The voices that the key may use, the bundle's first."""
        return self._registry.usable_voices(self._grant)


class VoiceRegistry:
    """The voices of one server. Use it on one event loop; close it with ``close``."""

    def __init__(
        self,
        voices: Voices,
        policy: VoicePolicy | None = None,
        conditioning: PromptSharing | None = None,
    ) -> None:
        """conditioning: shared with other gateways; None encodes every recording here."""
        self._voices = voices
        self._policy = policy or VoicePolicy()
        self.refresh()
        self._encoder = RecordingEncoder(self._policy.max_waiting, conditioning)
        self._temporary_uses: Counter[tuple[EnrollableVoices, str]] = Counter()

    @classmethod
    async def open(
        cls,
        voices: Voices,
        policy: VoicePolicy | None = None,
        speakers: Path | None = None,
        conditioning: PromptSharing | None = None,
    ) -> "VoiceRegistry":
        """A registry, after enrolling a folder of speakers (``enrolment``).

        Raises BadRequest for the folder; UnknownVoice, BadRequest or BundleError for a voice that the policy
        names.
        """
        with ExitStack() as opened:
            registry = cls(voices, policy, conditioning)
            opened.callback(registry.close)
            if speakers is not None:
                await registry.enroll_folder(speakers)
            registry._check_policy()
            opened.pop_all()
        return registry

    def for_grant(self, grant: Grant) -> KeyVoices:
        """The voices of one key."""
        return KeyVoices(self, grant)

    def close(self) -> None:
        """Stop the encoding thread after the recording that it works on."""
        self._encoder.close()

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        """The id of the voice with a name or id, the default for None and "". Raises UnknownVoice.

        Where no voice has the name as it is written, upper and lower case are the same. default: the id of
        another default voice for this request; of two voices with one name, that of its bundle is meant.
        """
        if not name:
            return default or self._default()
        found = self._find_id(name, grant) or self._find_id_of_any_case(name, grant)
        if found is None and name.casefold() in OPENAI_VOICE_NAMES:
            return default or self._default()
        if found is None:
            self._raise_unknown(name, grant)
        return (default and self._voices.id_beside(default, found)) or found

    def resolve_as_written(self, name: str, grant: Grant) -> str:
        """The id of the voice with exactly that name or id. Raises UnknownVoice."""
        return self._find_id(name, grant) or self._raise_unknown(name, grant)

    def aliases(self) -> Mapping[str, str]:
        """The id of a voice for every alias, OpenAI's names included."""
        default = self._default()
        return {**dict.fromkeys(OPENAI_VOICE_NAMES, default), **self._policy.aliases}

    def bundle_voice(self, voice_id: str) -> Voice | None:
        """The voice of the bundle with that id; None if there is none."""
        return self._bundle_voices.get(voice_id)

    def bundle_voices(self) -> tuple[ListedVoice, ...]:
        """The voices of the bundle, which every key may use."""
        return tuple(
            ListedVoice(
                one.id,
                one.id,
                one.language,
                one.description,
                further_languages=one.further_languages,
                follows_instructions=self._voices.follows_instructions(one.id),
            )
            for one in self._bundle_voices.values()
        )

    def usable_voices(self, grant: Grant) -> tuple[ListedVoice, ...]:
        """The voices that a key may use: the bundle's, then the stored ones, oldest first."""
        return (
            *self.bundle_voices(),
            *(
                ListedVoice(
                    one.id,
                    one.name,
                    one.language or MULTIPLE_LANGUAGES,
                    "enrolled",
                    one,
                    follows_instructions=self._voices.follows_instructions(one.id),
                )
                for one in self.enrolled_voices(grant)
            ),
        )

    def enrolled_voices(self, grant: Grant) -> tuple[StoredVoice, ...]:
        """The stored voices that a key may use, oldest first."""
        return self._list_stored(grant, -1)

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        """The stored voice with that id, if the key may use it. Raises UnknownVoice."""
        stored = self._find_stored(voice_id, grant)
        if stored is None:
            raise UnknownVoice(f"no voice {voice_id[:140]!r} was enrolled")
        return stored

    def fits_model(self, stored: StoredVoice) -> bool:
        """Whether a stored voice was enrolled with the loaded model, so that it can speak."""
        return (store := self._store()) is not None and stored.version == store.version

    @property
    def keeps_clones(self) -> bool:
        """Whether a bundle clones voices, and there is a folder for them."""
        return self._store() is not None

    def cloning_voices(self) -> EnrollableVoices:
        """The voices to which recordings are added. Raises BadRequest if no bundle clones."""
        enrollable = enrollable_of(self._voices)
        if enrollable is None:
            raise BadRequest("the loaded voice cannot clone voices; CosyVoice 2 or 3 and XTTS can")
        return enrollable

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Enrol a sound file as a voice of the key.

        Raises ScopeMissing, Overloaded, and BadRequest for the recording, the id or a model that cannot
        clone.
        """
        grant.require(Scope.ENROLL)
        cloning, _ = self._cloning_voices_and_store()
        if new.voice_id is not None and checked_id(new.voice_id) in cloning:
            raise BadRequest(f"there is a voice {new.voice_id!r} already; remove it first or take another id")
        _, prompt, provenance = await self._encode(data, new)
        _, store = self._cloning_voices_and_store()
        about = VoiceMetadata(new.language, _owner(grant), new.consent, provenance, new.source(data))
        voice = await asyncio.to_thread(store.add, prompt, name=new.name, about=about, voice_id=new.voice_id)
        logger.info("voice %s enrolled by key %s", voice.id, grant.key_id)
        return voice

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Replace the recording of the key's voice; metadata that ``new`` leaves empty is kept.

        Raises as ``create``, and UnknownVoice.
        """
        grant.require(Scope.ENROLL)
        self._cloning_voices_and_store()
        before = self._find_changeable(voice_id, grant).about
        _, prompt, provenance = await self._encode(data, new)
        _, store = self._cloning_voices_and_store()
        about = VoiceMetadata(
            new.language or before.language,
            before.owner,
            new.consent or before.consent,
            provenance or before.provenance,
            new.source(data),
        )
        voice = await asyncio.to_thread(store.replace, voice_id, prompt, about)
        logger.info("voice %s enrolled again by key %s", voice.id, grant.key_id)
        return voice

    @asynccontextmanager
    async def temporary(self, data: bytes, new: NewVoice, grant: Grant) -> AsyncIterator[str]:
        """The id of a voice that exists only inside the block and is not stored. Raises as ``create``.

        Blocks that use the same recording share the voice.
        """
        grant.require(Scope.ENROLL)
        cloning, prompt, _ = await self._encode(data, new)
        used = cloning, voice_id = cloning, cloning.register_prompt(prompt).id
        self._temporary_uses[used] += 1
        try:
            yield voice_id
        finally:
            self._temporary_uses[used] -= 1
            if not self._temporary_uses[used]:
                del self._temporary_uses[used]
                cloning.remove(voice_id)

    async def rename(self, voice_id: str, name: str, grant: Grant) -> StoredVoice:
        """Change the name of the key's voice. Raises ScopeMissing, UnknownVoice, BadRequest."""
        grant.require(Scope.ENROLL)
        self._find_changeable(voice_id, grant)
        _, store = self._cloning_voices_and_store()
        return await asyncio.to_thread(store.rename, voice_id, name)

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        """Delete the key's voice; what it was. Raises ScopeMissing, UnknownVoice, BadRequest."""
        grant.require(Scope.ENROLL)
        self._find_changeable(voice_id, grant)
        _, store = self._cloning_voices_and_store()
        voice = await asyncio.to_thread(store.remove, voice_id)
        await self._encoder.forget(voice.content)
        logger.info("voice %s removed by key %s", voice.id, grant.key_id)
        return voice

    async def enroll_folder(self, folder: Path) -> int:
        """Enrol a folder of speakers and return how many were new or changed.

        Raises BadRequest if there is no such folder, no store, or the model cannot clone voices.
        """
        cloning, store = self._cloning_voices_and_store()
        return await enroll_speakers(folder, cloning, store)

    def _default(self) -> str:
        return self._voices.get(self._policy.default).id

    def _check_policy(self) -> None:
        """Check that every voice named in the settings exists and can be loaded."""
        named = {"bundle.voice": self._policy.default}
        named |= {f"voices.aliases: {name}": voice for name, voice in self._policy.aliases.items()}
        for setting, voice in named.items():
            if voice is not None:
                self.check_configured(setting, voice)

    def configured_ids(self) -> tuple[str, ...]:
        """The ids of voices that the aliases of the settings name."""
        return tuple(self._policy.aliases.values())

    def refresh(self) -> None:
        """Read the voices of the bundles, at the beginning and after they have changed."""
        self._bundle_voices = {voice.id: voice for voice in self._voices}
        ids_by_name = {**self._policy.aliases, **{name: name for name in self._bundle_voices}}
        self._ids_by_folded_name = {name.casefold(): voice_id for name, voice_id in ids_by_name.items()}

    def check_configured(self, setting: str, voice_id: str) -> None:
        """Check that a voice named in the settings can be loaded.

        Raises UnknownVoice, BadRequest or BundleError with the name of the setting.
        """
        if voice_id in self._bundle_voices or self._voices.is_unlisted(voice_id):
            return
        try:
            self._voices.get(voice_id)
            self._cloning_voices_and_store()[1].get(voice_id)
        except (BadRequest, BundleError) as error:
            raise type(error)(f"{setting}: {error}") from error

    def _find_id(self, name: str, grant: Grant) -> str | None:
        if name in self._bundle_voices or self._voices.is_unlisted(name):
            return name
        if self._find_stored(name, grant) is not None:
            return name
        if name in self._policy.aliases:
            return self._policy.aliases[name]
        return self._find_by_name(name, grant)

    def _find_id_of_any_case(self, name: str, grant: Grant) -> str | None:
        folded, store = name.casefold(), self._store()
        if folded in self._ids_by_folded_name:
            return self._ids_by_folded_name[folded]
        stored = store.find_folded(folded, (_NO_OWNER, grant.key_id)) if store is not None else None
        return None if stored is None else stored.id

    def _raise_unknown(self, name: str, grant: Grant) -> NoReturn:
        some = [*self._bundle_voices, *(voice.id for voice in self._list_stored(grant, _MAX_NAMES_SHOWN))]
        more = ", ..." if len(some) > _MAX_NAMES_SHOWN else ""
        names = ", ".join(some[:_MAX_NAMES_SHOWN]) + more or "none"
        raise UnknownVoice(f"no voice {name[:140]!r}; there are: {names}")

    def _find_stored(self, voice_id: str, grant: Grant) -> StoredVoice | None:
        store = self._store()
        stored = store.find(voice_id) if store is not None else None
        return stored if stored and _is_usable_by(stored, grant) else None

    def _list_stored(self, grant: Grant, max_count: int) -> tuple[StoredVoice, ...]:
        store = self._store()
        if store is None:
            return ()
        owners = None if grant.allows(Scope.ADMIN) else (_NO_OWNER, grant.key_id)
        return store.list(owners, version=store.version, max_count=max_count)

    def _find_by_name(self, name: str, grant: Grant) -> str | None:
        """The newest voice with that name of the key or the operator, even for an administrator."""
        store = self._store()
        if store is None:
            return None
        named = store.list((_NO_OWNER, grant.key_id), name=name, version=store.version)
        return named[-1].id if named else None

    def _find_changeable(self, voice_id: str, grant: Grant) -> StoredVoice:
        """A stored voice that the key may change: its own, or any voice for an administrator."""
        stored = self.find(voice_id, grant)
        if stored.about.owner != _owner(grant) and not grant.allows(Scope.ADMIN):
            raise BadRequest(f"voice {voice_id!r} is the operator's; this key may use it, not change it")
        return stored

    def _store(self) -> VoiceStore | None:
        enrollable = enrollable_of(self._voices)
        return None if enrollable is None else enrollable.store

    def _cloning_voices_and_store(self) -> tuple[EnrollableVoices, VoiceStore]:
        cloning = self.cloning_voices()
        if cloning.store is None:
            raise BadRequest("this server stores no voices; it needs a folder (setting 'voices.store')")
        return cloning, cloning.store

    async def _encode(self, data: bytes, new: NewVoice) -> tuple[EnrollableVoices, StorablePrompt, str]:
        """The prompt of recordings, the voices that it is for, and its provenance with remarks.

        Encodes again if their bundle is replaced.
        """
        remarks: list[str] = []

        def read() -> list[Recording]:
            recordings = new.read(data)
            remarks[:] = [remark for recording in recordings for remark in recording.remarks]
            return recordings

        while True:
            cloning = self.cloning_voices()
            prompt = await self._encoder.encode(cloning, read, new.transcript)
            if cloning is enrollable_of(self._voices):
                return cloning, prompt, "; ".join(filter(None, (new.provenance, *remarks)))


def _owner(grant: Grant) -> str:
    return _NO_OWNER if grant.key_id == ANONYMOUS_KEY_ID else grant.key_id


def _is_usable_by(voice: StoredVoice, grant: Grant) -> bool:
    return voice.about.owner in (_NO_OWNER, grant.key_id) or grant.allows(Scope.ADMIN)
