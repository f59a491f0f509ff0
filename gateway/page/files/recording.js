// A recording of a speaker: from the microphone or a file, with its faults in words, and as a WAV file to upload.

export const RECORD_S = 10;
const MAX_FILE_BYTES = 16 * 2 ** 20; // more takes the browser seconds to decode
const MAX_USED_S = 29; // the server takes 30
const MIN_S = 3;
const SILENT = 0.004, QUIET = 0.06, CLIPPED = 0.985; // peak amplitudes
const MAX_CLIPPED_SHARE = 0.0005;
const MIN_CHANNEL_DIFFERENCE = 0.01;

export class Recording {
  // samples: Float32Array of one channel. notes: what is good to know about it.
  constructor(samples, sampleRate, notes = []) {
    Object.assign(this, { samples, sampleRate, notes });
  }

  get seconds() { return this.samples.length / this.sampleRate; }

  // { problem } if it cannot be used, else { warning }, "" if it is fine.
  judge() {
    let peak = 0, clipped = 0;
    for (const sample of this.samples) {
      const level = Math.abs(sample);
      if (level > peak) peak = level;
      if (level >= CLIPPED) clipped++;
    }
    if (peak < SILENT) return { problem: "There is no sound in it. Is the right microphone chosen, and not muted?" };
    if (this.seconds < MIN_S) return { problem: `It is too short: ${this.seconds.toFixed(1)} s. At least ${MIN_S} s are needed, and ten are better.` };
    const warnings = [...this.notes];
    if (peak < QUIET) warnings.push("It is very quiet. Go closer to the microphone and record again.");
    if (clipped / this.samples.length > MAX_CLIPPED_SHARE) warnings.push("It is clipped: too loud. Go further from the microphone and record again.");
    return { warning: warnings.join(" ") };
  }

  // A WAV file of 16 bits.
  file() {
    const { samples, sampleRate } = this;
    const view = new DataView(new ArrayBuffer(44 + 2 * samples.length));
    const letters = (at, text) => [...text].forEach((letter, i) => view.setUint8(at + i, letter.charCodeAt(0)));
    letters(0, "RIFF"); view.setUint32(4, 36 + 2 * samples.length, true); letters(8, "WAVEfmt ");
    view.setUint32(16, 16, true); view.setUint16(20, 1, true); view.setUint16(22, 1, true);
    view.setUint32(24, sampleRate, true); view.setUint32(28, 2 * sampleRate, true);
    view.setUint16(32, 2, true); view.setUint16(34, 16, true);
    letters(36, "data"); view.setUint32(40, 2 * samples.length, true);
    samples.forEach((sample, i) => view.setInt16(44 + 2 * i, Math.round(32_767 * Math.max(-1, Math.min(1, sample))), true));
    return new Blob([view], { type: "audio/wav" });
  }
}

// Reads a sound file; throws an Error with the reason if it cannot be used.
export async function readFile(file) {
  if (file.size > MAX_FILE_BYTES) {
    throw new Error(`The file has ${Math.round(file.size / 2 ** 20)} MB; at most ${MAX_FILE_BYTES / 2 ** 20} MB may be. Ten seconds of speech are enough: cut it.`);
  }
  const decoder = new OfflineAudioContext(1, 1, 48_000);
  const audio = await decoder.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new Error("The browser cannot read this file as sound. WAV, MP3, FLAC and Ogg work everywhere.");
  });
  const notes = [];
  const length = Math.min(audio.length, MAX_USED_S * audio.sampleRate);
  if (audio.length > length) notes.push(`The first ${MAX_USED_S} s of ${Math.round(audio.duration)} are used.`);
  if (differs(audio, length)) notes.push("It has two different channels, which are mixed; one speaker alone is better.");
  return new Recording(mixed(audio, length), audio.sampleRate, notes);
}

function differs(audio, length) {
  if (audio.numberOfChannels < 2) return false;
  const [left, right] = [audio.getChannelData(0), audio.getChannelData(1)];
  let difference = 0, energy = 0;
  for (let i = 0; i < length; i++) { difference += (left[i] - right[i]) ** 2; energy += left[i] ** 2 + right[i] ** 2; }
  return difference > MIN_CHANNEL_DIFFERENCE * energy;
}

function mixed(audio, length) {
  const samples = new Float32Array(length);
  for (let channel = 0; channel < audio.numberOfChannels; channel++) {
    const data = audio.getChannelData(channel);
    for (let i = 0; i < length; i++) samples[i] += data[i] / audio.numberOfChannels;
  }
  return samples;
}

// The microphone, from open to stop; onBlock gets each peak and the seconds so far.
export class Microphone {
  constructor(stream, context, onBlock) {
    Object.assign(this, { stream, context, onBlock });
    this.blocks = [];
    this.length = 0;
    this.node = new AudioWorkletNode(context, "recorder", { numberOfOutputs: 0 });
    this.node.port.onmessage = ({ data }) => this.take(data);
    context.createMediaStreamSource(stream).connect(this.node);
  }

  // Throws an Error with the reason.
  static async open(onBlock) {
    if (!navigator.mediaDevices) throw new Error("This page may use a microphone only over https or on localhost; choose a file instead.");
    const wanted = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false };
    const stream = await navigator.mediaDevices.getUserMedia({ audio: wanted }).catch(() => {
      throw new Error("There is no microphone, or the browser may not use it; choose a file instead.");
    });
    const context = new AudioContext();
    await context.audioWorklet.addModule("/page/recorder_worklet.js");
    await context.resume();
    return new Microphone(stream, context, onBlock);
  }

  take(block) {
    this.blocks.push(block);
    this.length += block.length;
    this.onBlock(block.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), 0), this.length / this.context.sampleRate);
  }

  stop() {
    this.node.port.onmessage = null;
    this.stream.getTracks().forEach((track) => track.stop());
    const samples = new Float32Array(this.length);
    let at = 0;
    for (const block of this.blocks) { samples.set(block, at); at += block.length; }
    const recording = new Recording(samples, this.context.sampleRate);
    this.context.close();
    return recording;
  }
}
