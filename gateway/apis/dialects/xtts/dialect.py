"""The APIs of xtts-streaming-server, xtts-api-server and SillyTavern."""

from typing import Final

from ....web.app import Mount
from ...dialect import Dialect, DialectHost, OpenDialect
from .http_api import XTTS_ERROR_FORMATS, XttsSpeechApi
from .settings_store import XttsSettingsStore
from .voices_api import XttsVoicesApi


def _open(host: DialectHost) -> OpenDialect:
    settings = XttsSettingsStore()
    speech = XttsSpeechApi(host.jobs, host.exchange_folder, settings)
    mounts = (
        Mount(speech.routes(), None, XTTS_ERROR_FORMATS),
        Mount(XttsVoicesApi(host.jobs, settings).routes(), None),
    )
    return OpenDialect(mounts, (speech,))


XTTS: Final = Dialect("xtts", _open)
