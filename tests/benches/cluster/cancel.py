"""The way of a cancel from a gateway to replicas on Ray: until a replica has closed the slot of the stream.

Replicas note the time themselves, by the clock that all processes of a machine share. A decode replica has a
render replica release the sentence as well.
"""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np

from benches.cluster.deployed_cluster import Deployments, stages_apart, voice_replicas
from benches.cluster.listener import text_of
from shared.cluster.ray_replicas import CostlySettings, join_here
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

_MAX_CANCEL_MS = 50.0
_RENDER_STEP_S = 0.05
_POLL_S = 0.005
_GIVE_UP_S = 10.0
_TEXT = text_of(20)


def measure(stages: str, streams: int) -> BenchReport:
    """Cancel streams that speak, one after the other. stages: "together" or "apart"."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if stages == "apart":
            deployments: Deployments = {"decode": {}, "render": {}}
            with stages_apart(deployments, render_step_s=_RENDER_STEP_S, closings=folder):
                waits_ms = asyncio.run(_measure(streams, [folder / each for each in deployments]))
        else:
            with voice_replicas(CostlySettings(closings=folder / "voice"), {"voice": {}}):
                waits_ms = asyncio.run(_measure(streams, [folder / "voice"]))
    figures = [
        figure
        for deployment, found in waits_ms.items()
        for figure in (
            BenchFigure(f"cancel to the {deployment} replica's record of it, p50", np.median(found), "ms"),
            BenchFigure("the same, worst", max(found), "ms", at_most=_MAX_CANCEL_MS),
        )
    ]
    return BenchReport("cluster-cancel", tuple(figures), {"streams": streams})


async def _measure(streams: int, files: list[Path]) -> dict[str, list[float]]:
    """Milliseconds from each cancel to the first time noted in a file after it, by the file's name."""
    found: dict[str, list[float]] = {file.name: [] for file in files}
    async with await join_here() as engine:
        for _ in range(streams):
            stream = engine.stream()
            stream.push_text(_TEXT)
            await anext(stream)
            cancelled_at = time.monotonic()
            stream.cancel()
            for file in files:
                found[file.name].append(1000 * (await _first_after(file, cancelled_at) - cancelled_at))
    return found


async def _first_after(file: Path, since: float) -> float:
    async with asyncio.timeout(_GIVE_UP_S):
        while True:
            noted = [each for each in await asyncio.to_thread(_times_in, file) if each > since]
            if noted:
                return noted[0]
            await asyncio.sleep(_POLL_S)


def _times_in(file: Path) -> list[float]:
    return [float(line) for line in file.read_text().splitlines()] if file.exists() else []
