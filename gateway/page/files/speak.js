// The tab Speak: plays the text with Web Audio, marks the word being heard, and saves, copies and remembers it.

import { Cloning } from "./clone.js";
import { Memory } from "./memory.js";
import { openSound, Player } from "./player.js";
import { Pronunciations } from "./pronunciations.js";
import { json, request } from "./server.js";
import { SNIPPETS } from "./snippets.js";
import * as subtitles from "./subtitles.js";
import { MAX_CHARACTERS, Take } from "./take.js";
import { languageName, VoiceList } from "./voices.js";

const $ = (id) => document.getElementById(id);
const EXAMPLES = {
  "Bank balance": "Good morning, Ms. Alvarez. Your balance is $1,284.50, and your card ending in 0417 is active again. Shall I send the statement to your e-mail address?",
  "Clinic reminder": "This is a reminder from the Riverside Clinic: your appointment with Dr. Osei is on Thursday, March 12th, at 10:45 a.m. Please do not eat after midnight, and bring a list of your medicines.",
  "Delivery with codes": "Your parcel is on its way. The tracking number is Z9-4471-KX, the driver arrives between 2:15 and 3:30 p.m., and the code for the locker is 7-3-0-9-1-6.",
  "Article": "The lighthouse at Cape Verity was lit for the first time in 1871. For 118 years a keeper climbed its 203 steps every evening, trimmed the lamp and wrote one line in the log.\n\nToday the light is automatic. But on the first night of November the old lamp is still carried up by hand, and from the harbour you can see it burn, small and yellow, a little below the white beam that replaced it.",
};
const MAX_TEXTS = 20; // of the history
const SEEK_STEP_S = 1; // of an arrow key
const TYPES = { wav: "audio/wav", mp3: "audio/mpeg", opus: "audio/ogg", flac: "audio/flac" };

let server = { max_input_characters: 4_096, needs_key: false, clones_voices: false };
let take = null;
let isStarting = false; // from Play to the first chunk
const texts = new Memory("session", "texts", []);
const player = new Player({ changed: render, ended: () => { render(); say(`Spoken in ${clock(take.seconds)}.`); }, firstSound });
const preview = new Player({ changed() {}, ended: () => voices.showPreview(null), firstSound() {} });
const voices = new VoiceList({ preview: hearVoice, chosen: showVoice });
const pronunciations = new Pronunciations({ text: $("text"), hear: hearWord, changed: optionsChanged });
const cloning = new Cloning({ made: voiceMade });

const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

function notice(problem) { $("notice").textContent = problem; $("notice").hidden = !problem; }
function say(text) { $("status").textContent = text; }

// ---------------------------------------------------------------------------------------------------------
// Speech.

function options(text) {
  const speed = Number($("speed").value);
  const seed = Math.trunc(Number($("seed").value));
  const said = pronunciations.of(text);
  return {
    voice: voices.chosen?.id ?? "",
    ...(speed !== 1 && { speed }),
    ...(seed > 0 && { seed }),
    ...(!$("language-field").hidden && $("language").value && { language: $("language").value }),
    ...(!$("instructions-field").hidden && $("instructions").value.trim() && { instructions: $("instructions").value.trim() }),
    ...(Object.keys(said).length && { pronunciations: said }),
  };
}

const sampleRate = () => Number(document.querySelector("[name=sound]:checked").value);
const takeOptions = (text) => ({ ...options(text), sample_rate: sampleRate() });

// The text to speak, or null with a notice of what is wrong with it.
function checkedText() {
  const text = $("text").value;
  const excess = text.length - MAX_CHARACTERS;
  notice(excess > 0
    ? `The text has ${text.length.toLocaleString("en")} characters; this page speaks ${MAX_CHARACTERS.toLocaleString("en")} at once, about an hour. Nothing of it is lost: shorten it, or speak it with a program.`
    : "");
  if (!text.trim()) { say("There is no text to speak."); $("text").focus(); }
  return text.trim() && excess <= 0 ? text : null;
}

