// One call from this page: the connection, what is heard of it, and what is said on it.
// The data channel's messages are described in gateway/calls/messages.py, and the page's own in gateway/browser/page_channel.py.

const $ = (id) => document.getElementById(id);
const TEXT_PIECE = 8_000; // characters in one message; well under what a data channel takes
const LONGEST_RECORDING_S = 1_800;
const REOPEN_MARGIN_S = 0.2; // after what was cut should have run out of the jitter buffer

const show = {
  status(text) { $("status").textContent = text; $("timer").textContent = ""; },
  notice(text) { $("notice").textContent = text; $("notice").hidden = !text; },
  number(id, text) { $(id).textContent = text; },
};

// ---------------------------------------------------------------------------------------------------------
// What is said: one list item a turn, its text in three parts: heard, being heard, not yet heard.

class Transcript {
  constructor(list) {
    this.list = list;
    this.turns = new Map(); // by turn
    this.utterances = new Map(); // by utterance, once audible
  }

  clear() { this.list.replaceChildren(); this.turns.clear(); this.utterances.clear(); }

  asked(text) { this.append("asked").append(text); }

  write(number, text) {
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
    this.follow();
  }

  begin(utterance, number) {
    if (number === null) return;
    this.utterances.set(utterance, this.turns.get(number));
  }

  word(utterance, start, stop) {
    const turn = this.utterances.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [start, stop];
    this.render(turn);
    this.keepInView(turn);
  }

  finish(utterance) {
    const turn = this.utterances.get(utterance);
    if (!turn) return;
    [turn.from, turn.to] = [turn.text.length, turn.text.length];
    this.render(turn);
  }

  cut(utterance, heard) {
    const turn = this.utterances.get(utterance);
    for (const other of this.turns.values()) {
      if (other === turn || (other.to === 0 && !this.isAudible(other))) other.item.classList.add("cut");
    }
    if (!turn) return;
    [turn.from, turn.to] = [heard.length, heard.length];
    this.render(turn);
  }

  isAudible(turn) { return [...this.utterances.values()].includes(turn); }

  append(kind) {
    const item = document.createElement("li");
    item.className = kind;
    this.list.append(item);
    this.follow();
    return item;
  }

  // Scrolls the list only: the rest of the page is the reader's.
  keepInView({ now }) {
    const [word, list] = [now.getBoundingClientRect(), this.list.getBoundingClientRect()];
    if (word.bottom > list.bottom) this.list.scrollTop += word.bottom - list.bottom + word.height;
    else if (word.top < list.top) this.list.scrollTop -= list.top - word.top + word.height;
  }

  follow() { this.list.scrollTop = this.list.scrollHeight; }

  render(turn) {
    turn.heard.textContent = turn.text.slice(0, turn.from);
    turn.now.textContent = turn.text.slice(turn.from, turn.to);
    turn.rest.textContent = turn.text.slice(turn.to);
  }
}

// ---------------------------------------------------------------------------------------------------------
// What is heard: remote track -> telephone or not -> gate -> listener -> loudspeaker.

class Sound {
  constructor(context, onHeard) {
    this.context = context;
    this.onHeard = onHeard;
    this.direct = context.createGain();
    this.telephone = context.createGain();
    this.gate = context.createGain();
    this.samples = null;
    this.listener = new AudioWorkletNode(context, "listener", { outputChannelCount: [1] });
    this.listener.port.onmessage = ({ data }) => this.receive(data);
    this.direct.connect(this.gate);
    this.telephone.connect(this.gate);
    this.gate.connect(this.listener).connect(context.destination);
  }

  static async open(onHeard) {
    const context = new AudioContext({ latencyHint: "interactive" });
    await context.audioWorklet.addModule("/page/audio_worklets.js");
    await context.resume();
    return new Sound(context, onHeard);
  }

  play(stream) {
    // Chromium gives a remote stream to WebAudio only while an element plays it, too.
    $("remote").srcObject = stream;
    $("remote").play().catch(() => {});
    const source = this.context.createMediaStreamSource(stream);
    source.connect(this.direct);
    this.throughTelephone(source).connect(this.telephone);
    this.asTelephone($("phone").checked);
  }

  // The band of a telephone: 8th-order Butterworth below 3,400 Hz, 4th-order above 300 Hz.
  throughTelephone(source) {
    const filter = (type, frequency, q) => new BiquadFilterNode(this.context, { type, frequency, Q: 20 * Math.log10(q) });
    const chain = [
      filter("highpass", 300, 0.541), filter("highpass", 300, 1.307),
      ...[0.51, 0.601, 0.9, 2.563].map((q) => filter("lowpass", 3_400, q)),
    ];
    return chain.reduce((from, to) => from.connect(to), source);
  }

  asTelephone(wanted) {
    this.direct.gain.value = wanted ? 0 : 1;
    this.telephone.gain.value = wanted ? 1 : 0;
  }

  get now() { return this.context.currentTime; }

  // Seconds until what is played now is heard.
  get outputDelay() { return this.context.outputLatency || this.context.baseLatency || 0; }

