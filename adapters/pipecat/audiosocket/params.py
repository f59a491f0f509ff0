"""Parameters of an AudioSocket call in Pipecat, and its caller."""

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pipecat.transports.base_transport import TransportParams
from pydantic import field_validator

from ...audiosocket.protocol import MAX_SENT_BYTES, SAMPLE_RATE_OF_KIND
from ...audiosocket.server_connection import PTIME_S

OUTPUT_SAMPLE_RATES: Final = frozenset(
    rate for rate in SAMPLE_RATE_OF_KIND.values() if rate * PTIME_S * 2 <= MAX_SENT_BYTES
)


class AudioSocketParams(TransportParams):
    """Parameters of a call.

    Parameters:
        audio_out_sample_rate: Rate of the audio sent to Asterisk, Hz. 8000 always works; 12000 to 32000 work
            with the channel driver of Asterisk 20.17, 21.12, 22.7, 23.1 and later. Set the pipeline to the
            same rate (``PipelineParams(audio_out_sample_rate=8000)``): resampling adds a delay of up to 155
            ms.
        audio_out_10ms_chunks: Length of a packet in units of 10 ms; 2.
        audio_out_end_silence_secs: Silence before hanging up; 0, so that a call ends with its last word.
    """

    audio_in_enabled: bool = True
    audio_out_enabled: bool = True
    audio_out_sample_rate: int | None = 8_000
    audio_out_10ms_chunks: int = 2
    audio_out_end_silence_secs: int = 0

    @field_validator("audio_out_sample_rate")
    @classmethod
    def _check_rate(cls, sample_rate: int | None) -> int:
        if sample_rate not in OUTPUT_SAMPLE_RATES | {None}:
            raise ValueError(
                f"got {sample_rate} Hz; allowed: {', '.join(map(str, sorted(OUTPUT_SAMPLE_RATES)))}"
            )
        return sample_rate or 8_000


@dataclass(frozen=True, slots=True)
class AudioSocketCaller:
    """The caller, as passed to the handlers of the transport's events."""

    call_id: UUID  # from the dial plan
    peer: str  # address of the connection, host:port
