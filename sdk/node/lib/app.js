// Apps.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { closed, has, NotSent, Refused } from "./errors.js";
import { before, FIRST_PAUSE, Session } from "./session.js";

const MOST_KNOWN = 1024; // ids of messages and approvals that an app remembers
const GOODBYE = 5_000;

// Known remembers the newest ids, each with a value.
class Known extends Map {
  put(key, value) {
    this.set(key, value);
    if (this.size > MOST_KNOWN) this.delete(this.keys().next().value);
  }
}

// decision is the answer about a text or a tool call.
function decision({ allowed, held = false, approvalId = "", reason = "", data, ocip = {} }) {
  return { allowed, held, approvalId, code: allowed ? "" : ocip.code ?? "", reason: allowed ? "" : ocip.reason ?? reason, data };
}

const settled = (approvalId, resolution, note = "") => ({ approvalId, resolution, note, released: ["approved", "taken_over"].includes(resolution) });

export class App extends Session {
  #o;
  #lanes = { messages: Promise.resolve(), intercepted: Promise.resolve(), resolved: Promise.resolve() };
  #sent = new Known();
  #decided = new Known();
  #held = new Set();
  #listeners = new Set();
  // busy has the events whose functions are under way, ended is told when one ends, and current has that of
  // the calling function.
  #busy = new Set();
  #ended = [];
  #current = new AsyncLocalStorage();
  #started;

  static async connect(options) {
    const app = new App(options);
    // Events wait for their handlers until what was approved before is sent.
    let start;
    app.#started = new Promise((go) => (start = go));
    await app.open();
    try {
      if (options.send) {
        const { approvals } = await app.call("approval.redeemable");
        for (const { approvalId } of approvals) await app.#settle(settled(approvalId, "approved"));
      }
    } catch (error) {
      app.isOver = true;
      start();
      await app.close();
      throw error;
    }
    start();
    return app;
  }

  constructor(options) {
    super(options);
    const { id, name = id, version = "1.0.0", channels = {}, intercept, send } = options;
    this.#o = { ...options, channels };
    this.manifest = {
      id, name, version, type: "app", main: "app", protocol: { version: "1.0" },
      capabilities: { redeem: Boolean(send), acknowledges: true, channels: { provides: Object.keys(channels) }, hooks: { intercepts: intercept ? ["message_sending"] : [] } },
    };
  }

  async greet(link) {
    const ask = (method, params) => link.call(method, params, this.token, this.timeout);
    if (this.token) {
      try {
        return await ask("app.heartbeat");
      } catch (error) {
        if (!has(error, "APP_NOT_REGISTERED", "UNAUTHORIZED")) throw error;
      }
    }
    for (let pause = FIRST_PAUSE; ; pause *= 2) {
      try {
        this.token = (await ask("app.register", { manifest: this.manifest })).token;
        break;
      } catch (error) {
        // An app of the id that has just ended is connected for a moment still.
        if (!has(error, "CONFLICT") || pause > 1_000)
          throw error instanceof Refused ? new Refused(error.code, error.reason, error.details, `ocipd refuses app ${this.#o.id}: `) : error;
        await sleep(pause);
      }
    }
    const grants = Object.keys(this.#o.channels).map((channelId) => ({ type: "channel", config: { channelId } }));
    if (this.#o.intercept) {
      const { denied } = await ask("hook.subscribe", { events: ["message_sending"] });
      if (denied.length > 0) throw new Refused("CAPABILITY_DENIED", `app ${this.#o.id} may not subscribe to message_sending`);
      grants.push({ type: "hook", config: { event: "message_sending", intercept: true } });
    }
    for (const grant of grants) {
      const { granted, reason } = await ask("capability.register", grant);
      if (!granted) throw new Refused("CAPABILITY_DENIED", reason);
    }
    await ask("app.ready");
  }

  take(link, { id, event, payload }) {
    const [lane, handle] = this.#handler(event, payload);
    // What is intercepted is no message of the app, and answered.
    const work = { handle, id, link: lane === "intercepted" ? undefined : link };
    this.count(1);
    this.#lanes[lane] = this.#lanes[lane].then(() => this.#started).then(() => this.#work(work)).finally(() => this.count(-1));
  }

  async #work(work) {
    // The messages of a closed app come to its next run, and those of an ended connection on the next one.
    if (this.isOver || work.link?.isOver) return;
    this.#busy.add(work);
    try {
      if (work.handle) await this.#current.run(work, work.handle);
    } catch (error) {
      if (!has(error, "CONNECTION_CLOSED")) console.error(error); // nobody waits for an answer without a connection
    }
    this.#done(work);
  }

  // done acknowledges the message of an event, once.
  #done(work) {
    work.link?.tell("app.acknowledge", { id: work.id }, this.token);
    work.link = undefined;
    this.#busy.delete(work);
    for (const told of this.#ended.splice(0)) told();
  }

