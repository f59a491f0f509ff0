"""Headless Chromium for benches and tests, on loopback only, driven over the DevTools protocol.

Opens pages and runs scripts in them. Each browser has an empty temporary profile, a fake microphone that
beeps once a second, and no name resolution beyond 127.0.0.1.

Source: chromedevtools.github.io/devtools-protocol (Target, Page, Runtime); Chromium's switches.
"""

import asyncio
import contextlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from vivavoce.tts_engine.errors import VivavoceError

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 60.0
_CONDITION_TIMEOUT_S = 60.0
_MAX_MESSAGE_BYTES = 64 << 20  # a screenshot is one message
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--mute-audio",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
    "--allow-loopback-in-peer-connection",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)


class BrowserFailed(VivavoceError):
    """The browser did not start, ended, or a script in it failed."""


def find_chromium() -> Path | None:
    """Return the path of an installed Chromium or Chrome; None without one."""
    return next((Path(found) for name in _NAMES if (found := shutil.which(name))), None)


@contextlib.contextmanager
def loopback_only() -> Iterator[None]:
    """Make aiortc gather 127.0.0.1 as its only candidate for the duration of the context."""
    from aioice import ice

    def addresses(use_ipv4: bool, use_ipv6: bool) -> list[str]:
        return ["127.0.0.1"]

    before = ice.get_host_addresses
    ice.get_host_addresses = addresses
    try:
        yield
    finally:
        ice.get_host_addresses = before


class BrowserTab:
    """One page of the browser."""

    def __init__(self, browser: "Chromium", session: str) -> None:
        self._browser = browser
        self._target_session_id = session

    async def command(self, method: str, **parameters: object) -> dict[str, Any]:
        """Send one command to the page; return its result. Raises BrowserFailed."""
        return await self._browser.command(method, parameters, self._target_session_id)

    async def add_init_script(self, script: str) -> None:
        """Run ``script`` in every page before its own scripts."""
        await self.command("Page.addScriptToEvaluateOnNewDocument", source=script)

    async def open(self, url: str) -> None:
        """Navigate to ``url`` and wait until the page has loaded."""
        await self.command("Page.enable")
        await self.command("Page.navigate", url=url)
        await self.wait_until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def run(self, expression: str) -> Any:
        """Evaluate an expression in the page; return its value, that of a promise once it is resolved.

        Raises BrowserFailed.
        """
        result = await self.command(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            thrown = details.get("exception", {}).get("description") or details.get("text")
            raise BrowserFailed(f"{expression[:200]!r} failed in the page: {thrown}")
        return result["result"].get("value")

    async def wait_until(self, condition: str) -> None:
        """Wait until an expression in the page is true. Raises BrowserFailed after a minute."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _CONDITION_TIMEOUT_S
        while not await self.run(f"Boolean({condition})"):
            if loop.time() > end:
                raise BrowserFailed(
                    f"{condition!r} was not true in the page within {_CONDITION_TIMEOUT_S:g} s"
                )
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close the page like a user who closes the tab."""
        with contextlib.suppress(BrowserFailed):
            await self.command("Page.close")


class Chromium:
    """A running browser, started by ``open_chromium``."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def new_tab(self) -> BrowserTab:
        """Open an empty page."""
        target = await self.command("Target.createTarget", {"url": "about:blank"})
        session = await self.command(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        return BrowserTab(self, session["sessionId"])

    async def command(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """Send one command; return its result. Raises BrowserFailed."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send(json.dumps(message))
            received = await asyncio.wait_for(answer, _COMMAND_TIMEOUT_S)
        except (ConnectionClosed, TimeoutError) as error:
            raise BrowserFailed(f"the browser did not answer {method}: {error!r}") from None
        finally:
            del self._waiting[number]
        if "error" in received:
            raise BrowserFailed(f"{method}: {received['error'].get('message')}")
        return dict(received.get("result", {}))

    async def dispatch_answers(self) -> None:
        """Pass answers to the commands that wait for them; return when the browser has closed."""
        with contextlib.suppress(ConnectionClosed):
            async for text in self._socket:
                message = json.loads(text)
                answer = self._waiting.get(message.get("id"))
                if answer is not None and not answer.done():
                    answer.set_result(message)
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_result({"error": {"message": "the browser has ended"}})


@contextlib.asynccontextmanager
async def open_chromium(*switches: str) -> AsyncIterator[Chromium]:
    """Run a browser with a new profile for the duration of the context. Raises BrowserFailed."""
    program = find_chromium()
    if program is None:
        raise BrowserFailed("Chromium is not installed: apt-get install chromium")
    with tempfile.TemporaryDirectory(prefix="vivavoce-chromium-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            str(program),
            *_SWITCHES,
            f"--user-data-dir={profile}",
            *switches,
            "about:blank",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            url = await _debugger_url(Path(profile) / "DevToolsActivePort", process)
            # No pings: a busy browser may miss them; each command has a timeout of its own.
            async with connect(
                url,
                max_size=_MAX_MESSAGE_BYTES,
                proxy=None,
                open_timeout=_START_TIMEOUT_S,
                ping_interval=None,
            ) as socket:
                browser = Chromium(socket)
                reading = asyncio.create_task(browser.dispatch_answers())
                try:
                    yield browser
                finally:
                    with contextlib.suppress(BrowserFailed):
                        await browser.command("Browser.close", {})
                    reading.cancel()
                    await asyncio.wait({reading})
        finally:
            await _terminate(process)


async def _debugger_url(port_file: Path, process: asyncio.subprocess.Process) -> str:
    loop = asyncio.get_running_loop()
    end = loop.time() + _START_TIMEOUT_S
    while loop.time() < end:
        if process.returncode is not None:
            raise BrowserFailed(f"Chromium ended at once, with code {process.returncode}")
        with contextlib.suppress(OSError, ValueError):
            return _url_in(port_file)
        await asyncio.sleep(0.05)
    raise BrowserFailed(f"Chromium did not start within {_START_TIMEOUT_S:g} s")


def _url_in(port_file: Path) -> str:
    port, path = port_file.read_text().split("\n")[:2]
    return f"ws://127.0.0.1:{int(port)}{path}"


async def _terminate(process: asyncio.subprocess.Process) -> None:
    try:
        await asyncio.wait_for(process.wait(), 5.0)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
