// Connections that are made again when they end.
import { lstatSync, realpathSync, statSync } from "node:fs";
import { createConnection } from "node:net";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { closed, has, NotRunning, Refused } from "./errors.js";
import { Stream } from "./stream.js";

export const FIRST_PAUSE = 50; // milliseconds
const HEARTBEAT = 30_000; // an app counts as unhealthy after health.unhealthy_after, 90 seconds
const MOST_ATTEMPTS = 3; // of a call whose connection ends: its answer may be the cause

// Bounds of the events and chunks that wait for the caller: the first one holds while no call waits for its
// answer, which stands behind them on the connection.
const MOST_WAITING = 4096;
const MOST_WITH_CALL = 16 * MOST_WAITING;

// Methods of which a repetition has no second effect.
const REPEATABLE = new Set([
  "app.heartbeat", "session.get", "session.list", "config.get", "exchange.get", "exchange.list", "approval.get", "approval.redeemable",
  "agent.read", "agent.contacts", "agent.exchange", "agent.approval", "agent.redeemable", "kernel.describe", "kernel.status", "approval.list",
  "grant.list",
]);

export function defaultSocket() {
  const { OPENCLAWOS_KERNEL_SOCKET, XDG_RUNTIME_DIR } = process.env;
  const base = XDG_RUNTIME_DIR ? join(XDG_RUNTIME_DIR, "openclawos") : `/tmp/openclawos-${process.getuid()}`;
  return OPENCLAWOS_KERNEL_SOCKET || join(base, "kernel.sock");
}

// checkPlace throws if others than this user, root and the socket's owner could have put the socket there.
function checkPlace(path) {
  path = join(realpathSync(dirname(path)), basename(path));
  const mine = [0, process.geteuid()];
  const server = lstatSync(path).uid;
  if (mine.includes(server)) return;
  for (let entry = path; entry !== "/"; entry = dirname(entry)) {
    const above = statSync(dirname(entry));
    const sticky = above.mode & 0o1000 && entry !== path && mine.includes(lstatSync(entry).uid);
    if (![...mine, server].includes(above.uid) || (above.mode & 0o022 && !sticky))
      throw new Error(`cannot trust the daemon at ${path}: user ${server} listens there, and others than you and root can put a socket below ${dirname(entry)}`);
  }
}

// Link is one connection. take gets each event, in order.
export class Link {
  why = "";
  isOver = false;
  #open = new Map();
  #last = 0;
  #parts = [];
  #size = 0;

  constructor(path, maxLine, take) {
    Object.assign(this, { path, maxLine, take });
  }

