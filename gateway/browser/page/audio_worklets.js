// What the page hears and what its microphone hears, sample by sample, on the audio thread.
// "listener": passes sound through, tells when it becomes audible and when it stops, and copies it on request.
// "talk-detector": tells when somebody speaks into the microphone.

const AUDIBLE = 10 ** (-50 / 20); // quieter is silence
const QUIET_AFTER_S = 0.4; // a pause between two words is shorter
const NOTHING = new Float32Array(128);

class Listener extends AudioWorkletProcessor {
  constructor() {
    super();
    this.audible = false;
    this.lastLoud = -1;
    this.peak = 0;
    this.quanta = 0;
    this.recording = false;
    this.port.onmessage = ({ data }) => { this.recording = data.record; };
  }

  process(inputs, outputs) {
    const samples = inputs[0][0] ?? NOTHING; // no input is silence, too
    for (const channel of outputs[0]) channel.set(samples);
    this.listen(samples);
    if (++this.quanta % 12 === 0) {
      this.port.postMessage({ kind: "level", peak: this.peak, time: currentTime });
      this.peak = 0;
    }
    return true;
  }

  listen(samples) {
    let first = -1, last = -1;
    for (let i = 0; i < samples.length; i++) {
      const level = Math.abs(samples[i]);
      if (level > this.peak) this.peak = level;
      if (level >= AUDIBLE) { last = i; if (first < 0) first = i; }
    }
    if (last >= 0) {
      if (!this.audible) this.port.postMessage({ kind: "onset", time: currentTime + first / sampleRate });
      this.audible = true;
      this.lastLoud = currentTime + last / sampleRate;
    } else if (this.audible && currentTime - this.lastLoud > QUIET_AFTER_S) {
      this.audible = false;
      this.port.postMessage({ kind: "offset", time: this.lastLoud });
    }
    if (this.recording) this.port.postMessage({ kind: "samples", samples: samples.slice() });
  }
}

// Levels of 10 ms against a floor that follows the room. While the other side is heard, what its loudspeaker
// leaves in the microphone after echo cancellation must not count, so more is asked for.
const WINDOW_S = 0.01;
const MIN_SPEECH_WINDOWS = 4; // a key stroke is shorter
const MIN_SILENCE_WINDOWS = 50;
const LEAST_DB = -45, LEAST_DB_OVER_SPEECH = -38, OVER_FLOOR_DB = 12;

class TalkDetector extends AudioWorkletProcessor {
  constructor() {
    super();
    this.energy = 0;
    this.samples = 0;
    this.floorDb = -60;
    this.run = 0;
    this.talking = false;
    this.overSpeech = false;
    this.port.onmessage = ({ data }) => { this.overSpeech = data.overSpeech; };
  }

  process(inputs) {
    const input = inputs[0][0];
    if (!input) return true;
    for (const sample of input) this.energy += sample * sample;
    this.samples += input.length;
    if (this.samples >= WINDOW_S * sampleRate) this.judge();
    return true;
  }

  judge() {
    const db = 10 * Math.log10(this.energy / this.samples + 1e-10);
    this.energy = this.samples = 0;
    const least = this.overSpeech ? LEAST_DB_OVER_SPEECH : LEAST_DB;
    const loud = db > Math.max(least, this.floorDb + OVER_FLOOR_DB);
    this.floorDb += (db < this.floorDb ? 0.2 : 0.002) * (db - this.floorDb);
    if (loud === this.talking) { this.run = 0; return; }
    if (++this.run < (this.talking ? MIN_SILENCE_WINDOWS : MIN_SPEECH_WINDOWS)) return;
    this.run = 0;
    this.talking = !this.talking;
    this.port.postMessage({ talking: this.talking, time: currentTime });
  }
}

registerProcessor("listener", Listener);
registerProcessor("talk-detector", TalkDetector);
