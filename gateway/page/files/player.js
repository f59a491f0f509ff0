// Plays a take from any place while it still arrives, on the Web Audio clock.
//
//   take.chunks -> one AudioBufferSourceNode for what is new, at origin + samples / rate -> loudspeaker
//
// Samples are scheduled gapless at the take's own rate. If they arrive late, the origin moves.

const START_DELAY_S = 0.01; // from now to the first sample, so that none is in the past
const MAX_SCHEDULED_S = 20; // ahead of what is heard; a seek throws it away
const FILL_MS = 200; // timers of a tab in the background come once a second
const AUDIBLE = 104; // -50 dBFS of 16 bits
const UNLOCK_MS = 1_000; // for the browser to allow sound

export class SoundRefused extends Error {}

const contexts = new Map(); // by sample rate

// Opens the sound device when the user first touches the page, so that Play need not wait for it.
export function openSound(sampleRate) {
  let context = contexts.get(sampleRate);
  if (!context) {
    try {
      context = new AudioContext({ sampleRate, latencyHint: "interactive" });
    } catch {
      context = new AudioContext({ latencyHint: "interactive" }); // resamples each piece by itself
    }
    contexts.set(sampleRate, context);
  }
  if (context.state !== "running") context.resume().catch(() => {});
  return context;
}

export class Player {
  // handlers: changed(), ended(), firstSound(milliseconds after start)
  constructor(handlers) {
    this.handlers = handlers;
    this.take = null;
    this.isPlaying = false;
    this.at = 0; // seconds, while nothing plays
    this.sources = new Set();
    this.onArrival = () => this.fill();
  }

  get heardS() {
    if (!this.isPlaying || this.origin === null) return this.at;
    const heard = this.context.currentTime - this.latency - this.origin;
    return Math.max(this.at, Math.min(heard, this.scheduled / this.take.sampleRate));
  }

  get latency() { return this.context.outputLatency || this.context.baseLatency || 0; }

  load(take) {
    this.unload();
    this.take = take;
    this.at = 0;
    take.heardS = () => this.heardS;
    take.listeners.add(this.onArrival);
  }

  unload() {
    this.halt();
    this.take?.listeners.delete(this.onArrival);
    this.take = null;
  }

  // askedAt: time of the user's action, of performance.now(). Throws SoundRefused.
  async play(askedAt = performance.now()) {
    this.askedAt = askedAt;
    this.context = openSound(this.take.sampleRate);
    this.isPlaying = true;
    this.origin = null;
    this.scheduled = Math.round(this.at * this.take.sampleRate);
    this.ticking = setInterval(() => this.fill(), FILL_MS);
    this.fill();
    this.handlers.changed();
    if (!(await isUnlocked(this.context))) {
      this.pause();
      throw new SoundRefused("The browser has not allowed sound yet. Press Play once more.");
    }
  }

  pause() {
    this.at = this.heardS;
    this.halt();
    this.handlers.changed();
  }

  seek(seconds) {
    const wasPlaying = this.isPlaying;
    this.halt();
    this.at = Math.max(0, Math.min(seconds, this.take.seconds));
    if (wasPlaying) this.play().catch(() => {});
    else this.handlers.changed();
  }

  halt() {
    clearInterval(this.ticking);
    this.isPlaying = false;
    for (const source of this.sources) { source.onended = null; source.stop(); }
    this.sources.clear();
  }

  // Schedules what has arrived, and ends when all has been heard.
  fill() {
    if (!this.isPlaying) return;
    const { take, context } = this;
    if (context.state === "running" || this.origin === null) {
      const until = Math.min(take.length, this.scheduled + MAX_SCHEDULED_S * take.sampleRate);
      const isAhead = this.scheduled / take.sampleRate > this.heardS + MAX_SCHEDULED_S;
      if (until > this.scheduled && !isAhead) this.schedule(take.read(this.scheduled, until));
    }
    if (take.isComplete && this.heardS >= take.seconds - 0.001) this.finish();
  }

  schedule(samples) {
    const { context } = this;
    const rate = this.take.sampleRate;
    const buffer = new AudioBuffer({ length: samples.length, sampleRate: rate });
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32_768), 0);
    const earliest = context.currentTime + START_DELAY_S;
    if (this.origin === null || this.origin + this.scheduled / rate < context.currentTime) {
      this.origin = earliest - this.scheduled / rate;
    }
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    source.onended = () => { this.sources.delete(source); this.fill(); };
    source.start(this.origin + this.scheduled / rate);
    this.sources.add(source);
    this.reportFirstSound(samples);
    this.scheduled += samples.length;
  }

  reportFirstSound(samples) {
    if (this.askedAt === null) return;
    const first = samples.findIndex((sample) => Math.abs(sample) >= AUDIBLE);
    if (first < 0) return;
    const soundsAt = this.origin + (this.scheduled + first) / this.take.sampleRate + this.latency;
    const fromNowMs = 1_000 * (soundsAt - this.context.currentTime);
    this.handlers.firstSound(performance.now() - this.askedAt + fromNowMs);
    this.askedAt = null;
  }

  finish() {
    this.halt();
    this.at = 0;
    this.handlers.ended();
  }
}

async function isUnlocked(context) {
  if (context.state === "running") return true;
  const refused = new Promise((wake) => setTimeout(wake, UNLOCK_MS));
  await Promise.race([context.resume().catch(() => refused), refused]);
  return context.state === "running";
}
