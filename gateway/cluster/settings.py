"""The table ``[cluster]`` of the configuration."""

from pydantic import Field, SecretStr

from ..configuration.settings_table import SettingsTable


class ClusterTable(SettingsTable):
    """What several gateways share."""

    # Secret, because it may hold a password.
    redis_url: SecretStr | None = Field(
        default=None,
        title='a URL of Redis or Valkey, "redis://", "rediss://" or "unix://"',
        description="Redis or Valkey through which several gateways share keys, limits and encoded "
        'recordings, `"redis://127.0.0.1:6379/0"`; needs the extra `redis`; with a password, set it in the '
        "environment",
    )
