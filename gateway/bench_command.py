"""``vivavoce bench ...``: the options of each bench; what is measured is ``gateway.bench``'s affair."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import AS_JSON, DEVICE, PRECISIONS, SIZE, VERSION, WEIGHTS

if TYPE_CHECKING:
    from .bench.report import BenchReport


@click.group()
def bench() -> None:
    """Measure this machine against what must be reached."""


_CALL_PARTS = ("ttfa", "load", "calls", "knee", "barge-in")


@bench.command("call")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_CALL_PARTS),
    help="Only this; may be repeated.  [default: all but knee]",
)
@click.option("--utterances", type=click.IntRange(1), default=30, show_default=True, help="Of the one call.")
@click.option("--speaking", type=click.IntRange(1), default=50, show_default=True, help="Calls under load.")
@click.option("--calls", type=click.IntRange(1), default=100, show_default=True, help="Calls at once.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of a part.")
@AS_JSON
def bench_call(
    parts: tuple[str, ...], utterances: int, speaking: int, calls: int, seconds: float, as_json: bool
) -> None:
    """Calls: time to first audio, calls at once, barge-in, memory."""
    from .bench import call

    report = call.measure(
        parts=[call.CallBenchPart(part) for part in parts] or call.DEFAULT_PARTS,
        utterances=utterances,
        speaking=speaking,
        calls=calls,
        seconds=seconds,
    )
    _print_report(report, as_json)


@bench.command("resample")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of audio.")
@AS_JSON
def bench_resample(seconds: float, as_json: bool) -> None:
    """24 to 8 kHz: delay, response, processor time."""
    from .bench.resample import measure

    _print_report(measure(seconds), as_json)


@bench.command("words")
@click.option("--limit", type=click.IntRange(1), help="Sentences, instead of all.")
@click.option("--verbose", is_flag=True, help="Show what was heard differently.")
@AS_JSON
def bench_words(limit: int | None, verbose: bool, as_json: bool) -> None:
    """Words wrong in call-centre sentences, by speech recognition."""
    from .bench.words import measure

    _print_report(measure(limit, _print_line if verbose else None), as_json)


@bench.command("schedule")
@click.option(
    "--rate",
    "rates",
    type=click.FloatRange(0, 50, min_open=True),
    multiple=True,
    metavar="R",
    help="Requests a second; may be repeated.  [default: about where a queue saturates]",
)
@click.option("--requests", type=click.IntRange(8), default=1000, show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@AS_JSON
def bench_schedule(rates: tuple[float, ...], requests: int, seed: int, as_json: bool) -> None:
    """Who is served next: our order, a queue and round robin, on a virtual clock."""
    from .bench.schedule import measure

    _print_report(measure(rates or None, requests=requests, seed=seed), as_json)


@bench.command("serve")
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
@click.option("--streams", type=click.IntRange(1), default=32, show_default=True, help="Let in at once.")
@click.option("--requests", type=click.IntRange(1), default=100, show_default=True)
@click.option("--voice", metavar="ID", help="[default: the first one]")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw the waits; needs matplotlib."
)
@AS_JSON
def bench_serve(
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
    """A server under open-loop load: first byte, first audible sample, underruns."""
    from .bench.serve import RequestLoadOptions, measure

    plan = RequestLoadOptions(rate, streams, requests, voice, seed)
    _print_report(measure(plan, bundle=bundle, size=size, device=device or "auto", plot=plot), as_json)


@bench.command("webrtc")
@click.option("--calls", type=click.IntRange(1), default=5, show_default=True, help="Of --seconds each.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of a call.")
@AS_JSON
def bench_webrtc(calls: int, seconds: float, as_json: bool) -> None:
    """Browser calls, in a real Chromium: first sound, loss, concealment, interruption."""
    from .bench.webrtc import measure

    _print_report(measure(calls=calls, seconds=seconds), as_json)


_PIPECAT_PARTS = ("first-audio", "barge-in", "speaking", "coming-and-going")


@bench.command("pipecat")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_PIPECAT_PARTS),
    help="Only this; may be repeated.  [default: all]",
)
@AS_JSON
def bench_pipecat(parts: tuple[str, ...], as_json: bool) -> None:
    """Pipecat bots: first audio beside Piper, what a conversation remembers, many calls."""
    from .bench.pipecat import PipecatBenchPart, measure

    _print_report(measure([PipecatBenchPart(part) for part in parts or _PIPECAT_PARTS]), as_json)


_API_PARTS = ("openai", "leaving", "dashscope")


@bench.command("api")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_API_PARTS),
    help="Only this; may be repeated.  [default: all]",
)
@AS_JSON
def bench_api(parts: tuple[str, ...], as_json: bool) -> None:
    """Speech APIs: first byte, and what becomes of clients that leave."""
    from .bench.api import ApiBenchPart, measure

    _print_report(measure([ApiBenchPart(part) for part in parts]), as_json)


@bench.command("precision")
@SIZE
@VERSION
@WEIGHTS
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=PRECISIONS,
    help="Only this; may be repeated.  [default: fp32, bf16, int8]",
)
@AS_JSON
def bench_precision(
    size: str, version: str, bundle: Path | None, precisions: tuple[str, ...], as_json: bool
) -> None:
    """CosyVoice's language model in 16 and 8 bits: time, error and memory beside fp32."""
    from .bench import precision
    from .bench.weights import BenchWeights

    chosen = precisions or precision.DEFAULT_PRECISIONS
    _print_report(precision.measure(chosen, BenchWeights(bundle, size, int(version))), as_json)


@bench.command("device")
@DEVICE
@SIZE
@VERSION
@WEIGHTS
@click.option("--precision", type=PRECISIONS, default="fp32", show_default=True, help="Of the LM.")
@AS_JSON
def bench_device(
    device: str | None, size: str, version: str, bundle: Path | None, precision: str, as_json: bool
) -> None:
    """CosyVoice on a graphics card: a token, and chunks of the flow in one step."""
    from .bench.device import measure
    from .bench.weights import BenchWeights

    weights = BenchWeights(bundle, size, int(version))
    _print_report(measure(device or "auto", weights, precision), as_json)


_COSYVOICE_PARTS = ("lm", "flow", "window", "hift", "first-audio", "memory")


@bench.command("cosyvoice")
@SIZE
@VERSION
@WEIGHTS
@click.option("--parts", metavar="PART,...", help=f"Of {', '.join(_COSYVOICE_PARTS)}.  [default: all]")
@AS_JSON
def bench_cosyvoice(size: str, version: str, bundle: Path | None, parts: str | None, as_json: bool) -> None:
    """CosyVoice: language model, flow, vocoder, first packet, memory."""
    from .bench.cosyvoice import measure
    from .bench.weights import BenchWeights

    chosen = parts.split(",") if parts else _COSYVOICE_PARTS
    if unknown := sorted(set(chosen) - set(_COSYVOICE_PARTS)):
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(_COSYVOICE_PARTS)}.")
    _print_report(measure(chosen, BenchWeights(bundle, size, int(version))), as_json)


def _print_line(line: str) -> None:
    click.echo(line, err=True)


def _print_report(report: "BenchReport", as_json: bool) -> None:
    from rich.console import Console

    if as_json:
        click.echo(report.as_json())
    else:
        report.print_table(Console())
