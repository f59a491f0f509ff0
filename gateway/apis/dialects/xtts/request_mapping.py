"""Requests of XTTS's servers in terms of the engine."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.stream_request import Delivery
from ....access.access_control import Grant
from ...kits.sampling_fields import repetition_window
from ...kits.service_names import ServiceNames
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import SpeechJob
from ...shell.speech_server import SpeechServer
from .latents import decode_voice
from .models import CoquiSpeechRequest, NamedSpeechRequest, SpeakerSpeechRequest, XttsSettings

_NAMES: Final = ServiceNames(voices=re.compile("default"))
L16: Final = "audio/L16; rate=24000; channels=1"
_XTTS_IDS_PER_S: Final = 21.533  # 22,050 Hz / 1,024
_IDS_PER_S: Final = 25.0
_DROPPED: Final = re.compile(r"[*\r\n]+")
STREAM: Final = AudioFormat("wav")
FILE: Final = AudioFormat("wav", layout=AudioLayout.FILE)


def resolve_speaker(server: SpeechServer, name: str, grant: Grant) -> str:
    """Return the engine's voice id for the name of a recording; raises UnknownVoice.

    "anna", "anna.wav" and "speakers/anna.wav" are the voice "anna": no path is opened. "default" is the
    default voice, unless a voice has that name.
    """
    stem = re.split(r"[/\\]", name)[-1].removesuffix(".wav")
    return _NAMES.resolve_voice(server.voices, stem, grant, None)


def coqui_job(server: SpeechServer, body: CoquiSpeechRequest, grant: Grant, *, streams: bool) -> SpeechJob:
    """Return the job of a request with the numbers of a voice; raises BadRequest."""
    voice = server.voices.resolve_as_written(decode_voice(body.speaker_embedding), grant)
    delivery = Delivery(language=body.language, first_hop=_first_hop(body.stream_chunk_size))
    audio = STREAM if streams else FILE
    if streams and not body.add_wav_header:
        audio = AudioFormat("pcm")
    return SpeechJob(
        server.check_text(body.text),
        SynthesisOptions(voice, audio, delivery=delivery),
        content_type="audio/wav",
        is_whole=not streams,
    )


def named_job(
    server: SpeechServer, body: NamedSpeechRequest, settings: XttsSettings, grant: Grant, *, streams: bool
) -> SpeechJob:
    """Return the job of a request with the name of a voice; raises BadRequest."""
    text = _DROPPED.sub(" ", server.check_text(body.text))
    options = SynthesisOptions(
        resolve_speaker(server, body.speaker_wav, grant),
        STREAM if streams else FILE,
        speed=max(settings.speed, 0.25),
        delivery=_delivery_of(settings, body.language),
    )
    content_type = "audio/x-wav" if streams else "audio/wav"
    return SpeechJob(server.check_text(text), options, content_type=content_type, is_whole=not streams)


def speaker_job(
    server: SpeechServer, body: SpeakerSpeechRequest, grant: Grant, content_type: str | None
) -> SpeechJob:
    """Return the job of a request with the name of a speaker; raises BadRequest.

    content_type: of a stream of s16le samples; None for a WAV file.
    """
    options = SynthesisOptions(
        resolve_speaker(server, body.speaker, grant),
        FILE if content_type is None else AudioFormat("pcm"),
        speed=body.speed or 1.0,
        delivery=Delivery(language=body.language, **body.sampling),
    )
    return SpeechJob(
        server.check_text(body.text), options, content_type=content_type, is_whole=content_type is None
    )


def _delivery_of(settings: XttsSettings, language: str) -> Delivery:
    """Return the delivery; settings that a client has not changed stay those of the voice."""
    changed = settings.model_fields_set
    return Delivery(
        language=language,
        temperature=settings.temperature if "temperature" in changed else None,
        top_k=settings.top_k if "top_k" in changed else None,
        top_p=settings.top_p if "top_p" in changed else None,
        repetition_window=(
            repetition_window(settings.repetition_penalty) if "repetition_penalty" in changed else None
        ),
        repetition_penalty=settings.repetition_penalty if "repetition_penalty" in changed else None,
        first_hop=_first_hop(settings.stream_chunk_size) if "stream_chunk_size" in changed else None,
    )


def _first_hop(chunk_size: int | None) -> int | None:
    return None if chunk_size is None else max(1, round(chunk_size / _XTTS_IDS_PER_S * _IDS_PER_S))


class XttsSettingsStore:
    """Settings by key; belongs to an event loop. There are as many as keys at most."""

    def __init__(self) -> None:
        self._settings: dict[str, XttsSettings] = {}

    def of(self, grant: Grant) -> XttsSettings:
        """Return the settings of a key, the defaults if it has set none."""
        return self._settings.get(grant.key_id, XttsSettings())

    def set(self, settings: XttsSettings, grant: Grant) -> None:
        """Replace the settings of a key."""
        self._settings[grant.key_id] = settings
