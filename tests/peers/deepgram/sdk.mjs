// Deepgram's Node SDK against ../server.py: prints the cases that passed, as JSON. node sdk.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { DeepgramClient } from "@deepgram/sdk";

const [url, key] = process.argv.slice(2);
const sockets = url.replace("http", "ws");
const environment = { base: url, production: sockets, agent: sockets, agentRest: url };
const client = new DeepgramClient({ apiKey: key, environment });
const text = "One two three four five six.";
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

const cases = {
  async speech() {
    const answer = await client.speak.v1.audio.generate({ text, model: "tone-330", container: "none", ...raw });
    const length = (await answer.arrayBuffer()).byteLength / 48000;
    assert.ok(length > 1.1 && length < 1.4, String(length));
    await assert.rejects(client.speak.v1.audio.generate({ text, model: "nobody" }), { statusCode: 400 });
  },
  async texts_on_a_socket() {
    const socket = await client.speak.v1.connect({ model: "tone-330", ...raw });
    socket.connect();
    await socket.waitForOpen();
    const messages = socket[Symbol.asyncIterator]();
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

for (const run of Object.values(cases)) await run();
const manifest = new URL("./node_modules/@deepgram/sdk/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ version, passed: Object.keys(cases) }));
process.exit(0); // the SDK reconnects sockets
