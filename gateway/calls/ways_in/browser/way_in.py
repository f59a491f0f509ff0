"""Browsers as a way in: their calls, and the page with both its tabs."""

from ....access.keys import Scope
from ....page import routes as page
from ....web.app import BROWSER_TAG, Mount
from ..way_in import CallHost, OpenWayIn, WayIn
from .calls import BrowserCalls
from .chat import ChatSettings
from .routes import page_routes, routes
from .settings import GREETING, BrowserCallSettings


async def _open(host: CallHost) -> OpenWayIn:
    calls = BrowserCalls(
        clock=host.clock,
        services=host.services,
        voices=host.voices,
        settings=_make_settings(host),
        make_speech_detector=host.make_speech_detector,
        agent=host.agents.browser,
    )
    speaking = page.routes(host.access, host.voices, host.settings.apis.max_input_characters)
    mounts = (
        Mount(routes(calls), Scope.PAGE, tag=BROWSER_TAG),
        Mount(page_routes(host.access), None, tag=BROWSER_TAG),
        Mount(speaking, None),
    )
    return OpenWayIn(calls, mounts)


def _make_settings(host: CallHost) -> BrowserCallSettings:
    settings, llm, chat = host.settings, host.settings.llm, None
    if llm is not None:
        chat = ChatSettings(llm.base_url, llm.model, llm.api_key.get_secret_value() if llm.api_key else "")
    return BrowserCallSettings(
        speech=host.call_settings.speech,
        greeting=GREETING,
        ice_servers=tuple(server.server() for server in settings.browser.ice_servers),
        ports=settings.rtp.ports,
        chat=chat,
    )


BROWSER = WayIn("browser", _open, greeting=GREETING)
