"""The ARI controller, by the server's settings."""

from ....adapters.rtp.codec import CODECS
from ....tts_engine.errors import VivavoceError
from ...phone_system_settings import PhoneSystemSettings
from ..phones.rtp import RtpCallServer
from .client import AriAccess, AriClient
from .controller import AriController


class AriPasswordUnreadable(VivavoceError):
    """The file of the password cannot be read; the message is a sentence for the operator."""


def open_ari(settings: PhoneSystemSettings, rtp: RtpCallServer) -> AriController | None:
    """Return a controller, which connects by itself; None without ``ari_url``.

    Raises AriPasswordUnreadable.
    """
    if settings.ari_url is None:
        return None
    access = AriAccess(settings.ari_url, settings.ari_user, settings.ari_app, _read_password(settings))
    return AriController(AriClient(access), rtp, CODECS[settings.ari_codec])


def _read_password(settings: PhoneSystemSettings) -> str:
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
