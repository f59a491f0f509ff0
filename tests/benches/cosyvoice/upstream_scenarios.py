"""The cloning scenarios of ``vivavoce bench serve`` on a server of upstream CosyVoice, to compare with.

    PYTHONPATH=tests python -m benches upstream-scenarios http://127.0.0.1:50000

Its server (runtime/python/fastapi/server.py) keeps no voices: each request sends the recording, and only that
is measured. Start it where upstream is installed, with the same weights and on the same device.

Source: CosyVoice at ace7c47f41, runtime/python/fastapi/server.py.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import httpx

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.gateway.cli.bench.requests.cloning import (
    SCENARIO_TEXTS,
    CloningScenario,
    Reference,
    ScenarioAnswer,
    ScenarioLoad,
    figures_of_levels,
    packaged_reference,
    receive_speech,
)

_TIMEOUT_S: Final = 600.0


class UpstreamSpeaker:
    """``ScenarioSpeaker`` of upstream's server."""

    def __init__(self, client: httpx.AsyncClient, scenario: CloningScenario, reference: Reference) -> None:
        self._client, self._reference = client, reference
        self._text, self._transcript = SCENARIO_TEXTS[scenario]
        self._is_cross_lingual = scenario is CloningScenario.CROSS_LINGUAL
        self._sent = 0

    async def speak(self, is_cached: bool) -> ScenarioAnswer:
        """Send the recording with the text."""
        assert not is_cached
        self._sent += 1
        files = {"prompt_wav": ("prompt.wav", self._reference.wav(self._sent), "audio/wav")}
        fields = {"tts_text": self._text}
        if self._is_cross_lingual:
            path = "/inference_cross_lingual"
        else:
            path, fields = "/inference_zero_shot", {**fields, "prompt_text": self._transcript}
        return await receive_speech(self._client.stream("POST", path, data=fields, files=files))


async def upstream_figures(
    url: str, scenarios: Sequence[CloningScenario], reference: Reference, load: ScenarioLoad
) -> list[BenchFigure]:
    """The figures of each scenario. Raises BenchFailed for a refused request."""
    figures: list[BenchFigure] = []
    async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as client:
        for scenario in scenarios:
            speaker = UpstreamSpeaker(client, scenario, reference)
            found, _ = await figures_of_levels(speaker, scenario, False, load)
            figures += found
    return figures


def measure(url: str, scenarios: Sequence[CloningScenario], load: ScenarioLoad) -> BenchReport:
    """Measure a server that runs."""

    async def run() -> list[BenchFigure]:
        return await upstream_figures(url, scenarios, await packaged_reference(), load)

    settings: dict[str, str | float] = {"server": url, "requests": load.requests}
    return BenchReport("upstream scenarios", tuple(asyncio.run(run())), settings)