// The take of the text as it is now: the present one if nothing has changed since.
function currentTake(text) {
  const wanted = takeOptions(text);
  if (take?.fits(text, wanted) && !take.failed) return take;
  stop();
  take?.abort();
  const made = new Take(text, wanted, server.max_input_characters);
  made.done.catch((error) => { made.failed = true; if (take === made && error.name !== "AbortError") failed(error); });
  return take = made;
}

async function play() {
  const askedAt = performance.now();
  if (player.isPlaying) { player.pause(); return; }
  const text = checkedText();
  if (text === null) return;
  stopPreview();
  const current = currentTake(text);
  if (player.take !== current) {
    isStarting = !current.isComplete;
    player.load(current);
    current.listeners.add(() => { if (take === current) arrived(); });
    remember(text);
    say("");
  }
  await player.play(askedAt).catch(refused);
}

function arrived() {
  if (take.length) isStarting = false;
  if (take.unspoken && $("notice").hidden) noticeLanguage(take.unspoken);
  render();
}

function noticeLanguage({ language, voice }) {
  const advice = voice ? `The voice ${voice} speaks it.` : "No voice of this server speaks it.";
  notice(`The text seems to be in ${languageName(language)}, which this voice reads by its own rules. ${advice}`);
}

function refused(error) { isStarting = false; notice(error.message); render(); }

function failed(error) {
  isStarting = false;
  if (player.take) stop();
  notice(error.message);
  render();
}

// Ends the sound, and the rendering of what has not arrived.
function stop() {
  if (player.take) player.unload();
  isStarting = false;
  if (take && !take.isComplete) { take.abort(); take.failed = true; }
  render();
}

function firstSound(ms) {
  say(`First sound after ${Math.max(0, Math.round(ms))} ms.`);
  document.dispatchEvent(new CustomEvent("vivavoce:first-sound", { detail: { ms } }));
}

function optionsChanged() {
  $("speed-value").textContent = Number($("speed").value).toFixed(2);
  showSnippet();
}

// ---------------------------------------------------------------------------------------------------------
// What is shown of it.

function render() {
  const loaded = player.take;
  const isBusy = player.isPlaying || isStarting;
  document.body.dataset.state = player.isPlaying ? "playing" : loaded ? "paused" : "idle";
  $("play").textContent = isStarting ? "Starting…" : player.isPlaying ? "Pause" : loaded && player.at > 0 ? "Resume" : "Play";
  $("stop").disabled = !isBusy && !(loaded && player.at > 0);
  $("seek").disabled = !loaded || !loaded.length;
  showPosition();
  if (player.isPlaying) requestAnimationFrame(follow);
}

let isFollowing = false;
function follow() {
  if (isFollowing) return;
  isFollowing = true;
  requestAnimationFrame(() => {
    isFollowing = false;
    if (!player.isPlaying) return;
    showPosition();
    follow();
  });
}

function showPosition() {
  const loaded = player.take;
  const seconds = loaded ? player.heardS : 0;
  $("seek").max = String(Math.max(loaded?.seconds ?? 0, 0.05));
  $("seek").value = String(seconds);
  $("seek").setAttribute("aria-valuetext", `${seconds.toFixed(0)} seconds`);
  $("time").textContent = loaded?.length ? `${clock(seconds)} / ${clock(loaded.seconds)}${loaded.isComplete ? "" : "…"}` : "0:00";
  showWord(loaded && (player.isPlaying || player.at > 0) ? wordAt(loaded, seconds) : null);
}

// The last word that has begun.
function wordAt({ words }, seconds) {
  let low = 0, high = words.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (words[middle].start <= seconds) low = middle + 1; else high = middle;
  }
  return words[low - 1] ?? null;
}

const mark = document.createElement("mark");
let marked = null;
function showWord(word) {
  if (word === marked) return;
  marked = word;
  const text = $("text").value;
  if (!word || text !== take.text) { $("heard").replaceChildren(); return; }
  mark.textContent = text.slice(word.from, word.to);
  // The end of the last line counts in the box of a text area.
  $("heard").replaceChildren(text.slice(0, word.from), mark, `${text.slice(word.to)}\u200b`);
  keepInView();
}

