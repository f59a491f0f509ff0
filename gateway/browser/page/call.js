// One call from this page: the WebRTC connection, its audio output, and the transcript.
// gateway/calls/messages.py describes the messages on the data channel.

const $ = (id) => document.getElementById(id);
const MAX_MESSAGE_TEXT = 8_000; // characters; a data channel takes 64 KiB in one message
const MAX_RECORDING_S = 1_800; // 350 MB of samples at 48 kHz
const REOPEN_MARGIN_S = 0.2; // on top of the jitter buffer's delay, in which discarded audio may still arrive

const show = {
  status(text) { $("status").textContent = text; $("timer").textContent = ""; },
  notice(text) { $("notice").textContent = text; $("notice").hidden = !text; },
  number(id, text) { $(id).textContent = text; },
};

// ---------------------------------------------------------------------------------------------------------
// The transcript: one list item for each turn, its text in three parts: heard, being heard, not yet heard.

class Transcript {
  constructor(list) {
    this.list = list;
    this.turns = new Map(); // by number of the turn
    this.turnsByUtterance = new Map(); // by number of the utterance, from its first audio on
  }

  clear() { this.list.replaceChildren(); this.turns.clear(); this.turnsByUtterance.clear(); }

  addQuestion(text) { this.append("asked").append(text); }

  addText(number, text) {
    let turn = this.turns.get(number);
    if (!turn) {
      const item = this.append("said");
      turn = { item, text: "", heard: document.createElement("span"), now: document.createElement("mark"),
        rest: document.createElement("span"), from: 0, to: 0 };
      turn.rest.className = "rest";
      item.append(turn.heard, turn.now, turn.rest);
      this.turns.set(number, turn);
    }
    turn.text += text;
    this.render(turn);
    this.scrollToEnd();
  }

  begin(utterance, number) {
    this.turnsByUtterance.set(utterance, this.turns.get(number));
  }

  markWord(utterance, start, stop) {
    const turn = this.turnsByUtterance.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [start, stop];
    this.render(turn);
    this.keepInView(turn);
  }

  finish(utterance) {
    const turn = this.turnsByUtterance.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [turn.text.length, turn.text.length];
    this.render(turn);
  }

  cut(utterance, heard) {
    const turn = this.turnsByUtterance.get(utterance);
    for (const other of this.turns.values()) {
      if (other === turn || (other.to === 0 && !this.hasAudio(other))) other.item.classList.add("cut");
    }
    if (!turn) return;
    [turn.from, turn.to] = [heard.length, heard.length];
    this.render(turn);
  }

  hasAudio(turn) { return [...this.turnsByUtterance.values()].includes(turn); }

  append(kind) {
    const item = document.createElement("li");
    item.className = kind;
    this.list.append(item);
    this.scrollToEnd();
    return item;
  }

  // Scrolls the list only; scrollIntoView would scroll the page as well.
  keepInView({ now }) {
    const [word, list] = [now.getBoundingClientRect(), this.list.getBoundingClientRect()];
    if (word.bottom > list.bottom) this.list.scrollTop += word.bottom - list.bottom + word.height;
    else if (word.top < list.top) this.list.scrollTop -= list.top - word.top + word.height;
  }

  scrollToEnd() { this.list.scrollTop = this.list.scrollHeight; }

  render(turn) {
    turn.heard.textContent = turn.text.slice(0, turn.from);
    turn.now.textContent = turn.text.slice(turn.from, turn.to);
    turn.rest.textContent = turn.text.slice(turn.to);
  }
}

// ---------------------------------------------------------------------------------------------------------
// Audio output: remote track -> telephone filter or none -> gate -> meter -> loudspeaker.

class AudioOutput {
  constructor(context, onMeter) {
    this.context = context;
    this.onMeter = onMeter;
    this.direct = context.createGain();
    this.telephone = context.createGain();
    this.gate = context.createGain();
    this.samples = null; // pieces of the recording, while there is one
    this.meter = new AudioWorkletNode(context, "output-meter", { outputChannelCount: [1] });
    this.meter.port.onmessage = ({ data }) => this.onMeterMessage(data);
    this.direct.connect(this.gate);
    this.telephone.connect(this.gate);
    this.gate.connect(this.meter).connect(context.destination);
  }

