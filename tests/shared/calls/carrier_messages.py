"""First messages of the carriers' media streams, from their references."""

from collections.abc import Callable, Mapping
from typing import Any

from vivavoce.adapters.media_streams.carriers.exotel import ExotelStreamConnection
from vivavoce.adapters.media_streams.carriers.freeswitch import AudioForkConnection, AudioStreamConnection
from vivavoce.adapters.media_streams.carriers.jambonz import JambonzStreamConnection
from vivavoce.adapters.media_streams.carriers.plivo import PlivoStreamConnection
from vivavoce.adapters.media_streams.carriers.telnyx import TelnyxStreamConnection
from vivavoce.adapters.media_streams.carriers.twilio import TwilioStreamConnection
from vivavoce.adapters.media_streams.carriers.vonage import VonageStreamConnection
from vivavoce.adapters.media_streams.connection import MediaStreamConnection

TWILIO_START: dict[str, Any] = {
    "event": "start",
    "sequenceNumber": "1",
    "start": {
        "accountSid": "AC1",
        "streamSid": "MZ1",
        "callSid": "CA1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"from": "+1555", "to": "+1666", "order": "7"},
    },
    "streamSid": "MZ1",
}
TELNYX_START: dict[str, Any] = {
    "event": "start",
    "sequence_number": "1",
    "stream_id": "32DE",
    "start": {
        "call_control_id": "v2:T02l-x_y",
        "from": "+1555",
        "to": "+1666",
        "custom_parameters": {"order": "7"},
        "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1},
    },
}
PLIVO_START: dict[str, Any] = {
    "sequenceNumber": 0,
    "event": "start",
    "start": {
        "callId": "c-1",
        "streamId": "s-1",
        "accountId": "1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
    },
    "extra_headers": "{}",
}
VONAGE_START: dict[str, Any] = {
    "event": "websocket:connected",
    "content-type": "audio/l16;rate=16000",
    "uuid": "u-1",
    "from": "1555",
}
EXOTEL_START: dict[str, Any] = {
    "event": "start",
    "sequence_number": "1",
    "stream_sid": "MZ1",
    "start": {
        "stream_sid": "MZ1",
        "call_sid": "CA1",
        "from": "+91",
        "to": "+92",
        "custom_parameters": {"order": "7"},
        "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"},
    },
}
JAMBONZ_START: dict[str, Any] = {
    "callSid": "j-1",
    "from": "1555",
    "to": "1666",
    "callerName": "Ann",
    "sampleRate": 8000,
    "mixType": "mono",
}
STARTS: list[tuple[type[MediaStreamConnection], dict[str, Any]]] = [
    (TwilioStreamConnection, TWILIO_START),
    (TelnyxStreamConnection, TELNYX_START),
    (PlivoStreamConnection, PLIVO_START),
    (VonageStreamConnection, VONAGE_START),
    (ExotelStreamConnection, EXOTEL_START),
    (JambonzStreamConnection, JAMBONZ_START),
]
FREESWITCH_METADATA: dict[str, Any] = {"customer": "7", "name": "Ann"}
FREESWITCH: list[Callable[[Mapping[str, str]], MediaStreamConnection]] = [
    AudioForkConnection,
    AudioStreamConnection,
]
