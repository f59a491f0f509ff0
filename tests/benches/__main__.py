"""Benches of single parts for developers: ``PYTHONPATH=tests python -m benches NAME``; see ``--help``.

Benches for operators are in ``vivavoce bench``.
"""

from pathlib import Path
from typing import Any

import click

from shared.calls.peers.kinds import MAKE_PEER
from vivavoce.gateway.cli.bench.commands import NEIGHBOUR, SIZE, WEIGHTS, print_report
from vivavoce.gateway.cli.options import AS_JSON, PRECISIONS, VERSION
from vivavoce.tts_engine.errors import VivavoceError


class _BenchGroup(click.Group):
    """Reports an expected error as one sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except VivavoceError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_BenchGroup)
def bench_group() -> None:
    """Measure one part of vivavoce."""


@bench_group.command("upstream-scenarios")
@click.argument("url")
@click.option("--scenario", "names", multiple=True, type=click.Choice(["fast", "cross-lingual", "natural"]))
@click.option("--requests", type=click.IntRange(1), default=20, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), default=1, show_default=True)
@AS_JSON
def bench_upstream_scenarios(
    url: str, names: tuple[str, ...], requests: int, concurrency: int, as_json: bool
) -> None:
    """The cloning scenarios of `vivavoce bench serve` on a running server of upstream CosyVoice at URL."""
    from benches.cosyvoice.upstream_scenarios import measure
    from vivavoce.gateway.cli.bench.requests.cloning import CloningScenario, ScenarioLoad

    chosen = [CloningScenario(name) for name in names] or [*CloningScenario]
    print_report(measure(url, chosen, ScenarioLoad(requests, concurrency)), as_json)


@bench_group.command("resample")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of audio.")
@AS_JSON
def bench_resample(seconds: float, as_json: bool) -> None:
    """The 24 to 8 kHz resampler: delay, frequency response, processor time."""
    from benches.resample import measure

    print_report(measure(seconds), as_json)


@bench_group.command("call-sounds")
@click.option("--calls", type=click.IntRange(2), default=50, show_default=True)
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of each run.")
@AS_JSON
def bench_call_sounds(calls: int, seconds: float, as_json: bool) -> None:
    """Calls with ambience and a thinking sound beside calls without: processor time, gaps."""
    from benches.call_sounds import measure

    print_report(measure(calls, seconds), as_json)


@bench_group.command("wyoming")
@click.option("--turns", type=click.IntRange(1), default=40, show_default=True, help="Texts on each.")
@AS_JSON
def bench_wyoming(turns: int, as_json: bool) -> None:
    """First audio over the Wyoming protocol beside the native stream, text written word by word."""
    from benches.wyoming_stream import measure

    print_report(measure(turns), as_json)


@bench_group.command("goodbye")
@click.option("--over", "overs", multiple=True, help="A way in.  [default: all]")
@click.option("--goodbyes", type=click.IntRange(1), default=100, show_default=True, help="On each way in.")
@AS_JSON
def bench_goodbye(overs: tuple[str, ...], goodbyes: int, as_json: bool) -> None:
    """Ten words, then hang_up after speech: heard whole, and closed how long after the last sound."""
    from benches.goodbye import WAYS, measure

    if unknown := [over for over in overs if over not in WAYS]:
        raise click.BadParameter(f"{unknown[0]!r}; there are {', '.join(WAYS)}")
    print_report(measure(overs or WAYS, goodbyes), as_json)


@bench_group.command("network-change")
@click.option("--changes", type=click.IntRange(1), default=20, show_default=True)
@AS_JSON
def bench_network_change(changes: int, as_json: bool) -> None:
    """A browser call whose network changes while it speaks: silence, and words lost or repeated."""
    from benches.network_change import measure

    print_report(measure(changes), as_json)


@bench_group.command("page-play")
@click.option("--plays", type=click.IntRange(1), default=20, show_default=True)
@click.option("--url", help="Of a server that runs; default: one of this checkout.")
@AS_JSON
def bench_page_play(plays: int, url: str | None, as_json: bool) -> None:
    """First sound of the page after Play, in headless Chromium with the packaged voice."""
    from benches.page_play import measure

    print_report(measure(plays, url), as_json)


@bench_group.command("packet-phase")
@click.option("--utterances", type=click.IntRange(5), default=40, show_default=True)
@AS_JSON
def bench_packet_phase(utterances: int, as_json: bool) -> None:
    """An utterance's first packet on the call's clock, or at once: when Chromium plays it."""
    from benches.packet_phase import measure

    print_report(measure(utterances), as_json)


@bench_group.command("echo")
@click.option("--sentences", type=click.IntRange(1), default=100, show_default=True, help="Played.")
@click.option(
    "--set",
    "sentence_set",
    type=click.Choice(["first", "second", "third"]),
    default="first",
    show_default=True,
)
@AS_JSON
def bench_echo(sentences: int, sentence_set: str, as_json: bool) -> None:
    """The call's own voice in the caller's audio: self-interruptions, and callers noticed over it."""
    from benches.echo import measure

    print_report(measure(sentences, sentence_set), as_json)


@bench_group.command("speech-detection")
@click.option("--seconds", type=click.FloatRange(3), default=120.0, show_default=True, help="Of each sound.")
@AS_JSON
def bench_speech_detection(seconds: float, as_json: bool) -> None:
    """Callers noticed in time, false starts and processor time of speech detection."""
    from benches.caller_speech.detection import measure

    print_report(measure(seconds), as_json)


@bench_group.command("answer")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Of 286 calls.")
@AS_JSON
def bench_answer(rounds: int, as_json: bool) -> None:
    """What answered an outgoing call: false rates of persons, machines and faxes."""
    from benches.answer import measure

    print_report(measure(rounds), as_json)


@bench_group.command("cluster")
@click.option("--utterances", type=click.IntRange(1), default=100, show_default=True, help="One by one.")
@click.option("--streams", type=click.IntRange(1), default=100, show_default=True, help="Then at once.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of each stream.")
@click.option("--step-ms", type=click.FloatRange(0), default=5.0, show_default=True, help="For 16 chunks.")
@click.option("--kills", type=click.IntRange(0), default=0, show_default=True, help="Then, of replicas.")
@click.option("--redeploys", type=click.IntRange(0), default=0, show_default=True, help="Then, of both.")
@AS_JSON
def bench_cluster(
    utterances: int, streams: int, seconds: float, step_ms: float, kills: int, redeploys: int, as_json: bool
) -> None:
    """Replicas on Ray with the stand-in voice, 200 ms a chunk; optionally killed and replaced."""
    from benches.cluster.packaged_replica import ClusterLoad
    from benches.cluster.replicas import measure

    load = ClusterLoad(utterances, streams, seconds)
    print_report(measure(load, step_ms / 1000, kills, redeploys), as_json)


@bench_group.command("packaged-replica")
@click.option("--utterances", type=click.IntRange(1), default=100, show_default=True, help="One by one.")
@click.option("--streams", type=click.IntRange(1), default=20, show_default=True, help="Then at once.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True, help="Of each stream.")
@AS_JSON
def bench_packaged_replica(utterances: int, streams: int, seconds: float, as_json: bool) -> None:
    """The packaged voice on Ray: first audio against an engine without Ray, and streams in real time."""
    from benches.cluster.packaged_replica import ClusterLoad, measure

    print_report(measure(ClusterLoad(utterances, streams, seconds)), as_json)


_RATE = click.FloatRange(0, min_open=True)


@bench_group.command("mix")
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
    from benches.mix.measure import MixOptions, measure
    from vivavoce.gateway.cli.bench.processes import run_neighbour

    with run_neighbour(neighbour):
        report = measure(MixOptions(**load))
    print_report(report, as_json)


_OVER = click.Choice(["audiosocket", "rtp", *MAKE_PEER])


@bench_group.command("ways-in")
@click.option("--over", "overs", multiple=True, type=_OVER, help="[default: all]; compared with the first.")
@click.option("--utterances", type=click.IntRange(1), default=30, show_default=True, help="One by one.")
@click.option("--calls", type=click.IntRange(1), default=50, show_default=True, help="Then at once.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of these.")
@AS_JSON
def bench_ways_in(overs: tuple[str, ...], utterances: int, calls: int, seconds: float, as_json: bool) -> None:
    """Each way into a call against the first: first sound, packets, processor time."""
    from benches.ways_in.measure import measure

    report = measure(overs=overs or _OVER.choices, utterances=utterances, calls=calls, seconds=seconds)
    print_report(report, as_json)


@bench_group.command("phone")
@click.argument("host")
@click.argument("port", type=click.IntRange(1, 65_535))
@click.option("--over", type=_OVER, required=True)
@click.option("--seconds", type=float, default=30.0, show_default=True, help="How long to listen.")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.wav", help="Record the call.")
@click.option("--calls", type=int, default=1, show_default=True, help="Calls at once.")
@click.option("--dtmf", default="", metavar="12#", help="Keys to press.")
def call_gateway(host: str, port: int, over: str, **options: Any) -> None:
    """Call a gateway as a carrier or chan_websocket does, at its port of HTTP, as ``vivavoce phone``."""
    from rich.console import Console

    from shared.calls.peers.wires import ALL_WIRES
    from vivavoce.gateway.cli.commands.phone.calls import listen

    listen(host, port, make_phones=ALL_WIRES[over], **options).print_table(Console())


_STAGES = click.option(
    "--stages",
    type=click.Choice(["together", "apart"]),
    default="together",
    show_default=True,
    help="Replicas of the stand-in voice, or of a small CosyVoice bundle that render apart.",
)


@bench_group.command("scale-out")
@_STAGES
@AS_JSON
def bench_scale_out(stages: str, as_json: bool) -> None:
    """Replicas on Ray under a step load: time from 1 to 3 that serve, and back while streams are spoken."""
    from benches.cluster.scale_out import measure

    print_report(measure(stages), as_json)


@bench_group.command("cluster-cancel")
@_STAGES
@click.option("--streams", type=click.IntRange(1), default=50, show_default=True, help="One by one.")
@AS_JSON
def bench_cluster_cancel(stages: str, streams: int, as_json: bool) -> None:
    """Replicas on Ray: time from the gateway's cancel of a stream until the replicas have forgotten it."""
    from benches.cluster.cancel import measure

    print_report(measure(stages, streams), as_json)


