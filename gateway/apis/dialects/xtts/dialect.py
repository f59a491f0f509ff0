"""The APIs of xtts-streaming-server, xtts-api-server and SillyTavern."""

from typing import Final

from ...dialect import Dialect, DialectHost, OpenDialect
from ...kits.exchange_folder import ExchangeFolder
from .http_api import XttsSpeechApi
from .request_mapping import XttsSettingsStore
from .voices_api import XttsVoicesApi


def _open(host: DialectHost) -> OpenDialect:
    settings = XttsSettingsStore()
    speech = XttsSpeechApi(host.jobs, ExchangeFolder(host.policy.exchange_folder), settings)
    return OpenDialect.of(speech, XttsVoicesApi(host.jobs, settings))


XTTS: Final = Dialect("xtts", _open, title="XTTS")
