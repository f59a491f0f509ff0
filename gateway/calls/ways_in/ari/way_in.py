"""Asterisk's REST interface as a way in: the controller, by the server's settings."""

from functools import partial

from .....tts_engine.errors import VivavoceError
from ....settings import Settings
from ....web.openapi.operations import json_response
from ...api.placed_calls import PlacedCalls
from ..way_in import CallHost, OpenWayIn, WayIn
from .client import AriAccess, AriClient
from .controller import AriController
from .placed_calls import AriCallRequest, OriginatedCall, place_call


class AriPasswordUnreadable(VivavoceError):
    """The file of the password cannot be read; the message is a sentence for the operator."""


async def _open(host: CallHost) -> OpenWayIn:
    settings, controller = host.settings, None
    if settings.ari_url is not None:
        access = AriAccess(settings.ari_url, settings.ari_user, settings.ari_app, read_password(settings))
        media = [way.external_media for way in host.opened.values() if way.external_media is not None]
        ways = [way for way in media if settings.ari_media in ("auto", way.setting)]
        controller = AriController(AriClient(access), ways, host.services.registry)
    return OpenWayIn(controller, place_call=partial(place_call, controller))


def read_password(settings: Settings) -> str:
    """Return the password of the settings, or the first line of its file; raises AriPasswordUnreadable."""
    if settings.ari_password is not None:
        return settings.ari_password.get_secret_value()
    if settings.ari_password_file is None:
        return ""
    try:
        return settings.ari_password_file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AriPasswordUnreadable(
            f"ari_password_file: cannot read {settings.ari_password_file}: {error}"
        ) from None


ARI = WayIn(
    "ari",
    _open,
    placed_calls=PlacedCalls(
        AriCallRequest, json_response(OriginatedCall, 202, "Asterisk calls the endpoint.")
    ),
)
