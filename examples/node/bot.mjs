#!/usr/bin/env node
// A bot that lets ocipd decide before it sends. Node 18, no packages; ocip.mjs is beside it.
//
// Reads lines "SESSION TEXT" from stdin and sends each text that ocipd allows. A text
// that a person must decide about is sent as soon as it is approved.
import { createInterface } from "node:readline";
import * as networks from "./networks.mjs"; // Telegram, Slack, IRC and e-mail
import { Ocipd } from "./ocip.mjs";

// Replace this with your chat network's own call, such as those of networks.mjs.
const say = (session, content) => console.log(`sent ${session}: ${content.split("\n")[0]}`);
const send = process.argv.includes("--networks") ? networks.send : say;
const pending = new Set();
let atEnd = false;

async function resolved({ approvalId, resolution }) {
  pending.add(approvalId);
  if (!["approved", "taken_over"].includes(resolution)) console.log(`${resolution} ${approvalId}`);
  else {
    const taken = await ocipd.redeem(approvalId);
    if (taken) await ocipd.deliver({ claim: taken.claim }, () => send(taken.data.sessionKey, taken.data.content));
  }
  pending.delete(approvalId);
  if (atEnd && pending.size === 0) process.exit(0);
}

const ocipd = await Ocipd.connect(process.env.BOT_APP ?? "@example/bot");
ocipd.whenResolved(resolved);
for (const approval of await ocipd.redeemable()) await resolved(approval); // approved while no bot ran
for await (const line of createInterface({ input: process.stdin })) {
  const [session, text] = [line.slice(0, line.indexOf(" ")), line.slice(line.indexOf(" ") + 1)];
  const { allowed, held, approvalId, data, ocip } = await ocipd.decide(session, text);
  if (allowed) {
    await ocipd.deliver({ dispatchId: data.dispatchId }, () => send(session, data.content)); // what was decided about, not what was asked
  } else if (held) {
    pending.add(approvalId); // a repetition is the same request
    console.log(`held ${session}: ${approvalId}`);
  } else console.log(`refused ${session}: ${ocip.code}: ${ocip.reason}`);
}
atEnd = true;
if (pending.size === 0) process.exit(0);
