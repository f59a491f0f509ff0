"""Settings for a gateway of a test."""

from vivavoce.gateway.cli.configuration.settings_loader import read_settings
from vivavoce.gateway.configuration.settings import Settings


def make_settings(**values: object) -> Settings:
    """Settings by table and key, ``http_port=0``; others are of the environment, or the defaults."""
    return read_settings(flags=values)
