"""PAI's fields in terms of the engine, and the engine's errors in PAI's."""

from typing import Final

from .....adapters.audio.encoders import AudioFormat
from .....adapters.audio.format_kind import AudioLayout
from .....tts_engine.stream_request import Delivery, DeliveryMode
from ....access.access_control import Grant
from ...kits.dashscope.errors import DASHSCOPE_ERRORS
from ...kits.error_table import STATUSES, DescribedError, ErrorTable, InvalidField
from ...shell.speech import SynthesisOptions
from ...shell.speech_server import SpeechServer
from .models import PaiErrorBody, PaiParameters


def make_pai_options(
    parameters: PaiParameters, model: str, server: SpeechServer, grant: Grant, layout: AudioLayout
) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    default = server.models.default_voice(model)
    rate = parameters.sample_rate
    is_mp3 = parameters.output_format == "mp3"
    bit_rate = _mp3_bit_rate(parameters.bit_rate, rate) if is_mp3 else None
    return SynthesisOptions(
        server.voices.resolve(parameters.reference_audio_id, grant, default),
        AudioFormat(parameters.output_format, rate, bit_rate, layout),
        parameters.speed,
        volume=parameters.volume,
        seed=parameters.seed,
        delivery=_delivery(parameters),
    )


def _delivery(parameters: PaiParameters) -> Delivery:
    mode, instruction = None, ""  # None: as the recording of the voice allows
    match parameters.mode:
        case "cross_lingual_replication":
            mode = DeliveryMode.CROSS_LINGUAL
        case "natural_language_replication":
            if not parameters.instruct:
                raise InvalidField("instruct", "is required by natural_language_replication")
            instruction = parameters.instruct
        case _:
            pass
    return Delivery(mode, instruction, **parameters.sampling)


def _mp3_bit_rate(bit_rate: int, sample_rate: int) -> int:
    # PAI's default of 192 kbit/s is more than MPEG-2 Layer III has at 24 kHz.
    minimum, maximum = (8_000, 64_000) if sample_rate < 16_000 else (8_000, 160_000)
    if sample_rate >= 32_000:
        minimum, maximum = 32_000, 320_000
    return min(max(bit_rate, minimum), maximum)


def _make_error_body(described: DescribedError, error: Exception, request_id: str) -> PaiErrorBody:
    named = DASHSCOPE_ERRORS.describe(error)  # PAI's words are DashScope's, its statuses are not
    return PaiErrorBody(code=named.code, message=named.message, request_id=request_id)


PAI_ERRORS: Final = ErrorTable(STATUSES, _make_error_body)
