// The list of voices: one radio button each, searched by name, language and description, with a preview.

const $ = (id) => document.getElementById(id);
const MIN_SEARCHED = 7; // voices, from which on they can be searched
const MULTIPLE = "mul"; // BCP 47
// Of a voice that speaks several languages without saying which; the server refuses those that it does not.
const USUAL_LANGUAGES = ["zh", "en", "ja", "ko", "de", "es", "fr", "it", "pt", "pl", "tr", "ru", "nl", "cs", "ar", "hu", "hi"];
const GREETINGS = {
  ar: "مرحبًا، هذا صوتي.", cs: "Dobrý den, takhle zním.", de: "Hallo, so klinge ich.", en: "Hello, this is how I sound.",
  es: "Hola, así suena mi voz.", fr: "Bonjour, voici ma voix.", hi: "नमस्ते, यह मेरी आवाज़ है।", hu: "Jó napot, ez a hangom.",
  it: "Ciao, questa è la mia voce.", ja: "こんにちは、これが私の声です。", ko: "안녕하세요, 제 목소리입니다.", nl: "Hallo, zo klink ik.",
  pl: "Dzień dobry, tak brzmi mój głos.", pt: "Olá, esta é a minha voz.", ru: "Здравствуйте, так звучит мой голос.",
  tr: "Merhaba, sesim böyle.", uk: "Вітаю, так звучить мій голос.", zh: "你好，这就是我的声音。",
};

const primary = (tag) => tag.split("-")[0].toLowerCase();

export function languageName(tag) {
  if (tag === MULTIPLE) return "several languages";
  try {
    return new Intl.DisplayNames(["en"], { type: "language" }).of(tag) ?? tag;
  } catch {
    return tag;
  }
}

export class VoiceList {
  // handlers: preview(voice, text), chosen(voice)
  constructor(handlers) {
    this.handlers = handlers;
    this.voices = [];
    this.chosen = null;
    this.previewed = null;
    this.defaultId = null;
    $("search").oninput = () => this.filter();
  }

  // listed: the answer of GET /v1/audio/voices. Keeps the choice if that voice is still there.
  show({ voices, uploaded_voices: uploaded }, chosenId = this.chosen?.id) {
    const own = new Set(uploaded.filter(({ consent }) => consent !== undefined).map(({ id }) => id));
    this.voices = voices.map((voice) => ({ ...voice, isOwn: own.has(voice.id) }));
    this.rows = this.voices.map((voice) => this.row(voice));
    $("voices").replaceChildren(...this.rows);
    $("search-field").hidden = voices.length < MIN_SEARCHED;
    const wanted = [chosenId, this.defaultId].map((id) => this.voices.find((voice) => voice.id === id)).find(Boolean);
    this.choose(wanted ?? this.voices[0] ?? null);
    this.filter();
  }

  choose(voice) {
    this.chosen = voice;
    for (const [i, row] of (this.rows ?? []).entries()) row.querySelector("input").checked = this.voices[i] === voice;
    this.handlers.chosen(voice);
  }

  // Marks the voice that is being previewed; null: none is.
  showPreview(voice) {
    this.previewed = voice;
    for (const [i, row] of (this.rows ?? []).entries()) {
      const isHeard = this.voices[i] === voice;
      row.querySelector("button").textContent = isHeard ? "Stop" : "Hear";
    }
  }

  // [code, name] of each language in which a text can be read; the first one leaves it to the voice.
  languagesOf(voice) {
    if (!voice) return [];
    const further = voice.language === MULTIPLE ? USUAL_LANGUAGES : voice.further_languages ?? [];
    const own = voice.language === MULTIPLE ? "as the text" : languageName(voice.language);
    return [["", own], ...further.map((code) => [code, languageName(code)])];
  }

  row(voice) {
    const row = document.createElement("div");
    row.className = "voice";
    const label = document.createElement("label");
    const radio = Object.assign(document.createElement("input"), { type: "radio", name: "voice", value: voice.id });
    radio.onchange = () => this.choose(voice);
    const name = document.createElement("span");
    const about = document.createElement("small");
    const language = languageName(voice.language ?? MULTIPLE);
    const description = voice.description ?? "";
    about.textContent = description.startsWith(language) ? description : [language, description].filter(Boolean).join(" · ");
    name.append(voice.name, about);
    label.append(radio, name);
    const hear = Object.assign(document.createElement("button"), { type: "button", textContent: "Hear" });
    hear.setAttribute("aria-label", `Hear the voice ${voice.name}`);
    hear.onclick = () => this.handlers.preview(voice, GREETINGS[primary(voice.language ?? "en")] ?? GREETINGS.en);
    row.append(label, hear);
    row.dataset.words = [voice.name, voice.id, voice.language, about.textContent].join(" ").toLowerCase();
    return row;
  }

  filter() {
    const wanted = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of this.rows ?? []) {
      row.hidden = !wanted.every((word) => row.dataset.words.includes(word));
      if (!row.hidden) shown++;
    }
    $("no-voice").hidden = shown > 0;
  }
}
