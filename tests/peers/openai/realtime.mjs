// Realtime connections of OpenAI's Node SDK against ../server.py: prints the cases that passed, as JSON.
// node realtime.mjs URL KEY POOR_KEY
import assert from "node:assert/strict";
import { once } from "node:events";
import OpenAI from "openai";
import { OpenAIRealtimeWS } from "openai/realtime/ws";
import { VERSION } from "openai/version";

const [url, key] = process.argv.slice(2);
const TEXT = "One two three four five six.";
const pcmBytes = Math.round((6 * 0.2 + 0.02) * 48000);

async function connected(run, apiKey = key) {
  const client = new OpenAI({ apiKey, baseURL: `${url}/v1`, maxRetries: 0 });
  const connection = new OpenAIRealtimeWS({ model: "gpt-realtime" }, client);
  connection.on("error", () => undefined); // else the SDK rejects a promise that nobody awaits
  try {
    await once(connection.socket, "open");
    return await run(connection);
  } finally {
    connection.close();
  }
}

const message = (text, role = "assistant") => ({
  type: "message",
  role,
  content: [{ type: role === "assistant" ? "output_text" : "input_text", text }],
});

// The events of the SDK up to the first of that type.
function until(connection, type, act) {
  const events = [];
  const last = new Promise((resolve) => {
    const take = (event) => {
      events.push(event);
      if (event.type === type) resolve(connection.off("event", take));
    };
    connection.on("event", take);
  });
  act();
  return last.then(() => events);
}

const joined = (events, type) => events.filter((event) => event.type === type).map((event) => event.delta);

async function answer(connection, act) {
  const events = await until(connection, "response.done", act);
  const audio = joined(events, "response.output_audio.delta").map((delta) => Buffer.from(delta, "base64"));
  return {
    audio: Buffer.concat(audio),
    transcript: joined(events, "response.output_audio_transcript.delta").join(""),
    response: events.at(-1).response,
  };
}

const cases = {
  the_sdks_own_example: () =>
    connected(async (connection) => {
      const events = await until(connection, "response.done", () => {
        connection.send({ type: "session.update", session: { type: "realtime", output_modalities: ["text"] } });
        connection.send({ type: "conversation.item.create", item: message("Say a couple paragraphs!", "user") });
        connection.send({ type: "response.create" });
      });
      assert.equal(joined(events, "response.output_text.delta").join(""), "Say a couple paragraphs!");
    }),
  an_assistants_message_is_spoken: () =>
    connected(async (connection) => {
      const output = { voice: "marin", format: { type: "audio/pcm", rate: 24000 } };
      const { audio, transcript, response } = await answer(connection, () => {
        connection.send({ type: "session.update", session: { type: "realtime", audio: { output } } });
        connection.send({ type: "conversation.item.create", item: message(TEXT) });
        connection.send({ type: "response.create" });
      });
      assert.deepEqual([audio.length, transcript, response.status], [pcmBytes, TEXT, "completed"]);
      assert.equal(response.output[0].content[0].transcript, TEXT);
    }),
  an_interruption_is_cut_to_what_was_heard: () =>
    connected(async (connection) => {
      const begun = await until(connection, "response.output_audio.delta", () =>
        connection.send({ type: "response.create", response: { instructions: TEXT.repeat(100) } }),
      );
      const item_id = begun.at(-1).item_id;
      const cut = await answer(connection, () => connection.send({ type: "response.cancel" }));
      assert.equal(cut.response.status, "cancelled");
      const events = await until(connection, "conversation.item.retrieved", () => {
        connection.send({ type: "conversation.item.truncate", item_id, content_index: 0, audio_end_ms: 100 });
        connection.send({ type: "conversation.item.retrieve", item_id });
      });
      assert.ok(["", "One"].includes(events.at(-1).item.content[0].transcript));
    }),
  errors_are_events_of_the_sdk: () =>
    connected(async (connection) => {
      const failed = new Promise((resolve) => connection.on("error", resolve));
      connection.send({ type: "response.cancel", event_id: "mine" });
      const { error } = await failed;
      assert.deepEqual([error.code, error.event_id], ["response_cancel_not_active", "mine"]);
    }),
  a_wrong_key: () => assert.rejects(connected(() => assert.fail("opened"), "wrong"), /401/),
};

for (const run of Object.values(cases)) await run();
console.log(JSON.stringify({ version: VERSION, passed: Object.keys(cases) }));
