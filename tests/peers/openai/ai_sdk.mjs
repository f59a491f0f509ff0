// Vercel's AI SDK against ../server.py: prints the cases that passed, as JSON. node ai_sdk.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, generateSpeech } from "ai";

const [url, key] = process.argv.slice(2);
const openai = (apiKey = key) => createOpenAI({ baseURL: `${url}/v1`, apiKey }).speech("gpt-4o-mini-tts");
const text = "One two three four five six.";
const request = { model: openai(), text, voice: "alloy", outputFormat: "pcm", maxRetries: 0 };

const cases = {
  async a_text_is_spoken_in_the_default_format() {
    const { audio, warnings } = await generateSpeech({ model: openai(), text });
    assert.equal(audio.mediaType, "audio/mpeg");
    assert.ok(audio.uint8Array.length > 1000);
    assert.deepEqual(warnings, []);
  },
  async every_format_with_instructions_and_speed() {
    for (const outputFormat of ["mp3", "opus", "aac", "flac", "wav", "pcm"]) {
      const { audio } = await generateSpeech({ ...request, outputFormat, instructions: "Softly.", speed: 1.1 });
      assert.ok(audio.uint8Array.length > 1000, outputFormat);
    }
  },
  async an_interruption_is_an_aborted_request() {
    const abort = new AbortController();
    const long = generateSpeech({ ...request, text: text.repeat(50), abortSignal: abort.signal });
    setTimeout(() => abort.abort(), 50);
    await assert.rejects(long, (error) => (error.cause ?? error).name === "AbortError");
    const { audio } = await generateSpeech(request);
    const length = audio.uint8Array.length / 48000;
    assert.ok(length > 1.1 && length < 1.4, String(length));
  },
  async errors_are_its_own() {
    for (const [fields, status] of [
      [{ voice: "unknown" }, 400],
      [{ model: openai("wrong") }, 401],
    ]) {
      await assert.rejects(generateSpeech({ ...request, ...fields }), (error) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.equal(error.statusCode, status);
        return true;
      });
    }
  },
};

for (const run of Object.values(cases)) await run();
const manifest = new URL("./node_modules/ai/package.json", import.meta.url);
const { version } = JSON.parse(readFileSync(manifest, "utf8"));
console.log(JSON.stringify({ version, passed: Object.keys(cases) }));
