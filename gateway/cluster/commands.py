"""The commands ``vivavoce cluster up | status | drain | down``: replicas of the engine on Ray Serve."""

import json
from dataclasses import asdict
from pathlib import Path
from types import ModuleType

import click

from ...tts_engine.errors import MissingExtra
from ..cli.options import AS_JSON, CommandGroup

_CONFIG = click.argument("config", type=click.Path(path_type=Path, dir_okay=False), metavar="CONFIG")
_ADDRESS = click.option(
    "--address", default="auto", show_default=True, metavar="auto|HOST:PORT", help="Of the cluster's head."
)


@click.group(cls=CommandGroup)
def cluster() -> None:
    """Run replicas of the engine on several machines, with Ray Serve."""


@cluster.command(epilog="Example: vivavoce cluster up examples/deploy/cluster.yaml")
@_CONFIG
@_ADDRESS
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Of this machine, if Ray is started here."
)
@click.option(
    "--port", type=click.IntRange(1, 65_535), default=6379, show_default=True, help="Of its head, then."
)
@click.option(
    "--redis",
    metavar="URL",
    help="The Redis in which the head keeps its state, to be started again after a fault.",
)
def up(config: Path, address: str, host: str, port: int, redis: str | None) -> None:
    """Deploy CONFIG, Ray Serve's configuration file; start Ray on this machine if it does not run."""
    _operations().bring_up(config, address, host, port, redis)
    click.echo("Deployed; 'vivavoce cluster status' shows the replicas.")


@cluster.command(epilog="Example: vivavoce cluster status --address 10.0.0.5:6379")
@_ADDRESS
@AS_JSON
def status(address: str, as_json: bool) -> None:
    """Show the deployments and their replicas."""
    states = list(_operations().deployment_states(address))
    if as_json:
        click.echo(json.dumps([asdict(state) for state in states]))
        return
    for state in states:
        replicas = ", ".join(f"{count} {name.lower()}" for name, count in state.replicas.items())
        click.echo(f"{state.application} {state.deployment}: {state.status}, {replicas or 'no replica'}")
        if state.message:
            click.echo(f"  {state.message.strip()}")
    if not states:
        click.echo("No application runs.")


@cluster.command(epilog="Example: vivavoce cluster down examples/deploy/cluster.yaml")
@_CONFIG
@_ADDRESS
def down(config: Path, address: str) -> None:
    """End the applications of CONFIG when their streams have ended; 'ray stop' then ends Ray itself."""
    names = _operations().bring_down(config, address)
    click.echo(f"Ended: {', '.join(names) or 'none was running'}.")


@cluster.command(epilog="Example: vivavoce cluster drain --within 600")
@click.option(
    "--within",
    type=click.FloatRange(1),
    default=600.0,
    show_default=True,
    help="Seconds for streams to end.",
)
@click.option(
    "--node", metavar="ID", help="Of the node, as 'ray list nodes' prints it.  [default: this machine's]"
)
def drain(within: float, node: str | None) -> None:
    """Have other nodes take the streams of one, before it is stopped."""
    ended = _operations().drain_node(within, node)
    click.echo("The replicas of the node have ended." if ended else "Some streams have not ended.")


def _operations() -> ModuleType:
    try:
        from .ray import operations
    except ModuleNotFoundError as error:
        raise MissingExtra("vivavoce cluster", "ray") from error
    return operations
