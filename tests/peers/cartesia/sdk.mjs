// Cartesia's Node SDK against ../server.py behind TLS: prints the cases that passed, as JSON.
// node sdk.mjs URL KEY POOR_KEY. The URL is https, because the SDK opens no socket but wss.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// Its CommonJS build: only that one finds the package ws, without which Node before 22 has no sockets.
const { APIError, Cartesia } = createRequire(import.meta.url)("@cartesia/cartesia-js");

const [url, key] = process.argv.slice(2);
const client = new Cartesia({ apiKey: key, baseURL: url, maxRetries: 0 });
const text = "One two three four five six.";
// Cartesia closes a connection after five minutes; the SDK then opens another one, and forgets a context made before.
const idleS = Math.min(Number(process.env.PEERS_IDLE_S ?? "0.1"), 290);
const options = {
  model_id: "sonic-3",
  voice: { mode: "id", id: "tone-330" },
  output_format: { container: "raw", encoding: "pcm_s16le", sample_rate: 24000 },
};

// Returns the seconds of audio of a context, and the words that were told with it.
async function heard(context) {
  let bytes = 0;
  const words = [];
  for await (const event of context.receive({ timeout: 20_000 })) {
    if (event.type === "chunk") bytes += event.audio.byteLength;
    if (event.type === "timestamps") words.push(...event.word_timestamps.words);
  }
  return [bytes / 48000, words];
}

async function speakTurn(socket) {
  const context = socket.context(options);
  await context.push({ transcript: "One two." });
  await context.no_more_inputs();
  const [length] = await heard(context);
  assert.ok(length > 0.3 && length < 0.9, String(length));
}

const cases = {
  async speech() {
    const answer = await client.tts.generate({ ...options, transcript: text });
    const length = (await answer.arrayBuffer()).byteLength / 48000;
    assert.ok(length > 1.1 && length < 1.4, String(length));
  },
  async events_with_words() {
    const words = [];
    const request = { ...options, transcript: text, add_timestamps: true };
    for await (const event of await client.tts.generateSSE(request)) {
      if (event.type === "timestamps") words.push(...event.word_timestamps.words);
    }
    assert.equal(words.join(" "), text);
  },
  async texts_on_a_socket_with_words() {
    const socket = await client.tts.websocket();
    const context = socket.context({ ...options, add_timestamps: true });
    for (const word of text.split(" ")) await context.push({ transcript: `${word} ` });
    await context.no_more_inputs();
    const [length, words] = await heard(context);
    assert.ok(length > 1.1 && length < 1.7, String(length));
    assert.equal(words.join(" "), text);
    socket.close();
  },
  async a_cancel_does_not_reach_the_next_turn() {
    const socket = await client.tts.websocket();
    const context = socket.context(options);
    await context.push({ transcript: text.repeat(50) });
    for await (const event of context.receive()) if (event.type === "chunk") break;
    await context.cancel();
    await speakTurn(socket);
    socket.close();
  },
  async errors_are_its_own() {
    const voice = { mode: "id", id: "nobody" };
    const isNotFound = (error) => error instanceof APIError && error.status === 404;
    await assert.rejects(client.tts.generate({ ...options, voice, transcript: text }), isNotFound);
    const socket = await client.tts.websocket();
    socket.on("error", () => {});
    const context = socket.context({ ...options, voice });
    await context.push({ transcript: text });
    await assert.rejects(heard(context), (error) => /nobody/.test(error.message));
    socket.close();
  },
  async twenty_turns_are_spoken_on_one_connection() {
    const socket = await client.tts.websocket();
    for (let turn = 0; turn < 20; turn += 1) await speakTurn(socket);
    socket.close();
  },
  async a_turn_after_an_idle_time_is_spoken() {
    const socket = await client.tts.websocket();
    await speakTurn(socket);
    await new Promise((wake) => setTimeout(wake, 1000 * idleS));
    await speakTurn(socket);
    socket.close();
  },
};

// As client_cases.py chooses them.
const wanted = process.env.PEERS_CASES;
const passed = Object.keys(cases).filter((name) => !wanted || name.includes("idle") === (wanted === "idle"));
for (const name of passed) await cases[name]();
const manifest = new URL("./node_modules/@cartesia/cartesia-js/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ version, passed }));
process.exit(0);
