// ElevenLabs' Node SDK against ../server.py: prints the cases that passed, as JSON. node sdk.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { ElevenLabsClient, ElevenLabsError } from "@elevenlabs/elevenlabs-js";

const [url, key] = process.argv.slice(2);
const client = new ElevenLabsClient({ apiKey: key, baseUrl: url });
const voice = "tone-330";
const text = "One two three four five six.";
const request = { text, modelId: "eleven_flash_v2_5", outputFormat: "pcm_24000" };

async function seconds(stream) {
  let bytes = 0;
  for await (const piece of stream) bytes += piece.length;
  return bytes / 48000;
}

const cases = {
  async speech() {
    for (const method of ["convert", "stream"]) {
      const length = await seconds(await client.textToSpeech[method](voice, request));
      assert.ok(length > 1.1 && length < 1.4, String(length));
    }
  },
  async times_of_characters() {
    const whole = await client.textToSpeech.convertWithTimestamps(voice, request);
    assert.equal(whole.alignment.characters.join("").trim(), text);
    let streamed = "";
    for await (const line of await client.textToSpeech.streamWithTimestamps(voice, request)) {
      streamed += (line.alignment?.characters ?? []).join("");
    }
    assert.equal(streamed.trim(), text);
  },
  async lists() {
    const { voices } = await client.voices.getAll();
    assert.ok(voices.some((one) => one.voiceId === voice));
    assert.ok((await client.models.list()).some((one) => one.modelId === "eleven_flash_v2_5"));
    assert.equal((await client.user.get()).subscription.status, "active");
    assert.equal((await client.user.subscription.get()).tier, "self-hosted");
    assert.equal((await client.voices.settings.getDefault()).speed, 1);
    assert.equal((await client.voices.settings.get(voice)).speed, 1);
  },
  async an_interruption_does_not_reach_the_next_answer() {
    const stream = await client.textToSpeech.stream(voice, { ...request, text: text.repeat(50) });
    const reader = stream.getReader();
    await reader.read();
    await reader.cancel();
    const length = await seconds(await client.textToSpeech.stream(voice, request));
    assert.ok(length > 1.1 && length < 1.4, String(length));
  },
  async errors_are_its_own() {
    await assert.rejects(client.textToSpeech.convert("nobody", request), (error) => {
      assert.ok(error instanceof ElevenLabsError, String(error));
      assert.equal(error.statusCode, 404);
      return true;
    });
  },
};

for (const run of Object.values(cases)) await run();
const manifest = new URL("./node_modules/@elevenlabs/elevenlabs-js/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ version, passed: Object.keys(cases) }));
process.exit(0); // the SDK keeps a connection
