"""The page in headless Chromium: typed text, scripts, the transcript, and a server that goes away."""

import asyncio
import base64
import logging
import signal
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from benches.browser_calls import hang_up, probed_call, probed_tab, start_call
from shared.browser.chromium import BrowserTab, shared_chromium
from shared.browser.chromium_calls import (
    LONG,
    TIMEOUT_S,
    BrowserFixture,
    needs_chromium,
    type_in,
    with_browser,
)
from shared.gateways.server_process import server_process
from vivavoce.gateway.calls.agents.agent import Agent
from vivavoce.gateway.calls.agents.kinds.keys import KeysAgent
from vivavoce.gateway.calls.agents.kinds.script import LoopingScriptAgent, ScriptAgent, ScriptPolicy
from vivavoce.gateway.calls.ways_in.browser.leg import BrowserPeer
from vivavoce.tts_engine.engine import Engine

pytestmark = needs_chromium

PACE = ScriptPolicy(tokens_per_s=1_000, pause_s=0.05)
SCRIPT = ScriptAgent(f"{LONG}\n\nThe second paragraph.", PACE)
LOOP = LoopingScriptAgent("Over and over.", PACE)
TEXTS = "[...turns.children].map((item) => item.textContent)"


async def wait_heard(tab: BrowserTab, text: str) -> None:
    """Wait until the last turn is ``text`` and has been heard to its end."""
    await tab.wait_until(
        f"turns.lastElementChild?.textContent === {text!r} && turns.lastElementChild.querySelector('.rest')"
        ".textContent === '' && turns.lastElementChild.querySelector('mark').textContent === ''"
    )


# Typed text


@pytest.mark.parametrize("agent", [SCRIPT, LOOP])
def test_typed_text_is_spoken_at_once_and_ends_the_script(agent: Agent) -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            before = await tab.run("turns.children.length")
            await type_in(tab, "Typed text.")
            await wait_heard(tab, "Typed text.")
            await type_in(tab, "And again.")
            await wait_heard(tab, "And again.")
            assert (await tab.run(TEXTS))[before:] == ["Typed text.", "And again."]

    with_browser(scenario, agent=agent)


def test_typed_text_interrupts_the_text_before_it_which_is_struck_out() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, LONG)
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            await type_in(tab, "Short.")
            await wait_heard(tab, "Short.")
            assert await tab.run("turns.children.length") == 2
            assert len(await tab.run("turns.querySelector('.cut .rest').textContent")) > 100

    with_browser(scenario)


def test_the_text_stays_in_the_box_and_is_selected() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, "Once more.")
            await wait_heard(tab, "Once more.")
            assert await tab.run("[text.value, getSelection().toString()]") == ["Once more.", "Once more."]
            await tab.run("speak.click()")
            await tab.wait_until("turns.children.length === 2")
            await wait_heard(tab, "Once more.")

    with_browser(scenario)


@pytest.mark.parametrize("agent", [None, SCRIPT, KeysAgent()])
def test_speak_before_call_starts_the_call_and_speaks_the_text_only(agent: Agent | None) -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_tab(fixture.browser, fixture.url) as tab:
            await type_in(tab, "Straight to the point.")
            await tab.wait_until("document.body.dataset.state === 'live'")
            await wait_heard(tab, "Straight to the point.")
            await type_in(tab, "And on.")
            await wait_heard(tab, "And on.")
            assert await tab.run(TEXTS) == ["Straight to the point.", "And on."]

    with_browser(scenario, agent=agent, greeting="A greeting that nothing asked for.")


async def hang_up_while_calling(tab: BrowserTab, fixture: BrowserFixture) -> None:
    await tab.run("document.getElementById('call').click()")
    while not fixture.calls._group.legs:
        await asyncio.sleep(0.01)
    await tab.run("document.getElementById('call').click()")


