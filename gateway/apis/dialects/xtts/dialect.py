"""The APIs of xtts-streaming-server, xtts-api-server and SillyTavern."""

from typing import Final

from ...dialect import Dialect, OpenDialect
from ...kits.exchange_folder import ExchangeFolder
from ...shell.speech_server import SpeechServer
from .http_api import XttsSpeechApi
from .request_mapping import XttsSettingsStore
from .voices_api import XttsVoicesApi


def _open(server: SpeechServer) -> OpenDialect:
    settings = XttsSettingsStore()
    speech = XttsSpeechApi(server, ExchangeFolder(server.policy.exchange_folder), settings)
    return OpenDialect.of(speech, XttsVoicesApi(server, settings))


XTTS: Final = Dialect("xtts", _open, title="XTTS")