  static async open(onMeter) {
    const context = new AudioContext({ latencyHint: "interactive" });
    await context.audioWorklet.addModule("/page/audio_worklets.js");
    await context.resume();
    return new AudioOutput(context, onMeter);
  }

  play(stream) {
    // Chromium feeds a remote stream to WebAudio only while a media element plays it as well.
    $("remote").srcObject = stream;
    $("remote").play().catch(() => {});
    const source = this.context.createMediaStreamSource(stream);
    source.connect(this.direct);
    this.telephoneFilter(source).connect(this.telephone);
    this.setTelephoneBand($("phone").checked);
  }

  // Telephone band: Butterworth low-pass of order 8 at 3,400 Hz, high-pass of order 4 at 300 Hz.
  telephoneFilter(source) {
    const filter = (type, frequency, q) => new BiquadFilterNode(this.context, { type, frequency, Q: 20 * Math.log10(q) });
    const chain = [
      filter("highpass", 300, 0.541), filter("highpass", 300, 1.307),
      ...[0.51, 0.601, 0.9, 2.563].map((q) => filter("lowpass", 3_400, q)),
    ];
    return chain.reduce((from, to) => from.connect(to), source);
  }

  setTelephoneBand(wanted) {
    this.direct.gain.value = wanted ? 0 : 1;
    this.telephone.gain.value = wanted ? 1 : 0;
  }

  get now() { return this.context.currentTime; }

  // Seconds from a sample's time in the context to its sound.
  get outputDelay() { return this.context.outputLatency || this.context.baseLatency || 0; }

  closeGate() {
    this.gate.gain.cancelScheduledValues(this.now); // an opening that is scheduled
    this.gate.gain.setTargetAtTime(0, this.now, 0.003);
  }

  openGate(afterS) { this.gate.gain.setTargetAtTime(1, this.now + afterS, 0.002); }

  record() { this.samples = []; this.meter.port.postMessage({ record: true }); }

  stopRecording() {
    this.meter.port.postMessage({ record: false });
    const samples = this.samples ?? [];
    this.samples = null;
    return wavFile(samples, this.context.sampleRate);
  }

  onMeterMessage(message) {
    if (message.kind !== "samples") { this.onMeter(message); return; }
    if (!this.samples) return;
    this.samples.push(message.samples);
    if (this.samples.length * message.samples.length > MAX_RECORDING_S * this.context.sampleRate) stopRecording();
  }

  close() { $("remote").srcObject = null; return this.context.close(); }
}

