// A take: one text spoken with one set of options, as samples and words that arrive while it is heard.
// Long texts are asked for in pieces that the server accepts, each when the one before is nearly used up.

import { lines, request } from "./server.js";

export const MAX_CHARACTERS = 50_000; // an hour of speech, 170 MB of samples
const MAX_AHEAD_S = 60; // of speech that is ready and not heard, at which the next piece waits
const PIECE_END = /[\s\S]*(?:\n\s*\n|[.!?…。！？]["'”’)]*(?:\s|$))/; // up to the last end of a paragraph or sentence

export class Take {
  // options: fields of POST /v1/audio/speech beside the text. maxCharacters: of one request.
  constructor(text, options, maxCharacters) {
    this.text = text;
    this.options = options;
    this.sampleRate = options.sample_rate;
    this.maxCharacters = maxCharacters;
    this.chunks = []; // Int16Array
    this.length = 0; // samples
    this.words = []; // { text, start, stop, from, to }: seconds, and the place in the text
    this.isComplete = false;
    this.unspoken = null; // of the text's language
    this.listeners = new Set(); // called when something has arrived
    this.heardS = () => Infinity; // of a listener, for whom the take waits
    this.abortion = new AbortController();
    this.done = this.receive();
    this.done.catch(() => {}); // for who does not wait for it
  }

  get seconds() { return this.length / this.sampleRate; }

  fits(text, options) { return text === this.text && JSON.stringify(options) === JSON.stringify(this.options); }

  abort() { this.abortion.abort(); }

  // The samples from one to another, as a new array.
  read(start, stop) {
    const samples = new Int16Array(stop - start);
    let at = 0; // of the chunk, in the take
    for (const chunk of this.chunks) {
      const from = Math.max(start, at), to = Math.min(stop, at + chunk.length);
      if (from < to) samples.set(chunk.subarray(from - at, to - at), from - start);
      at += chunk.length;
      if (at >= stop) break;
    }
    return samples;
  }

  async receive() {
    let from = 0;
    for (const piece of pieces(this.text, this.maxCharacters)) {
      await this.untilNeeded();
      await this.receivePiece(piece, from);
      from += piece.length;
    }
    this.isComplete = true;
    this.notify();
  }

  async receivePiece(input, textFrom) {
    const startS = this.seconds;
    let textAt = textFrom;
    if (!input.trim()) return;
    const body = { ...this.options, input, response_format: "pcm" };
    const response = await request("POST", "/dev/captioned_speech", body, this.abortion.signal);
    this.unspoken ??= unspokenLanguage(response.headers);
    for await (const { audio, timestamps } of lines(response)) {
      this.append(decodeSamples(audio));
      for (const { word, start_time: start, end_time: stop } of timestamps) {
        const found = this.text.indexOf(word, textAt);
        if (found < 0) continue;
        textAt = found + word.length;
        this.words.push({ text: word, start: startS + start, stop: startS + stop, from: found, to: textAt });
      }
      this.notify();
    }
  }

  append(samples) {
    this.chunks.push(samples);
    this.length += samples.length;
  }

  async untilNeeded() {
    while (this.seconds - this.heardS() > MAX_AHEAD_S) {
      await new Promise((wake) => setTimeout(wake, 500));
      this.abortion.signal.throwIfAborted();
    }
  }

  notify() { for (const listener of this.listeners) listener(); }
}

// Parts of a text of at most so many characters, which end with a paragraph or a sentence where they can.
export function pieces(text, maxCharacters) {
  const found = [];
  let rest = text;
  while (rest.length > maxCharacters) {
    const head = rest.slice(0, maxCharacters);
    const whole = head.match(PIECE_END)?.[0] || head.match(/[\s\S]*\s/)?.[0] || wholeCharacters(head);
    found.push(whole);
    rest = rest.slice(whole.length);
  }
  return [...found, rest];
}

// { language, voice } of a text in a language that its voice does not speak, else null.
function unspokenLanguage(headers) {
  const language = headers.get("x-text-language");
  return language && { language, voice: decodeURIComponent(headers.get("x-text-language-voice") ?? "") };
}

// Without half of a surrogate pair at the end.
const wholeCharacters = (text) => (/[\uD800-\uDBFF]$/.test(text) ? text.slice(0, -1) : text);

function decodeSamples(base64) {
  const letters = atob(base64);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new Int16Array(bytes.buffer, 0, bytes.length >> 1);
}
