#!/usr/bin/env node
// A bot that lets ocipd decide before it sends. Node 18, no packages.
//
// Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
// that a person must decide about is sent once it is approved.
import { randomUUID } from "node:crypto";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";

const app = { id: "@example/bot", name: "Example bot", version: "1.0.0", type: "app", main: "bot.mjs",
  protocol: { version: "1.0" }, capabilities: {} };
const path = process.env.OPENCLAWOS_KERNEL_SOCKET ?? `${process.env.XDG_RUNTIME_DIR}/openclawos/kernel.sock`;

// Replace this with your chat network's own call, such as Telegram's sendMessage.
function send(session, content) {
  console.log(`sent ${session}: ${content.split("\n")[0]}`);
}

function fail(message) {
  console.error(message);
  process.exit(1);
}

const socket = createConnection(path);
socket.on("error", (e) => fail(`cannot reach ocipd: ${e.message}`));
socket.on("close", () => fail("ocipd has closed the connection: nothing is sent without it"));
const asked = new Map();
const pending = new Set();
let token, atEnd = false;

createInterface({ input: socket }).on("line", (line) => {
  const frame = JSON.parse(line);
  if (frame.type === "response") {
    asked.get(frame.requestId)?.(frame.success ? frame.result : { allowed: false, error: frame.error });
    asked.delete(frame.requestId);
  } else if (frame.event === "approval:resolved") {
    resolved(frame.payload);
  }
});

function ask(method, params = {}) {
  const id = randomUUID();
  socket.write(JSON.stringify({ id, type: "request", timestamp: Date.now(), method, params, token }) + "\n");
  return new Promise((answer) => asked.set(id, answer));
}

// What people decide comes as events.
function resolved({ approvalId, resolution, data }) {
  if (!pending.delete(approvalId)) return;
  if (data) send(data.sessionKey, data.content);
  else console.log(`${resolution} ${approvalId}`);
  if (atEnd && pending.size === 0) process.exit(0);
}

const registered = await ask("app.register", { manifest: app });
if (registered.error) fail(`ocipd refuses this app: ${registered.error.message}`);
token = registered.token;
await ask("app.ready");

for await (const line of createInterface({ input: process.stdin })) {
  const blank = line.indexOf(" ");
  const [session, text] = [line.slice(0, blank), line.slice(blank + 1)];
  const answer = await ask("hook.emit", { hookName: "message_sending", data: { sessionKey: session, content: text } });
  if (answer.allowed) {
    send(session, answer.data.content); // what was decided about, not what was asked
  } else if (answer.held) {
    pending.add(answer.approvalId);
    console.log(`held ${session}: ${answer.approvalId}`);
  } else {
    console.log(`refused ${session}: ${(answer.ocip ?? answer.error).code}`);
  }
}
atEnd = true;
if (pending.size === 0) process.exit(0);
