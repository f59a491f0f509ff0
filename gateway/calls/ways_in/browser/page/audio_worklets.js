// Processors of the page's audio, on the audio thread.
// "output-meter": passes audio through, reports levels, the first and the last audible sample, and, on request,
// the samples. "talk-detector": reports when speech into the microphone begins and ends.

const AUDIBLE = 10 ** (-50 / 20); // amplitude; -50 dBFS and less is silence
const QUIET_AFTER_S = 0.4; // longer than a pause between two words
const SILENT_QUANTUM = new Float32Array(128); // samples of one render quantum

class OutputMeter extends AudioWorkletProcessor {
  constructor() {
    super();
    this.audible = false;
    this.lastAudibleAt = -1;
    this.peak = 0;
    this.quanta = 0;
    this.recording = false;
    this.port.onmessage = ({ data }) => { this.recording = data.record; };
  }

  process(inputs, outputs) {
    const samples = inputs[0][0] ?? SILENT_QUANTUM; // no source is connected
    for (const channel of outputs[0]) channel.set(samples);
    this.measure(samples);
    if (++this.quanta % 12 === 0) {
      this.port.postMessage({ kind: "level", peak: this.peak, time: currentTime });
      this.peak = 0;
    }
    return true;
  }

  measure(samples) {
    let first = -1, last = -1;
    for (let i = 0; i < samples.length; i++) {
      const level = Math.abs(samples[i]);
      if (level > this.peak) this.peak = level;
      if (level >= AUDIBLE) { last = i; if (first < 0) first = i; }
    }
    if (last >= 0) {
      if (!this.audible) this.port.postMessage({ kind: "onset", time: currentTime + first / sampleRate });
      this.audible = true;
      this.lastAudibleAt = currentTime + last / sampleRate;
    } else if (this.audible && currentTime - this.lastAudibleAt > QUIET_AFTER_S) {
      this.audible = false;
      this.port.postMessage({ kind: "offset", time: this.lastAudibleAt });
    }
    if (this.recording) this.port.postMessage({ kind: "samples", samples: samples.slice() });
  }
}

// Compares the level of 10 ms with a noise floor that follows the room. While the call's speech is audible, the
// threshold is higher: echo cancellation leaves some of it in the microphone.
const WINDOW_S = 0.01;
const MIN_SPEECH_WINDOWS = 4; // longer than a key stroke
const MIN_SILENCE_WINDOWS = 50;
const MIN_DB = -45, MIN_DB_OVER_SPEECH = -38, OVER_FLOOR_DB = 12;

class TalkDetector extends AudioWorkletProcessor {
  constructor() {
    super();
    this.energy = 0;
    this.samples = 0;
    this.floorDb = -60;
    this.run = 0; // windows since the level last agreed with the state
    this.talking = false;
    this.overSpeech = false;
    this.port.onmessage = ({ data }) => { this.overSpeech = data.overSpeech; };
  }

  process(inputs) {
    const input = inputs[0][0];
    if (!input) return true;
    for (const sample of input) this.energy += sample * sample;
    this.samples += input.length;
    if (this.samples >= WINDOW_S * sampleRate) this.classify();
    return true;
  }

  classify() {
    const db = 10 * Math.log10(this.energy / this.samples + 1e-10);
    this.energy = this.samples = 0;
    const minimum = this.overSpeech ? MIN_DB_OVER_SPEECH : MIN_DB;
    const loud = db > Math.max(minimum, this.floorDb + OVER_FLOOR_DB);
    this.floorDb += (db < this.floorDb ? 0.2 : 0.002) * (db - this.floorDb);
    if (loud === this.talking) { this.run = 0; return; }
    if (++this.run < (this.talking ? MIN_SILENCE_WINDOWS : MIN_SPEECH_WINDOWS)) return;
    this.run = 0;
    this.talking = !this.talking;
    this.port.postMessage({ talking: this.talking, time: currentTime });
  }
}

registerProcessor("output-meter", OutputMeter);
registerProcessor("talk-detector", TalkDetector);
