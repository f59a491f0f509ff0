// Sends the requests of the page's forms to this server. The key stays in this tab.
const key = document.getElementById("key");
key.value = sessionStorage.getItem("key") ?? "";
key.addEventListener("input", () => sessionStorage.setItem("key", key.value));

function requestOf(form) {
  const { method, path, content } = form.dataset;
  const url = new URL(location.origin);
  const query = new URLSearchParams();
  const headers = key.value ? { authorization: `Bearer ${key.value}` } : {};
  let pathname = path, body;
  const fields = new FormData();
  for (const field of form.elements) {
    if (!field.name) continue;
    const [place, name] = [field.dataset.in, field.name];
    if (place === "path") pathname = pathname.replace(`{${name}}`, encodeURIComponent(field.value));
    else if (place === "query") { if (field.value) query.set(name, field.value); }
    else if (place === "header") { if (field.value) headers[name] = field.value; }
    else if (place === "form") { if (field.files?.[0] ?? field.value) fields.set(name, field.files?.[0] ?? field.value); }
    else body = field.value;
  }
  if (content === "multipart/form-data") body = fields;
  else if (body !== undefined) headers["content-type"] = content;
  url.pathname = pathname;
  url.search = query;
  return [url, { method, headers, body }];
}

async function show(response, output) {
  const kind = response.headers.get("content-type") ?? "";
  output.textContent = `${response.status} ${response.statusText} ${kind}\n`;
  if (/^audio\/(?!l16|pcm|basic)/i.test(kind)) {
    const player = document.createElement("audio");
    player.controls = true;
    player.src = URL.createObjectURL(await response.blob());
    output.append(player);
    return;
  }
  if (/^(audio|application\/octet-stream)/i.test(kind)) {
    output.append(`${(await response.arrayBuffer()).byteLength} bytes`);
    return;
  }
  const text = await response.text();
  try {
    output.append(JSON.stringify(JSON.parse(text), null, 2));
  } catch {
    output.append(text);
  }
}

// A browser gives a WebSocket no headers: the page's cookie, which the server sets for the key, stands for it.
const sockets = new Map(); // by form
async function converse(form, output) {
  sockets.get(form)?.close();
  if (key.value) await fetch("/", { headers: { authorization: `Bearer ${key.value}` } });
  const { address, messages } = form.elements;
  const socket = new WebSocket(new URL(address.value, location.href.replace(/^http/, "ws")));
  sockets.set(form, socket);
  socket.binaryType = "arraybuffer";
  socket.onopen = () => {
    output.textContent = "Open.\n";
    for (const line of messages.value.split("\n")) if (line.trim()) socket.send(line);
  };
  socket.onmessage = ({ data }) => output.append(typeof data === "string" ? `${shortened(data)}\n` : `${data.byteLength} bytes\n`);
  socket.onclose = ({ code, reason }) => output.append(`Closed, ${code} ${reason}\n`);
}
const shortened = (text) => (text.length > 500 ? `${text.slice(0, 500)}… ${text.length} characters` : text);

document.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const output = form.querySelector("output");
  output.textContent = "Waiting for the answer.";
  try {
    if (form.dataset.socket) return await converse(form, output);
    const [url, options] = requestOf(form);
    await show(await fetch(url, options), output);
  } catch (error) {
    output.textContent = `The request failed: ${error.message}`;
  }
});
