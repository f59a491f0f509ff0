"""Calls from browsers as a way in."""

from ....access.keys import Scope
from ....web.app import BROWSER_TAG, Mount
from ...call_options import CallSpeechOptions
from ..way_in import CallHost, OpenWayIn, WayIn
from .calls import BrowserCalls
from .chat import ChatSettings
from .routes import page_routes, routes
from .settings import BrowserCallSettings, BrowserTable, LanguageModelTable


async def _open(host: CallHost) -> OpenWayIn:
    calls = BrowserCalls(
        clock=host.clock,
        services=host.services,
        voices=host.voices,
        settings=_make_settings(host.settings.browser, host.settings.llm, host.call_settings.speech),
        make_speech_detector=host.make_speech_detector,
        agent=host.agents.browser,
    )
    mounts = (
        Mount(routes(calls), Scope.PAGE, tag=BROWSER_TAG),
        Mount(page_routes(host.access), None, tag=BROWSER_TAG),
    )
    return OpenWayIn(calls, mounts)


def _make_settings(
    table: BrowserTable, llm: LanguageModelTable, speech: CallSpeechOptions
) -> BrowserCallSettings:
    chat = None
    if llm.base_url is not None and llm.model is not None:
        chat = ChatSettings(llm.base_url, llm.model, llm.api_key.get_secret_value() if llm.api_key else "")
    return BrowserCallSettings(
        speech=speech,
        greeting=table.greeting,
        ice_servers=tuple(server.server() for server in table.ice_servers),
        ports=table.ports,
        chat=chat,
    )


BROWSER = WayIn("browser", _open)
