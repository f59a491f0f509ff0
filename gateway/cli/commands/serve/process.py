"""The process of the server: it serves until a signal.

ready: one line on standard output
SIGTERM, SIGINT: no new calls; open calls finish their sentence, for a bounded time; then everything closes
a second signal: everything closes at once; SIGHUP: see ``stop_signals``
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing

from .....tts_engine.engine_set import EngineSet
from .....tts_engine.process_limits import raise_descriptor_limit
from ....background_tasks import start_background_task
from ....call_servers import DEFAULT_PHONE_AGENT, listeners
from ....configuration.settings import DEFAULT_NAME, Settings
from ....configuration.settings_table import SettingsError
from ....listening_sockets import format_address
from ....process_tuning import limit_memory_arenas, tune_process
from ....serve import Gateway
from .served_bundles import ServedBundles
from .service_notification import ServiceNotifier
from .stop_signals import StopSignals

logger = logging.getLogger(__name__)


async def serve(
    settings: Settings,
    *,
    announce: Callable[[str], None],
    read_settings: Callable[[], Settings] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; call ``announce`` with the line of addresses when the server is ready.

    read_settings: reads the bundles again at SIGHUP, and may raise SettingsError.

    Raises:
        VivavoceError: the server could not start; the message is a sentence for the operator.
    """
    limit_memory_arenas()
    raise_descriptor_limit()
    notifier = ServiceNotifier()
    async with StopSignals() as stop_signals:
        opening_task = asyncio.create_task(Gateway.open(settings))
        if await stop_signals.interrupts(opening_task):
            return
        async with aclosing(opening_task.result()) as gateway:
            tune_process()
            reloading = _replace_bundles_at(stop_signals.hung_up, _bundles_of(gateway), read_settings)
            start_background_task(reloading, "bundles", gateway.resources)
            start_background_task(notifier.report_alive(), "watchdog", gateway.resources)
            announce(_ready_line(gateway))
            notifier.ready()
            if not await stop_signals.interrupts(gateway.wait_for_failure()):
                return
            notifier.stopping()
            logger.info("Shutting down: %d calls may finish their sentence", len(gateway.calls.registry))
            await stop_signals.interrupts(asyncio.create_task(gateway.finish()))


def _bundles_of(gateway: Gateway) -> ServedBundles | None:
    """The bundles of a server, None if it was started with one alone."""
    engine = gateway.engine
    return ServedBundles(engine, gateway.settings, gateway.voices) if isinstance(engine, EngineSet) else None


async def _replace_bundles_at(
    hung_up: asyncio.Event, bundles: ServedBundles | None, read_settings: Callable[[], Settings] | None
) -> None:
    while True:
        await hung_up.wait()
        hung_up.clear()
        if bundles is None or read_settings is None:
            logger.warning(
                "SIGHUP is ignored: keys and voices are read when they change, other settings at the next "
                "start, and bundles at SIGHUP if the server was started with a table [bundles]"
            )
            continue
        try:
            settings = await asyncio.to_thread(read_settings)
        except SettingsError as error:
            logger.error("the bundles stay as they are: %s", error)
            continue
        await bundles.replace(settings)


def _ready_line(gateway: Gateway) -> str:
    addresses, settings = gateway.addresses, gateway.settings
    agent = settings.agents.get(DEFAULT_NAME, DEFAULT_PHONE_AGENT)
    voice = gateway.engine.voices.get(settings.bundle.voice).id
    listening = "".join(
        f"{listener.title} on {format_address(addresses.ways_in[name])}, "
        for name, listener in listeners(settings).items()
    )
    return (
        f"vivavoce is ready: {listening}"
        f"HTTP on http://{format_address(addresses.http)}, agent {agent}, voice {voice}"
    )
