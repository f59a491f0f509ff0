"""Calls from browsers as a way in."""

from ....access.keys import Scope
from ....settings import Settings
from ....web.app import Mount
from ...call_options import CallSpeechOptions
from ..way_in import CallHost, OpenWayIn, WayIn
from .calls import BrowserCalls
from .chat import ChatSettings
from .routes import routes
from .settings import BrowserCallSettings


async def _open(host: CallHost) -> OpenWayIn:
    calls = BrowserCalls(
        clock=host.clock,
        services=host.services,
        voices=host.voices,
        settings=_make_settings(host.settings, host.call_settings.speech),
        make_speech_detector=host.make_speech_detector,
        agent=host.agents.browser,
    )
    return OpenWayIn(calls, mounts=(Mount(routes(calls), Scope.PAGE),))


def _make_settings(settings: Settings, speech: CallSpeechOptions) -> BrowserCallSettings:
    chat = None
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key else ""
    if settings.llm_base_url is not None and settings.llm_model is not None:
        chat = ChatSettings(settings.llm_base_url, settings.llm_model, key)
    return BrowserCallSettings(
        lead_s=settings.lead_s,
        speech=speech,
        greeting=settings.greeting,
        ice_servers=tuple(server.server() for server in settings.ice_servers or ()),
        ports=settings.webrtc_ports,
        chat=chat,
    )


BROWSER = WayIn("browser", _open)
