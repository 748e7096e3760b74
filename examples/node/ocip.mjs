// A small client of ocipd: what bot.mjs asks. Node 18, no packages.
import { randomUUID } from "node:crypto";
import { createConnection } from "node:net";
import { createInterface } from "node:readline";

export function fail(message) {
  console.error(message);
  process.exit(1);
}

export class Ocipd {
  #asked = new Map();
  #socket;
  #token;
  #early = [];
  #resolved = (approval) => this.#early.push(approval);

  // connect registers the app.
  static async connect(app) {
    const o = new Ocipd();
    const { OPENCLAWOS_KERNEL_SOCKET, XDG_RUNTIME_DIR } = process.env;
    const base = XDG_RUNTIME_DIR ? `${XDG_RUNTIME_DIR}/openclawos` : `/tmp/openclawos-${process.getuid()}`;
    const path = OPENCLAWOS_KERNEL_SOCKET || `${base}/kernel.sock`;
    o.#socket = createConnection(path);
    o.#socket.on("error", (e) => fail(`ocipd does not answer on ${path} (${e.code}); start it: ocipd serve`));
    o.#socket.on("close", () => fail("ocipd has closed the connection: nothing is sent without it"));
    createInterface({ input: o.#socket }).on("line", (line) => {
      const frame = JSON.parse(line);
      if (frame.type === "response") {
        const { answer, refuse } = o.#asked.get(frame.requestId) ?? {};
        o.#asked.delete(frame.requestId);
        if (frame.success) answer?.(frame.result);
        else refuse?.(Object.assign(new Error(frame.error.message), { code: frame.error.code }));
      } else if (frame.event === "approval:resolved") o.#resolved(frame.payload);
    });
    const manifest = { id: app, name: "Example bot", version: "1.0.0", type: "app", main: "bot.mjs",
      protocol: { version: "1.0" }, capabilities: { redeem: true } };
    try {
      o.#token = (await o.ask("app.register", { manifest })).token;
      await o.ask("app.ready");
    } catch (e) {
      fail(`ocipd refuses app ${app}: ${e.code}: ${e.message}`);
    }
    return o;
  }

  // whenResolved has what people decide, and have decided, passed on.
  whenResolved(resolved) {
    this.#resolved = resolved;
    this.#early.forEach(resolved);
  }

  ask(method, params = {}) {
    const id = randomUUID();
    this.#socket.write(JSON.stringify({ id, type: "request", timestamp: Date.now(), method, params, token: this.#token }) + "\n");
    return new Promise((answer, refuse) => this.#asked.set(id, { answer, refuse }));
  }

  // decide: may this text leave? An error is a refusal too.
  decide(sessionKey, content) {
    return this.ask("hook.emit", { hookName: "message_sending", data: { sessionKey, content } })
      .catch(({ code, message }) => ({ allowed: false, ocip: { code, reason: message } }));
  }

  // redeemable is what was approved, and nobody has taken yet.
  async redeemable() {
    return (await this.ask("approval.redeemable")).approvals.map((a) => ({ ...a, resolution: "approved" }));
  }

  // redeem takes what was approved: {claim, data}. It is given once; undefined is for who comes after.
  redeem(approvalId) {
    return this.ask("approval.redeem", { approvalId }).catch((e) => {
      if (e.code !== "CONFLICT") console.error(`cannot take ${approvalId}: ${e.message}`);
    });
  }

  // deliver sends, and tells ocipd what became of the message. One that may have left is
  // not sent again unless a person says so.
  async deliver(message, send) {
    let outcome = "sent";
    try {
      await send();
    } catch (e) {
      console.error(`cannot tell whether it was sent: ${e.message}`);
      outcome = "unknown";
    }
    await this.ask("approval.confirm", { ...message, outcome });
  }
}
