// Programs that speak what the page speaks, to be copied: each has this server's address, the text and the options.

export const SNIPPETS = { curl, Python: python, JavaScript: javascript, Pipecat: pipecat, "Dial plan": dialPlan };

const KEY = "VIVAVOCE_KEY"; // the variable of the environment that has the key; the page never sees the key
const OPENAI_FIELDS = ["instructions", "speed"]; // that the library has itself
const shellQuoted = (text) => `'${text.replace(/'/g, `'\\''`)}'`;
const asJson = (value) => JSON.stringify(value, null, 2);

// speech: { origin, needsKey, text, options }
function curl({ origin, needsKey, text, options }) {
  return [
    `curl --fail-with-body ${origin}/v1/audio/speech \\`,
    ...(needsKey ? [`  -H "Authorization: Bearer $${KEY}" \\`] : []),
    `  -d ${shellQuoted(asJson({ input: text, ...options, response_format: "mp3" }))} -o speech.mp3`,
  ].join("\n");
}

function python({ origin, needsKey, text, options }) {
  const further = Object.fromEntries(Object.entries(options).filter(([name]) => !["voice", ...OPENAI_FIELDS].includes(name)));
  const own = OPENAI_FIELDS.filter((name) => name in options).map((name) => `    ${name}=${pythonValue(options[name])},`);
  return [
    ...(needsKey ? ["import os", ""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${origin}/v1", api_key=${needsKey ? `os.environ["${KEY}"]` : '"none"'})`,
    "with client.audio.speech.with_streaming_response.create(",
    '    model="tts-1",',
    `    voice=${pythonValue(options.voice)},`,
    `    input=${pythonValue(text)},`,
    ...own,
    '    response_format="mp3",',
    ...(Object.keys(further).length ? [`    extra_body=${pythonValue(further)},`] : []),
    ") as speech:",
    '    speech.stream_to_file("speech.mp3")',
  ].join("\n");
}

// JSON of strings, numbers and objects of them is Python too.
const pythonValue = (value) => JSON.stringify(value);

function javascript({ origin, needsKey, text, options }) {
  const headers = needsKey
    ? `{ "Content-Type": "application/json", Authorization: \`Bearer \${process.env.${KEY}}\` }`
    : '{ "Content-Type": "application/json" }';
  return [
    'import { writeFile } from "node:fs/promises";',
    "",
    `const speech = await fetch("${origin}/v1/audio/speech", {`,
    '  method: "POST",',
    `  headers: ${headers},`,
    `  body: JSON.stringify(${asJson({ input: text, ...options, response_format: "mp3" }).replace(/\n/g, "\n  ")}),`,
    "});",
    "if (!speech.ok) throw new Error(await speech.text());",
    'await writeFile("speech.mp3", speech.body);',
  ].join("\n");
}

function pipecat({ origin, needsKey, text, options }) {
  const settings = [`voice=${pythonValue(options.voice)}`, ...(options.speed ? [`speed=${options.speed}`] : [])];
  return [
    ...(needsKey ? ["import os", ""] : []),
    "from pipecat.frames.frames import TTSSpeakFrame",
    "from vivavoce.adapters.pipecat import VivavoceWebsocketTTSService",
    "",
    "tts = VivavoceWebsocketTTSService(",
    `    url="${origin.replace(/^http/, "ws")}",`,
    ...(needsKey ? [`    api_key=os.environ["${KEY}"],`] : []),
    `    settings=VivavoceWebsocketTTSService.Settings(${settings.join(", ")}),`,
    ")",
    `greeting = TTSSpeakFrame(${pythonValue(text)})  # or the text of a language model`,
  ].join("\n");
}

// The application System takes its text as it is, but for ";", which begins a comment, and "$", of variables.
function dialPlan({ origin, needsKey, text, options }) {
  const body = JSON.stringify({ input: text, ...options, response_format: "wav", sample_rate: 8_000, stream: false });
  const escaped = body.replace(/'/g, "\\u0027").replace(/\$/g, "\\u0024").replace(/;/g, "\\u003b");
  const key = needsKey ? ` -H "Authorization: Bearer \${${KEY}}"` : "";
  const wav = "/tmp/vivavoce-${UNIQUEID}";
  return [
    ...(needsKey ? [`; [globals] of extensions.conf has the key: ${KEY}=vv_...`] : []),
    "exten => 100,1,Answer()",
    ` same => n,System(curl -sf ${origin}/v1/audio/speech${key} -d '${escaped}' -o ${wav}.wav)`,
    ` same => n,Playback(${wav})`,
    " same => n,Hangup()",
  ].join("\n");
}
