"""The reference of the settings, as ``vivavoce settings`` prints it."""

from ...configuration.setting_keys import SETTING_KEYS, SettingKey


def reference() -> str:
    """The settings with their defaults and meanings, as a table of Markdown."""
    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for key in SETTING_KEYS:
        if key.path == ("bundles",):
            rows.append("| `bundles.NAME` | | a further bundle: the keys of `bundle` |")
        else:
            rows.append(_row(key))
    return "\n".join(rows)


def _row(key: SettingKey) -> str:
    default = f" `{key.default}` " if key.default else " "
    return f"| `{key.name}` |{default}| {key.field.description} |"