@bench_group.command("front-end")
@AS_JSON
def bench_front_end(as_json: bool) -> None:
    """Reading of sentences in a decode replica of CosyVoice, up to text ids: processor time."""
    from benches.cluster.front_end import measure

    print_report(measure(), as_json)


@bench_group.command("text-reading")
@AS_JSON
def bench_text_reading(as_json: bool) -> None:
    """Time of reading a character in all languages, and how long the largest texts hold the event loop."""
    from benches.text_reading import measure

    print_report(measure(), as_json)


@bench_group.command("api-texts")
@click.option("--calls", type=click.IntRange(1), default=50, show_default=True, help="That are up.")
@click.option("--only", default="", metavar="NAME", help="A part of the names of APIs.  [default: all]")
@AS_JSON
def bench_api_texts(calls: int, only: str, as_json: bool) -> None:
    """The largest texts of every API, sent to a server with calls: its longest callbacks. Takes 4 minutes."""
    from benches.api_texts.measure import measure

    print_report(measure(calls, only), as_json)


@bench_group.command("lexicon")
@click.option("--entries", type=click.IntRange(1), default=10_000, show_default=True, help="Of the lexicon.")
@AS_JSON
def bench_lexicon(entries: int, as_json: bool) -> None:
    """Reading of sentences with a lexicon of the user: processor time."""
    from benches.lexicon import measure

    print_report(measure(entries), as_json)


