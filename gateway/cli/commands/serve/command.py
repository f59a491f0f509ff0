"""``vivavoce serve``, and ``vivavoce settings``, which lists its settings."""

import asyncio
import functools
from pathlib import Path

import click

from .....tts_engine.errors import VivavoceError
from ...options import BUNDLE_HELP, device_option, executor_option

_SIP_PORT = 5060
_FILE_PATH = click.Path(path_type=Path)


@click.command(epilog="Example: vivavoce serve --agent script:examples/script.txt --http-port 8081")
@click.option("--config", "config_file", type=_FILE_PATH, metavar="FILE", help="Settings as TOML.")
@click.option("--host", "http_host", help="Address of HTTP.  [default: 127.0.0.1]")
@click.option("--http-port", metavar="PORT", help="0: any free one.  [default: 8080]")
@click.option("--audiosocket-host", metavar="HOST", help="Address for Asterisk.  [default: 127.0.0.1]")
@click.option("--audiosocket-port", metavar="PORT", help="0: any free one.  [default: 9092]")
@click.option(
    "--agent",
    "agents_default",
    metavar="script:FILE|loop:FILE|keys|none",
    help="What answers calls.  [default: keys or greeting]",
)
@click.option("--bundle", "bundle_folder", metavar="DIR", help=BUNDLE_HELP)
@click.option(
    "--precision",
    "bundle_precision",
    metavar="auto|fp32|fp32-fp16|bf16|fp16|int8|int4|int4-int8",
    help="Of CosyVoice's weights.  [default: auto]",
)
@device_option("bundle_device")
@executor_option("engine_executor")
@click.option("--voice", "bundle_voice", metavar="ID", help="Voice of the calls.  [default: the first one]")
@click.option(
    "--max-calls", "calls_max_calls", metavar="N", help="Calls at once; more are refused.  [default: 100]"
)
@click.option("--max-streams", "engine_max_streams", metavar="N", help="Utterances at once.  [default: 100]")
@click.option(
    "--audiosocket-rate", metavar="HZ", help="8000, or 24000 for Asterisk 22.7 and later.  [default: 8000]"
)
@click.option("--rtp-host", metavar="HOST", help="Address of RTP calls.  [default: 127.0.0.1]")
@click.option("--rtp-ports", metavar="FIRST-LAST", help="UDP ports of RTP calls.  [default: any]")
@click.option("--sip", "sip", is_flag=True, help="Answer SIP phones on port 5060.")
@click.option("--sip-host", metavar="HOST", help="Address of SIP and its media.  [default: 127.0.0.1]")
@click.option("--sip-port", metavar="PORT", help="Answer SIP phones over UDP and TCP; 0: any free port.")
@click.option(
    "--wyoming",
    "apis_ports_wyoming",
    flag_value="10200",
    default=None,
    help="Serve Home Assistant on TCP port 10200.",
)
@click.option("--ari-url", metavar="URL", help="Asterisk's REST interface, http://127.0.0.1:8088/ari.")
@click.option(
    "--ari-media", metavar="WAY", help="auto, websocket[:CONNECTION], audiosocket, rtp.  [default: auto]"
)
@click.option("--ari-codec", metavar="NAME", help="ulaw, alaw, slin or slin16.  [default: ulaw]")
@click.option("--recordings", "recordings_folder", metavar="DIR", help="Folder of recordings of calls.")
@click.option(
    "--ari-password-file",
    type=_FILE_PATH,
    metavar="FILE",
    help="Or VIVAVOCE_ARI_PASSWORD.",
)
@click.option("--ari-app", metavar="NAME", help="Stasis application.  [default: vivavoce]")
@click.option(
    "--log-level",
    "server_log_level",
    metavar="LEVEL",
    help="DEBUG, INFO, WARNING or ERROR.  [default: INFO]",
)
@click.option(
    "--listen-beyond-loopback",
    "access_listen_beyond_loopback",
    is_flag=True,
    default=None,
    help="Allow addresses that other machines reach.",
)
@click.option(
    "--keys-file",
    "access_keys_file",
    type=_FILE_PATH,
    metavar="FILE",
    help="Require an API key from this file.",
)
@click.option(
    "--without-keys",
    "access_without_key",
    flag_value="everything",
    default=None,
    help="Serve without keys beyond loopback.",
)
def serve(config_file: Path | None, ari_password_file: Path | None, sip: bool, **flags: object) -> None:
    """Answer phones, browsers and programs until SIGTERM or Control-C."""
    from ...configuration.settings_loader import load_settings

    if ari_password_file is not None:
        flags["ari_password"] = _read_first_line(ari_password_file, "--ari-password-file")
    if sip and flags["sip_port"] is None:
        flags["sip_port"] = _SIP_PORT
    loaded = load_settings(config_file, flags)
    _configure_logging(loaded.server.log_level, loaded.server.log_format)
    from .process import serve as serve_calls

    read_settings = functools.partial(load_settings, config_file, flags)
    asyncio.run(serve_calls(loaded, announce=click.echo, read_settings=read_settings))


def _read_first_line(file: Path, flag: str) -> str:
    try:
        return file.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise VivavoceError(f"{flag}: cannot read {file}: {error}") from None


def _configure_logging(level: str, line_format: str) -> None:
    """Log to standard error; line_format: "text" or "json"."""
    import logging

    from .log_format import JsonLineFormatter, PlainLineFormatter, has_no_text
    from .log_limit import LimitedHandler

    limited = LimitedHandler(logging.StreamHandler())
    logging.basicConfig(level=level, handlers=[limited])
    if line_format == "json":
        limited.addFilter(has_no_text)
    limited.setFormatter(JsonLineFormatter() if line_format == "json" else PlainLineFormatter())
    for name in ("uvicorn", "aioice"):
        logging.getLogger(name).setLevel("WARNING")  # their INFO lines report every connection


@click.command(epilog="Example: vivavoce settings")
def settings() -> None:
    """List the settings of serve, with their defaults, as a table of Markdown."""
    click.echo(reference())


def reference() -> str:
    """The settings with their defaults and meanings, as a table of Markdown."""
    from ...configuration.setting_keys import SETTING_KEYS

    rows = ["| setting | default | meaning |", "|---|---|---|"]
    for key in SETTING_KEYS:
        if key.path == ("bundles",):
            rows.append("| `bundles.NAME` | | a further bundle: the keys of `bundle` |")
        else:
            default = f" `{key.default}` " if key.default else " "
            rows.append(f"| `{key.name}` |{default}| {key.field.description} |")
    return "\n".join(rows)
