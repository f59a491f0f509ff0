// Deepgram's Node SDK against ../server.py: prints the cases that passed, as JSON. node sdk.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { DeepgramClient, DeepgramError } from "@deepgram/sdk";

const [url, key] = process.argv.slice(2);
const sockets = url.replace("http", "ws");
const environment = { base: url, production: sockets, agent: sockets, agentRest: url };
const client = new DeepgramClient({ apiKey: key, environment });
const text = "One two three four five six.";
const idleS = Number(process.env.PEERS_IDLE_S ?? "0.1");
const raw = { encoding: "linear16", sample_rate: 24000 };

// Returns the seconds of audio up to the message of a type, and that message.
async function receive(messages, type) {
  let bytes = 0;
  while (true) {
    const { value, done } = await messages.next();
    assert.ok(!done, `the socket closed before ${type}`);
    if (value instanceof Blob) bytes += value.size;
    else if (value.type === type) return [bytes / 48000, value];
  }
}

async function open(model = "tone-330") {
  const socket = await client.speak.v1.connect({ model, ...raw });
  socket.connect();
  await socket.waitForOpen();
  return [socket, socket[Symbol.asyncIterator]()];
}

async function speakTurn(socket, messages) {
  socket.sendText({ type: "Speak", text: "One two." });
  socket.sendFlush({ type: "Flush" });
  const [length] = await receive(messages, "Flushed");
  assert.ok(length > 0.3 && length < 1.0, String(length));
}

const cases = {
  async speech() {
    const answer = await client.speak.v1.audio.generate({ text, model: "tone-330", container: "none", ...raw });
    const length = (await answer.arrayBuffer()).byteLength / 48000;
    assert.ok(length > 1.1 && length < 1.4, String(length));
  },
  async errors_are_its_own() {
    const request = client.speak.v1.audio.generate({ text, model: "nobody" });
    await assert.rejects(request, (error) => error instanceof DeepgramError && error.statusCode === 400);
  },
  async twenty_turns_are_spoken_on_one_connection() {
    const [socket, messages] = await open();
    for (let turn = 0; turn < 20; turn += 1) await speakTurn(socket, messages);
    socket.close();
  },
  async a_turn_after_an_idle_time_is_spoken() {
    const [socket, messages] = await open();
    await speakTurn(socket, messages);
    await new Promise((wake) => setTimeout(wake, 1000 * idleS));
    await speakTurn(socket, messages);
    socket.close();
  },
  async texts_on_a_socket() {
    const [socket, messages] = await open();
    for (const word of text.split(" ")) socket.sendText({ type: "Speak", text: `${word} ` });
    socket.sendFlush({ type: "Flush" });
    const [length] = await receive(messages, "Flushed");
    assert.ok(length > 1.1 && length < 1.8, String(length));
    socket.sendText({ type: "Speak", text: text.repeat(50) });
    socket.sendClear({ type: "Clear" });
    await receive(messages, "Cleared");
    socket.close();
  },
  async an_interruption_answers_the_words_heard() {
    const socket = await client.speak.v2.connect({ model: "flux-alexis-en", ...raw });
    socket.connect();
    await socket.waitForOpen();
    const messages = socket[Symbol.asyncIterator]();
    socket.sendSpeak({ type: "Speak", text });
    socket.sendFlush({ type: "Flush" });
    await receive(messages, "SpeechMetadata");
    socket.sendInterrupt({ type: "Interrupt", playback_offset: { type: "time_ms", value: 450 } });
    const [, interrupted] = await receive(messages, "SpeechInterrupted");
    assert.equal(interrupted.text_spoken, "One two");
    assert.equal(interrupted.text_remaining, " three four five six.");
    socket.close();
  },
};

// As client_cases.py chooses them.
const wanted = process.env.PEERS_CASES;
const passed = Object.keys(cases).filter((name) => !wanted || name.includes("idle") === (wanted === "idle"));
for (const name of passed) await cases[name]();
const manifest = new URL("./node_modules/@deepgram/sdk/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ version, passed }));
process.exit(0); // the SDK reconnects sockets
