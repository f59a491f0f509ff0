"""Calls over WebSockets as parts of the server: made from its settings, mounted on its HTTP port."""

from collections.abc import Callable

from ..adapters.media.clock import Clock
from ..adapters.media.paced_media import SpeechDetector
from .access.access_control import AccessControl
from .access.keys import Scope
from .calls.agents import Agent
from .calls.leg import CallServices, CallSettings
from .calls.websockets.calls import WebSocketCalls
from .calls.websockets.carrier_access import CarrierAccess
from .calls.websockets.leg import WebSocketLegServices, WebSocketTimeouts
from .calls.websockets.routes import asterisk_routes, media_stream_routes
from .calls.websockets.settings import CarrierSettings
from .settings import Settings
from .web.app import Mount


def make_websocket_calls(
    settings: Settings,
    calls: CallServices,
    clock: Clock,
    agent: Agent,
    call_settings: CallSettings,
    make_speech_detector: Callable[[], SpeechDetector],
) -> WebSocketCalls:
    """Return the calls on WebSockets, which the caller closes."""
    return WebSocketCalls(
        WebSocketLegServices(
            calls=calls,
            clock=clock,
            agent=agent,
            settings=call_settings,
            timeouts=WebSocketTimeouts(settings.first_message_s, settings.stalled_s, settings.silent_s),
            make_speech_detector=make_speech_detector,
        )
    )


def websocket_mounts(calls: WebSocketCalls, settings: Settings, access: AccessControl) -> list[Mount]:
    """Return the mounts of chan_websocket and of the carriers."""
    secrets = (settings.media_streams_token, settings.twilio_auth_token, settings.plivo_auth_token)
    values = ("" if secret is None else secret.get_secret_value() for secret in secrets)
    carrier_access = CarrierAccess(CarrierSettings(settings.public_url or "", *values), access)
    return [
        Mount(asterisk_routes(calls), Scope.CALLS),
        Mount(media_stream_routes(calls, carrier_access), None),
    ]
