// OpenAI's Node SDK against ../server.py: prints the cases that passed, as JSON. node sdk.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import OpenAI from "openai";
import { VERSION } from "openai/version";

const [url, key, poorKey] = process.argv.slice(2);
const client = new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: 0 });
const input = "One two three four five six.";
const pcmBytes = Math.round((6 * 0.2 + 0.02) * 48000);
const speak = (fields) => client.audio.speech.create({ model: "tts-1", voice: "alloy", input, ...fields });

async function refused(kind, code, fields) {
  await assert.rejects(speak(fields), (error) => {
    assert.ok(error instanceof kind, String(error));
    assert.equal(error.code, code);
    assert.match(error.requestID, /^req_/);
    return true;
  });
}

const cases = {
  async every_format() {
    const magic = { mp3: "fff3", opus: "4f676753", aac: "fff1", flac: "664c6143", wav: "52494646" };
    for (const [response_format, prefix] of Object.entries(magic)) {
      const answer = await speak({ response_format });
      const audio = Buffer.from(await answer.arrayBuffer());
      assert.ok(audio.toString("hex").toLowerCase().startsWith(prefix.toLowerCase()), response_format);
    }
  },
  async streaming_with_a_request_id() {
    const answer = await speak({ response_format: "pcm", model: "gpt-4o-mini-tts" });
    assert.match(answer.headers.get("x-request-id"), /^req_/);
    let bytes = 0;
    for await (const piece of answer.body) bytes += piece.length;
    assert.equal(bytes, pcmBytes);
  },
  async server_sent_events() {
    const answer = await speak({ response_format: "pcm", stream_format: "sse" });
    const events = (await answer.text()).split("\n\n").filter(Boolean).map((line) => JSON.parse(line.slice(6)));
    const done = events.pop();
    assert.equal(done.type, "speech.audio.done");
    assert.equal(events.reduce((sum, event) => sum + Buffer.from(event.audio, "base64").length, 0), pcmBytes);
  },
  async disconnecting_mid_stream() {
    const abort = new AbortController();
    const answer = await client.audio.speech.create(
      { model: "tts-1", voice: "alloy", input: "word ".repeat(800), response_format: "pcm" },
      { signal: abort.signal },
    );
    const reader = answer.body.getReader();
    await reader.read();
    abort.abort();
    await reader.cancel().catch(() => undefined);
  },
  async every_voice_name() {
    const names = "alloy ash ballad coral echo fable onyx nova sage shimmer verse marin cedar".split(" ");
    for (const voice of names) assert.equal((await speak({ voice, input: "Hi." })).status, 200);
    assert.equal((await speak({ voice: { id: "tone-330" } })).status, 200);
  },
  async errors_are_the_sdks_own() {
    await refused(OpenAI.BadRequestError, "voice_not_found", { voice: "unknown" });
    await refused(OpenAI.BadRequestError, "string_above_max_length", { input: "a".repeat(4097) });
  },
  async a_wrong_key() {
    await assert.rejects(client.withOptions({ apiKey: "wrong" }).models.list(), OpenAI.AuthenticationError);
  },
  async a_rate_limit() {
    const poor = client.withOptions({ apiKey: poorKey });
    const request = () => poor.audio.speech.create({ model: "tts-1", voice: "alloy", input: "Hi." });
    // One request a minute is allowed, and another program may have used it.
    await assert.rejects(async () => [await request(), await request()], OpenAI.RateLimitError);
  },
  async models() {
    const listed = (await client.models.list()).data.map((model) => model.id);
    assert.ok(listed.includes("tts-1"));
    assert.equal((await client.models.retrieve("tts-1")).owned_by, "vivavoce");
  },
  async many_at_once() {
    const answers = await Promise.all(Array.from({ length: 16 }, () => speak({ response_format: "pcm" })));
    for (const answer of answers) assert.equal((await answer.arrayBuffer()).byteLength, pcmBytes);
  },
};

for (const run of Object.values(cases)) await run();
console.log(JSON.stringify({ version: VERSION, passed: Object.keys(cases) }));
