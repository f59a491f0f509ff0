// One call from this page: its audio output, its text and its controls.
// gateway/calls/api/messages.py describes the messages on the data channel.

import { CallConnection, start } from "./connection.js";
import { Transcript } from "./transcript.js";

const $ = (id) => document.getElementById(id);
const MAX_MESSAGE_TEXT = 8_000; // characters; a data channel takes 64 KiB in one message
const MAX_RECORDING_S = 1_800; // 350 MB of samples at 48 kHz
const REOPEN_MARGIN_S = 0.2; // on top of the jitter buffer's delay, in which discarded audio may still arrive
const ONSET_MARGIN_S = 0.03; // before the first sound of an utterance, by which the jitter buffer may be shorter
const CONNECT_TIMEOUT_MS = 8_000; // ICE through a TURN server takes up to 5 s
const OPUS_SAMPLES_PER_MS = 48;
const SERVER_CHECK_MS = 250;
const SERVER_SILENCE_MS = 1_250; // the server sends 50 packets a second, and stalls of its machine are shorter

const show = {
  status(text) { $("status").textContent = text; $("timer").textContent = ""; },
  notice(text) { $("notice").textContent = text; $("notice").hidden = !text; },
  number(id, text) { $(id).textContent = text; },
};

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
    await context.audioWorklet.addModule("/call/audio_worklets.js");
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

  close() {
    $("remote").srcObject = null;
    if (this.context.state !== "closed") this.context.close();
  }
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
// The call.

const transcript = new Transcript($("turns"), $("announced"));
let call = null; // { connection, sound, microphone, ... } while there is one

// firstText: spoken as soon as the call is up; "" leaves the first words to the server.
async function begin(firstText) {
  show.notice("");
  transcript.beginCall();
  for (const id of ["n-ttfa", "n-engine", "n-stop", "n-lead", "n-jitter", "n-concealed", "n-lost", "n-underruns"]) show.number(id, "–");
  render("calling");
  const current = { connection: null, sound: null, microphone: null, answers: false, askedAt: null, engineMs: null, cutAt: null,
    audible: false, jitterS: 0.05, before: null, startedAt: 0, timers: [], firstText, isUp: false,
    packets: 0, heardAt: 0, isSilent: false, isProbing: false,
    isReplacing: false }; // from a text or question that interrupts until its first sound
  call = current;
  try {
    await connect(current);
  } catch (error) {
    end(current, "Not on a call", error.message);
  }
  if (call !== current) release(current); // what was opened after its end
}

async function connect(current) {
  const iceServers = await start();
  current.sound = await AudioOutput.open((message) => onAudioOutput(current, message));
  current.microphone = await microphone();
  if (call !== current) return;
  if (current.microphone) listenFor(current);
  current.timers.push(setTimeout(() => { if (!current.isUp) onNotConnected(current); }, CONNECT_TIMEOUT_MS));
  const handlers = {
    message: (message) => { if (call === current) onMessage(current, message); }, // it may end before it is up
    track: (stream) => current.sound.play(stream),
    closed: () => (current.isUp ? end(current, "The call is over.") : onNotConnected(current)),
  };
  const options = { skip_greeting: Boolean(current.firstText) };
  current.connection = await CallConnection.open(current.microphone, handlers, iceServers, options);
}

function onNotConnected(current) {
  end(current, "Not on a call", `No audio connection to ${location.hostname} was found. ` +
    "A firewall may block UDP, or a TURN server may be missing or wrong (setting browser.ice_servers).");
}

// problem: why the call ended, if it should not have.
function end(over, reason, problem = "") {
  if (call !== over) return;
  call = null;
  release(over, problem);
  transcript.close();
  document.body.classList.remove("talking");
  render("idle");
  show.status(reason);
  if (problem) show.notice(problem);
  if (document.activeElement === document.body) $("call").focus(); // the focused button was disabled
}

function release(over, problem = "") {
  if (over.sound?.samples) stopRecording(over);
  over.timers.forEach(clearInterval);
  // Without a path, the server is left to find that out, and to log it.
  if (over.isUp || problem) over.connection?.close();
  else over.connection?.hangUp();
  over.microphone?.getTracks().forEach((track) => track.stop());
  over.sound?.close();
}

// A server that goes away closes nothing: its packets and messages stop. One that stalls, or a network that does,
// comes back; so the call goes on as long as the server answers over HTTP that it is up.
async function checkServer(current) {
  const packets = (await current.connection.inboundStats())?.packetsReceived ?? 0;
  if (packets !== current.packets) { current.packets = packets; onServerHeard(current); }
  if (call !== current || current.isProbing || performance.now() - current.heardAt < SERVER_SILENCE_MS) return;
  current.isSilent = current.isProbing = true;
  $("status").textContent = "The server does not answer…";
  await current.connection.probe().catch((error) => {
    end(current, "The call is over.", error.status === 404 ? "The server has ended the call." : error.message);
  });
  current.isProbing = false;
}

