#!/usr/bin/env node
// A bot that lets ocipd decide before it sends. Node 18; the package @openclawos/ocipd is in sdk/node.
//
// Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
// that a person must decide about is sent as soon as it is approved.
import { createInterface } from "node:readline";
import * as networks from "./networks.mjs"; // Telegram, Slack, IRC and e-mail
import { App } from "../../sdk/node/index.js"; // or: from "@openclawos/ocipd"

// Replace this with your chat network's own call, such as those of networks.mjs.
const say = ({ sessionKey, content }) => console.log(`sent ${sessionKey}: ${content.split("\n")[0]}`);
const app = await App.connect({
  id: process.env.BOT_APP ?? "@example/bot",
  send: process.argv.includes("--networks") ? networks.send : say,
  resolved: ({ released, resolution, approvalId }) => released || console.log(`${resolution} ${approvalId}`),
}).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
for await (const line of createInterface({ input: process.stdin })) {
  const [session, text] = [line.slice(0, line.indexOf(" ")), line.slice(line.indexOf(" ") + 1)];
  const { allowed, held, approvalId, code, reason, error } = await app.deliver(session, text);
  if (held) console.log(`held ${session}: ${approvalId}`); // a repetition is the same request
  else if (!allowed) console.log(`refused ${session}: ${code}: ${reason}`);
  else if (error) console.error(`cannot tell whether it was sent: ${error.message}`);
}
await app.wait();
await app.close();
