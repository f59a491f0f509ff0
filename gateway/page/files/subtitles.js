// Subtitles of a take, from the times of its words: cues of at most two lines that end with a sentence.
// Source: SubRip; W3C WebVTT 1.

const MAX_CUE_CHARACTERS = 84; // two lines of 42
const MAX_CUE_S = 6;
const SENTENCE_END = /[.!?…。！？]["'”’)]*\s*$/;

export function srt(take) {
  return cues(take).map(({ start, stop, text }, i) => `${i + 1}\n${clock(start, ",")} --> ${clock(stop, ",")}\n${text}\n`).join("\n");
}

export function vtt(take) {
  const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const written = cues(take).map(({ start, stop, text }) => `${clock(start, ".")} --> ${clock(stop, ".")}\n${escape(text)}\n`);
  return ["WEBVTT\n", ...written].join("\n");
}

// Text between two words belongs to the first of them, so that every character is in a cue.
export function cues({ text, words }) {
  const found = [];
  let cue = null;
  words.forEach((word, i) => {
    const from = i ? word.from : 0;
    const to = words[i + 1]?.from ?? text.length;
    if (cue && (to - cue.from > MAX_CUE_CHARACTERS || word.stop - cue.start > MAX_CUE_S)) cue = null;
    if (!cue) found.push(cue = { from, start: word.start });
    Object.assign(cue, { to, stop: word.stop });
    if (SENTENCE_END.test(text.slice(from, to))) cue = null;
  });
  return found.map(({ from, to, start, stop }) => ({ start, stop, text: text.slice(from, to).trim().replace(/\s+/g, " ") }));
}

function clock(seconds, point) {
  const ms = Math.round(1_000 * seconds);
  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  return `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / 1_000) % 60)}${point}${String(ms % 1_000).padStart(3, "0")}`;
}