function keepInView() {
  const [word, box] = [mark.getBoundingClientRect(), $("text").getBoundingClientRect()];
  if (word.bottom > box.bottom) $("text").scrollTop += word.bottom - box.bottom + 2 * word.height;
  else if (word.top < box.top) $("text").scrollTop -= box.top - word.top + 2 * word.height;
  $("heard").scrollTop = $("text").scrollTop;
}

function textChanged() {
  marked = undefined;
  showWord(null);
  const count = $("text").value.length;
  $("count").textContent = `${count.toLocaleString("en")} characters`;
  $("count").classList.toggle("over", count > MAX_CHARACTERS);
  for (const button of $("examples").children) button.setAttribute("aria-pressed", String(EXAMPLES[button.textContent] === $("text").value));
  if (!player.isPlaying && player.take && !isStarting) stop();
  showSnippet();
}

function setText(text) {
  stop();
  $("text").value = text;
  textChanged();
}

// ---------------------------------------------------------------------------------------------------------
// Files and programs.

async function download(format) {
  const text = checkedText();
  if (text === null) return;
  say("Making the file…");
  try {
    save(await fileOf(text, format), format);
    say(`The ${format.toUpperCase()} file is ready.`);
  } catch (error) {
    say("");
    notice(error.message);
  }
}

async function fileOf(text, format) {
  if (format in subtitles) {
    const current = take?.fits(text, takeOptions(text)) && !take.failed ? take : new Take(text, takeOptions(text), server.max_input_characters);
    await current.done;
    return new Blob([subtitles[format](current)], { type: "text/plain" });
  }
  if (text.length > server.max_input_characters) {
    throw new Error(`A file has at most ${server.max_input_characters.toLocaleString("en")} characters on this server; this text has ${text.length.toLocaleString("en")}. The setting apis.max_input_characters allows more.`);
  }
  const body = { ...takeOptions(text), input: text, response_format: format, stream: false };
  const response = await request("POST", "/v1/audio/speech", body);
  return new Blob([await response.arrayBuffer()], { type: TYPES[format] });
}

