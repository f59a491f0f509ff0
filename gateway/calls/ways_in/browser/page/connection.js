// The signalling, the WebRTC connection and its data channel.

const REQUEST_TIMEOUT_MS = 3_000; // of requests that need no negotiation

export class CallConnection {
  constructor(connection, handlers) {
    this.connection = connection;
    this.handlers = handlers;
    this.channel = connection.createDataChannel("vivavoce");
    this.pcId = null;
    this.pendingCandidates = []; // found before the answer arrived
    this.pinging = 0;
    this.channel.onopen = () => { this.pinging = setInterval(() => this.sendRaw("ping"), 1_000); };
    this.channel.onmessage = ({ data }) => handlers.message(JSON.parse(data));
    this.channel.onclose = () => handlers.closed();
    connection.ontrack = ({ streams, track }) => handlers.track(streams[0] ?? new MediaStream([track]));
    connection.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(connection.connectionState)) handlers.closed();
    };
    connection.onicecandidate = ({ candidate }) => this.trickle(candidate);
  }

  // options: members of the offer beside its description.
  static async open(microphone, handlers, iceServers, options) {
    const connection = new RTCPeerConnection({ iceServers });
    if (microphone) connection.addTrack(microphone.getAudioTracks()[0], microphone);
    else connection.addTransceiver("audio", { direction: "recvonly" });
    const callConnection = new CallConnection(connection, handlers);
    try {
      await connection.setLocalDescription();
      await callConnection.offer(options);
    } catch (error) {
      connection.close();
      throw error;
    }
    return callConnection;
  }

  async offer(options) {
    const { sdp, type } = this.connection.localDescription;
    const answer = await send("POST", "/api/offer", { sdp, type, ...options });
    await this.connection.setRemoteDescription({ sdp: answer.sdp, type: answer.type });
    this.pcId = answer.pc_id;
    this.trickle();
  }

  trickle(candidate) {
    if (candidate) {
      this.pendingCandidates.push({ candidate: candidate.candidate, sdp_mid: candidate.sdpMid, sdp_mline_index: candidate.sdpMLineIndex });
    }
    if (!this.pcId || !this.pendingCandidates.length) return;
    // Fails when the call is over, which other handlers report.
    send("PATCH", "/api/offer", { pc_id: this.pcId, candidates: this.pendingCandidates.splice(0) }).catch(() => {});
  }

  send(message) { this.sendRaw(JSON.stringify(message)); }

  sendRaw(text) { if (this.channel.readyState === "open") this.channel.send(text); }

  // Rejects if the server does not answer, and with status 404 if the call is not up.
  async probe() {
    await send("PATCH", "/api/offer", { pc_id: this.pcId, candidates: [] }, AbortSignal.timeout(REQUEST_TIMEOUT_MS));
  }

  // Tells the server, which otherwise learns of it by the data channel and, without one, after seconds.
  hangUp() {
    if (this.pcId) send("DELETE", "/api/offer", { pc_id: this.pcId }).catch(() => {}); // it may be over
    this.close();
  }

  async inboundStats() {
    for (const entry of (await this.connection.getStats()).values()) {
      if (entry.type === "inbound-rtp" && entry.kind === "audio") return entry;
    }
    return null;
  }

  close() {
    clearInterval(this.pinging);
    this.channel.onclose = this.connection.onconnectionstatechange = null;
    this.connection.close();
  }
}

// Asks the server for a call; returns its ICE servers.
export async function start() {
  const { iceConfig } = await send("POST", "/start", { transport: "webrtc" }, AbortSignal.timeout(REQUEST_TIMEOUT_MS));
  return iceConfig?.iceServers ?? [];
}

async function send(method, path, body, signal) {
  const request = { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal };
  const response = await fetch(path, request).catch(() => {
    throw new Error(`The server at ${location.host} does not answer.`);
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw Object.assign(new Error(answer.error ?? `The server answered ${response.status}.`), { status: response.status });
  }
  return answer;
}
