#!/usr/bin/env node
// Carries out the steps of sdk/conformance.json with the Node SDK. sdk/README.md describes the lines.
import { createInterface } from "node:readline";

const { Agent, App, grantText, NotSent, Operator } = await import(process.env.OCIPD_NODE ?? "./index.js");
const at = new Map();
const answers = new Map();
const streams = new Map();
let events = 0;

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function ask(as, what, data) {
  const event = ++events;
  const answer = new Promise((given) => answers.set(event, given));
  say({ as, event, what, data });
  const { error, notSent, content } = await answer;
  if (notSent) throw new NotSent(notSent);
  if (content) data.content = content;
  if (error) throw new Error(error);
}

function connect(as, action, { id, channels = [], receive, intercept, send, line, token }) {
  const options = { timeout: 20_000, retry: 100, connection: (cause) => say({ as, what: cause ? "lost" : "back" }), ...(line && { maxLine: line }) };
  if (action === "attach") return Agent.connect(token, options);
  if (action === "operate") return Operator.connect(options);
  const handler = (what) => (data) => ask(as, what, data);
  return App.connect({
    ...options, id, channels: Object.fromEntries(channels.map((channel) => [channel, handler("message")])),
    receive: receive && handler("received"), intercept: intercept && handler("intercept"), send: send && handler("send"),
    resolved: ({ approvalId, resolution }) => say({ as, what: "resolved", data: { approvalId, resolution } }),
  });
}

async function chunks(as, stream) {
  let code = "";
  try {
    for await (const data of stream) say({ as, what: "chunk", data });
  } catch (error) {
    code = error.code;
  }
  say({ as, what: "end", data: { code } });
}

const steps = {
  close: (c) => c.close(),
  dispatch: (c, g) => c.dispatch(g.session, g.content),
  queue: (c, g) => c.queue(g.session, g.text),
  complete: (c, g) => c.complete(g.run),
  deliver: (c, g) => c.deliver(g.session, g.content),
  tool: (c, g) => c.tool(g.call.toolName, g.call.params),
  await: (c, g) => c.outcome(g.approval),
  wait: (c) => c.wait(),
  call: (c, g) => c.call(g.method, g.params),
  send: (c, g) => c.send(g.to, g.text),
  read: (c) => c.read({ wait: 10 }),
  grants: async (c, g) => ({ grants: await c.grants(g.agent) }),
  toSign: (c, g) => ({ text: grantText(g.grant) }),
  addGrant: (c, g) => c.addGrant(g.grant, g.signature),
  revokeGrant: async (c, g) => ({ changed: await c.revokeGrant(g.id) }),
};

async function step({ n, as, do: action, with: given }) {
  try {
    if (["register", "attach", "operate"].includes(action)) {
      at.set(as, await connect(as, action, given));
      say({ n });
    } else if (action === "stream") {
      streams.set(as, await at.get(as).stream(given.method, given.params));
      chunks(as, streams.get(as));
      say({ n });
    } else if (action === "cancel") {
      await streams.get(as).close();
      say({ n });
    } else say({ n, result: await steps[action](at.get(as), given) });
  } catch (error) {
    say({ n, error: { code: error.code ?? "", message: error.message, verdict: error.verdict?.code ?? "" } });
  }
}

for await (const text of createInterface({ input: process.stdin })) {
  const line = JSON.parse(text);
  if (line.answer) answers.get(line.answer)(line.with);
  else step(line);
}
process.exit(0);