  shut() {
    this.gate.gain.cancelScheduledValues(this.now); // an opening that was still to come
    this.gate.gain.setTargetAtTime(0, this.now, 0.003);
  }

  open(afterS) { this.gate.gain.setTargetAtTime(1, this.now + afterS, 0.002); }

  record() { this.samples = []; this.listener.port.postMessage({ record: true }); }

  stopRecording() {
    this.listener.port.postMessage({ record: false });
    const samples = this.samples ?? [];
    this.samples = null;
    return wavFile(samples, this.context.sampleRate);
  }

  receive(message) {
    if (message.kind !== "samples") { this.onHeard(message); return; }
    if (!this.samples) return;
    this.samples.push(message.samples);
    if (this.samples.length * message.samples.length > LONGEST_RECORDING_S * this.context.sampleRate) stopRecording();
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
  let at = 44;
  for (const piece of pieces) {
    for (const sample of piece) {
      view.setInt16(at, Math.round(32_767 * Math.max(-1, Math.min(1, sample))), true);
      at += 2;
    }
  }
  return new Blob([view], { type: "audio/wav" });
}

// ---------------------------------------------------------------------------------------------------------
// The connection.

class Line {
  constructor(connection, handlers) {
    this.connection = connection;
    this.handlers = handlers;
    this.channel = connection.createDataChannel("vivavoce");
    this.pcId = null;
    this.late = []; // candidates found before the answer came
    this.pinging = 0;
    this.channel.onopen = () => { this.pinging = setInterval(() => this.sendRaw("ping"), 1_000); };
    this.channel.onmessage = ({ data }) => handlers.message(JSON.parse(data));
    this.channel.onclose = () => handlers.over();
    connection.ontrack = ({ streams, track }) => handlers.track(streams[0] ?? new MediaStream([track]));
    connection.onconnectionstatechange = () => {
      if (["failed", "closed"].includes(connection.connectionState)) handlers.over();
    };
    connection.onicecandidate = ({ candidate }) => this.trickle(candidate);
  }

  static async open(microphone, handlers) {
    const connection = new RTCPeerConnection();
    if (microphone) connection.addTrack(microphone.getAudioTracks()[0], microphone);
    else connection.addTransceiver("audio", { direction: "recvonly" });
    const line = new Line(connection, handlers);
    try {
      await connection.setLocalDescription();
      await line.offer();
    } catch (error) {
      connection.close();
      throw error;
    }
    return line;
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
      this.late.push({ candidate: candidate.candidate, sdp_mid: candidate.sdpMid, sdp_mline_index: candidate.sdpMLineIndex });
    }
    if (!this.pcId || !this.late.length) return;
    post("PATCH", { pc_id: this.pcId, candidates: this.late.splice(0) }).catch(() => {}); // the call may be over
  }

  send(message) { this.sendRaw(JSON.stringify(message)); }

  sendRaw(text) { if (this.channel.readyState === "open") this.channel.send(text); }

