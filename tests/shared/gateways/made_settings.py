"""Settings for a gateway of a test."""

from vivavoce.gateway.configuration.settings import Settings
from vivavoce.gateway.configuration.settings_loader import read_settings


def make_settings(**values: object) -> Settings:
    """Settings by table and key, ``http_port=0``; others are of the environment, or the defaults."""
    return read_settings(flags=values)
