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

from ..tts_engine.cosyvoice.voices import BundleVoices
from ..tts_engine.errors import BadRequest, BundleError, Overloaded, UnknownVoice, VivavoceError
from ..tts_engine.recording import RecordingLimits, read_recording
from ..tts_engine.voice_store import About, StoredVoice, VoicePrompt, VoiceStore, checked_id
from ..tts_engine.voices import MANY, Voices
from .access.access import OPEN_KEY_ID, Grant
from .access.keys import Scope

logger = logging.getLogger(__name__)

OPENAI_NAMES: Final = tuple(
    "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split()
)
_NOBODYS = ""  # owner of what the operator made, and of what is made where no keys are asked for
_FROM_FOLDER = "speakers folder"
_SOUNDS = frozenset(".wav .flac .mp3 .ogg .opus .m4a .aac .aiff .webm .mp4".split())
_MOST_SHOWN = 20  # names in an error


@dataclass(frozen=True, slots=True)
class VoicePolicy:
    """default: voice of whoever names none, None for the bundle's first. aliases: name -> id of a voice.

    most_waiting: recordings that may wait to be heard; one takes about a second.
    """

    default: str | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    most_waiting: int = 16


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
    use_s: float | None = None
    limits: RecordingLimits | None = None


class KeyVoices:
    """The voices as one key sees them."""

    def __init__(self, registry: "VoiceRegistry", grant: Grant) -> None:
        self._registry, self._grant = registry, grant

    def resolve(self, name: str | None) -> str:
        """The engine's id for a name, the default for None; raises UnknownVoice."""
        return self._registry.resolve(name, self._grant)

    def visible(self) -> tuple[ListedVoice, ...]:
        """The voices that the key may use."""
        return self._registry.visible(self._grant)