  #handler(event, payload) {
    const { receive, intercept, channels } = this.#o;
    if (event === "approval:resolved") return ["resolved", () => this.#settle(settled(payload.approvalId, payload.resolution, payload.note))];
    const { eventId, data, context } = payload;
    if (event === "hook:message_received") return ["messages", receive && (() => this.#hear(data))];
    if (event !== "hook:message_sending") return ["resolved"];
    // A message that is decided about has the id of the decision's record.
    if (intercept && !context.auditId) return ["intercepted", () => this.#ask(eventId, data)];
    const deliver = channels[data.channelId];
    return ["messages", deliver && (() => this.#deliver(eventId, data, deliver))];
  }

  async #hear(message) {
    if (this.#sent.has(message.dispatchId)) return;
    this.#sent.put(message.dispatchId, {});
    await this.#o.receive(message);
  }

  async #deliver(eventId, message, deliver) {
    let receipt = this.#sent.get(message.dispatchId);
    if (!receipt) {
      try {
        await deliver(message);
        receipt = { delivered: true };
      } catch (error) {
        receipt = { delivered: false, error: String(error?.message ?? error) };
      }
      if (message.dispatchId) this.#sent.put(message.dispatchId, receipt);
    }
    await this.request("hook.result", { eventId, result: receipt }, false);
  }

  async #ask(eventId, message) {
    const was = structuredClone(message);
    const result = {};
    try {
      await this.#o.intercept(message);
      for (const member of ["content", "metadata"]) if (!isDeepStrictEqual(message[member], was[member])) result[member] = message[member];
    } catch (error) {
      Object.assign(result, { block: true, reason: String(error?.message ?? error) });
    }
    await this.request("hook.result", { eventId, result }, false);
  }

  dispatch(sessionKey, content, metadata) {
    return this.call("message.dispatch", { sessionKey, content, metadata });
  }

  queue(sessionKey, text, metadata) {
    return this.call("agent.queue", { sessionKey, text, metadata });
  }

  async complete(runId, error) {
    await this.call("agent.complete", { runId, success: !error, error });
  }

  async deliver(sessionKey, content) {
    const answer = await this.#emit("message_sending", { sessionKey, content });
    if (answer.held && !this.#decided.has(answer.approvalId)) this.#held.add(answer.approvalId);
    if (answer.allowed) answer.error = await this.#give(answer.data, { dispatchId: answer.data.dispatchId });
    return answer;
  }

  tool(toolName, params, { server, agent } = {}) {
    return this.#emit("tool_executing", { toolName, params, mcpServer: server }, agent && { agentId: agent });
  }

  async #emit(hookName, data, context) {
    try {
      return decision(await this.call("hook.emit", { hookName, data, context }));
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      return decision({ allowed: false, ocip: { code: error.code, reason: error.reason } });
    }
  }

  // give hands a text to send, and reports what became of it.
  async #give(text, names) {
    let [failed, outcome] = [undefined, "sent"];
    try {
      if (!this.#o.send) throw new NotSent("the app has no send");
      await this.#o.send(text);
    } catch (error) {
      [failed, outcome] = [error, error instanceof NotSent ? "not_sent" : "unknown"];
    }
    try {
      await this.request("approval.confirm", { ...names, outcome }, true); // a repetition changes nothing
    } catch (error) {
      failed ??= error;
    }
    return failed;
  }

  // settle carries out a decision of a person.
  async #settle(outcome) {
    if (outcome.released && this.#o.send) {
      try {
        const { claim, data } = await this.request("approval.redeem", { approvalId: outcome.approvalId, requestKey: randomUUID() }, true);
        outcome.text = data;
        outcome.error = await this.#give(data, { claim });
      } catch (error) {
        if (!has(error, "CONFLICT")) outcome.error = error; // else it was taken before, by this app or by another one of its id
      }
    }
    try {
      await this.#o.resolved?.(outcome);
    } finally {
      this.#decided.put(outcome.approvalId, outcome);
      this.#held.delete(outcome.approvalId);
      for (const listener of this.#listeners) listener();
    }
  }

  // idle waits until no function is under way.
  async #idle() {
    while (this.#busy.size > 0) await new Promise((told) => this.#ended.push(told));
  }

  // until waits for a change of what the app knows.
  #until(done) {
    return new Promise((end, fail) => {
      const listener = () => {
        if (!done() && !this.isOver) return;
        this.#listeners.delete(listener);
        if (done()) end();
        else fail(closed("the client is closed"));
      };
      this.#listeners.add(listener);
      listener();
    });
  }

  async wait() {
    await this.#until(() => this.#held.size === 0);
  }

  async outcome(approvalId) {
    const { state } = await this.call("approval.get", { approvalId });
    if (state !== "pending") return settled(approvalId, state);
    await this.#until(() => this.#decided.has(approvalId));
    return this.#decided.get(approvalId);
  }

  async close() {
    this.isOver = true;
    const mine = this.#current.getStore();
    if (mine) this.#done(mine);
    await before(Date.now() + GOODBYE, this.#idle());
    if (!this.link.isOver) await this.link.call("app.shutdown", {}, this.token, GOODBYE).catch(() => {}); // it ends in any case
    await super.close();
    for (const listener of this.#listeners) listener();
  }
}
