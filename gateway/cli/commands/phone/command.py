"""The options of ``vivavoce phone``."""

from pathlib import Path

import click

from ...options import AS_JSON
from ...phones.wires import AUDIOSOCKET, MAKE_PHONES


@click.command(epilog="Example: vivavoce phone 127.0.0.1 9092 --seconds 20 --out heard.wav")
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

    from .calls import listen

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