function save(file, extension) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  const words = $("text").value.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? ["speech"];
  link.download = `${words.slice(0, 4).join("-").slice(0, 60)}.${extension}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

let snippetName = null;
function showSnippet(name = snippetName) {
  snippetName = name;
  for (const button of $("snippets").children) button.setAttribute("aria-pressed", String(button.value === name));
  $("code").hidden = !name;
  if (!name) return;
  const text = $("text").value;
  const rate = sampleRate() === 24_000 ? {} : { sample_rate: sampleRate() };
  $("snippet").textContent = SNIPPETS[name]({ origin: location.origin, needsKey: server.needs_key, text, options: { ...options(text), ...rate } });
}

async function copySnippet() {
  const text = $("snippet").textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch { // over http from another machine there is no clipboard
    getSelection().selectAllChildren($("snippet"));
    document.execCommand("copy");
  }
  say(`Copied as ${snippetName}.`);
}

// ---------------------------------------------------------------------------------------------------------
// History.

function remember(text) {
  texts.set([text, ...texts.value.filter((other) => other !== text)].slice(0, MAX_TEXTS));
  showHistory();
}

function showHistory() {
  $("history").hidden = !texts.value.length;
  $("texts").replaceChildren(...texts.value.map((text) => {
    const [item, button] = [document.createElement("li"), document.createElement("button")];
    button.type = "button";
    button.dir = "auto";
    button.textContent = text.slice(0, 200);
    button.onclick = () => { setText(text); $("text").focus(); };
    item.append(button);
    return item;
  }));
}

// ---------------------------------------------------------------------------------------------------------
// Voices.

function showVoice(voice) {
  const languages = voices.languagesOf(voice);
  const before = $("language").value;
  $("language-field").hidden = languages.length < 2;
  $("language").replaceChildren(...languages.map(([code, name]) => new Option(name, code)));
  if (languages.some(([code]) => code === before)) $("language").value = before;
  $("instructions-field").hidden = !voice?.follows_instructions;
  $("own-voice").hidden = !voice?.isOwn;
  showSnippet();
}

let previewTake = null;
async function hear(text, wanted) {
  stop();
  stopPreview();
  const made = previewTake = new Take(text, wanted, server.max_input_characters);
  preview.load(made);
  await Promise.race([preview.play(), made.done]).catch((error) => { if (error.name !== "AbortError") { stopPreview(); notice(error.message); } });
}

function stopPreview() {
  previewTake?.abort();
  preview.unload();
  voices.showPreview(null);
}

async function hearVoice(voice, text) {
  const wasHeard = voices.previewed === voice;
  stopPreview();
  if (wasHeard) return;
  notice("");
  await hear(text, { voice: voice.id, sample_rate: sampleRate() }).then(() => { if (preview.isPlaying) voices.showPreview(voice); });
}

function hearWord(word, said) { return hear(word, { ...takeOptions(word), pronunciations: { [word]: said } }); }

async function voiceMade(voice) {
  await loadVoices(voice.id);
  say(`The voice ${voice.name} is ready.`);
  await play();
}

async function renameVoice() {
  const voice = voices.chosen;
  const name = prompt("Name of the voice", voice.name)?.trim();
  if (name && name !== voice.name) await changeVoice("PATCH", voice, { name });
}

async function deleteVoice() {
  const voice = voices.chosen;
  if (confirm(`Delete the voice ${voice.name}? Its recording is deleted too.`)) await changeVoice("DELETE", voice);
}

async function changeVoice(method, voice, body) {
  notice("");
  try {
    await request(method, `/v1/audio/voices/${encodeURIComponent(voice.id)}`, body);
  } catch (error) {
    notice(error.message);
  }
  await loadVoices(voice.id);
}

async function loadVoices(chosenId) {
  try {
    voices.show(await json("GET", "/v1/audio/voices"), chosenId);
  } catch (error) {
    notice(error.message);
  }
}

// ---------------------------------------------------------------------------------------------------------
// The page.

function button(label, value = label) {
  const made = document.createElement("button");
  Object.assign(made, { type: "button", textContent: label, value });
  made.setAttribute("aria-pressed", "false");
  return made;
}

$("examples").append(...Object.keys(EXAMPLES).map((name) => button(name)));
$("snippets").append(...Object.keys(SNIPPETS).map((name) => button(name)));
$("examples").onclick = ({ target }) => { if (target.matches("button")) setText(EXAMPLES[target.value]); };
$("snippets").onclick = ({ target }) => { if (target.matches("button")) showSnippet(target.value === snippetName ? null : target.value); };
$("downloads").onclick = ({ target }) => { if (target.matches("button")) download(target.value); };
$("play").onclick = play;
$("stop").onclick = stop;
$("copy").onclick = copySnippet;
$("rename").onclick = renameVoice;
$("delete").onclick = deleteVoice;
$("clone").onclick = () => { stop(); stopPreview(); cloning.open(); };
$("forget").onclick = () => { texts.set([]); showHistory(); $("text").focus(); };
$("seek").oninput = () => player.seek(Number($("seek").value));
$("seek").onkeydown = (event) => {
  const step = { ArrowLeft: -SEEK_STEP_S, ArrowRight: SEEK_STEP_S }[event.key];
  if (step) { event.preventDefault(); player.seek(player.heardS + step); }
};
$("text").oninput = textChanged;
$("text").onscroll = () => { $("heard").scrollTop = $("text").scrollTop; };
$("speed").oninput = optionsChanged;
for (const name of ["seed", "language", "instructions"]) $(name).oninput = optionsChanged;
for (const radio of document.querySelectorAll("[name=sound]")) radio.onchange = optionsChanged;
document.onkeydown = (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); play(); }
  if (event.key === "Escape" && !$("cloning").open) { stop(); stopPreview(); }
};
for (const touch of ["pointerdown", "keydown"]) document.addEventListener(touch, () => openSound(sampleRate()), { once: true });

setText(texts.value[0] ?? Object.values(EXAMPLES)[0]);
showHistory();
optionsChanged();
loadVoices();
json("GET", "/v1/server").then((described) => {
  server = described;
  voices.defaultId = described.default_voice;
  $("clone").hidden = !described.clones_voices;
  cloning.transcribes = described.transcribes;
  showSnippet();
}).catch((error) => notice(error.message));
fetch("/status").then(({ ok }) => { $("call-tab").hidden = !ok; }).catch(() => {}); // what a browser can call
