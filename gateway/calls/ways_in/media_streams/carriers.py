"""The carriers and systems whose media streams are served: wire, webhook and authentication of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from .....adapters.media_streams.carriers.audio_fork import SUBPROTOCOLS
from .....adapters.media_streams.carriers.exotel import ExotelStreamConnection, exotel_url
from .....adapters.media_streams.carriers.freeswitch import AudioForkConnection, AudioStreamConnection
from .....adapters.media_streams.carriers.jambonz import JambonzStreamConnection, jambonz_verbs
from .....adapters.media_streams.carriers.plivo import PlivoStreamConnection, plivo_xml
from .....adapters.media_streams.carriers.telnyx import TelnyxStreamConnection, texml
from .....adapters.media_streams.carriers.twilio import TwilioStreamConnection, twiml
from .....adapters.media_streams.carriers.vonage import VonageStreamConnection, ncco
from .....adapters.media_streams.carriers.webhooks import AnswerWebhook
from .....adapters.media_streams.connection import MediaStreamConnection
from ...call_options import Caller
from ...kits.websocket_leg import KnownCaller


class SignatureScheme(Enum):
    """How a carrier signs its requests."""

    NONE = "none"
    TWILIO = "twilio"
    PLIVO = "plivo"


@dataclass(frozen=True, slots=True)
class WebhookFields:
    """Names of a webhook's parameters, or of those of the stream's URL."""

    call_id: str = "CallSid"
    number: str = "From"
    called: str = "To"
    name: str = "CallerName"

    def caller(self, parameters: Mapping[str, str]) -> KnownCaller:
        """Return the caller of a request."""
        caller = Caller(
            number=parameters.get(self.number, ""),
            name=parameters.get(self.name, ""),
            called=parameters.get(self.called, ""),
        )
        return KnownCaller(parameters.get(self.call_id, ""), caller)


@dataclass(frozen=True, slots=True)
class Carrier:
    """One carrier."""

    name: str  # in paths, and the kind of its calls
    make_connection: Callable[[Mapping[str, str]], MediaStreamConnection]  # takes the URL's parameters
    answer: AnswerWebhook | None  # None: it has no webhook
    fields: WebhookFields = WebhookFields()
    signature: SignatureScheme = SignatureScheme.NONE
    subprotocols: tuple[str, ...] = ()  # the first one that the carrier offers is selected


def _of(kind: Callable[[], MediaStreamConnection]) -> Callable[[Mapping[str, str]], MediaStreamConnection]:
    """Return what makes connections to which the URL's parameters mean nothing."""
    return lambda parameters: kind()


_FREESWITCH_FIELDS: Final = WebhookFields("call", "caller", "called", "name")
_ALL: Final = (
    Carrier("twilio", _of(TwilioStreamConnection), twiml, signature=SignatureScheme.TWILIO),
    Carrier("telnyx", _of(TelnyxStreamConnection), texml),
    Carrier(
        "plivo",
        _of(PlivoStreamConnection),
        plivo_xml,
        WebhookFields(call_id="CallUUID"),
        signature=SignatureScheme.PLIVO,
    ),
    Carrier("vonage", _of(VonageStreamConnection), ncco, WebhookFields("uuid", "from", "to", "from_user")),
    Carrier(
        "exotel", _of(ExotelStreamConnection), exotel_url, WebhookFields("CallSid", "CallFrom", "CallTo")
    ),
    Carrier(
        "jambonz",
        _of(JambonzStreamConnection),
        jambonz_verbs,
        WebhookFields("call_sid", "from", "to", "caller_name"),
        subprotocols=SUBPROTOCOLS,
    ),
    Carrier("mod_audio_fork", AudioForkConnection, None, _FREESWITCH_FIELDS, subprotocols=SUBPROTOCOLS),
    Carrier("mod_audio_stream", AudioStreamConnection, None, _FREESWITCH_FIELDS),
)
CARRIERS: Final[Mapping[str, Carrier]] = MappingProxyType({carrier.name: carrier for carrier in _ALL})
