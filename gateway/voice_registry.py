"""Who may speak with which voice, and under which name: the one place that every API asks.

    bundle's voices   everybody's
    voices on file    the operator's: everybody's; a key's: that key's, and an administrator's
    aliases           names that clients insist on, for any of them

    name -> an id that may be used | an alias of the operator's | a voice of that name | one of OpenAI's names

A voice that a key may not use is, to that key, not there. Everything that takes longer than a look into the
index runs on a thread, one recording at a time; who comes when too many wait is refused at once.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..tts_engine.cosyvoice.bundle_voices import BundleVoices
from ..tts_engine.errors import BadRequest, BundleError, Overloaded, UnknownVoice, VivavoceError
from ..tts_engine.voices.recording import RecordingLimits, read_recording
from ..tts_engine.voices.store import StoredVoice, VoiceMetadata, VoicePrompt, VoiceStore, checked_id
from ..tts_engine.voices.voices import MULTIPLE_LANGUAGES, Voices
from .access.access_control import ANONYMOUS_KEY_ID, Grant
from .access.keys import Scope

logger = logging.getLogger(__name__)

OPENAI_VOICE_NAMES: Final = tuple(
    "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split()
)
_NO_OWNER = ""  # owner of what the operator made, and of what is made where no keys are asked for
_FOLDER_PROVENANCE = "speakers folder"
_SOUND_SUFFIXES = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm .mp4".split())
_MAX_NAMES_SHOWN = 20  # names in an error


@dataclass(frozen=True, slots=True)
class VoicePolicy:
    """default: voice of whoever names none, None for the bundle's first. aliases: name -> id of a voice.

    max_waiting: recordings that may wait to be heard; one takes about a second.
    """

    default: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    max_waiting: int = 16


@dataclass(frozen=True, slots=True)
class ListedVoice:
    """A voice that may be used. stored: what is on file about it; None for one of the bundle's."""

    id: str
    name: str
    language: str
    description: str
    stored: StoredVoice | None = None


@dataclass(frozen=True, slots=True)
class NewVoice:
    """What is told with a recording.

    transcript: what is said in it. voice_id: a new one unless given. use_s: only so much of its beginning is
    used. limits: of the recording, unless the usual ones. The other fields: as ``About`` has them.
    """

    name: str
    transcript: str = ""
    language: str = ""
    consent: str = ""
    provenance: str = ""
    voice_id: str | None = None
    max_prompt_s: float | None = None
    limits: RecordingLimits | None = None


class KeyVoices:
    """The voices as one key sees them."""

    def __init__(self, registry: "VoiceRegistry", grant: Grant) -> None:
        self._registry, self._grant = registry, grant

    def resolve(self, name: str | None) -> str:
        """The engine's id for a name, the default for None; raises UnknownVoice."""
        return self._registry.resolve(name, self._grant)

    def usable_voices(self) -> tuple[ListedVoice, ...]:
        """The voices that the key may use."""
        return self._registry.usable_voices(self._grant)


