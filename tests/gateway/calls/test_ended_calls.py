"""An ended call is freed at once: cycles of hundreds would be freed in one go, while all others wait."""

import asyncio
import gc
import weakref
from contextlib import aclosing

import pytest

from shared.calls.call_server import Phone
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from shared.gateways.made_settings import make_settings
from vivavoce.gateway.calls.call import Call
from vivavoce.gateway.serve import Gateway
from vivavoce.tts_engine.engine import Engine

TIMEOUT_S = 30.0


class Speaker:
    """An agent that speaks until the call ends."""

    def __init__(self) -> None:
        self.calls: list[weakref.ref[Call]] = []

    async def run(self, call: Call) -> None:
        self.calls.append(weakref.ref(call))
        while True:
            await call.speech.speak("One two three.")


@pytest.mark.parametrize("media_processes", [0, 1], indirect=True)
def test_nothing_of_an_ended_phone_call_waits_for_the_garbage_collector(media_processes: int) -> None:
    settings = make_settings(http_port=0, audiosocket_port=0)

    async def scenario() -> None:
        speaker = Speaker()
        async with (
            await Engine.open(backend=StandInBackend()) as engine,
            aclosing(await Gateway.open(settings, engine=engine, agent=speaker)) as gateway,
        ):
            phone = Phone(*await asyncio.open_connection(*gateway.addresses.ways_in["audiosocket"]))
            await until(lambda: any(phone.heard))
            await phone.aclose()
            await until(lambda: speaker.calls[0]() is None)

    gc.disable()
    try:
        asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))
    finally:
        gc.enable()
