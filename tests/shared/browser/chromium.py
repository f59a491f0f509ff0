"""Headless Chromium for benches and tests, on loopback only, driven over the DevTools protocol.

Opens pages and runs scripts in them. Each browser has an empty temporary profile, a fake microphone that
beeps once a second, and no name resolution beyond 127.0.0.1. Tests share a browser, in which each has a
context of its own: cookies, storage and pages like those of a new profile.

Source: chromedevtools.github.io/devtools-protocol (Target, Page, Runtime); Chromium's switches.
"""

import asyncio
import atexit
import contextlib
import itertools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from vivavoce.tts_engine.errors import VivavoceError

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_START_TIMEOUT_S = 60.0
_COMMAND_TIMEOUT_S = 60.0
_CONDITION_TIMEOUT_S = 60.0
_MAX_MESSAGE_BYTES = 64 << 20  # a screenshot is one message
_NEW_CONTEXT = "Target.createBrowserContext"
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
    """A running browser, or a context of it, opened by ``open_chromium`` and ``shared_chromium``."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._context: dict[str, str] = {}
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def new_tab(self) -> BrowserTab:
        """Open an empty page."""
        target = await self.command("Target.createTarget", {"url": "about:blank", **self._context})
        session = await self.command(
            "Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}
        )
        return BrowserTab(self, session["sessionId"])

    @contextlib.asynccontextmanager
    async def own_context(self) -> AsyncIterator[Self]:
        """Open pages in a context of their own until the end of this one, which closes them."""
        self._context = {"browserContextId": (await self.command(_NEW_CONTEXT, {}))["browserContextId"]}
        try:
            yield self
        finally:
            with contextlib.suppress(BrowserFailed):
                await self.command("Target.disposeBrowserContext", self._context)

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


class ChromiumProcess:
    """A browser process with a new profile, which starts at once. Raises BrowserFailed."""

    def __init__(self) -> None:
        program = find_chromium()
        if program is None:
            raise BrowserFailed("Chromium is not installed: apt-get install chromium")
        self._profile = tempfile.TemporaryDirectory(prefix="vivavoce-chromium-", ignore_cleanup_errors=True)
        command = [str(program), *_SWITCHES, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def debugger_url(self) -> str:
        """Wait until the browser listens; return its URL. Raises BrowserFailed."""
        end = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < end:
            if not self.is_running:
                raise BrowserFailed(f"Chromium ended at once, with code {self._process.returncode}")
            with contextlib.suppress(OSError, ValueError):
                return _url_in(Path(self._profile.name) / "DevToolsActivePort")
            time.sleep(0.05)
        raise BrowserFailed(f"Chromium did not start within {_START_TIMEOUT_S:g} s")

    def close(self) -> None:
        """End the process and remove its profile; it has 5 s to end by itself."""
        self._process.terminate()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()


@contextlib.asynccontextmanager
async def open_chromium() -> AsyncIterator[Chromium]:
    """Run a browser with a new profile for the duration of the context. Raises BrowserFailed."""
    process = ChromiumProcess()
    try:
        url = await asyncio.to_thread(process.debugger_url)
        async with _connected(url) as browser:
            yield browser
    finally:
        await asyncio.to_thread(process.close)


@contextlib.asynccontextmanager
async def shared_chromium() -> AsyncIterator[Chromium]:
    """Open a context of the browser of this process, which starts once. Raises BrowserFailed."""
    if not _shared_process().is_running:
        _shared_process.cache_clear()
    url = await asyncio.to_thread(_shared_process().debugger_url)
    async with _connected(url) as browser, browser.own_context():
        yield browser


@cache
def _shared_process() -> ChromiumProcess:
    process = ChromiumProcess()
    atexit.register(process.close)
    return process


@contextlib.asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Chromium]:
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
            reading.cancel()
            await asyncio.wait({reading})


def _url_in(port_file: Path) -> str:
    port, path = port_file.read_text().split("\n")[:2]
    return f"ws://127.0.0.1:{int(port)}{path}"
