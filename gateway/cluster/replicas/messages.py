"""Messages between a gateway and a replica. A transport carries them in batches, in order.

    gateway -> replica    StreamCommand: opens a stream, adds to its text, cancels it, reports its playout;
                          recordings to encode, with an answer of their own
    replica -> gateway    StreamChunk, StreamFailed: what became of it; ReplicaLoad: what the replica can take

Times are durations, never clock readings, so that the clocks of the machines may differ.
"""

from dataclasses import dataclass

from ....tts_engine.chunk import AudioChunk
from ....tts_engine.errors import BadRequest, Overloaded, SynthesisFailed, VivavoceError
from ....tts_engine.reading.pronunciation.lexicon import Pronunciation
from ....tts_engine.reading.prosody import Prosody
from ....tts_engine.stream_request import StreamRequest
from ....tts_engine.voices.voices import Voice
from ..routing import ReplicaState
from .sent_lexicons import SentLexicon


class ReplicaLost(SynthesisFailed):
    """A replica ended, does not answer or cannot be reached."""


class PromptForgotten(SynthesisFailed):
    """A replica no longer has the prompt of an enrolled voice, which is to be sent again."""


# Inputs of a stream, as the methods of ``Stream``


@dataclass(frozen=True, slots=True)
class PushText:
    """As ``Stream.push_text``."""

    text: str
    pronunciation: Pronunciation | None = None
    pause_s: float | None = None


@dataclass(frozen=True, slots=True)
class SetProsody:
    """As ``Stream.set_prosody``."""

    prosody: Prosody


@dataclass(frozen=True, slots=True)
class SetLanguage:
    """As ``Stream.set_language``."""

    language: str | None


@dataclass(frozen=True, slots=True)
class Flush:
    """As ``Stream.flush``."""


@dataclass(frozen=True, slots=True)
class EndInput:
    """As ``Stream.end_input``."""


StreamInput = PushText | SetProsody | SetLanguage | Flush | EndInput


@dataclass(frozen=True, slots=True)
class SentPrompt:
    """The conditioning of an enrolled voice, named by its content."""

    id: str  # as ``StorablePrompt.id``
    content: bytes | None = None  # its file; None: the replica was sent it before


@dataclass(frozen=True, slots=True)
class OpenStream:
    """As ``SpeechEngine.open_stream``. A voice of the bundle is named by its id."""

    request: StreamRequest  # without lexicons
    lexicons: tuple[SentLexicon, ...] = ()
    prompt: SentPrompt | None = None  # of an enrolled voice, which the replica knows by nothing else


@dataclass(frozen=True, slots=True)
class CancelStream:
    """As ``Stream.cancel``."""


@dataclass(frozen=True, slots=True)
class ReportPlayout:
    """What the listener took and holds, for back-pressure and the order of rendering."""

    taken_s: float  # seconds of audio taken since the last report
    lead_s: float | None  # seconds until the listener has played all it took; None: not known


@dataclass(frozen=True, slots=True)
class StreamCommand:
    """One step of one stream. stream: the gateway's number of it."""

    stream: int
    action: OpenStream | StreamInput | CancelStream | ReportPlayout


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A chunk of a stream; the stream ends with a final one."""

    stream: int
    chunk: AudioChunk
    unread_characters: int  # as ``Stream.unread_characters``


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """A stream ended with an error, or was not opened."""

    stream: int
    error: VivavoceError


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """What a replica does now."""

    open_streams: int  # of all gateways
    max_streams: int
    compute_s_per_audio_s: float  # of the busiest worker; 0 until it is measured
    refusal: Overloaded | None  # of one more stream; None: it would be admitted
    wait_s: float = 0.0  # before the first step of a new stream can begin
    short_lead_share: float = 0.0  # of the speaking streams, those that soon run dry
    gateways: int = 1  # that are attached
    is_draining: bool = False  # it ends after its streams, and should get no others

    def state(self, replica: str, voices: frozenset[str] = frozenset()) -> ReplicaState:
        """The load as the routing takes it. voices: ids of the prompts that the replica has."""
        return ReplicaState(
            replica,
            self.open_streams,
            self.max_streams,
            self.compute_s_per_audio_s,
            self.wait_s,
            self.short_lead_share,
            voices,
            self.gateways,
            is_full=self.refusal is not None,
        )


@dataclass(frozen=True, slots=True)
class WarmVoices:
    """Changes of the prompts that a replica has in memory, by id; all of them at first."""

    added: frozenset[str]
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReplicaMetrics:
    """The metrics of a replica, as it counts them since its start."""

    replica: str  # id
    deployment: str  # "voice", "decode", "render" or "enrolment"
    families: bytes  # as ``cluster_metrics.replica_families`` packs them


ReplicaEvent = StreamChunk | StreamFailed | ReplicaLoad | WarmVoices | ReplicaMetrics


@dataclass(frozen=True, slots=True)
class CloningOffer:
    """What becomes of recordings at a replica that clones voices."""

    model_version: int  # as ``EnrollableVoices.model_version``
    encoder_digest: str  # as ``EnrollableVoices.encoder_digest``


@dataclass(frozen=True, slots=True)
class ReplicaEndpoint:
    """Where a replica takes connections of gateways."""

    address: str
    port: int
    token: str  # which they must know


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """A replica, as it introduces itself."""

    replica: str  # id
    bundle_digest: str  # of the voices' files and the code's version: equal digests speak equally
    voices: tuple[Voice, ...]  # the default first
    load: ReplicaLoad
    cloning: CloningOffer | None = None  # None: it clones no voices
    endpoint: ReplicaEndpoint | None = None  # of the socket transport


def portable_error(error: Exception) -> VivavoceError:
    """The error as it may cross a transport: one of the engine's own, or a SynthesisFailed that names it."""
    if isinstance(error, BadRequest | Overloaded | PromptForgotten):
        return error.with_traceback(None)
    return SynthesisFailed(str(error) or type(error).__name__)
