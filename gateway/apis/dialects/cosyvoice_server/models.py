"""Forms of upstream CosyVoice's HTTP server, and what they ask of the engine.

    inference_sft             a voice of the model
    inference_zero_shot       a recording and its words
    inference_cross_lingual   a recording
    inference_instruct        a voice of the model and an instruction
    inference_instruct2       a recording and an instruction

Source: FunAudioLLM/CosyVoice@ace7c47 runtime/python/fastapi/server.py.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from .....adapters.audio.encoders import AudioFormat
from .....tts_engine.stream_request import Delivery, DeliveryMode
from ....access.access_control import Grant
from ....voice_registry import NewVoice
from ...kits.request_fields import SpokenText, UploadedRecording
from ...shell.speech import SynthesisOptions
from ...shell.speech_job import ReferenceRecording, SpeechJob
from ...shell.speech_server import SpeechServer

_Name = Annotated[str, Field(max_length=256, description="Name of a voice.")]
_Recording = Annotated[
    UploadedRecording,
    WithJsonSchema({"type": "string", "format": "binary", "description": "A sound file."}),
]


class CosyVoiceForm(BaseModel):
    """Base of the forms; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", arbitrary_types_allowed=True)

    tts_text: Annotated[SpokenText, Field(description="Text to speak.", examples=["Good morning."])]


class SftForm(CosyVoiceForm):
    """A text for a voice of the model."""

    spk_id: Annotated[_Name, Field(examples=["heart"])]


class CrossLingualForm(CosyVoiceForm):
    """A text for the voice of a recording."""

    prompt_wav: _Recording


class ZeroShotForm(CrossLingualForm):
    """A text for the voice of a recording whose words are known."""

    prompt_text: Annotated[
        str, Field(max_length=4096, description="Words of the recording.", examples=["Hello there."])
    ]


class InstructForm(SftForm):
    """A text for a voice of the model, and how to speak it."""

    instruct_text: Annotated[
        str, Field(max_length=4096, description="Manner of speaking, in words.", examples=["Softly."])
    ]


class RecordingInstructForm(CrossLingualForm):
    """A text for the voice of a recording, and how to speak it."""

    instruct_text: Annotated[
        str, Field(max_length=4096, description="Manner of speaking, in words.", examples=["Softly."])
    ]


class CosyVoiceErrorBody(BaseModel):
    """An error."""

    detail: str


def inference_job(server: SpeechServer, form: CosyVoiceForm, grant: Grant) -> SpeechJob:
    """Return the job of a form: s16le at 24 kHz; raises BadRequest."""
    text = server.check_text(form.tts_text, "tts_text")
    voice = server.voices.resolve(form.spk_id, grant) if isinstance(form, SftForm) else None
    options = SynthesisOptions(voice, AudioFormat("pcm"), delivery=_delivery(form))
    recording = None
    if isinstance(form, CrossLingualForm):
        transcript = form.prompt_text if isinstance(form, ZeroShotForm) else ""
        new = NewVoice("of one request", transcript, provenance="prompt_wav of a request")
        recording = ReferenceRecording.uploaded(form.prompt_wav.data, new)
    return SpeechJob(text, options, recording, content_type="application/octet-stream")


def _delivery(form: CosyVoiceForm) -> Delivery:
    match form:
        case InstructForm(instruct_text=instruction) | RecordingInstructForm(instruct_text=instruction):
            return Delivery(instruction=instruction)
        case ZeroShotForm():
            return Delivery(mode=DeliveryMode.ZERO_SHOT)
        case CrossLingualForm():
            return Delivery(mode=DeliveryMode.CROSS_LINGUAL)
        case _:
            return Delivery()
