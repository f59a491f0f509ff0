"""The command line: ``vivavoce serve | settings | say | phone | keys | voices | cluster | bench ...``.

A command imports its modules when it runs, so that ``--help`` and usage errors are fast. This module turns
errors into one sentence on standard error and a non-zero exit code. Results go to standard output.
"""

import asyncio
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from ... import __version__
from ...tts_engine.errors import VivavoceError
from ..cluster.commands import cluster
from .bench.commands import bench
from .bundle import bundle
from .compare_runs import compare_runs
from .finetune.commands import finetune
from .keys import keys
from .options import AS_JSON, DEVICE, PRECISIONS, CommandGroup, device_option, executor_option
from .phones.wires import AUDIOSOCKET, MAKE_PHONES
from .voices import voices

_EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells say it


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with 0, or print one sentence and exit with click's code, 1 or 130."""
    try:
        _commands.main(args=arguments, prog_name="vivavoce", standalone_mode=False)
    except click.ClickException as error:
        _exit_with_error(error.format_message(), error.exit_code)
    except VivavoceError as error:
        _exit_with_error(str(error), 1)
    except (KeyboardInterrupt, click.Abort):
        _exit_with_error("Interrupted.", _EXIT_INTERRUPTED)
    sys.exit(0)


def _exit_with_error(sentence: str, code: int) -> NoReturn:
    click.echo(f"vivavoce: {sentence}", err=True)
    sys.exit(code)


@click.group("vivavoce", cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="vivavoce %(version)s")
def _commands() -> None:
    """Streaming text-to-speech for live conversations."""


_commands.add_command(bench)
_commands.add_command(bundle)
_commands.add_command(cluster)
_commands.add_command(compare_runs)
_commands.add_command(finetune)
_commands.add_command(keys)
_commands.add_command(voices)

_SIP_PORT = 5060
_FILE_PATH = click.Path(path_type=Path)
_BUNDLE_HELP = "A folder of Piper, Kokoro, CosyVoice or XTTS.  [default: the packaged voice]"


@_commands.command(epilog="Example: vivavoce serve --agent script:examples/script.txt --http-port 8081")
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
@click.option("--bundle", "bundle_folder", metavar="DIR", help=_BUNDLE_HELP)
@click.option(
    "--precision",
    "bundle_precision",
    metavar="fp32|bf16|fp16|int8|int4|int4-int8",
    help="Of CosyVoice's weights.  [default: fp32]",
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
    from ..configuration.settings_loader import load_settings

    if ari_password_file is not None:
        flags["ari_password"] = _read_first_line(ari_password_file, "--ari-password-file")
    if sip and flags["sip_port"] is None:
        flags["sip_port"] = _SIP_PORT
    loaded = load_settings(config_file, flags)
    _configure_logging(loaded.server.log_level, loaded.server.log_format)
    from ..serve import serve as serve_calls

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

    from ..operation.log_format import JsonLineFormatter, PlainLineFormatter, has_no_text
    from ..operation.log_limit import LimitedHandler

    limited = LimitedHandler(logging.StreamHandler())
    logging.basicConfig(level=level, handlers=[limited])
    if line_format == "json":
        limited.addFilter(has_no_text)
    limited.setFormatter(JsonLineFormatter() if line_format == "json" else PlainLineFormatter())
    for name in ("uvicorn", "aioice"):
        logging.getLogger(name).setLevel("WARNING")  # their INFO lines report every connection


@_commands.command(epilog="Example: vivavoce settings")
def settings() -> None:
    """List the settings of serve, with their defaults, as a table of Markdown."""
    from ..configuration.setting_keys import reference

    click.echo(reference())


@_commands.command(epilog="Example: vivavoce say 'Your table is ready.' -o ready.mp3")
@click.argument("text", required=False)
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="A file: .wav .mp3 .flac .opus .ogg .aac .pcm; - for raw s16le on a pipe.  [default: play it]",
)
@click.option(
    "--subtitles",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write subtitles: .srt, .vtt or .json.",
)
@click.option("--bundle", default="default", metavar="DIR", help=_BUNDLE_HELP)
@click.option(
    "--precision", type=PRECISIONS, default="fp32", show_default=True, help="Of CosyVoice's weights."
)
@DEVICE
@executor_option()
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    envvar="VIVAVOCE_VOICES_STORE",
    metavar="DIR",
    help="Enrolled voices; also VIVAVOCE_VOICES_STORE.",
)
@click.option("--voice", metavar="ID", help="Voice.  [default: the first one]")
@click.option("--speed", type=click.FloatRange(0.5, 2.0), default=1.0, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--sample-rate", type=click.Choice(["24000", "8000"]), default="24000", show_default=True)
@click.option("--ssml", "is_ssml", is_flag=True, help="The text is SSML even without <speak at its start.")
def say(
    text: str | None,
    out: str | None,
    subtitles: Path | None,
    bundle: str,
    precision: str,
    device: str | None,
    executor: str | None,
    store: Path | None,
    voice: str | None,
    speed: float,
    seed: int,
    sample_rate: str,
    is_ssml: bool,
) -> None:
    """Speak TEXT, or standard input as it arrives, to the loudspeaker or a file."""
    from . import say as speaking

    options = speaking.SayOptions(
        out=out,
        subtitles=subtitles,
        voice=voice,
        speed=speed,
        seed=seed,
        sample_rate=int(sample_rate),
        is_ssml=is_ssml,
        bundle=bundle,
        voices=store,
        precision=precision,
        device=device or "auto",
        executor=executor or "auto",
    )
    asyncio.run(speaking.say(text, options))


@_commands.command(epilog="Example: vivavoce phone 127.0.0.1 9092 --seconds 20 --out heard.wav")
@click.argument("host")
@click.argument("port", type=click.IntRange(1, 65_535))
@click.option(
    "--over",
    type=click.Choice(list(MAKE_PHONES)),
    default=AUDIOSOCKET,
    show_default=True,
    help="The wire; PORT is the AudioSocket port, or for RTP that of HTTP.",
)
@click.option("--seconds", type=float, default=30.0, show_default=True, help="How long to listen.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.wav", help="Record the call.")
@click.option("--calls", type=int, default=1, show_default=True, help="Calls at once.")
@click.option("--dtmf", default="", metavar="12#", help="Keys to press.")
@AS_JSON
def phone(
    host: str, port: int, over: str, seconds: float, out: Path | None, calls: int, dtmf: str, as_json: bool
) -> None:
    """Call the gateway like Asterisk, and record the answer."""
    from rich.console import Console

    from .phone import listen

    console = Console(stderr=True)
    report = listen(
        host,
        port,
        seconds=seconds,
        out=out,
        calls=calls,
        dtmf=dtmf,
        make_phones=MAKE_PHONES[over],
        progress=console,
    )
    if as_json:
        click.echo(report.as_json())
    else:
        report.print_table(Console())
