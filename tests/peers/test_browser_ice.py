"""Calls of headless Chromium through a TURN server, and without any path to the server."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aioice import stun, turn

from benches.browser_calls import probed_tab
from shared.browser.chromium import BrowserTab
from shared.browser.chromium_calls import TIMEOUT_S, BrowserFixture, fixture, needs_chromium, type_in
from shared.browser.coturn import needs_coturn, serve_coturn
from shared.browser.turn_server import CREDENTIAL, USERNAME, TurnServer, serve_turn
from vivavoce.adapters.ice_server import IceServer

pytestmark = needs_chromium

SECRET = "a secret of the tests"

# A browser in a network that lets it reach the TURN server only.
FORCE_RELAY = """{
  const Original = RTCPeerConnection;
  window.RTCPeerConnection = class extends Original {
    constructor(configuration) { super({ ...configuration, iceTransportPolicy: "relay" }); }
  };
}"""
SELECTED_CANDIDATE = """(async () => {
  const stats = await bench.connection.getStats();
  const { selectedCandidatePairId } = [...stats.values()].find(({ type }) => type === "transport");
  return stats.get(stats.get(selectedCandidatePairId).localCandidateId).candidateType;
})()"""


@asynccontextmanager
async def relayed(credential: str) -> AsyncIterator[tuple[BrowserFixture, BrowserTab, TurnServer]]:
    async with asyncio.timeout(TIMEOUT_S), serve_turn() as turn:
        servers = (IceServer((turn.url,), USERNAME, credential),)
        async with (
            fixture(ice_servers=servers) as opened,
            probed_tab(opened.browser, opened.url, FORCE_RELAY) as tab,
        ):
            yield opened, tab, turn


def test_a_browser_that_reaches_only_the_turn_server_calls_through_it() -> None:
    async def scenario() -> None:
        async with relayed(CREDENTIAL) as (_, tab, turn):
            await type_in(tab, "One two three.")
            await tab.wait_until("turns.querySelector('.rest')?.textContent === ''")
            assert await tab.run(SELECTED_CANDIDATE) == "relay"
            assert sum(allocation.relayed_bytes for allocation in turn.allocations) > 5_000
            assert turn.refusals == 0
            await tab.run("document.getElementById('call').click()")

    asyncio.run(scenario())


@asynccontextmanager
async def through_coturn(secret: str, folder: Path) -> AsyncIterator[tuple[BrowserFixture, BrowserTab]]:
    async with asyncio.timeout(TIMEOUT_S), serve_coturn(SECRET, folder) as url:
        servers = (IceServer((url,), secret=secret),)
        async with (
            fixture(ice_servers=servers) as opened,
            probed_tab(opened.browser, opened.url, FORCE_RELAY) as tab,
        ):
            yield opened, tab


@needs_coturn
def test_coturn_relays_a_call_with_credentials_of_the_shared_secret(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with through_coturn(SECRET, tmp_path) as (_, tab):
            await type_in(tab, "One two three.")
            await tab.wait_until("turns.querySelector('.rest')?.textContent === ''")
            assert await tab.run(SELECTED_CANDIDATE) == "relay"
            await tab.run("document.getElementById('call').click()")

    asyncio.run(scenario())


@needs_coturn
def test_coturn_refuses_credentials_of_another_secret_and_those_of_yesterday(tmp_path: Path) -> None:
    async def allocate(url: str, server: IceServer) -> None:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        transport, _ = await turn.create_turn_endpoint(
            asyncio.DatagramProtocol, address, server.username, server.credential, ssl=False
        )
        transport.close()

    async def scenario() -> None:
        async with asyncio.timeout(TIMEOUT_S), serve_coturn(SECRET, tmp_path) as url:
            own, other = IceServer((url,), secret=SECRET), IceServer((url,), secret="another secret!!")
            await allocate(url, own.dated(time.time()))
            for refused in (other.dated(time.time()), own.dated(time.time() - 86_460)):
                with pytest.raises(stun.TransactionFailed, match="401"):
                    await allocate(url, refused)

    asyncio.run(scenario())


def test_a_call_without_a_path_says_so_on_the_page_and_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with relayed("wrong-credential") as (opened, tab, turn):
            await tab.run("document.getElementById('call').click()")
            await tab.wait_until("!notice.hidden")
            assert "No audio connection to 127.0.0.1 was found" in await tab.run("notice.textContent")
            assert await tab.run("document.body.dataset.state") == "idle"
            await opened.calls.wait_idle()
            assert turn.refusals > 0
            assert turn.allocations == []

    asyncio.run(scenario())
    assert "not connected within 8 s: no UDP path to the browser was found" in caplog.text
    assert "No relay address from turn:127.0.0.1:" in caplog.text
    assert "wrong-credential" not in caplog.text