def test_a_hang_up_during_the_negotiation_leaves_no_connection() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        connect, answering = fixture.calls._connect, asyncio.Event()

        async def slow(*arguments: Any) -> BrowserPeer:
            await answering.wait()
            return await connect(*arguments)

        fixture.calls._connect = slow
        async with probed_tab(fixture.browser, fixture.url) as tab:
            await hang_up_while_calling(tab, fixture)
            answering.set()
            await tab.wait_until("bench.connection.connectionState === 'closed'")
            assert await tab.run("document.body.dataset.state") == "idle"

    with_browser(scenario)


# The server's first message comes before the answer is taken, as on a busy machine.
LATE_ANSWER = """
const setDescription = RTCPeerConnection.prototype.setRemoteDescription;
RTCPeerConnection.prototype.setRemoteDescription = async function (answer) {
  await setDescription.call(this, answer);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
};
"""


def test_a_call_that_was_hung_up_does_not_go_live_by_a_late_message() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_tab(fixture.browser, fixture.url) as tab:
            await tab.run(LATE_ANSWER)
            await hang_up_while_calling(tab, fixture)
            await tab.wait_until("bench.connection.connectionState === 'closed'")
            assert await tab.run("document.body.dataset.state") == "idle"

    with_browser(scenario)


def test_a_hang_up_before_the_connection_is_told_to_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_tab(fixture.browser, fixture.url) as tab:
            # Without candidates, there is no path between browser and server.
            await tab.run("RTCPeerConnection.prototype.setRemoteDescription = async () => {}")
            await tab.run("document.getElementById('call').click()")
            while not any(leg.peer for leg in fixture.calls._group.legs):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)
            await tab.run("document.getElementById('call').click()")
            await fixture.calls.wait_idle()

    with caplog.at_level(logging.INFO):
        with_browser(scenario)
    assert "no UDP path" not in caplog.text
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# The transcript


def test_after_a_hang_up_no_word_is_marked_and_the_rest_is_struck_out() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, LONG)
            await tab.wait_until("turns.querySelector('mark')?.textContent")
            await hang_up(tab)
            assert await tab.run("turns.querySelector('mark').textContent") == ""
            assert await tab.run("turns.querySelector('.cut .rest').textContent.length") > 100
            assert (await tab.run(TEXTS))[0] == LONG.strip()

    with_browser(scenario)


def test_a_hang_up_while_the_caller_talks_ends_the_mark_of_talking() -> None:
    noise = np.random.default_rng(1).normal(0, 4_000, 240_000).astype("<i2").tobytes()  # 10 s at 24 kHz

    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, LONG)
            encoded = base64.b64encode(noise).decode()
            await tab.run(f"void bench.speakInto({encoded!r}, 24000).catch(() => {{}})")
            await tab.wait_until("document.body.classList.contains('talking')")
            await hang_up(tab)
            assert not await tab.run("document.body.classList.contains('talking')")

    with_browser(scenario)


def test_a_time_of_day_is_marked_as_one_word() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("""window.marked = new Set();
                new MutationObserver(() => marked.add(turns.querySelector("mark")?.textContent)).observe(
                    turns, { childList: true, subtree: true, characterData: true });""")
            await type_in(tab, "Come at 10:30 a.m. today.")
            await wait_heard(tab, "Come at 10:30 a.m. today.")
            marked = await tab.run("[...marked]")
            assert [word for word in marked if word] == ["Come", "at", "10:30", "a.m.", "today"]

    with_browser(scenario, engine=Engine.open)


def test_a_screen_reader_gets_each_turn_once_when_it_has_been_heard() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await tab.run("""window.said = [];
                new MutationObserver(() => said.push(announced.textContent)).observe(
                    announced, { childList: true, subtree: true, characterData: true });""")
            await type_in(tab, "One two three.")
            await wait_heard(tab, "One two three.")
            await type_in(tab, LONG)
            await tab.wait_until("turns.lastElementChild.querySelector('mark')?.textContent === 'two'")
            await tab.run("interrupt.click()")
            await tab.wait_until("said.length === 2")
            whole, cut = await tab.run("said")
            assert (whole, cut[:7]) == ("One two three.", "one two")
            assert len(cut) < len(LONG)
            (region,) = await live_regions(tab, "log")
            assert region["live"] == "polite"
            assert await live_regions(tab, "listitem") == []

    with_browser(scenario)


