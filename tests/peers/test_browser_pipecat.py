"""Calls from headless Chromium over loopback, with Pipecat's transport and Pipecat's page."""

from importlib.util import find_spec

import pytest

from shared.browser.chromium_calls import BrowserFixture, needs_chromium, with_browser

pytestmark = needs_chromium

# The steps of Pipecat's SmallWebRTC transport in a browser.
SMALL_WEBRTC_CLIENT = """(async () => {
  const post = async (method, url, body) => (await fetch(url, {
    method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
  const { sessionId } = await post("POST", "/start",
    { transport: "webrtc", enableDefaultIceServers: false, body: {} });
  const url = `/sessions/${sessionId}/api/offer`;
  const connection = new RTCPeerConnection({ iceServers: [] });
  const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
  connection.addTransceiver(microphone.getAudioTracks()[0], { direction: "sendrecv" });
  connection.addTransceiver("video", { direction: "sendrecv" });
  connection.addTransceiver("video", { direction: "sendrecv" });
  const channel = connection.createDataChannel("chat", { ordered: true });
  const events = window.events = [];
  channel.onmessage = ({ data }) => events.push(JSON.parse(data));
  const opened = new Promise((done) => { channel.onopen = done; });
  const candidates = [];
  let pcId = null;
  const trickle = () => pcId && candidates.length
    && post("PATCH", url, { pc_id: pcId, candidates: candidates.splice(0) });
  connection.onicecandidate = ({ candidate }) => {
    if (candidate) candidates.push({ candidate: candidate.candidate, sdp_mid: candidate.sdpMid,
      sdp_mline_index: candidate.sdpMLineIndex });
    trickle();
  };
  await connection.setLocalDescription();
  const { sdp, type } = connection.localDescription;
  const answer = await post("POST", url, { sdp, type, pc_id: null, restart_pc: false, requestData: {} });
  pcId = answer.pc_id;
  await connection.setRemoteDescription(answer);
  trickle();
  await opened;
  channel.send(JSON.stringify({ type: "signalling",
    message: { type: "trackStatus", receiver_index: 0, enabled: true } }));
  channel.send("ping: " + Date.now());
  channel.send(JSON.stringify({ label: "rtvi-ai", type: "client-ready", id: "1",
    data: { version: "1.2.0", about: { library: "client" } } }));
  channel.send(JSON.stringify({ label: "rtvi-ai", type: "send-text", id: "2",
    data: { content: "How do you do?", options: { run_immediately: true } } }));
})()"""


def test_a_client_of_pipecat_s_transport_connects_and_receives_its_text_as_speech() -> None:
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.open(fixture.url)
        await tab.run(SMALL_WEBRTC_CLIENT)
        await tab.wait_until("events.some((event) => event.type === 'bot-ready' && event.id === '1')")
        await tab.wait_until("events.some((event) => event.type === 'bot-stopped-speaking')")
        words = await tab.run("events.filter((e) => e.type === 'bot-tts-text').map((e) => e.data.text)")
        assert words == ["How", "do", "you", "do"]
        assert await tab.run("events.filter((event) => event.type === 'error')") == []

    with_browser(scenario)


@pytest.mark.skipif(
    find_spec("pipecat_ai_prebuilt") is None,
    reason="needs pipecat-ai-prebuilt: make test EXTRAS=dev,stt,pipecat",
)
def test_pipecat_s_page_loads_and_offers_to_connect() -> None:
    # The test does not press Connect: the page would load code from Daily's server.
    async def scenario(fixture: BrowserFixture) -> None:
        tab = await fixture.browser.new_tab()
        await tab.open(fixture.url.removesuffix("/call") + "/client/")
        await tab.wait_until(
            "[...document.querySelectorAll('button')].some((b) => b.innerText === 'Connect')"
        )
        assert "Small" in await tab.run("document.body.innerText")

    with_browser(scenario)