@bench_group.command("readings")
@click.option("--verbose", is_flag=True, help="Show every sentence that is read otherwise.")
@AS_JSON
def bench_readings(verbose: bool, as_json: bool) -> None:
    """Sentences of bots in every language: share read right, in English beside WeText; processor time."""
    from benches.readings import measure

    print_report(measure(_print_line if verbose else None), as_json)


@bench_group.command("unseen")
@click.option("--verbose", is_flag=True, help="Show every line that is read otherwise.")
@AS_JSON
def bench_unseen(verbose: bool, as_json: bool) -> None:
    """Lines that nobody had read when they were written: share read right."""
    from benches.unseen.measure import measure

    print_report(measure(_print_line if verbose else None), as_json)


@bench_group.command("two-recognisers")
@click.option("--verbose", is_flag=True, help="Show what both recognisers hear wrong.")
@AS_JSON
def bench_two_recognisers(verbose: bool, as_json: bool) -> None:
    """Hard telephone sentences of the packaged voice: words that Whisper tiny.en and base both hear wrong."""
    from benches.two_recognisers import measure

    print_report(measure(_print_line if verbose else None), as_json)


@bench_group.command("words")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="A folder of voices.  [default: the packaged voice]",
)
@click.option("--voice", metavar="ID", help="[default: the first one]")
@click.option("--limit", type=click.IntRange(1), help="Sentences, instead of all.")
@click.option("--verbose", is_flag=True, help="Show every difference.")
@AS_JSON
def bench_words(
    bundle: Path | None, voice: str | None, limit: int | None, verbose: bool, as_json: bool
) -> None:
    """Word errors in call-centre sentences, by speech recognition."""
    from benches.word_errors import measure

    show = _print_line if verbose else None
    print_report(measure(limit, show, str(bundle or "default"), voice), as_json)


