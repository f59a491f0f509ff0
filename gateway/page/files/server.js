// Requests to the server, in the terms of its documented APIs, with its errors as sentences.

export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status; // 0: no answer
  }
}

// Returns the response of a request that succeeded. body: an object, sent as JSON, or a FormData.
export async function request(method, path, body, signal) {
  const isForm = body instanceof FormData;
  const headers = body && !isForm ? { "Content-Type": "application/json" } : {};
  const content = body && !isForm ? JSON.stringify(body) : body;
  let response;
  try {
    response = await fetch(path, { method, headers, body: content, signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError(`The server at ${location.host} does not answer.`);
  }
  if (!response.ok) throw new ServerError(await describe(response), response.status);
  return response;
}

export const json = async (method, path, body, signal) => (await request(method, path, body, signal)).json();

// Lines of JSON, as they arrive.
export async function* lines(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(async (error) => {
      if (error.name === "AbortError") throw error;
      await request("GET", "/v1/server"); // which names a key that is not valid any more, or a server that is gone
      throw new ServerError("The server stopped in the middle of the speech.");
    });
    const parts = (rest + decoder.decode(value, { stream: !done })).split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
    if (done) break;
  }
  if (rest.trim()) yield JSON.parse(rest);
}

async function describe(response) {
  const answer = await response.json().catch(() => ({}));
  const said = answer.error?.message ?? answer.error ?? `The server answered ${response.status}.`;
  if (response.status === 401) return "Your key is not valid any more. Reload the page to enter another one.";
  const wait = response.headers.get("retry-after");
  return sentence(said) + (wait ? ` Try again in ${wait} s.` : "");
}

function sentence(text) {
  const end = /[.!?]$/.test(text) ? "" : ".";
  return text[0].toUpperCase() + text.slice(1) + end;
}
