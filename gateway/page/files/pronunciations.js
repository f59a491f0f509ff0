// How words are pronounced: said of a selected word of the text, heard at once, and kept in this browser.

import { Memory } from "./memory.js";

const $ = (id) => document.getElementById(id);
const MAX_WORD = 60; // characters
const MAX_KEPT = 100; // of one request for speech

export class Pronunciations {
  // handlers: text (the text area), hear(word, said), changed()
  constructor(handlers) {
    this.handlers = handlers;
    this.kept = new Memory("local", "pronunciations", {}, () => { this.show(); handlers.changed(); });
    this.word = null;
    handlers.text.addEventListener("select", () => this.onSelect());
    $("try").onclick = () => { if ($("pronounce").reportValidity()) handlers.hear(this.word, this.said); };
    $("pronounce").onsubmit = (event) => { event.preventDefault(); this.keep(); };
    $("lexicon").onclick = () => this.saveLexicon();
    this.show();
  }

  get said() { return $("respelling").value.trim(); }

  // The kept pronunciations of words that a text has.
  of(text) {
    const lower = text.toLowerCase();
    return Object.fromEntries(Object.entries(this.kept.value).filter(([word]) => lower.includes(word.toLowerCase())).slice(0, MAX_KEPT));
  }

  onSelect() {
    const { value, selectionStart, selectionEnd } = this.handlers.text;
    const word = value.slice(selectionStart, selectionEnd).trim();
    if (!word || word.length > MAX_WORD || /\n/.test(word)) return;
    if (word === this.word && !$("pronounce").hidden) return; // what is written of it stays
    this.word = word;
    $("word").textContent = word;
    $("respelling").value = this.kept.value[word] ?? "";
    $("pronounce").hidden = false;
    $("pronunciation-hint").hidden = true;
  }

  keep() {
    this.change({ ...this.kept.value, [this.word]: this.said });
    $("pronounce").hidden = true;
    $("pronunciation-hint").hidden = false;
  }

  remove(word) {
    this.change(Object.fromEntries(Object.entries(this.kept.value).filter(([other]) => other !== word)));
    this.handlers.text.focus();
  }

  change(kept) {
    this.kept.set(kept);
    this.show();
    this.handlers.changed();
  }

  show() {
    const words = Object.entries(this.kept.value);
    $("lexicon").hidden = !words.length;
    $("kept").replaceChildren(...words.map(([word, said]) => {
      const item = document.createElement("li");
      const remove = Object.assign(document.createElement("button"), { type: "button", textContent: "Remove" });
      remove.setAttribute("aria-label", `Remove the pronunciation of ${word}`);
      remove.onclick = () => this.remove(word);
      item.append(`${word}: ${said}`, remove);
      return item;
    }));
  }

  // A file for the setting lexicons of the server, so that every client has them.
  saveLexicon() {
    const quoted = (text) => JSON.stringify(text);
    const lines = Object.entries(this.kept.value).map(([word, said]) => `${quoted(word)} = ${quoted(said)}`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(["[words]\n", lines.join("\n"), "\n"], { type: "application/toml" }));
    link.download = "lexicon.toml";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }
}