function wavFile(pieces, sampleRate) {
  const count = pieces.reduce((sum, piece) => sum + piece.length, 0);
  const view = new DataView(new ArrayBuffer(44 + 2 * count));
  const words = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
  words(0, "RIFF"); view.setUint32(4, 36 + 2 * count, true); words(8, "WAVEfmt ");
  view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true); view.setUint32(28, 2 * sampleRate, true);
  view.setUint16(32, 2, true); view.setUint16(34, 16, true);
  words(36, "data"); view.setUint32(40, 2 * count, true);
  let at = 44; // bytes of the header
  for (const piece of pieces) {
    for (const sample of piece) {
      view.setInt16(at, Math.round(32_767 * Math.max(-1, Math.min(1, sample))), true);
      at += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

// ---------------------------------------------------------------------------------------------------------
// The WebRTC connection and its data channel.

class CallConnection {
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

  static async open(microphone, handlers) {
    const connection = new RTCPeerConnection();
    if (microphone) connection.addTrack(microphone.getAudioTracks()[0], microphone);
    else connection.addTransceiver("audio", { direction: "recvonly" });
    const callConnection = new CallConnection(connection, handlers);
    try {
      await connection.setLocalDescription();
      await callConnection.offer();
    } catch (error) {
      connection.close();
      throw error;
    }
    return callConnection;
  }

  async offer() {
    const { sdp, type } = this.connection.localDescription;
    const answer = await post("POST", { sdp, type });
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
    post("PATCH", { pc_id: this.pcId, candidates: this.pendingCandidates.splice(0) }).catch(() => {});
  }

  send(message) { this.sendRaw(JSON.stringify(message)); }

  sendRaw(text) { if (this.channel.readyState === "open") this.channel.send(text); }

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

async function post(method, body) {
  const response = await fetch("/api/offer", {
    method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(answer.error ?? `The server answered ${response.status}.`);
  return answer;
}

// ---------------------------------------------------------------------------------------------------------
// The call.

const transcript = new Transcript($("turns"));
let call = null; // { connection, sound, microphone, ... } while there is one

async function begin() {
  show.notice("");
  transcript.clear();
  for (const id of ["n-ttfa", "n-engine", "n-stop", "n-lead", "n-jitter", "n-concealed", "n-lost", "n-underruns"]) show.number(id, "–");
  render("calling");
  const current = { connection: null, sound: null, microphone: null, answers: false, askedAt: null, cutAt: null,
    audible: false, jitterS: 0.05, before: null, startedAt: 0, timers: [] };
  call = current;
  try {
    current.sound = await AudioOutput.open((message) => onAudioOutput(current, message));
    current.microphone = await microphone();
    if (current.microphone) listenFor(current);
    current.connection = await CallConnection.open(current.microphone, {
      message: (message) => onMessage(current, message),
      track: (stream) => current.sound.play(stream),
      closed: () => end(current, "The call is over."),
    });
  } catch (error) {
    end(current, "Not on a call");
    show.notice(error.message);
  }
}

function end(over, reason) {
  if (call !== over) return;
  call = null;
  if (over.sound?.samples) stopRecording(over);
  over.timers.forEach(clearInterval);
  over.connection?.close();
  over.microphone?.getTracks().forEach((track) => track.stop());
  over.sound?.close();
  render("idle");
  show.status(reason);
  if (document.activeElement === document.body) $("call").focus(); // the focused button was disabled
}

async function microphone() {
  if (!navigator.mediaDevices) {
    show.notice("This page may use a microphone only over https or on localhost; you can listen and type.");
    return null;
  }
  try {
    return await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
  } catch {
    show.notice("No microphone; you can listen and type.");
    return null;
  }
}

function listenFor(current) {
  const { context } = current.sound;
  current.detector = new AudioWorkletNode(context, "talk-detector", { numberOfOutputs: 0 });
  context.createMediaStreamSource(current.microphone).connect(current.detector);
  current.detector.port.onmessage = ({ data }) => {
    document.body.classList.toggle("talking", data.talking);
    if (data.talking && current.audible && $("barge-in").checked) interrupt();
  };
}

// Closes the gate at once and tells the server. The gate opens again when the discarded audio has run out.
function interrupt() {
  if (!call?.connection) return;
  if (call.audible) call.cutAt = call.sound.now;
  call.sound.closeGate();
  call.connection.send({ type: "discard" });
  clearTimeout(call.reopening);
  call.reopening = setTimeout((sound) => sound.openGate(0), 1_500, call.sound); // if no answer arrives
}

function onMessage(current, message) {
  switch (message.type) {
    case "started": onStarted(current, message); break;
    case "utterance":
      if (!current.turnsSeen?.has(message.turn)) {
        (current.turnsSeen ??= new Set()).add(message.turn);
        if (!current.audible) current.askedAt ??= current.sound.now;
      }
      transcript.addText(message.turn, message.text);
      break;
    case "speech_started":
      transcript.begin(message.utterance, message.turn);
      if (message.after_text_ms !== undefined && current.askedAt !== null) show.number("n-engine", `${Math.round(message.after_text_ms)} ms`);
      break;
    case "word": transcript.markWord(message.utterance, message.text_start, message.text_stop); break;
    case "speech_finished": transcript.finish(message.utterance); break;
    case "discarded":
      transcript.cut(message.utterance, message.heard);
      clearTimeout(current.reopening);
      current.sound.closeGate();
      current.sound.openGate(current.jitterS + REOPEN_MARGIN_S);
      break;
    case "stats":
      show.number("n-lead", `${message.lead_ms} ms`);
      show.number("n-underruns", String(message.underruns));
      break;
    case "error": show.notice(message.message); break;
    case "hung_up": end(current, "The other side hung up."); break;
  }
}

function onStarted(current, message) {
  current.answers = message.answers;
  current.startedAt = Date.now();
  offerVoices(message.voices);
  $("modes").hidden = !message.answers;
  showMode();
  if (chosen.voice || chosen.speed) sendSpeech();
  else [$("voice").value, $("speed").value] = [message.voice, message.speed];
  showSpeech();
  sendOnSpeech();
  render("live");
  current.timers.push(setInterval(() => updateNumbers(current), 1_000));
}

// From the meter: levels for the waveform, the first and the last audible sample for the numbers.
function onAudioOutput(current, message) {
  if (message.kind === "level") { wave.push(message.peak); return; }
  current.audible = message.kind === "onset";
  current.detector?.port.postMessage({ overSpeech: current.audible });
  const at = message.time;
  if (current.audible && current.askedAt !== null) {
    const ttfaMs = 1_000 * (at - current.askedAt + current.sound.outputDelay);
    current.askedAt = null;
    show.number("n-ttfa", `${Math.round(ttfaMs)} ms`);
    dispatch("first-sound", { ms: ttfaMs });
  }
  if (!current.audible && current.cutAt !== null) {
    const stopMs = 1_000 * Math.max(0, at - current.cutAt + current.sound.outputDelay);
    current.cutAt = null;
    show.number("n-stop", `${Math.round(stopMs)} ms`);
    dispatch("stopped", { ms: stopMs });
  }
  dispatch(message.kind, { time: at });
}

// Document events for programs that measure this page.
function dispatch(kind, detail) { document.dispatchEvent(new CustomEvent(`vivavoce:${kind}`, { detail })); }

async function updateNumbers(current) {
  $("timer").textContent = clock((Date.now() - current.startedAt) / 1_000);
  if (current.sound.samples) $("recorded").textContent = `, ${clock(recordedS(current.sound))}`;
  const entry = await current.connection.inboundStats();
  if (!entry || call !== current) return;
  const before = current.before ?? { jitterBufferDelay: 0, jitterBufferEmittedCount: 0 };
  const emitted = entry.jitterBufferEmittedCount - before.jitterBufferEmittedCount;
  if (emitted > 0) current.jitterS = (entry.jitterBufferDelay - before.jitterBufferDelay) / emitted;
  current.before = entry;
  show.number("n-jitter", `${Math.round(1_000 * current.jitterS)} ms`);
  show.number("n-concealed", (entry.concealedSamples ?? 0).toLocaleString("en"));
  show.number("n-lost", String(entry.packetsLost ?? 0));
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const recordedS = (sound) => (sound.samples.length * 128) / sound.context.sampleRate;

// ---------------------------------------------------------------------------------------------------------
// Text.

function speak() {
  const text = $("text").value.trim();
  if (!text || !call?.connection) return;
  const { connection } = call;
  show.notice("");
  if (!call.audible) call.askedAt = call.sound.now;
  if (isAsking()) {
    if (call.audible) interrupt();
    transcript.addQuestion(text);
    connection.send({ type: "ask", text: text.slice(0, MAX_MESSAGE_TEXT) });
  } else {
    for (let at = 0; at < text.length; at += MAX_MESSAGE_TEXT) connection.send({ type: "text", text: text.slice(at, at + MAX_MESSAGE_TEXT) });
    connection.send({ type: "end" });
  }
  $("text").value = "";
  $("text").focus();
}

function press(digit) { call?.connection?.send({ type: "dtmf", digit }); }

const chosen = { voice: false, speed: false }; // whether the user chose it, so that the server's does not replace it
const voices = new Map(); // id -> description

function offerVoices(offered) {
  const before = $("voice").value;
  voices.clear();
  for (const { id, description } of offered) voices.set(id, description);
  $("voice").replaceChildren(...offered.map(({ id, name }) => new Option(name, id)));
  if (voices.has(before)) $("voice").value = before;
  showSpeech();
}

function showSpeech() {
  $("speed-value").textContent = Number($("speed").value).toFixed(2);
  $("voice-about").textContent = voices.get($("voice").value) ?? "";
}

// The page detects loud speech at once; the server's detector is slower and also finds quiet speech.
function sendOnSpeech() {
  call?.connection?.send({ type: "on_speech", action: $("barge-in").checked ? "discard" : "tell" });
}

function showMode() {
  const asks = isAsking();
  $("text-label").textContent = asks ? "Your question" : "Text to speak";
  $("speak").textContent = asks ? "Ask" : "Speak";
}

const isAsking = () => Boolean(call?.answers) && new FormData($("say")).get("mode") === "ask";

function sendSpeech() {
  showSpeech();
  call?.connection?.send({ type: "speech", voice: $("voice").value, speed: Number($("speed").value) });
}

// ---------------------------------------------------------------------------------------------------------
// Recording.

function toggleRecording() {
  if (!call?.sound) return;
  if (call.sound.samples) { stopRecording(); return; }
  call.sound.record();
  $("record").setAttribute("aria-pressed", "true");
}

function stopRecording(current = call) {
  if (!current?.sound.samples) return;
  const seconds = recordedS(current.sound);
  const file = current.sound.stopRecording();
  const link = $("recording");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(file);
  link.download = `vivavoce-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")}.wav`;
  link.textContent = `Save what you heard, ${clock(seconds)}`;
  link.hidden = false;
  $("record").setAttribute("aria-pressed", "false");
  $("recorded").textContent = "";
}

// ---------------------------------------------------------------------------------------------------------
// The waveform: one bar for every 30 ms, the newest at the right. With reduced motion, one still bar as long as
// the last half second was loud.

const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const wave = {
  levels: [],
  drawing: false,
  skipped: 0,
  push(peak) {
    this.levels.push(peak);
    if (this.levels.length > 400) this.levels.shift();
    if (this.drawing || (reducedMotion.matches && ++this.skipped % 16)) return;
    this.drawing = true;
    requestAnimationFrame(() => this.draw());
  },
  draw() {
    this.drawing = false;
    const canvas = $("wave");
    const scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth * scale, canvas.clientHeight * scale];
    if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = getComputedStyle(canvas).color;
    const step = 5 * scale, thick = 2 * scale;
    if (reducedMotion.matches) {
      const loudest = Math.max(...this.levels.slice(-16));
      pen.fillRect(0, (height - thick) / 2, Math.sqrt(loudest) * width, thick);
      return;
    }
    for (let i = 0, x = width - thick; x > 0 && i < this.levels.length; i++, x -= step) {
      const level = Math.sqrt(this.levels[this.levels.length - 1 - i]);
      const tall = Math.max(thick, level * height);
      pen.globalAlpha = 0.25 + 0.75 * (x / width);
      pen.fillRect(x, (height - tall) / 2, thick, tall);
    }
  },
  clear() { this.levels = new Array(400).fill(0); requestAnimationFrame(() => this.draw()); },
};

// ---------------------------------------------------------------------------------------------------------
// The page.

function render(state) {
  document.body.dataset.state = state;
  const live = state === "live";
  $("call").textContent = state === "idle" ? "Call" : "Hang up";
  $("call").classList.toggle("hang-up", state !== "idle");
  for (const button of [$("interrupt"), $("speak"), $("record"), ...$("keypad").children]) button.disabled = !live;
  if (state === "calling") show.status("Calling…");
  if (live) {
    show.status("On a call");
    const isElsewhere = ![$("call"), document.body].includes(document.activeElement);
    const hasScreenKeys = matchMedia("(pointer: coarse)").matches; // its keyboard would cover the page
    if (!isElsewhere && !hasScreenKeys) { $("text").focus(); $("text").select(); }
  }
  wave.clear();
  dispatch("state", { state });
}

$("call").onclick = () => (call ? end(call, "You hung up.") : begin());
$("interrupt").onclick = interrupt;
$("record").onclick = toggleRecording;
$("say").onsubmit = (event) => { event.preventDefault(); speak(); };
$("text").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); speak(); }
};
$("modes").onchange = showMode;
$("voice").onchange = () => { chosen.voice = true; sendSpeech(); };
$("speed").oninput = showSpeech;
$("speed").onchange = () => { chosen.speed = true; sendSpeech(); };
$("barge-in").onchange = sendOnSpeech;
$("phone").onchange = () => call?.sound?.setTelephoneBand($("phone").checked);
$("keypad").onclick = ({ target }) => { if (target.matches("button")) press(target.value || target.textContent); };
$("keypad").onkeydown = ({ key }) => { if (/^[0-9*#]$/.test(key)) press(key); };
document.onkeydown = (event) => { if (event.key === "Escape" && call) interrupt(); };
window.onpagehide = () => { if (call) end(call, "The page was left."); };
render("idle");
fetch("/status").then((answer) => answer.json()).then(({ voices }) => offerVoices(voices)).catch(() => {}); // sent again when a call starts
