"""Cancelling, memory a stream, and memory that runs out on purpose."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import torch
from gpu_check.findings import CheckOptions, Finding, as_known
from gpu_check.steps.streams import TEXT, listen, open_engine

from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.flow.policy import state_bytes_per_s
from vivavoce.models.devices.torch_devices import free_bytes
from vivavoce.tts_engine.cosyvoice.policy import policy_for
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import VivavoceError

_CANCELLED = 5
_LEFT_BYTES = 64 * 2**20  # when the card is filled


def measure(options: CheckOptions) -> Iterator[Finding]:
    """Yield the figures of one engine."""
    yield from as_known(_measure(options))


async def _measure(options: CheckOptions) -> AsyncIterator[Finding]:
    seconds, before = 0.5 if options.is_quick else 6.0, free_bytes(options.torch_device)
    policy = policy_for("fp32", options.device).flow
    async with open_engine(options) as (engine, voice):
        taken = before - free_bytes(options.torch_device)
        yield Finding("memory taken by the engine", taken / 1e9, "GB")
        latencies = sorted([await _cancel_s(engine, voice, seed) for seed in range(_CANCELLED)])
        yield Finding("cancel, until the slot is free, worst", 1000 * latencies[-1], "ms")
        flow_config = open_bundle(options.bundle).network_config.flow
        yield Finding("memory of a stream", state_bytes_per_s(flow_config, policy) / 1e6, "MB a second")
        yield Finding("streams admitted at once", await _count_admitted(engine, voice, options))
        if options.torch_device.type == "cuda":
            for finding in await _fill_memory(engine, voice, options.torch_device, seconds):
                yield finding
        else:
            yield Finding("out of memory on purpose", "for a card")
        again = await listen(engine, voice, 1, seconds)
        yield Finding("speaks afterwards", again.speech_s, "s")


async def _cancel_s(engine: Engine, voice: str, seed: int) -> float:
    """Seconds from a cancel, after the first audio, until no stream is left in the engine."""
    async with engine.stream(voice=voice, seed=seed) as stream:
        stream.push_text(TEXT)
        async for chunk in stream:
            if chunk.seconds:
                break
        began = time.perf_counter()
        stream.cancel()
        while engine.active_streams:
            await asyncio.sleep(0)
    return time.perf_counter() - began


async def _count_admitted(engine: Engine, voice: str, options: CheckOptions) -> int:
    """Streams that may be open at once, up to 65, or up to 3 in a quick check."""
    streams, most = [], 3 if options.is_quick else 65
    try:
        for seed in range(most):
            streams.append(engine.stream(voice=voice, seed=seed))
    except VivavoceError:
        pass
    finally:
        for stream in streams:
            stream.cancel()
    return len(streams)


async def _fill_memory(engine: Engine, voice: str, device: torch.device, seconds: float) -> list[Finding]:
    """Take what memory the card has left, speak, and give it back."""
    before = free_bytes(device)
    taken = torch.empty(max(0, before - _LEFT_BYTES), dtype=torch.uint8, device=device)
    try:
        heard = await listen(engine, voice, 2, seconds)
        answer = f"spoke {heard.speech_s:.1f} s"
    except VivavoceError as error:
        answer = str(error)[:200]
    del taken
    torch.cuda.empty_cache()
    return [
        Finding("memory left to the check", before / 1e9, "GB"),
        Finding("with 64 MiB left", answer),
    ]
