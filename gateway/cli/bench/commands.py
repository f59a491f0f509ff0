"""The commands ``vivavoce bench call | serve | device``; each imports its own bench."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ..options import AS_JSON, DEVICE, PRECISIONS, VERSION, CommandGroup
from ..phones.wires import AUDIOSOCKET, MAKE_PHONES

if TYPE_CHECKING:
    from .report import BenchReport


@click.group(cls=CommandGroup)
def bench() -> None:
    """Measure this machine: calls, speech requests, a graphics card."""


_CALL_PARTS = ("ttfa", "load", "calls", "knee", "overload", "barge-in")


SIZE: Final = click.option("--size", type=click.Choice(["tiny", "full"]), default="full", show_default=True)
WEIGHTS: Final = click.option(
    "--bundle",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A checkpoint, instead of random weights.",
)
NEIGHBOUR: Final = click.option(
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
    "--over", type=click.Choice(list(MAKE_PHONES)), default=AUDIOSOCKET, show_default=True, help="Way in."
)
@NEIGHBOUR
@AS_JSON
def bench_call(
    parts: tuple[str, ...],
    utterances: int,
    speaking: int,
    calls: int,
    seconds: float,
    over: str,
    neighbour: float,
    as_json: bool,
) -> None:
    """Calls: time to first audio, calls at once, barge-in, memory."""
    from . import call
    from .processes import run_neighbour

    with run_neighbour(neighbour):
        report = call.measure(
            parts=[call.CallBenchPart(part) for part in parts] or call.DEFAULT_PARTS,
            utterances=utterances,
            speaking=speaking,
            calls=calls,
            seconds=seconds,
            over=over,
        )
    print_report(report, as_json)


_SERVE_PARTS = ("load", "first-byte", "disconnect")
# As SpeechApi
_SERVE_APIS = "native openai dashscope cartesia elevenlabs deepgram inworld jambonz pai ray xtts".split()
_SCENARIOS = ("fast", "cross-lingual", "natural")


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
@click.option("--precision", type=PRECISIONS, default="auto", show_default=True, help="Of the --bundle.")
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
    help="Streams at once; more are refused. First bytes of 50 clients need 50.",
)
@click.option("--requests", type=click.IntRange(1), default=100, show_default=True)
@click.option("--voice", metavar="ID", help="[default: the first one]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the waits; needs matplotlib."
)
@click.option(
    "--scenario",
    "scenarios",
    multiple=True,
    type=click.Choice(_SCENARIOS),
    help="Measure cloning instead, cached and not; repeatable. Random weights unless --bundle is given.",
)
@click.option(
    "--end-speech",
    "ends_speech",
    is_flag=True,
    help="End a scenario's speech after 3 speech ids (0.12 s) a text id, at most about twice as long as a "
    "trained voice speaks: for a --bundle of random weights, which hardly ends by itself. Always so without "
    "--bundle.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Requests of a scenario at once: 1, 2, 4 up to this.",
)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Of a scenario's voice, 3 to 30 s, with --transcript.  [default: the packaged voice, in English]",
)
@click.option("--transcript", metavar="TEXT", help="What is said in the recording.")
@AS_JSON
def bench_serve(
    parts: tuple[str, ...],
    apis: tuple[str, ...],
    bundle: Path | None,
    size: str | None,
    device: str | None,
    precision: str,
    rate: float,
    streams: int,
    requests: int,
    voice: str | None,
    seed: int,
    plot: Path | None,
    scenarios: tuple[str, ...],
    ends_speech: bool,
    concurrency: int,
    recording: Path | None,
    transcript: str | None,
    as_json: bool,
) -> None:
    """A server over any speech API: waits and underruns under load, first byte, disconnecting clients."""
    from .api_clients import SpeechApi
    from .requests.cloning import CloningScenario, ScenarioLoad, recorded_reference
    from .requests.open_loop import RequestLoadOptions
    from .serve import ServeBenchPart, measure, measure_scenarios

    if (recording is None) != (transcript is None) or (recording and not scenarios):
        raise click.UsageError("--recording, --transcript and --scenario belong together")
    if ends_speech and not scenarios:
        raise click.UsageError("--end-speech belongs to --scenario")
    if scenarios:
        reference = recorded_reference(recording, transcript) if recording and transcript else None
        chosen, load = [CloningScenario(one) for one in scenarios], ScenarioLoad(requests, concurrency)
        cloning = measure_scenarios(
            chosen,
            load,
            reference=reference,
            bundle=bundle,
            size=size,
            device=device or "auto",
            precision=precision,
            ends_speech=ends_speech,
        )
        print_report(cloning, as_json)
        return
    report = measure(
        RequestLoadOptions(rate, streams, requests, voice, seed),
        parts=[ServeBenchPart(part) for part in parts or _SERVE_PARTS[:1]],
        apis=[SpeechApi(api) for api in apis or _SERVE_APIS[:1]],
        bundle=bundle,
        size=size,
        device=device or "auto",
        precision=precision,
        plot=plot,
    )
    print_report(report, as_json)


@bench.command("device", epilog="Example: vivavoce bench device --device cuda --version 3")
@DEVICE
@SIZE
@VERSION
@WEIGHTS
@click.option("--precision", type=PRECISIONS, default="auto", show_default=True, help="Of the LM.")
@AS_JSON
def bench_device(
    device: str | None, size: str, version: str, bundle: Path | None, precision: str, as_json: bool
) -> None:
    """CosyVoice on a graphics card, or a bundle of XTTS on any device: ids, chunks, several in one step."""
    from .bundle_weights import BenchWeights
    from .device import measure

    weights = BenchWeights(bundle, size, int(version))
    print_report(measure(device or "auto", weights, precision), as_json)


def print_report(report: "BenchReport", as_json: bool) -> None:
    """Print a table, or one JSON object; exit with 1 if a target was missed or a part not measured."""
    from rich.console import Console

    if as_json:
        click.echo(report.as_json())
    else:
        report.print_table(Console())
    if report.has_missed:
        sys.exit(1)
