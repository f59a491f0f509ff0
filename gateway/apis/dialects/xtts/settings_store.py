"""The settings that clients of xtts-api-server change with ``/set_tts_settings``.

That server has one set for all its clients. Here each key has its own, so that a client cannot change the
speech of another. They are lost when the server ends.
"""

from ....access.access_control import Grant
from .models import XttsSettings


class XttsSettingsStore:
    """Settings by key; belongs to an event loop. There are as many as keys at most."""

    def __init__(self) -> None:
        self._settings: dict[str, XttsSettings] = {}

    def of(self, grant: Grant) -> XttsSettings:
        """Return the settings of a key, the defaults if it has set none."""
        return self._settings.get(grant.key_id, XttsSettings())

    def set(self, settings: XttsSettings, grant: Grant) -> None:
        """Replace the settings of a key."""
        self._settings[grant.key_id] = settings