  async connect() {
    await new Promise((connected, failed) => {
      this.socket = createConnection(this.path, connected);
      this.socket.once("error", (e) => failed(e.code === "EACCES"
        ? new Error(`cannot reach the daemon at ${this.path}: the socket belongs to another user`)
        : new NotRunning(`ocipd does not answer on ${this.path} (${e.code}); start it: ocipd serve`)));
    });
    this.socket.on("error", () => {}); // close follows
    this.socket.on("data", (chunk) => this.#read(chunk));
    this.ended = new Promise((end) => this.socket.once("close", end)).then(() => this.#end());
    try {
      checkPlace(this.path);
    } catch (error) {
      this.close();
      throw error;
    }
  }

  #read(chunk) {
    for (let from = 0; from < chunk.length && !this.isOver; ) {
      const at = chunk.indexOf(10, from);
      const part = chunk.subarray(from, at < 0 ? chunk.length : at);
      this.#parts.push(part);
      this.#size += part.length;
      if (this.#size > this.maxLine) return this.close(`it sent a line longer than ${this.maxLine} bytes`);
      if (at < 0) return;
      const line = Buffer.concat(this.#parts).toString();
      [this.#parts, this.#size, from] = [[], 0, at + 1];
      try {
        if (line.trim()) this.#handOut(JSON.parse(line));
      } catch (error) {
        return this.close(`it sent what is not a message of the protocol: ${error.message}`);
      }
    }
  }

  #handOut(frame) {
    if (frame.type === "event") return this.take(this, frame);
    if (frame.requestId === "" && frame.error) this.why = frame.error.message; // the whole connection is refused
    const { stream, answer, refuse } = this.#open.get(frame.requestId) ?? {};
    if (frame.type === "stream" && stream) {
      // The last chunk is usually empty, but need not be.
      if (!frame.done || frame.chunk != null) stream.put(frame.chunk);
      if (!frame.done) return;
      this.#open.delete(frame.requestId);
      return stream.end();
    }
    if (frame.type !== "response" || (stream && frame.stream && frame.success)) return; // a stream has begun
    this.#open.delete(frame.requestId);
    if (!frame.success) return refuse?.(new Refused(frame.error?.code ?? "UNKNOWN_ERROR", frame.error?.message ?? "", frame.error?.details));
    answer?.(frame.result);
  }

  #end() {
    this.isOver = true;
    for (const { refuse } of this.#open.values()) refuse(this.lost());
    this.#open.clear();
  }

  lost() {
    return closed(`the connection to the daemon at ${this.path} was lost${this.why && ": " + this.why}`);
  }

  // stream asks for an answer in chunks.
  stream(stream, method, params = {}, token) {
    if (this.isOver) return stream.end(this.lost());
    Object.assign(stream, { link: this, id: String(++this.#last) });
    const line = JSON.stringify({ id: stream.id, type: "request", timestamp: Date.now(), method, params, ...(token && { token }) }) + "\n";
    const answer = (result) => {
      stream.put(result); // a method that answers once
      stream.end();
    };
    this.#open.set(stream.id, { stream, answer, refuse: (error) => stream.end(error) });
    this.socket.write(line);
  }

  // tell makes a call without waiting for its answer, which is lost.
  tell(method, params, token) {
    if (this.isOver) return;
    this.socket.write(JSON.stringify({ id: String(++this.#last), type: "request", timestamp: Date.now(), method, params, token }) + "\n");
  }

  // call answers with a method's result. timeout is in milliseconds.
  async call(method, params = {}, token, timeout) {
    if (this.isOver) throw this.lost();
    const id = String(++this.#last);
    const line = JSON.stringify({ id, type: "request", timestamp: Date.now(), method, params, ...(token && { token }) }) + "\n";
    let timer;
    try {
      return await new Promise((answer, refuse) => {
        timer = setTimeout(() => refuse(new Refused("TIMEOUT", `${method} has no answer after ${Math.ceil(timeout / 1000)} seconds`)), timeout);
        this.#open.set(id, { answer, refuse });
        this.socket.write(line);
      });
    } finally {
      clearTimeout(timer);
      this.#open.delete(id);
    }
  }

  close(why = "") {
    this.why ||= why;
    this.isOver = true;
    this.socket.destroy();
  }
}

// Session is what App, Agent and Operator have in common.
export class Session {
  token;
  isOver = false;
  #changed;
  #change;
  #waiting = 0;
  #calls = 0;

  constructor({ socket = defaultSocket(), timeout = 30_000, retry = 5_000, maxLine = 16 << 20, connection = () => {} } = {}) {
    Object.assign(this, { socket, timeout, retry, maxLine, tell: connection });
    this.#renew();
  }

  #renew() {
    const before = this.#change;
    this.#changed = new Promise((change) => (this.#change = change));
    before?.();
  }

  async greet() {}
  take() {}

  // calling counts a call that begins, or one that has its answer.
  calling(n) {
    this.#calls += n;
    this.count(0);
  }

  // count stops reading if too many events and chunks wait, and reads on otherwise.
  count(n) {
    this.#waiting += n;
    const { socket } = this.link ?? {};
    if (this.#waiting >= (this.#calls > 0 ? MOST_WITH_CALL : MOST_WAITING)) socket?.pause();
    else if (socket?.isPaused()) socket.resume();
  }

  async open() {
    const link = await this.#connect();
    this.run(link);
    return this;
  }

  async #connect() {
    const link = new Link(this.socket, this.maxLine, (link, frame) => this.take(link, frame));
    await link.connect();
    try {
      await this.greet(link);
    } catch (error) {
      link.close();
      throw error;
    }
    this.link = link;
    this.#renew();
    return link;
  }

  // run connects again until the session is closed.
  async run(link) {
    for (;;) {
      const beats = setInterval(() => {
        if (this.token) link.call("app.heartbeat", {}, this.token, this.timeout).catch(() => link.close());
      }, HEARTBEAT);
      await link.ended;
      clearInterval(beats);
      let cause = link.lost();
      for (let pause = FIRST_PAUSE; cause; pause = Math.min(2 * pause, this.retry)) {
        if (this.isOver) return this.#renew();
        this.tell(cause);
        await sleep(pause * (0.5 + Math.random() / 2)); // apps must not connect all at once
        if (this.isOver) return this.#renew();
        try {
          link = await this.#connect();
          cause = undefined;
        } catch (error) {
          cause = error;
        }
      }
      this.tell();
    }
  }

  call(method, params) {
    return this.request(method, params, REPEATABLE.has(method));
  }

  async stream(method, params) {
    const stream = new Stream(this);
    (await this.#connection(Date.now() + this.timeout)).stream(stream, method, params, this.token);
    return stream;
  }

  // request is call, repeated if a repetition has no second effect.
  async request(method, params, repeat) {
    this.calling(1);
    try {
      return await this.#attempts(method, params, repeat);
    } finally {
      this.calling(-1);
    }
  }

  async #attempts(method, params, repeat) {
    const end = Date.now() + this.timeout;
    for (let attempt = 1; ; attempt++) {
      const link = await this.#connection(end);
      try {
        return await link.call(method, params, this.token, Math.max(end - Date.now(), 0));
      } catch (error) {
        if (!repeat || attempt === MOST_ATTEMPTS || !has(error, "CONNECTION_CLOSED")) throw error;
        await before(end, link.ended); // a daemon that ends answers so too
      }
    }
  }

  async #connection(end) {
    for (;;) {
      if (this.link && !this.link.isOver) return this.link;
      if (this.isOver || Date.now() >= end) throw closed(`there is no connection to the daemon at ${this.socket}`);
      await before(end, this.#changed);
    }
  }

  async close() {
    this.isOver = true;
    this.link.close();
    await this.link.ended;
  }
}

// before waits for something, at most until a time.
export async function before(end, something) {
  const timer = new AbortController();
  await Promise.race([something, sleep(Math.max(end - Date.now(), 0), undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}
