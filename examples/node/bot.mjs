#!/usr/bin/env node
// A bot that lets ocipd decide before it sends. Node 18; the package @openclawos/ocipd is in sdk/node.
//
// Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
// that a person must decide about is sent as soon as it is approved.
import { createInterface } from "node:readline";

const { App } = await import("../../sdk/node/index.js").catch(() => { // or, installed, "@openclawos/ocipd"
  console.error("cannot find the package @openclawos/ocipd: it is in sdk/node beside examples; npm can install it from there");
  process.exit(1);
});

// Replace this with your chat network's own call, such as those of networks.mjs: Telegram, Slack, IRC, e-mail.
const say = ({ sessionKey, content }) => console.log(`sent ${sessionKey}: ${content.split("\n")[0]}`);
const app = await App.connect({
  id: process.env.BOT_APP ?? "@example/bot",
  send: process.argv.includes("--networks") ? (await import("./networks.mjs")).send : say,
  resolved: ({ released, resolution, approvalId }) => released || console.log(`${resolution} ${approvalId}`),
}).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
for await (const line of createInterface({ input: process.stdin })) {
  const [session, ...words] = line.split(" ");
  const { allowed, held, approvalId, code, reason, error } = await app.deliver(session, words.join(" "));
  if (held) console.log(`held ${session}: ${approvalId}`); // a repetition is the same request
  else if (!allowed) console.log(`refused ${session}: ${code}: ${reason}`);
  else if (error) console.error(`sending failed: ${error.message}`);
}
await app.wait();
await app.close();