class VoiceRegistry:
    """The voices of one server; its methods belong to an event loop. Close it with ``close``."""

    def __init__(self, voices: Voices, policy: VoicePolicy | None = None) -> None:
        self._voices = voices
        self._bundle_voices = {voice.id: voice for voice in voices}
        self._policy = policy or VoicePolicy()
        self._encoding_thread = ThreadPoolExecutor(1, thread_name_prefix="enrolment")
        self._waiting = 0
        self._temporary_uses: Counter[str] = Counter()

    @classmethod
    async def open(
        cls, voices: Voices, policy: VoicePolicy | None = None, speakers: Path | None = None
    ) -> "VoiceRegistry":
        """A registry, once a folder of speakers is enrolled (see ``enroll_folder``).

        Raises BadRequest for the folder, UnknownVoice where the policy names a voice that is not there.
        """
        with ExitStack() as opened:
            registry = cls(voices, policy)
            opened.callback(registry.close)
            if speakers is not None:
                await registry.enroll_folder(speakers)
            registry._check_policy()
            opened.pop_all()
        return registry

    def for_grant(self, grant: Grant) -> KeyVoices:
        """These voices, for whoever cares for one key only."""
        return KeyVoices(self, grant)

    def close(self) -> None:
        """Let go of the thread, once the recording that it hears is done."""
        self._encoding_thread.shutdown(cancel_futures=True)

    def resolve(self, name: str | None, grant: Grant) -> str:
        """The engine's id for a name, the default for None; raises UnknownVoice."""
        if name is None:
            return self._default()
        if name in self._bundle_voices or self._find_stored(name, grant) is not None:
            return name
        if name in self._policy.aliases:
            return self._policy.aliases[name]
        named = self._find_by_name(name, grant)
        if named is not None:
            return named
        if name in OPENAI_VOICE_NAMES:
            return self._default()
        raise UnknownVoice(f"no voice {name[:140]!r}; there are: {self._describe_names(grant)}")

    def aliases(self) -> Mapping[str, str]:
        """Every other name that is understood, and the id that it stands for."""
        default = self._default()
        return {**dict.fromkeys(OPENAI_VOICE_NAMES, default), **self._policy.aliases}

    def usable_voices(self, grant: Grant) -> tuple[ListedVoice, ...]:
        """The voices that a key may use: the bundle's, then those on file, in order of age."""
        return (
            *(
                ListedVoice(one.id, one.id, one.language, one.description)
                for one in self._bundle_voices.values()
            ),
            *(
                ListedVoice(one.id, one.name, one.language or MULTIPLE_LANGUAGES, "enrolled", one)
                for one in self.enrolled_voices(grant)
            ),
        )

    def enrolled_voices(self, grant: Grant) -> tuple[StoredVoice, ...]:
        """The voices on file that a key may use, in order of age."""
        return self._list_stored(grant, -1)

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        """What is on file about a voice that a key may use; raises UnknownVoice."""
        stored = self._find_stored(voice_id, grant)
        if stored is None:
            raise UnknownVoice(f"no voice {voice_id[:140]!r} was enrolled")
        return stored

    def check_cloning(self) -> None:
        """Raise BadRequest where no voice can be made of a recording, were it only for a while."""
        self._cloning_voices()

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Enrol the bytes of a sound file.

        Raises ScopeMissing, BadRequest for the recording or a model that clones nothing, Overloaded.
        """
        grant.require(Scope.ENROLL)
        cloning, store = self._cloning_voices_and_store()
        if new.voice_id is not None and checked_id(new.voice_id) in cloning:
            raise BadRequest(f"there is a voice {new.voice_id!r} already; remove it first or take another id")
        prompt = await self._encode_recording(cloning, data, new)
        about = VoiceMetadata(
            new.language, _owner(grant), new.consent, new.provenance, _sha256_of_recording(data)
        )
        voice = await asyncio.to_thread(store.add, prompt, name=new.name, about=about, voice_id=new.voice_id)
        logger.info("voice %s enrolled by key %s", voice.id, grant.key_id)
        return voice

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Give a voice of the key's another recording; what ``new`` does not tell stays as it was.

        Raises as ``create``, and UnknownVoice.
        """
        grant.require(Scope.ENROLL)
        cloning, store = self._cloning_voices_and_store()
        before = self._find_changeable(voice_id, grant).about
        prompt = await self._encode_recording(cloning, data, new)
        about = VoiceMetadata(
            new.language or before.language,
            before.owner,
            new.consent or before.consent,
            new.provenance or before.provenance,
            _sha256_of_recording(data),
        )
        voice = await asyncio.to_thread(store.replace, voice_id, prompt, about)
        logger.info("voice %s enrolled anew by key %s", voice.id, grant.key_id)
        return voice

    @asynccontextmanager
    async def temporary(self, data: bytes, new: NewVoice, grant: Grant) -> AsyncIterator[str]:
        """The engine's id of a voice that lasts as long as the block: a recording to speak like, not kept.

        Raises as ``create``.
        """
        grant.require(Scope.ENROLL)
        cloning = self._cloning_voices()
        prompt = await self._encode_recording(cloning, data, new)
        voice_id = cloning.register_prompt(prompt).id
        self._temporary_uses[voice_id] += 1
        try:
            yield voice_id
        finally:
            self._temporary_uses[voice_id] -= 1
            if not self._temporary_uses[voice_id]:
                del self._temporary_uses[voice_id]
                cloning.remove(voice_id)

    async def rename(self, voice_id: str, name: str, grant: Grant) -> StoredVoice:
        """Give a voice of the key's another name; raises ScopeMissing, UnknownVoice, BadRequest."""
        grant.require(Scope.ENROLL)
        self._find_changeable(voice_id, grant)
        _, store = self._cloning_voices_and_store()
        return await asyncio.to_thread(store.rename, voice_id, name)

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        """Delete a voice of the key's; raises ScopeMissing and UnknownVoice."""
        grant.require(Scope.ENROLL)
        self._find_changeable(voice_id, grant)
        _, store = self._cloning_voices_and_store()
        voice = await asyncio.to_thread(store.remove, voice_id)
        logger.info("voice %s removed by key %s", voice.id, grant.key_id)
        return voice

    async def enroll_folder(self, folder: Path) -> int:
        """Enrol NAME.wav (or .flac, .mp3 ...) with what NAME.txt says is said in it as voice NAME; how many.

        What has not changed since is not heard again. A bad file is a warning in the log, and no more.
        Raises BadRequest for a folder that is none, or a model that clones nothing.
        """
        self._cloning_voices_and_store()
        files = await asyncio.to_thread(_sound_files_in, folder)
        enrolled = 0
        for file in files:
            try:
                enrolled += await asyncio.to_thread(self._enroll_file, file)
            except (VivavoceError, OSError, UnicodeDecodeError) as error:
                logger.warning("speaker %r is not enrolled: %s", file.name, error)
        logger.info("%d of %d speakers enrolled from %s", enrolled, len(files), folder)
        return enrolled

    def _enroll_file(self, file: Path) -> bool:
        """Enrol a file unless that was done; whether it was."""
        cloning, store = self._cloning_voices_and_store()
        with file.open("rb") as opened:
            data = opened.read(RecordingLimits().max_bytes + 1)
        transcript_file = file.with_suffix(".txt")
        transcript = transcript_file.read_text("utf-8").strip() if transcript_file.exists() else ""
        about = VoiceMetadata(
            provenance=f"{_FOLDER_PROVENANCE}, {file.name}", source=_sha256_of_recording(data, transcript)
        )
        before = store.find(checked_id(file.stem))
        if before is None and file.stem in cloning:
            raise BadRequest(f"the bundle has a voice {file.stem!r} already")
        if before is not None and not before.about.provenance.startswith(_FOLDER_PROVENANCE):
            raise BadRequest(
                f"there is a voice {file.stem!r} already, from elsewhere ({before.about.provenance})"
            )
        if before is not None and (before.about, before.version) == (about, store.version):
            return False
        recording = read_recording(data)
        prompt = cloning.encode_prompt(recording.samples, recording.sample_rate, transcript)
        if before is None:
            store.add(prompt, name=file.stem, about=about, voice_id=file.stem)
        else:
            store.replace(file.stem, prompt, about)
        return True

    def _default(self) -> str:
        return self._voices.get(self._policy.default).id

    def _check_policy(self) -> None:
        """Whoever is named in the settings is there and can be loaded."""
        named = {"voice": self._policy.default}
        named |= {f"voice_aliases: {name}": voice for name, voice in self._policy.aliases.items()}
        for setting, voice in named.items():
            if voice is None or voice in self._bundle_voices:
                continue
            try:
                self._voices.get(voice)
                self._cloning_voices_and_store()[1].get(voice)
            except (BadRequest, BundleError) as error:
                raise type(error)(f"{setting}: {error}") from error

    def _find_stored(self, voice_id: str, grant: Grant) -> StoredVoice | None:
        store = self._store()
        stored = store.find(voice_id) if store is not None else None
        return stored if stored is not None and _is_usable_by(stored, grant) else None

    def _list_stored(self, grant: Grant, max_count: int) -> tuple[StoredVoice, ...]:
        store = self._store()
        if store is None:
            return ()
        owners = None if grant.allows(Scope.ADMIN) else (_NO_OWNER, grant.key_id)
        return store.list(owners, version=store.version, max_count=max_count)

    def _find_by_name(self, name: str, grant: Grant) -> str | None:
        """The newest of that name. An administrator's names are its own, whatever other keys call theirs."""
        store = self._store()
        if store is None:
            return None
        named = store.list((_NO_OWNER, grant.key_id), name=name, version=store.version)
        return named[-1].id if named else None

    def _describe_names(self, grant: Grant) -> str:
        some = [*self._bundle_voices, *(voice.id for voice in self._list_stored(grant, _MAX_NAMES_SHOWN))]
        return (
            ", ".join(some[:_MAX_NAMES_SHOWN]) + (", ..." if len(some) > _MAX_NAMES_SHOWN else "") or "none"
        )

    def _find_changeable(self, voice_id: str, grant: Grant) -> StoredVoice:
        """What a key may change: its own, and an administrator everything."""
        stored = self.find(voice_id, grant)
        if stored.about.owner != _owner(grant) and not grant.allows(Scope.ADMIN):
            raise BadRequest(f"voice {voice_id!r} is the operator's; this key may use it, not change it")
        return stored

    def _store(self) -> VoiceStore | None:
        return self._voices.store if isinstance(self._voices, BundleVoices) else None

    def _cloning_voices_and_store(self) -> tuple[BundleVoices, VoiceStore]:
        cloning = self._cloning_voices()
        if cloning.store is None:
            raise BadRequest(
                "this server keeps no voices; it needs a folder for them (setting 'voice_store')"
            )
        return cloning, cloning.store

    def _cloning_voices(self) -> BundleVoices:
        if not isinstance(self._voices, BundleVoices):
            raise BadRequest(
                "the voice loaded here clones nobody; a server of CosyVoice 2 or 3 does (setting 'bundle')"
            )
        return self._voices

    async def _encode_recording(self, cloning: BundleVoices, data: bytes, new: NewVoice) -> VoicePrompt:
        """The prompt that a recording makes; nothing is kept of one whose sender has gone."""
        if self._waiting >= self._policy.max_waiting:
            raise Overloaded(
                f"{self._waiting} recordings wait to be heard, which is the limit",
                reason="enrolments",
                retry_after_s=float(self._waiting),
            )

        def decode_and_encode() -> VoicePrompt:
            recording = read_recording(data, new.limits).truncated(new.max_prompt_s)
            return cloning.encode_prompt(recording.samples, recording.sample_rate, new.transcript)

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._encoding_thread, decode_and_encode)
        finally:
            self._waiting -= 1


def _owner(grant: Grant) -> str:
    return _NO_OWNER if grant.key_id == ANONYMOUS_KEY_ID else grant.key_id


def _is_usable_by(voice: StoredVoice, grant: Grant) -> bool:
    return voice.about.owner in (_NO_OWNER, grant.key_id) or grant.allows(Scope.ADMIN)


def _sound_files_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder of speakers")
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in _SOUND_SUFFIXES)


def _sha256_of_recording(data: bytes, transcript: str = "") -> str:
    digest = hashlib.sha256(data)
    if transcript:
        digest.update(b"\0" + transcript.encode())
    return digest.hexdigest()
