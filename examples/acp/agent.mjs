// An agent on the TypeScript SDK of the Agent Client Protocol. As an executor it writes what
// the example's spec asks for, and asks before it runs a command; as a reviewer it tries what
// was made, and gives its verdict as the last of its text. Where this one has rules, yours
// asks a model.
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const { session } = acp.methods.client;
const folders = new Map();

// build writes the file, and makes it a program if that is allowed.
async function build(client, sessionId, folder) {
  const file = join(folder, "count.sh");
  writeFileSync(file, '#!/bin/sh\nwc -w < "$1" | tr -d " "\n');
  const toolCall = {
    toolCallId: "1",
    title: "Make count.sh a program",
    kind: "execute",
    rawInput: { command: ["chmod", "+x", "count.sh"] },
  };
  await client.notify(session.update, { sessionId, update: { sessionUpdate: "tool_call", status: "pending", ...toolCall } });
  const { outcome } = await client.request(session.requestPermission, {
    sessionId,
    toolCall,
    options: [
      { optionId: "yes", name: "Allow", kind: "allow_once" },
      { optionId: "no", name: "Reject", kind: "reject_once" },
    ],
  });
  if (outcome.optionId !== "yes") return "refusal";
  execFileSync("chmod", ["+x", file]);
  await client.notify(session.update, { sessionId, update: { sessionUpdate: "tool_call_update", toolCallId: "1", status: "completed" } });
  return "end_turn";
}

// review looks at what is asked about: the spec, or what was made.
async function review(client, sessionId, folder, prompt) {
  const verdict = { verdict: "approved", summary: "It can be tested.", findings: [] };
  if (!prompt.includes("You judge the specification alone")) {
    const three = join(mkdtempSync(join(tmpdir(), "review-")), "three");
    writeFileSync(three, "one two three\n");
    const got = execFileSync(join(folder, "count.sh"), [three]).toString().trim();
    rmSync(dirname(three), { recursive: true });
    verdict.summary = `For three words it prints ${got}.`;
    if (got !== "3") {
      verdict.verdict = "changes_requested";
      verdict.findings.push({ severity: "major", message: `it prints ${got}, and not 3`, file: "count.sh" });
    }
  }
  const content = { type: "text", text: JSON.stringify(verdict) };
  await client.notify(session.update, { sessionId, update: { sessionUpdate: "agent_message_chunk", content } });
  return "end_turn";
}

acp
  .agent({ name: "example" })
  .onRequest(acp.methods.agent.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION, agentCapabilities: {} }))
  .onRequest(acp.methods.agent.session.new, ({ params }) => {
    const sessionId = randomUUID();
    folders.set(sessionId, params.cwd);
    return { sessionId };
  })
  .onRequest(acp.methods.agent.session.prompt, async ({ params, client }) => {
    const { sessionId } = params;
    const prompt = params.prompt.map((part) => part.text ?? "").join("\n");
    const work = prompt.startsWith("You make attempt") ? build : review;
    return { stopReason: await work(client, sessionId, folders.get(sessionId), prompt) };
  })
  .connect(acp.ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