class VoiceRegistry:
    """The voices of one server; its methods belong to an event loop. Close it with ``close``."""

    def __init__(self, voices: Voices, policy: VoicePolicy | None = None) -> None:
        self._voices = voices
        self._of_bundle = {voice.id: voice for voice in voices}
        self._policy = policy or VoicePolicy()
        self._hearing = ThreadPoolExecutor(1, thread_name_prefix="enrolment")
        self._waiting = 0
        self._borrowed: Counter[str] = Counter()

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

    def seen_by(self, grant: Grant) -> KeyVoices:
        """These voices, for whoever cares for one key only."""
        return KeyVoices(self, grant)

    def close(self) -> None:
        """Let go of the thread, once the recording that it hears is done."""
        self._hearing.shutdown(cancel_futures=True)

    def resolve(self, name: str | None, grant: Grant) -> str:
        """The engine's id for a name, the default for None; raises UnknownVoice."""
        if name is None:
            return self._default()
        if name in self._of_bundle or self._stored(name, grant) is not None:
            return name
        if name in self._policy.aliases:
            return self._policy.aliases[name]
        named = self._named(name, grant)
        if named is not None:
            return named
        if name in OPENAI_NAMES:
            return self._default()
        raise UnknownVoice(f"no voice {name[:140]!r}; there are: {self._some_names(grant)}")

    def aliases(self) -> Mapping[str, str]:
        """Every other name that is understood, and the id that it stands for."""
        default = self._default()
        return {**dict.fromkeys(OPENAI_NAMES, default), **self._policy.aliases}

    def visible(self, grant: Grant) -> tuple[ListedVoice, ...]:
        """The voices that a key may use: the bundle's, then those on file, in order of age."""
        return (
            *(ListedVoice(one.id, one.id, one.language, one.description) for one in self._of_bundle.values()),
            *(
                ListedVoice(one.id, one.name, one.language or MANY, "enrolled", one)
                for one in self.cloned(grant)
            ),
        )

    def cloned(self, grant: Grant) -> tuple[StoredVoice, ...]:
        """The voices on file that a key may use, in order of age."""
        return self._on_file(grant, -1)

    def find(self, voice_id: str, grant: Grant) -> StoredVoice:
        """What is on file about a voice that a key may use; raises UnknownVoice."""
        stored = self._stored(voice_id, grant)
        if stored is None:
            raise UnknownVoice(f"no voice {voice_id[:140]!r} was enrolled")
        return stored

    def check_cloning(self) -> None:
        """Raise BadRequest where no voice can be made of a recording, were it only for a while."""
        self._cloner()

    async def create(self, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Enrol the bytes of a sound file.

        Raises ScopeMissing, BadRequest for the recording or a model that clones nothing, Overloaded.
        """
        grant.require(Scope.ENROL)
        cloning, store = self._cloning()
        if new.voice_id is not None and checked_id(new.voice_id) in cloning:
            raise BadRequest(f"there is a voice {new.voice_id!r} already; remove it first or take another id")
        prompt = await self._heard(cloning, data, new)
        about = About(new.language, _owner(grant), new.consent, new.provenance, _digest(data))
        voice = await asyncio.to_thread(store.add, prompt, name=new.name, about=about, voice_id=new.voice_id)
        logger.info("voice %s enrolled by key %s", voice.id, grant.key_id)
        return voice

    async def replace(self, voice_id: str, data: bytes, new: NewVoice, grant: Grant) -> StoredVoice:
        """Give a voice of the key's another recording; what ``new`` does not tell stays as it was.

        Raises as ``create``, and UnknownVoice.
        """
        grant.require(Scope.ENROL)
        cloning, store = self._cloning()
        before = self._own(voice_id, grant).about
        prompt = await self._heard(cloning, data, new)
        about = About(
            new.language or before.language,
            before.owner,
            new.consent or before.consent,
            new.provenance or before.provenance,
            _digest(data),
        )
        voice = await asyncio.to_thread(store.replace, voice_id, prompt, about)
        logger.info("voice %s enrolled anew by key %s", voice.id, grant.key_id)
        return voice

    @asynccontextmanager
    async def borrowed(self, data: bytes, new: NewVoice, grant: Grant) -> AsyncIterator[str]:
        """The engine's id of a voice that lasts as long as the block: a recording to speak like, not kept.

        Raises as ``create``.
        """
        grant.require(Scope.ENROL)
        cloning = self._cloner()
        prompt = await self._heard(cloning, data, new)
        voice_id = cloning.keep(prompt).id
        self._borrowed[voice_id] += 1
        try:
            yield voice_id
        finally:
            self._borrowed[voice_id] -= 1
            if not self._borrowed[voice_id]:
                del self._borrowed[voice_id]
                cloning.remove(voice_id)

    async def rename(self, voice_id: str, name: str, grant: Grant) -> StoredVoice:
        """Give a voice of the key's another name; raises ScopeMissing, UnknownVoice, BadRequest."""
        grant.require(Scope.ENROL)
        self._own(voice_id, grant)
        _, store = self._cloning()
        return await asyncio.to_thread(store.rename, voice_id, name)

    async def remove(self, voice_id: str, grant: Grant) -> StoredVoice:
        """Delete a voice of the key's; raises ScopeMissing and UnknownVoice."""
        grant.require(Scope.ENROL)
        self._own(voice_id, grant)
        _, store = self._cloning()
        voice = await asyncio.to_thread(store.remove, voice_id)
        logger.info("voice %s removed by key %s", voice.id, grant.key_id)
        return voice

    async def enroll_folder(self, folder: Path) -> int:
        """Enrol NAME.wav (or .flac, .mp3 ...) with what NAME.txt says is said in it as voice NAME; how many.

        What has not changed since is not heard again. A bad file is a warning in the log, and no more.
        Raises BadRequest for a folder that is none, or a model that clones nothing.
        """
        self._cloning()
        files = await asyncio.to_thread(_sounds_in, folder)
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
        cloning, store = self._cloning()
        with file.open("rb") as opened:
            data = opened.read(RecordingLimits().most_bytes + 1)
        words = file.with_suffix(".txt")
        transcript = words.read_text("utf-8").strip() if words.exists() else ""
        about = About(provenance=f"{_FROM_FOLDER}, {file.name}", source=_digest(data, transcript))
        before = store.find(checked_id(file.stem))
        if before is None and file.stem in cloning:
            raise BadRequest(f"the bundle has a voice {file.stem!r} already")
        if before is not None and not before.about.provenance.startswith(_FROM_FOLDER):
            raise BadRequest(
                f"there is a voice {file.stem!r} already, from elsewhere ({before.about.provenance})"
            )
        if before is not None and (before.about, before.version) == (about, store.version):
            return False
        recording = read_recording(data)
        prompt = cloning.encode(recording.samples, recording.sample_rate, transcript)
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
            if voice is None or voice in self._of_bundle:
                continue
            try:
                self._voices.get(voice)
                self._cloning()[1].get(voice)
            except (BadRequest, BundleError) as error:
                raise type(error)(f"{setting}: {error}") from error

    def _stored(self, voice_id: str, grant: Grant) -> StoredVoice | None:
        store = self._store()
        stored = store.find(voice_id) if store is not None else None
        return stored if stored is not None and _is_for(stored, grant) else None

    def _on_file(self, grant: Grant, most: int) -> tuple[StoredVoice, ...]:
        store = self._store()
        if store is None:
            return ()
        owners = None if grant.allows(Scope.ADMIN) else (_NOBODYS, grant.key_id)
        return store.list(owners, version=store.version, most=most)

    def _named(self, name: str, grant: Grant) -> str | None:
        """The newest of that name. An administrator's names are its own, whatever other keys call theirs."""
        store = self._store()
        if store is None:
            return None
        named = store.list((_NOBODYS, grant.key_id), name=name, version=store.version)
        return named[-1].id if named else None

    def _some_names(self, grant: Grant) -> str:
        some = [*self._of_bundle, *(voice.id for voice in self._on_file(grant, _MOST_SHOWN))]
        return ", ".join(some[:_MOST_SHOWN]) + (", ..." if len(some) > _MOST_SHOWN else "") or "none"

    def _own(self, voice_id: str, grant: Grant) -> StoredVoice:
        """What a key may change: its own, and an administrator everything."""
        stored = self.find(voice_id, grant)
        if stored.about.owner != _owner(grant) and not grant.allows(Scope.ADMIN):
            raise BadRequest(f"voice {voice_id!r} is the operator's; this key may use it, not change it")
        return stored

    def _store(self) -> VoiceStore | None:
        return self._voices.library if isinstance(self._voices, BundleVoices) else None

    def _cloning(self) -> tuple[BundleVoices, VoiceStore]:
        cloning = self._cloner()
        if cloning.library is None:
            raise BadRequest(
                "this server keeps no voices; it needs a folder for them (setting 'voice_store')"
            )
        return cloning, cloning.library

    def _cloner(self) -> BundleVoices:
        if not isinstance(self._voices, BundleVoices):
            raise BadRequest(
                "the voice loaded here clones nobody; a server of CosyVoice 2 or 3 does (setting 'bundle')"
            )
        return self._voices

    async def _heard(self, cloning: BundleVoices, data: bytes, new: NewVoice) -> VoicePrompt:
        """The prompt that a recording makes; nothing is kept of one whose sender has gone."""
        if self._waiting >= self._policy.most_waiting:
            raise Overloaded(
                f"{self._waiting} recordings wait to be heard, which is the limit",
                reason="enrolments",
                retry_after_s=float(self._waiting),
            )

        def hear() -> VoicePrompt:
            recording = read_recording(data, new.limits).beginning(new.use_s)
            return cloning.encode(recording.samples, recording.sample_rate, new.transcript)

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._hearing, hear)
        finally:
            self._waiting -= 1


def _owner(grant: Grant) -> str:
    return _NOBODYS if grant.key_id == OPEN_KEY_ID else grant.key_id


def _is_for(voice: StoredVoice, grant: Grant) -> bool:
    return voice.about.owner in (_NOBODYS, grant.key_id) or grant.allows(Scope.ADMIN)


def _sounds_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise BadRequest(f"{folder}: no such folder of speakers")
    return sorted(file for file in folder.iterdir() if file.suffix.lower() in _SOUNDS)


def _digest(data: bytes, transcript: str = "") -> str:
    digest = hashlib.sha256(data)
    if transcript:
        digest.update(b"\0" + transcript.encode())
    return digest.hexdigest()
