"""The commands ``vivavoce bench call | serve | mix | device | cluster``; each imports its own bench."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..options import AS_JSON, DEVICE, PRECISIONS, SIZE, VERSION, WEIGHTS, CommandGroup
from ..phones.wires import AUDIOSOCKET, MAKE_PHONES

if TYPE_CHECKING:
    from .report import BenchReport


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure this machine: calls, speech requests, a graphics card."""


_CALL_PARTS = ("ttfa", "load", "calls", "knee", "overload", "barge-in")


NEIGHBOUR = click.option(
    "--neighbour",
    type=click.FloatRange(0, 64),
    default=0.0,
    show_default=True,
    help="Processor cores that another program takes meanwhile.",
)


@bench.command("call", epilog="Example: vivavoce bench call --part load --calls 50")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_CALL_PARTS),
    help="Only this; repeatable.  [default: all but knee and overload]",
)
@click.option(
    "--utterances", type=click.IntRange(1), default=30, show_default=True, help="Of the single call."
)
@click.option("--speaking", type=click.IntRange(1), default=50, show_default=True, help="Calls under load.")
@click.option("--calls", type=click.IntRange(1), default=100, show_default=True, help="Calls at once.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of a part.")
@click.option(
    "--over",
    "overs",
    multiple=True,
    type=click.Choice(list(MAKE_PHONES)),
    default=[AUDIOSOCKET],
    show_default=True,
    help="Way in; several are compared with the first, in their first sound, packets and processor time.",
)
@NEIGHBOUR
@AS_JSON
def bench_call(
    parts: tuple[str, ...],
    utterances: int,
    speaking: int,
    calls: int,
    seconds: float,
    overs: tuple[str, ...],
    neighbour: float,
    as_json: bool,
) -> None:
    """Calls: time to first audio, calls at once, barge-in, memory."""
    from . import call
    from .processes import run_neighbour
    from .ways_in import measure as ways_in

    if len(overs) > 1 and parts:
        raise click.UsageError("--part: ways in are compared as a whole; give one --over")
    with run_neighbour(neighbour):
        if len(overs) > 1:
            report = ways_in.measure(overs=overs, utterances=utterances, calls=calls, seconds=seconds)
        else:
            report = call.measure(
                parts=[call.CallBenchPart(part) for part in parts] or call.DEFAULT_PARTS,
                utterances=utterances,
                speaking=speaking,
                calls=calls,
                seconds=seconds,
                over=overs[0],
            )
    print_report(report, as_json)


_RATE = click.FloatRange(0, min_open=True)
_SERVE_PARTS = ("load", "first-byte", "disconnect")
# As SpeechApi
_SERVE_APIS = "native openai dashscope cartesia elevenlabs deepgram inworld jambonz pai ray xtts".split()


@bench.command("serve", epilog="Example: vivavoce bench serve --api openai --rate 4 --requests 200")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_SERVE_PARTS),
    help="Only this; repeatable.  [default: load]",
)
@click.option(
    "--api",
    "apis",
    multiple=True,
    type=click.Choice(_SERVE_APIS),
    help="Over this API; repeatable.  [default: native]",
)
@click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Speak with this checkpoint.  [default: the packaged voice]",
)
@click.option("--size", type=click.Choice(["tiny", "full"]), help="Speak with random weights of that size.")
@DEVICE
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=2.0,
    show_default=True,
    help="Requests a second, at random.",
)
@click.option(
    "--streams",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    help="Streams at once; more are refused.",
)
@click.option("--requests", type=click.IntRange(1), default=100, show_default=True)
@click.option("--voice", metavar="ID", help="[default: the first one]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the waits; needs matplotlib."
)
@AS_JSON
def bench_serve(
    parts: tuple[str, ...],
    apis: tuple[str, ...],
    bundle: Path | None,
    size: str | None,
    device: str | None,
    rate: float,
    streams: int,
    requests: int,
    voice: str | None,
    seed: int,
    plot: Path | None,
    as_json: bool,
) -> None:
    """A server over any speech API: waits and underruns under load, first byte, disconnecting clients."""
    from .api_clients import SpeechApi
    from .open_loop import RequestLoadOptions
    from .serve import ServeBenchPart, measure

    report = measure(
        RequestLoadOptions(rate, streams, requests, voice, seed),
        parts=[ServeBenchPart(part) for part in parts or _SERVE_PARTS[:1]],
        apis=[SpeechApi(api) for api in apis or _SERVE_APIS[:1]],
        bundle=bundle,
        size=size,
        device=device or "auto",
        plot=plot,
    )
    print_report(report, as_json)


@bench.command("mix", epilog="Example: vivavoce bench mix --calls 40 --seconds 600")
@click.option("--calls", type=click.IntRange(1), default=40, show_default=True, help="Up on average.")
@click.option("--calls-per-s", type=_RATE, default=4.0, show_default=True, help="That begin, and end.")
@click.option("--utterances-per-s", type=_RATE, default=15.0, show_default=True, help="Over all calls.")
@click.option("--discards-per-s", type=_RATE, default=6.0, show_default=True, help="Interruptions.")
@click.option("--streams-per-s", type=_RATE, default=1.0, show_default=True, help="API requests.")
@click.option("--seconds", type=click.FloatRange(1), default=420.0, show_default=True)
@click.option("--stopped-s", type=click.FloatRange(0), default=0.0, help="Stop the control process, halfway.")
@click.option("--seed", type=int, default=0, show_default=True)
@NEIGHBOUR
@AS_JSON
def bench_mix(neighbour: float, as_json: bool, **load: Any) -> None:
    """Calls and API streams at random: holes that listeners hear, memory, descriptors, tasks."""
    from .mix.measure import MixOptions, measure
    from .processes import run_neighbour

    with run_neighbour(neighbour):
        report = measure(MixOptions(**load))
    print_report(report, as_json)


@bench.command("device", epilog="Example: vivavoce bench device --device cuda --version 3")
@DEVICE
@SIZE
@VERSION
@WEIGHTS
@click.option("--precision", type=PRECISIONS, default="fp32", show_default=True, help="Of the LM.")
@AS_JSON
def bench_device(
    device: str | None, size: str, version: str, bundle: Path | None, precision: str, as_json: bool
) -> None:
    """CosyVoice on a graphics card, or a bundle of XTTS on any device: ids, chunks, several in one step."""
    from .bundle_weights import BenchWeights
    from .device import measure

    weights = BenchWeights(bundle, size, int(version))
    print_report(measure(device or "auto", weights, precision), as_json)


@bench.command("cluster", epilog="Example: vivavoce bench cluster --utterances 50")
@click.option("--utterances", type=click.IntRange(1), default=100, show_default=True, help="One by one.")
@click.option("--streams", type=click.IntRange(1), default=20, show_default=True, help="Then at once.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of each stream.")
@AS_JSON
def bench_cluster(utterances: int, streams: int, seconds: float, as_json: bool) -> None:
    """Ray on this machine: first audio against an engine without Ray, and streams in real time."""
    from .cluster.measure import ClusterLoad, measure

    print_report(measure(ClusterLoad(utterances, streams, seconds)), as_json)


def print_report(report: "BenchReport", as_json: bool) -> None:
    """Print a table, or one JSON object; exit with 1 if a target was missed or a part not measured."""
    from rich.console import Console

    if as_json:
        click.echo(report.as_json())
    else:
        report.print_table(Console())
    if report.has_missed:
        sys.exit(1)