  async inbound() {
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
let call = null; // { line, sound, microphone, ... } while there is one

async function begin() {
  show.notice("");
  transcript.clear();
  for (const id of ["n-ttfa", "n-engine", "n-stop", "n-lead", "n-jitter", "n-concealed", "n-lost", "n-underruns"]) show.number(id, "–");
  render("calling");
  const current = { line: null, sound: null, microphone: null, answers: false, asked: null, cutAt: null,
    audible: false, jitterS: 0.05, before: null, startedAt: 0, timers: [] };
  call = current;
  try {
    current.sound = await Sound.open((message) => heard(current, message));
    current.microphone = await microphone();
    if (current.microphone) listenFor(current);
    current.line = await Line.open(current.microphone, {
      message: (message) => receive(current, message),
      track: (stream) => current.sound.play(stream),
      over: () => end(current, "The call is over."),
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
  over.line?.close();
  over.microphone?.getTracks().forEach((track) => track.stop());
  over.sound?.close();
  render("idle");
  show.status(reason);
  if (document.activeElement === document.body) $("call").focus(); // what had it can no longer be pressed
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

// The gate shuts here and now; the server is told, and it opens again when what was on its way has run out.
function interrupt() {
  if (!call?.line) return;
  if (call.audible) call.cutAt = call.sound.now;
  call.sound.shut();
  call.line.send({ type: "discard" });
  clearTimeout(call.reopening);
  call.reopening = setTimeout((sound) => sound.open(0), 1_500, call.sound); // an answer that got lost
}

function receive(current, message) {
  switch (message.type) {
    case "started": started(current, message); break;
    case "utterance":
      if (!current.turnsSeen?.has(message.turn)) {
        (current.turnsSeen ??= new Set()).add(message.turn);
        if (!current.audible) current.asked ??= current.sound.now;
      }
      transcript.write(message.turn, message.text);
      break;
    case "speech_started":
      transcript.begin(message.utterance, message.turn);
      if (message.after_text_ms !== undefined && current.asked !== null) show.number("n-engine", `${Math.round(message.after_text_ms)} ms`);
      break;
    case "word": transcript.word(message.utterance, message.text_start, message.text_stop); break;
    case "speech_finished": transcript.finish(message.utterance); break;
    case "discarded":
      transcript.cut(message.utterance, message.heard);
      clearTimeout(current.reopening);
      current.sound.shut();
      current.sound.open(current.jitterS + REOPEN_MARGIN_S);
      break;
    case "stats":
      show.number("n-lead", `${message.lead_ms} ms`);
      show.number("n-underruns", String(message.underruns));
      break;
    case "error": show.notice(message.message); break;
    case "hung_up": end(current, "The other side hung up."); break;
  }
}

function started(current, message) {
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
  current.timers.push(setInterval(() => count(current), 1_000));
}

// What the listener tells: levels for the picture, the first and the last audible sample for the numbers.
function heard(current, message) {
  if (message.kind === "level") { wave.push(message.peak); return; }
  current.audible = message.kind === "onset";
  current.detector?.port.postMessage({ overSpeech: current.audible });
  const at = message.time;
  if (current.audible && current.asked !== null) {
    const ttfaMs = 1_000 * (at - current.asked + current.sound.outputDelay);
    current.asked = null;
    show.number("n-ttfa", `${Math.round(ttfaMs)} ms`);
    tell("first-sound", { ms: ttfaMs });
  }
  if (!current.audible && current.cutAt !== null) {
    const stopMs = 1_000 * Math.max(0, at - current.cutAt + current.sound.outputDelay);
    current.cutAt = null;
    show.number("n-stop", `${Math.round(stopMs)} ms`);
    tell("stopped", { ms: stopMs });
  }
  tell(message.kind, { time: at });
}

// For whoever measures this page.
function tell(kind, detail) { document.dispatchEvent(new CustomEvent(`vivavoce:${kind}`, { detail })); }

async function count(current) {
  $("timer").textContent = clock((Date.now() - current.startedAt) / 1_000);
  if (current.sound.samples) $("recorded").textContent = `, ${clock(recordedS(current.sound))}`;
  const entry = await current.line.inbound();
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
  if (!text || !call?.line) return;
  const { line } = call;
  show.notice("");
  if (!call.audible) call.asked = call.sound.now;
  if (isAsking()) {
    if (call.audible) interrupt();
    transcript.asked(text);
    line.send({ type: "ask", text: text.slice(0, TEXT_PIECE) });
  } else {
    for (let at = 0; at < text.length; at += TEXT_PIECE) line.send({ type: "text", text: text.slice(at, at + TEXT_PIECE) });
    line.send({ type: "end" });
  }
  $("text").value = "";
  $("text").focus();
}

function press(digit) { call?.line?.send({ type: "dtmf", digit }); }

const chosen = { voice: false, speed: false }; // by the reader, not by the server
const voices = new Map(); // by id, what is said of each

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

// The page hears a talker first and stops at once; the server, whose judgement is better, hears the quiet ones.
function sendOnSpeech() {
  call?.line?.send({ type: "on_speech", action: $("barge-in").checked ? "discard" : "tell" });
}

function showMode() {
  const asks = isAsking();
  $("text-label").textContent = asks ? "Your question" : "Words to say";
  $("speak").textContent = asks ? "Ask" : "Speak";
}

const isAsking = () => Boolean(call?.answers) && new FormData($("say")).get("mode") === "ask";

function sendSpeech() {
  showSpeech();
  call?.line?.send({ type: "speech", voice: $("voice").value, speed: Number($("speed").value) });
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
// The picture of the voice: one bar for every 30 ms, the newest at the right. Who asked for less motion gets one
// bar that stands still, as long as the last half second was loud.

const stillness = matchMedia("(prefers-reduced-motion: reduce)");

const wave = {
  levels: [],
  drawing: false,
  skipped: 0,
  push(peak) {
    this.levels.push(peak);
    if (this.levels.length > 400) this.levels.shift();
    if (this.drawing || (stillness.matches && ++this.skipped % 16)) return;
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
    if (stillness.matches) {
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
    show.status("On the line");
    const isElsewhere = ![$("call"), document.body].includes(document.activeElement);
    const hasScreenKeys = matchMedia("(pointer: coarse)").matches; // a keyboard that would cover the page
    if (!isElsewhere && !hasScreenKeys) { $("text").focus(); $("text").select(); }
  }
  wave.clear();
  tell("state", { state });
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
$("phone").onchange = () => call?.sound?.asTelephone($("phone").checked);
$("keypad").onclick = ({ target }) => { if (target.matches("button")) press(target.value || target.textContent); };
$("keypad").onkeydown = ({ key }) => { if (/^[0-9*#]$/.test(key)) press(key); };
document.onkeydown = (event) => { if (event.key === "Escape" && call) interrupt(); };
window.onpagehide = () => { if (call) end(call, "The page was left."); };
render("idle");
fetch("/status").then((answer) => answer.json()).then(({ voices }) => offerVoices(voices)).catch(() => {}); // the call tells, too
