// The connection to ocipd: JSON lines over its kernel socket. One connection stands for
// the Gateway as long as its process lives; it is made when something is first asked, and
// again when it ends.
import { AsyncLocalStorage } from "node:async_hooks";
import { randomUUID } from "node:crypto";
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { createConnection } from "node:net";

/**
 * Runs something outside of what called it. The connection outlives the request in which it
 * is made, and OpenClaw takes back a request's rights with it. Where OpenClaw loads its
 * plugins again, this file is read within a request too; a connection that the Gateway
 * accepts belongs to none yet.
 */
let detached = AsyncLocalStorage.snapshot();
const accepted = () => {
  detached = AsyncLocalStorage.snapshot();
  unsubscribe("net.server.socket", accepted);
};
subscribe("net.server.socket", accepted);

/** What is asked and not answered in this time, in milliseconds, counts as refused. */
const ANSWER_TIME = 10_000;
/** How long is waited before the next attempt to connect, in milliseconds. */
const RETRY_TIME = 1_000;
/** How often, and how far apart in milliseconds, another process is waited for to end. */
const CONFLICT_TRIES = 20, CONFLICT_TIME = 100;
/** How often ocipd is told that the Gateway is well, in milliseconds. */
const BEAT_TIME = 20_000;
/** The longest line that is read, in bytes. ocipd's own limit is lower. */
const MAX_LINE = 32 << 20;

/** An answer of ocipd that is an error, or the lack of one. */
export class KernelError extends Error {
  /** @param {string} message @param {string} code */
  constructor(message, code) {
    super(message);
    this.code = code;
  }
}

export class Kernel {
  /**
   * @param {object} o
   * @param {string} o.socket path of the kernel socket
   * @param {object} o.manifest what the app registers with
   * @param {(event: any) => void} o.resolved hears of approval:resolved
   * @param {() => void} o.connected is called after each registration
   */
  constructor({ socket, manifest, resolved, connected }) {
    Object.assign(this, { socket, manifest, resolved, connected });
    this.waiting = new Map();
    this.link = null;
    this.opening = null;
    this.retry = null;
    this.ended = false;
  }

  /** Asks ocipd, and throws a KernelError where it refuses or does not answer. */
  async ask(method, params, time = ANSWER_TIME) {
    const link = await this.open();
    return this.call(link, method, params, time);
  }

  /** Ends the connection for good. */
  close() {
    this.ended = true;
    clearTimeout(this.retry);
    this.link?.stream.destroy();
  }

  open() {
    if (this.link) return Promise.resolve(this.link);
    this.opening ??= detached(() => this.register()).finally(() => { this.opening = null; });
    return this.opening;
  }

  async register() {
    if (this.ended) throw new KernelError("the Gateway is ending", "CLOSED");
    const stream = createConnection(this.socket);
    const link = { stream, token: undefined };
    await new Promise((done, failed) => {
      stream.once("connect", done);
      stream.once("error", (e) => failed(new KernelError(`ocipd cannot be reached at ${this.socket} (${e.code}); start it with: ocipd serve`, "UNREACHABLE")));
    }).catch((e) => { this.again(); throw e; });
    stream.on("error", () => {});
    stream.on("close", () => this.lost(link));
    this.read(link);
    try {
      link.token = this.token; // by which a lost connection is taken over
      for (let tries = CONFLICT_TRIES; ; tries--) {
        try {
          link.token = this.token = (await this.call(link, "app.register", { manifest: this.manifest })).token;
          break;
        } catch (e) {
          // The process before may be ending still.
          if (e.code !== "CONFLICT" || tries === 0) throw e;
          link.token = undefined;
          await new Promise((next) => setTimeout(next, CONFLICT_TIME));
        }
      }
      await this.call(link, "app.ready", {});
    } catch (e) {
      stream.destroy();
      throw e;
    }
    this.link = link;
    // The Gateway may end while it is connected.
    stream.unref();
    link.beat = setInterval(() => this.call(link, "app.heartbeat", {}).catch(() => {}), BEAT_TIME);
    link.beat.unref();
    detached(() => this.connected());
    return link;
  }

  read(link) {
    let parts = [], size = 0;
    link.stream.on("data", (data) => {
      for (let at = 0; ;) {
        const end = data.indexOf(10, at);
        if (end < 0) {
          parts.push(data.subarray(at));
          size += data.length - at;
          if (size > MAX_LINE) link.stream.destroy();
          return;
        }
        parts.push(data.subarray(at, end));
        const line = Buffer.concat(parts).toString();
        parts = [];
        size = 0;
        at = end + 1;
        this.take(link, line);
      }
    });
  }

  take(link, line) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      link.stream.destroy(); // what comes after cannot be believed either
      return;
    }
    if (frame.type === "event" && frame.event === "approval:resolved") {
      detached(() => this.resolved(frame.payload));
      return;
    }
    const asked = frame.type === "response" && this.waiting.get(frame.requestId);
    if (!asked || asked.link !== link) return;
    this.waiting.delete(frame.requestId);
    clearTimeout(asked.timer);
    if (frame.success) asked.done(frame.result);
    else asked.failed(new KernelError(frame.error?.message ?? "ocipd refused without a reason", frame.error?.code ?? "UNKNOWN"));
  }

  call(link, method, params, time = ANSWER_TIME) {
    const id = randomUUID();
    return new Promise((done, failed) => {
      // A Gateway that is busy runs its timers before it reads: what has come meanwhile is
      // looked at first.
      const timer = setTimeout(() => setImmediate(() => {
        if (!this.waiting.delete(id)) return;
        failed(new KernelError(`ocipd did not answer ${method} in ${time / 1000} s`, "TIMEOUT"));
        // A late allow is no allow: ocipd notes of one whose connection has ended that
        // nobody took it.
        link.stream.destroy();
      }), time);
      this.waiting.set(id, { link, done, failed, timer });
      link.stream.write(JSON.stringify({ id, type: "request", timestamp: Date.now(), method, params, token: link.token }) + "\n");
    });
  }

  lost(link) {
    clearInterval(link.beat);
    for (const [id, asked] of this.waiting) {
      if (asked.link !== link) continue;
      this.waiting.delete(id);
      clearTimeout(asked.timer);
      asked.failed(new KernelError("the connection to ocipd ended before it answered", "LOST"));
    }
    if (this.link === link) this.link = null;
    this.again();
  }

  // What people decide meanwhile is told when the connection stands again.
  again() {
    if (this.ended || this.retry) return;
    this.retry = detached(() => setTimeout(() => {
      this.retry = null;
      this.open().catch(() => this.again());
    }, RETRY_TIME));
    this.retry.unref();
  }
}
