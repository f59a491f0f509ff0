// The dialog that makes a voice of a recording: record or choose, agree, name, and hear it.

import { Microphone, readFile, RECORD_S } from "./recording.js";
import { json } from "./server.js";

const $ = (id) => document.getElementById(id);
const CONSENT = "The person who uploaded this states on the page: this is my voice, or its owner has agreed that it is cloned here.";

export class Cloning {
  // handlers: made(voice)
  constructor(handlers) {
    this.handlers = handlers;
    this.transcribes = false; // whether the server writes down what is said
    this.recording = null;
    this.microphone = null;
    $("record").onclick = () => (this.microphone ? this.stop() : this.record());
    $("file").onchange = () => this.choose();
    $("cancel-cloning").onclick = () => $("cloning").close();
    $("cloning").onclose = () => this.release();
    $("cloning-form").onsubmit = (event) => { event.preventDefault(); this.make(); };
    for (const id of ["consent", "voice-name"]) $(id).oninput = () => this.render();
  }

  open() {
    this.recording = null;
    this.proposed = ""; // by the page, for the transcript
    $("cloning-form").reset();
    this.notice("");
    this.say("");
    this.render();
    $("cloning").showModal();
    $("record").focus();
  }

  async record() {
    this.notice("");
    this.recording = null;
    try {
      this.microphone = await Microphone.open((peak, seconds) => this.onBlock(peak, seconds));
    } catch (error) {
      this.notice(error.message);
    }
    this.render();
  }

  onBlock(peak, seconds) {
    $("level").value = peak;
    this.say(`Recording, ${Math.max(0, Math.ceil(RECORD_S - seconds))} s left. ${peak >= 0.985 ? "Too loud." : ""}`);
    if (seconds >= RECORD_S) this.stop();
  }

  stop() {
    const recording = this.microphone.stop();
    this.microphone = null;
    if (!$("transcript").value) $("transcript").value = this.proposed = scriptText();
    this.take(recording);
  }

  async choose() {
    const [file] = $("file").files;
    if (!file) return;
    this.notice("");
    try {
      this.take(await readFile(file));
    } catch (error) {
      this.recording = null;
      this.say("");
      this.notice(error.message);
      this.render();
    }
  }

  take(recording) {
    const { problem, warning } = recording.judge();
    this.recording = problem ? null : recording;
    this.notice(problem ?? warning);
    this.say(problem ? "" : `${recording.seconds.toFixed(1)} s recorded.`);
    URL.revokeObjectURL($("recording").src);
    $("recording").src = URL.createObjectURL(recording.file());
    this.render();
    if (this.recording && this.transcribes) this.proposeTranscript(recording);
  }

  // Writes what is said into the field, unless the user has written something else there.
  async proposeTranscript(recording) {
    const field = $("transcript"), form = new FormData();
    if (field.value !== this.proposed) return;
    form.append("file", recording.file(), "recording.wav");
    const { text } = await json("POST", "/v1/audio/transcriptions", form).catch(() => ({ text: "" }));
    if (this.recording !== recording || field.value !== this.proposed || !text) return;
    field.value = this.proposed = isReading(text, scriptText()) ? scriptText() : text;
  }

  async make() {
    const form = new FormData();
    form.append("audio_sample", this.recording.file(), "recording.wav");
    form.append("name", $("voice-name").value.trim());
    form.append("ref_text", $("transcript").value.trim());
    form.append("consent", CONSENT);
    this.notice("");
    this.say("Making the voice…");
    $("make-voice").disabled = true;
    try {
      const voice = await json("POST", "/v1/audio/voices", form);
      $("cloning").close();
      this.handlers.made(voice);
    } catch (error) {
      this.say("");
      this.notice(error.message);
      this.render();
    }
  }

  release() {
    this.microphone?.stop();
    this.microphone = null;
    this.recording = null;
    $("recording").removeAttribute("src");
    $("recording").load();
  }

  render() {
    $("record").textContent = this.microphone ? "Stop" : this.recording ? "Record again" : "Record";
    $("recording").hidden = !this.recording;
    $("level").hidden = !this.microphone;
    $("make-voice").disabled = !this.recording || !$("consent").checked || !$("voice-name").value.trim();
  }

  notice(problem) { $("cloning-notice").textContent = problem; $("cloning-notice").hidden = !problem; }
  say(text) { $("recorded").textContent = text; }
}

const scriptText = () => $("script").textContent.replace(/[“”]/g, "").trim();
const wordsOf = (text) => text.toLowerCase().match(/[\p{L}']+/gu) ?? [];

// Whether a speaker has read the script, in which the recogniser may have misheard some words.
function isReading(heard, script) {
  const said = new Set(wordsOf(heard)), asked = wordsOf(script);
  return asked.filter((word) => said.has(word)).length > asked.length / 2;
}
