// "recorder": hands on the samples of the microphone, in blocks of 20 ms or so, on the audio thread.

const BLOCK = 8; // render quanta of 128 samples

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.pending = [];
  }

  process(inputs) {
    const channels = inputs[0];
    if (!channels.length) return true;
    this.pending.push(channels[0].slice());
    if (this.pending.length < BLOCK) return true;
    const block = new Float32Array(BLOCK * channels[0].length);
    this.pending.forEach((samples, i) => block.set(samples, i * samples.length));
    this.pending = [];
    this.port.postMessage(block, [block.buffer]);
    return true;
  }
}

registerProcessor("recorder", Recorder);