@bench_group.command("caller-audio")
@click.option("--loss", type=click.FloatRange(0, 50), default=5.0, show_default=True, help="Percent.")
@click.option("--jitter", type=click.FloatRange(0, 1000), default=40.0, show_default=True, help="ms.")
@click.option("--limit", type=click.IntRange(1), help="Sentences, instead of all.")
@click.option("--verbose", is_flag=True, help="Show every sentence with a mistake.")
@AS_JSON
def bench_caller_audio(loss: float, jitter: float, limit: int | None, verbose: bool, as_json: bool) -> None:
    """Words of a caller over RTP that a recogniser gets wrong, with loss and jitter and without."""
    from benches.caller_audio import NetworkConditions, measure

    network = NetworkConditions(loss / 100, jitter / 1000)
    print_report(measure(limit, network, _print_line if verbose else None), as_json)


@bench_group.command("voice")
@AS_JSON
def bench_voice(as_json: bool) -> None:
    """The packaged voice: pitch at joints and of questions, speed, pauses, names."""
    from benches.voices.packaged_voice import measure

    print_report(measure(), as_json)


_INSTALLED_VOICES = ("packaged", "piper", "kokoro")  # as InstalledVoice


_VOICE = click.option(
    "--voice",
    type=click.Choice(_INSTALLED_VOICES),
    default="packaged",
    show_default=True,
    help="The last two are of the extra test-voices.",
)
_FOLDER = click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The first voice of this folder instead.",
)


@bench_group.command("first-audio")
@_VOICE
@_FOLDER
@click.option("--utterances", type=click.IntRange(1), default=20, show_default=True)
@AS_JSON
def bench_first_audio(voice: str, bundle: Path | None, utterances: int, as_json: bool) -> None:
    """First audio of ten-word clauses in an engine, without a phone."""
    from benches.voices.first_audio import InstalledVoice, measure

    print_report(measure(InstalledVoice(voice), bundle, utterances), as_json)


@bench_group.command("devices")
@click.argument("device")
@_VOICE
@_FOLDER
@click.option("--precision", type=PRECISIONS, default="fp32", show_default=True)
@click.option("--utterances", type=click.IntRange(1), default=10, show_default=True)
@AS_JSON
def bench_devices(
    device: str, voice: str, bundle: Path | None, precision: str, utterances: int, as_json: bool
) -> None:
    """A voice on the CPU and on another device of ONNX Runtime in turns: times, difference of speech."""
    from benches.voices.devices import measure
    from benches.voices.first_audio import InstalledVoice

    print_report(measure(InstalledVoice(voice), bundle, device, precision, utterances), as_json)


