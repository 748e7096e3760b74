// Agents without an app, and operators.
import { randomUUID } from "node:crypto";
import { dirname, join } from "node:path";
import { defaultSocket, Session } from "./session.js";

export class Agent extends Session {
  #grant;

  static connect(token, options) {
    const agent = new Agent(options);
    agent.#grant = token;
    return agent.open();
  }

  greet(link) {
    return link.call("task.attach", { token: this.#grant }, undefined, this.timeout);
  }

  send(to, text) {
    return this.request("agent.send", { to, text, request_key: randomUUID() }, true);
  }

  read({ cursor, wait } = {}) {
    return this.call("agent.read", { cursor, wait_s: wait });
  }
}

export class Operator extends Session {
  static connect(options) {
    return new Operator({ socket: join(dirname(defaultSocket()), "operator.sock"), ...options }).open();
  }

  async grants(agent) {
    const list = [];
    let after;
    do {
      const page = await this.call("grant.list", { agent, after });
      list.push(...page.grants);
      after = page.next;
    } while (after);
    return list;
  }

  async addGrant(grant, signature) {
    return (await this.call("grant.add", { ...grant, signature })).grant;
  }

  async revokeGrant(grantId) {
    return (await this.call("grant.revoke", { grantId })).changed;
  }
}

export function grantText({ grantId, agent, receiver, words, classification, until, maxUses }) {
  for (const name of [grantId, agent, receiver])
    if (!/^[ !#-[\]-~]*$/.test(name)) throw new TypeError(`cannot write ${JSON.stringify(name)} into a text to sign: it is no printable ASCII without quotes`);
  return `ocipd grant v1\n"${grantId}"\nfrom "${agent}"\nto "${receiver}"\nuses ${maxUses}\nwords ${words.join(",")}\n` +
    `classification ${classification}\nround 0\nuntil ${new Date(until).toISOString()}\n`;
}