async def live_regions(tab: BrowserTab, role: str) -> list[dict[str, str]]:
    """Return the properties of the accessibility tree's nodes of that role that are announced."""
    tree = await tab.command("Accessibility.getFullAXTree")
    properties = [
        {one["name"]: one["value"].get("value") for one in node.get("properties", [])}
        for node in tree["nodes"]
        if node.get("role", {}).get("value") == role
    ]
    return [found for found in properties if found.get("live", "off") != "off"]


# A server that goes away


def test_a_server_that_goes_away_is_named_before_the_browser_notices() -> None:
    async def scenario() -> None:
        async with (
            server_process() as (process, url),
            shared_chromium() as browser,
            probed_call(browser, f"{url}/call") as tab,
        ):
            away = f"The server at {url.removeprefix('http://')} does not answer."
            await tab.run("bench.next('onset')")
            await tab.run("""window.states = [];
                bench.connection.addEventListener("connectionstatechange",
                    () => states.push(bench.connection.connectionState));""")
            process.kill()
            await tab.wait_until("!notice.hidden")
            assert await tab.run("notice.textContent") == away
            assert await tab.run("document.body.dataset.state") == "idle"
            assert "disconnected" not in await tab.run("states")
            await tab.run("document.getElementById('call').click(); notice.hidden = true")
            await tab.wait_until("!notice.hidden")
            assert await tab.run("notice.textContent") == away

    run_within(scenario())


def test_a_server_that_stalls_is_named_and_the_call_goes_on() -> None:
    async def scenario() -> None:
        async with (
            server_process() as (process, url),
            shared_chromium() as browser,
            probed_call(browser, f"{url}/call") as tab,
        ):
            await tab.run("bench.next('onset')")
            process.send_signal(signal.SIGSTOP)
            await tab.wait_until("document.getElementById('status').textContent.includes('does not answer')")
            process.send_signal(signal.SIGCONT)
            await tab.wait_until("document.getElementById('status').textContent === 'On a call'")
            await type_in(tab, "Still here.")
            await wait_heard(tab, "Still here.")

    run_within(scenario())


def run_within(scenario: Coroutine[None, None, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await scenario

    asyncio.run(run())


def test_a_server_that_is_shut_down_is_named() -> None:
    async def scenario() -> None:
        async with (
            server_process() as (process, url),
            shared_chromium() as browser,
            probed_call(browser, f"{url}/call") as tab,
        ):
            await tab.run("bench.next('onset')")
            process.terminate()
            await tab.wait_until("!notice.hidden")
            assert await tab.run("notice.textContent") == "The server is shutting down."

    run_within(scenario())


def test_the_turns_of_an_earlier_call_stay_above_a_line() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            await type_in(tab, "The first call.")
            await wait_heard(tab, "The first call.")
            await hang_up(tab)
            await start_call(tab)
            await type_in(tab, "The second call.")
            await wait_heard(tab, "The second call.")
            assert await tab.run(TEXTS) == ["The first call.", "", "The second call."]
            assert await tab.run("turns.children[1].className") == "again"

    with_browser(scenario)


def test_the_measured_times_do_not_contradict_each_other() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            for text in ("One.", "Two.", "Three."):
                await type_in(tab, text)
                await wait_heard(tab, text)
                await tab.wait_until("!bench.audible")
                total, engine = await tab.run(
                    "['n-ttfa', 'n-engine'].map((id) => parseInt(document.getElementById(id).textContent))"
                )
                assert 0 < engine <= total

    with_browser(scenario)


def test_record_reads_stop_while_it_records() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        async with probed_call(fixture.browser, fixture.url) as tab:
            button = "document.getElementById('record')"
            await tab.run(f"{button}.click()")
            assert (await tab.run(f"{button}.textContent")).startswith("Stop")
            await tab.run(f"{button}.click()")
            assert await tab.run(f"{button}.textContent") == "Record"

    with_browser(scenario)