@bench_group.command("card-schedule")
@click.option("--streams", type=click.IntRange(1), default=32, show_default=True, help="That speak at once.")
@click.option("--requests", type=click.IntRange(1), default=600, show_default=True)
@click.option("--seed", default=0, show_default=True)
@AS_JSON
def bench_card_schedule(streams: int, requests: int, seed: int, as_json: bool) -> None:
    """First audio and underruns of streams on a card, on a virtual clock with given costs of steps."""
    from benches.card_schedule import measure

    print_report(measure(streams, requests=requests, seed=seed), as_json)


@bench_group.command("schedule")
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
    """Scheduling orders on a virtual clock: playout deadline, first come, round robin."""
    from benches.schedule import measure

    print_report(measure(rates or None, requests=requests, seed=seed), as_json)


@bench_group.command("routing")
@click.option("--seconds", type=click.FloatRange(10), default=120.0, show_default=True, help="Virtual.")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--large", is_flag=True, help="Also 1,000 replicas, which takes minutes.")
@AS_JSON
def bench_routing(seconds: float, seeds: int, large: bool, as_json: bool) -> None:
    """Routing policies of a cluster on a virtual clock: by cost, power of two and others."""
    from benches.routing.measure import measure

    print_report(measure(seconds, seeds=seeds, large=large), as_json)


@bench_group.command("head-outage")
@click.option(
    "--seconds", type=click.FloatRange(0), default=75.0, show_default=True, help="The head is away."
)
@AS_JSON
def bench_head_outage(seconds: float, as_json: bool) -> None:
    """The head of a Ray cluster is killed under streams and started again: gateways, streams, the return."""
    from benches.cluster.head_outage import measure

    print_report(measure(seconds), as_json)


@bench_group.command("node-stop")
@AS_JSON
def bench_node_stop(as_json: bool) -> None:
    """A node on Ray that is drained and gets SIGTERM under streams."""
    from benches.cluster.node_stop import measure

    print_report(measure(), as_json)


@bench_group.command("upgrade")
@AS_JSON
def bench_upgrade(as_json: bool) -> None:
    """Another release of gateways and replicas on Ray under streams, in both orders."""
    from benches.cluster.upgrade import measure

    print_report(measure(), as_json)


@bench_group.command("idle-links")
@click.option("--replicas", type=click.IntRange(1), default=180, show_default=True, help="Stubs.")
@click.option("--seconds", type=click.FloatRange(1), default=20.0, show_default=True)
@AS_JSON
def bench_idle_links(replicas: int, seconds: float, as_json: bool) -> None:
    """Links of a gateway to idle replicas: processor time, and series of all gateways."""
    from benches.cluster.idle_links import measure

    print_report(measure(replicas, seconds), as_json)


@bench_group.command("live-routing")
@click.option("--seconds", type=click.FloatRange(5), default=40.0, show_default=True, help="Of a turn.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Turns of each policy.")
@AS_JSON
def bench_live_routing(seconds: float, rounds: int, as_json: bool) -> None:
    """Three replicas on Ray, one of them three times slower: routing policies in turns, and as simulated."""
    from benches.routing.live import measure

    print_report(measure(seconds, rounds), as_json)


@bench_group.command("redis-outage")
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True, help="Redis is away.")
@AS_JSON
def bench_redis_outage(seconds: float, as_json: bool) -> None:
    """Two gateways under load whose Redis is stopped and started again: requests lost, time to heal."""
    from benches.redis_outage import measure

    print_report(measure(seconds), as_json)


@bench_group.command("webrtc")
@click.option("--calls", type=click.IntRange(1), default=5, show_default=True, help="Of --seconds each.")
@click.option("--seconds", type=click.FloatRange(1), default=30.0, show_default=True, help="Of a call.")
@AS_JSON
def bench_webrtc(calls: int, seconds: float, as_json: bool) -> None:
    """Browser calls in Chromium: first sound, loss, concealment, interruption."""
    from benches.browser_calls import measure

    print_report(measure(calls=calls, seconds=seconds), as_json)


_PIPECAT_PARTS = ("first-audio", "barge-in", "speaking", "answering", "coming-and-going")


