// An answer in chunks. index.d.ts describes it.
import { has } from "./errors.js";

export class Stream {
  #session;
  #queue = [];
  #over = false;
  #error;
  #changed = () => {};

  constructor(session) {
    this.#session = session;
  }

  // put and end are for the connection.
  put(chunk) {
    if (this.#over) return;
    this.#queue.push(chunk);
    this.#session.count(1);
    this.#changed();
  }

  end(error) {
    if (!this.#over) [this.#over, this.#error] = [true, error];
    this.#changed();
  }

  async next() {
    while (this.#queue.length === 0 && !this.#over) await new Promise((changed) => (this.#changed = changed));
    if (this.#queue.length > 0) {
      this.#session.count(-1);
      return { value: this.#queue.shift(), done: false };
    }
    if (this.#error) throw this.#error;
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  // return is called when a loop over the chunks is left.
  async return() {
    await this.close();
    return { value: undefined, done: true };
  }

  async close() {
    const over = this.#over;
    this.#session.count(-this.#queue.length);
    [this.#queue, this.#over, this.#error] = [[], true, undefined];
    this.#changed();
    if (over) return;
    this.#session.calling(1);
    try {
      await this.link.call("stream.cancel", { requestId: this.id }, this.#session.token, this.#session.timeout);
    } catch (error) {
      if (!has(error, "NOT_FOUND", "CONNECTION_CLOSED")) throw error; // it ended meanwhile
    } finally {
      this.#session.calling(-1);
    }
  }
}