function onServerHeard(current) {
  current.heardAt = performance.now();
  if (call === current && current.isSilent) $("status").textContent = "On a call";
  current.isSilent = false;
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
  call.isReplacing = false;
  call.sound.closeGate();
  call.connection.send({ type: "discard" });
  clearTimeout(call.reopening);
  call.reopening = setTimeout((sound) => sound.openGate(0), 1_500, call.sound); // if no answer arrives
}

function onMessage(current, message) {
  onServerHeard(current);
  switch (message.type) {
    case "started": onStarted(current, message); break;
    case "utterance":
      transcript.addText(message.turn, message.text);
      break;
    case "speech_started":
      transcript.begin(message.utterance, message.turn);
      if (current.isReplacing) current.sound.openGate(Math.max(0, current.jitterS - ONSET_MARGIN_S));
      current.isReplacing = false;
      if (message.after_text_ms !== undefined && !current.audible) onSpeechReady(current, message.after_text_ms);
      break;
    case "word": transcript.markWord(message.utterance, message.text_start, message.text_stop); break;
    case "speech_finished": transcript.finish(message.utterance); break;
    case "discarded":
      transcript.cut(message.utterance, message.heard);
      clearTimeout(current.reopening);
      if (!current.isReplacing) current.sound.closeGate();
      current.sound.openGate(current.jitterS + REOPEN_MARGIN_S);
      break;
    case "stats":
      show.number("n-lead", `${message.lead_ms} ms`);
      show.number("n-underruns", String(message.underruns));
      break;
    case "error": show.notice(message.message); break;
    case "hung_up":
      if (message.reason?.startsWith("shutting down")) end(current, "The call is over.", "The server is shutting down.");
      else end(current, "The other side hung up.");
      break;
  }
}

// Text that was not typed here was written on the server, as long before its first audio as the server says.
function onSpeechReady(current, afterTextMs) {
  current.askedAt ??= current.sound.now - afterTextMs / 1_000;
  current.engineMs = afterTextMs;
}

function onStarted(current, message) {
  current.isUp = true;
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
  current.timers.push(setInterval(() => checkServer(current), SERVER_CHECK_MS));
  if (current.firstText) say(current, current.firstText);
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
    if (current.engineMs !== null) show.number("n-engine", `${Math.round(current.engineMs)} ms`);
    current.engineMs = null;
    dispatch("first-sound", { ms: ttfaMs });
  }
  if (!current.audible && current.cutAt !== null) {
    const wasSounding = at > current.cutAt; // else it hit a pause, and nothing had to stop
    const stopMs = 1_000 * (at - current.cutAt + current.sound.outputDelay);
    current.cutAt = null;
    if (wasSounding) {
      show.number("n-stop", `${Math.round(stopMs)} ms`);
      dispatch("stopped", { ms: stopMs });
    }
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
  show.number("n-concealed", `${Math.round((entry.concealedSamples ?? 0) / OPUS_SAMPLES_PER_MS)} ms`);
  show.number("n-lost", String(entry.packetsLost ?? 0));
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;
const recordedS = (sound) => (sound.samples.length * 128) / sound.context.sampleRate;

// ---------------------------------------------------------------------------------------------------------
// Text.

// The text stays in the box, selected: it can be spoken again, or typed over.
function speak() {
  const text = $("text").value.trim();
  if (!text) return;
  if (!call) begin(text);
  else if (!call.isUp) call.firstText = text;
  else sendText(text);
  if (!hasScreenKeys()) { $("text").focus(); $("text").select(); }
}

function sendText(text) {
  show.notice("");
  if (isAsking()) ask(call, text);
  else say(call, text);
}

function ask(current, text) {
  if (current.audible) interrupt();
  else current.askedAt = current.sound.now;
  current.isReplacing = true;
  transcript.addQuestion(text);
  current.connection.send({ type: "ask", text: text.slice(0, MAX_MESSAGE_TEXT) });
}

// Speaks at once, instead of what is playing or waits. The gate stays open, because closing it could cut the first
// sound of the text; what was playing ends when the jitter buffer has run out.
function say(current, text) {
  const { connection } = current;
  if (!current.audible) current.askedAt = current.sound.now;
  current.isReplacing = true;
  connection.send({ type: "discard" });
  for (let at = 0; at < text.length; at += MAX_MESSAGE_TEXT) connection.send({ type: "text", text: text.slice(at, at + MAX_MESSAGE_TEXT) });
  connection.send({ type: "end" });
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
  showRecording(true);
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
  showRecording(false);
}

function showRecording(isOn) {
  $("record").classList.toggle("on", isOn);
  $("record").firstChild.data = isOn ? "Stop" : "Record";
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
  for (const button of [$("interrupt"), $("record"), ...$("keypad").children]) button.disabled = !live;
  if (!live) { $("modes").hidden = true; showMode(); }
  if (state === "calling") show.status("Calling…");
  if (live) {
    show.status("On a call");
    const isElsewhere = ![$("call"), document.body].includes(document.activeElement);
    if (!isElsewhere && !hasScreenKeys()) { $("text").focus(); $("text").select(); }
  }
  wave.clear();
  dispatch("state", { state });
}

// Their keyboard would cover the page.
const hasScreenKeys = () => matchMedia("(pointer: coarse)").matches;

$("call").onclick = () => (call ? end(call, "You hung up.") : begin(""));
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