@bench_group.command("pipecat")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(_PIPECAT_PARTS),
    help="Only this; repeatable.  [default: all]",
)
@AS_JSON
def bench_pipecat(parts: tuple[str, ...], as_json: bool) -> None:
    """Pipecat bots: first audio beside Piper, context after interruptions, many calls."""
    from benches.pipecat_calls import PipecatBenchPart, measure

    print_report(measure([PipecatBenchPart(part) for part in parts or _PIPECAT_PARTS]), as_json)


@bench_group.command("xtts")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="DIR",
    help="A folder of XTTS v2 at its full size: vivavoce bundle random DIR --family xtts --size full.",
)
@click.option("--precision", type=PRECISIONS, default="fp32", show_default=True, help="Of our GPT.")
@AS_JSON
def bench_xtts(bundle: Path, precision: str, as_json: bool) -> None:
    """XTTS v2 beside upstream's networks, which need transformers: ids, first chunk, vocoder, memory."""
    from benches.xtts.comparison import measure

    print_report(measure(bundle, precision), as_json)


EXPORTED = ("fp32", "int8", "int4", "int4-int8")


@bench_group.command("precision")
@SIZE
@VERSION
@WEIGHTS
@click.option("--executor", type=click.Choice(["torch", "onnxruntime"]), default="torch", show_default=True)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=PRECISIONS,
    help="Only this; repeatable.  [default: fp32, and bf16, int8; or int8, int4, int4-int8]",
)
@AS_JSON
def bench_precision(
    size: str,
    version: str,
    bundle: Path | None,
    executor: str,
    precisions: tuple[str, ...],
    as_json: bool,
) -> None:
    """CosyVoice in 16, 8 and 4 bits against fp32: the language model, and the flow's error in 8 bits."""
    from benches.cosyvoice import precision
    from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights

    defaults = {"torch": precision.DEFAULT_PRECISIONS, "onnxruntime": EXPORTED}
    weights = BenchWeights(bundle, size, int(version))
    print_report(precision.measure(precisions or defaults[executor], weights, executor), as_json)


@bench_group.command("exported")
@SIZE
@VERSION
@WEIGHTS
@click.option("--precision", type=click.Choice(EXPORTED), default="int4", show_default=True)
@AS_JSON
def bench_exported(size: str, version: str, bundle: Path | None, precision: str, as_json: bool) -> None:
    """An exported bundle in ONNX Runtime without torch: memory by part, first packet."""
    from benches.cosyvoice.exported_bundle import measure
    from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights

    print_report(measure(BenchWeights(bundle, size, int(version)), precision), as_json)


COSYVOICE_PARTS = ("lm", "flow", "window", "hift", "first-audio", "memory")


@bench_group.command("cosyvoice")
@SIZE
@VERSION
@WEIGHTS
@click.option("--parts", metavar="PART,...", help=f"Of {', '.join(COSYVOICE_PARTS)}.  [default: all]")
@AS_JSON
def bench_cosyvoice(size: str, version: str, bundle: Path | None, parts: str | None, as_json: bool) -> None:
    """CosyVoice: language model, flow, vocoder, first packet, memory."""
    from benches.cosyvoice.components import measure
    from vivavoce.gateway.cli.bench.bundle_weights import BenchWeights

    chosen = parts.split(",") if parts else COSYVOICE_PARTS
    if unknown := sorted(set(chosen) - set(COSYVOICE_PARTS)):
        raise click.BadParameter(f"got {unknown[0]!r}; allowed are {', '.join(COSYVOICE_PARTS)}.")
    print_report(measure(chosen, BenchWeights(bundle, size, int(version))), as_json)


def _print_line(line: str) -> None:
    click.echo(line, err=True)


@bench_group.command("dashscope-voices")
@AS_JSON
def bench_dashscope_voices(as_json: bool) -> None:
    """DashScope: isolation of 20 voices, memory of 500 idle sockets. Takes over a minute."""
    from benches.dashscope_voices import measure

    print_report(measure(), as_json)


if __name__ == "__main__":
    bench_group(prog_name="python -m benches")
