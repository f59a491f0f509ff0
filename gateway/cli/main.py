"""The command line: ``vivavoce serve | settings | say | phone | keys | voices | cluster | bench ...``.

A command imports its modules when it runs, so that ``--help`` and usage errors are fast. This module turns
errors into one sentence on standard error and a non-zero exit code. Results go to standard output.
"""

import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from ... import __version__
from ...tts_engine.errors import VivavoceError
from ..cluster.commands import cluster
from .bench.commands import bench
from .commands.bundle import bundle
from .commands.compare_runs import compare_runs
from .commands.keys import keys
from .commands.phone.command import phone
from .commands.say.command import say
from .commands.serve.command import serve, settings
from .commands.voices import voices
from .finetune.commands import finetune
from .options import CommandGroup

COMMANDS: Final = (
    serve,
    settings,
    say,
    phone,
    keys,
    voices,
    bundle,
    finetune,
    cluster,
    bench,
    compare_runs,
)
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


@click.group(
    "vivavoce",
    commands=COMMANDS,
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="vivavoce %(version)s")
def _commands() -> None:
    """Streaming text-to-speech for live conversations."""
