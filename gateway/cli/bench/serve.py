"""``vivavoce bench serve``: a server of any voice engine, measured over any of its speech APIs.

The server is a process of its own; this process is its clients. Three parts:

    load        requests at random times: first byte, first audible sample, underruns (``open_loop``)
    first-byte  kept connections, one client and twenty, and each API against the native one (``first_byte``)
    disconnect  clients that vanish or stop reading (``disconnect``)

Cloning scenarios are measured instead where they are asked for (``cloning``).
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory

from .api_clients import SpeechApi
from .bundle_weights import BenchWeights
from .processes import MAX_SPEECH_IDS_A_TEXT_ID, run_server_process
from .report import BenchFailed, BenchFigure, BenchReport
from .requests.cloning import (
    CloningScenario,
    Reference,
    ScenarioLoad,
    packaged_reference,
    scenario_figures,
)
from .requests.disconnect import disconnect_figures
from .requests.first_byte import figures_above_native, first_byte_figures
from .requests.open_loop import (
    WARM_UP_REQUESTS,
    RequestLoadOptions,
    draw_waits,
    load_figures,
    require_matplotlib,
    run_requests,
)

FIRST_BYTE_REQUESTS = 50
DISCONNECTS = 20


class ServeBenchPart(StrEnum):
    """A part that can be measured alone."""

    LOAD = "load"
    FIRST_BYTE = "first-byte"
    DISCONNECT = "disconnect"


def measure(
    options: RequestLoadOptions,
    *,
    parts: Sequence[ServeBenchPart] = (ServeBenchPart.LOAD,),
    apis: Sequence[SpeechApi] = (SpeechApi.NATIVE,),
    bundle: Path | None = None,
    size: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    plot: Path | None = None,
) -> BenchReport:
    """Start a server and measure the parts over each API.

    The server speaks with ``bundle``, with random CosyVoice weights of ``size``, or with the packaged voice.
    ``plot`` is a PNG file of the last load. Raises BenchFailed, BundleError, and MissingExtra for a plot
    without matplotlib.
    """
    if plot is not None:
        require_matplotlib()
    if ServeBenchPart.LOAD in parts and not all(api.has_pcm for api in apis):
        raise BenchFailed("the load of jambonz cannot be measured: its audio is not PCM")
    figures: list[BenchFigure] = []
    with _bundle_folder(bundle, size) as folder:
        flags = [] if folder is None else ["--bundle", str(folder)]
        flags += ["--precision", precision, "--device", device, "--max-streams", str(options.max_streams)]
        with run_server_process(*flags) as url:
            for api in apis:
                for part in parts:
                    figures += _measure_part(part, api, url, options, plot)
    figures += figures_above_native(figures)
    voice = str(bundle or (f"random weights, {size}" if size else "packaged"))
    settings: dict[str, str | float] = {
        "voice": voice,
        "device": device,
        "precision": precision,
        "rate": options.rate,
        "api": ", ".join(apis),
    }
    return BenchReport("serve", tuple(figures), settings)


def measure_scenarios(
    scenarios: Sequence[CloningScenario],
    load: ScenarioLoad,
    *,
    reference: Reference | None = None,
    bundle: Path | None = None,
    size: str | None = None,
    device: str = "auto",
    precision: str = "auto",
    ends_speech: bool = False,
) -> BenchReport:
    """Start a server that clones voices and measure the scenarios; raises BenchFailed and BundleError.

    reference: None: what the packaged voice says. ends_speech: as of ``run_server_process``, for a bundle
    whose weights are random; those that are made for the bench always are.
    """
    figures: list[BenchFigure] = []
    reference = reference or asyncio.run(packaged_reference())
    ends_speech = ends_speech or bundle is None
    with BenchWeights(bundle, size or "full").folder() as folder, TemporaryDirectory() as temporary:
        config = Path(temporary) / "vivavoce.toml"
        config.write_text(f'[voices]\nstore = "{temporary}/voices"\n', encoding="utf-8")
        flags = ["--config", str(config), "--bundle", str(folder)]
        flags += ["--precision", precision, "--device", device]
        flags += ["--max-streams", str(max(1, load.concurrency))]
        with run_server_process(*flags, ends_speech=ends_speech) as url:
            for scenario in scenarios:
                figures += asyncio.run(scenario_figures(url, scenario, reference, load))
    voice = str(bundle or f"random weights, {size or 'full'}")
    settings: dict[str, str | float] = {
        "voice": voice,
        "device": device,
        "precision": precision,
        "requests": load.requests,
        "recording": reference.name,
        "speech": f"ended after {MAX_SPEECH_IDS_A_TEXT_ID} ids a text id" if ends_speech else "to its end",
    }
    return BenchReport("serve", tuple(figures), settings)


def _measure_part(
    part: ServeBenchPart, api: SpeechApi, url: str, options: RequestLoadOptions, plot: Path | None
) -> list[BenchFigure]:
    match part:
        case ServeBenchPart.LOAD:
            return _measure_load(api, url, options, plot)
        case ServeBenchPart.FIRST_BYTE:
            return asyncio.run(first_byte_figures(api, url, FIRST_BYTE_REQUESTS, options.max_streams))
        case ServeBenchPart.DISCONNECT:
            return asyncio.run(disconnect_figures(api, url, DISCONNECTS))


def _measure_load(
    api: SpeechApi, url: str, options: RequestLoadOptions, plot: Path | None
) -> list[BenchFigure]:
    warm_up = RequestLoadOptions(options.rate, 1, WARM_UP_REQUESTS, options.voice)
    asyncio.run(run_requests(api, url, warm_up))
    started = time.monotonic()
    results = asyncio.run(run_requests(api, url, options))
    took_s = time.monotonic() - started
    if plot is not None:
        draw_waits(results, options, plot)
    return [replace(figure, name=f"{api}: {figure.name}") for figure in load_figures(results, took_s)]


def _bundle_folder(bundle: Path | None, size: str | None) -> AbstractContextManager[Path | None]:
    if bundle is None and size is None:
        return nullcontext()
    return BenchWeights(bundle, size or "full").folder()
