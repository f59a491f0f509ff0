"""Attack a server by hand: ``PYTHONPATH=tests python -m hostile --messages 1000000 --seed 7``."""

import asyncio
import sys

import click

from hostile.run import attack


@click.command()
@click.option("--messages", type=click.IntRange(1), default=100_000, show_default=True, help="Of all wires.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the random messages.")
@click.option(
    "--rounds", type=click.IntRange(1), default=1, show_default=True, help="With a pause after each."
)
@click.option(
    "--settle-s", type=click.FloatRange(1), default=80.0, show_default=True,
    help="Pause before memory is read; a server gives memory back once a minute.",
)  # fmt: skip
def main(messages: int, seed: int, rounds: int, settle_s: float) -> None:
    """Send hostile messages to every wire of a new server beside a live call and a live stream."""
    report = asyncio.run(attack(messages, seed, rounds=rounds, settle_s=settle_s, tell=click.echo))
    for name, value in (
        ("messages", {"all": report.messages, **report.sent}),
        ("answers", dict(sorted(report.answers.items()))),
        ("live", f"{report.live_utterances} utterances, {report.live_requests} requests"),
        ("memory MB", report.memory_mb),
        ("open files", report.open_files),
        ("log", f"{report.log_lines} lines, {report.tracebacks} tracebacks"),
    ):
        click.echo(f"{name:10} {value}")
    sys.exit(bool(report.findings))


if __name__ == "__main__":
    main()
