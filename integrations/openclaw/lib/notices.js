// What this plugin has told each agent. OpenClaw keeps a notice in the agent's session until its next
// run, also over a restart, and puts it before that run's prompt: without these the prompt is another
// text than the decided one, and the message would be withheld.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** How many notices to an agent are remembered. */
const REMEMBERED = 64;

export class Notices {
  /** @param {string} folder */
  constructor(folder, log) {
    this.path = join(folder, "told");
    this.log = log;
    this.told = new Map();
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    try {
      this.told = new Map(Object.entries(JSON.parse(readFileSync(this.path, "utf8"))));
    } catch (e) {
      // Without them a message behind a notice is withheld, and on record as not taken.
      if (e.code !== "ENOENT") log.warn(`ocipd: what agents were told is not known: ${e.message}`);
    }
  }

  of(agentId) {
    return this.told.get(agentId) ?? [];
  }

  add(agentId, text) {
    this.told.set(agentId, [...this.of(agentId), text].slice(-REMEMBERED));
    try {
      writeFileSync(`${this.path}.part`, JSON.stringify(Object.fromEntries(this.told)), { mode: 0o600 });
      renameSync(`${this.path}.part`, this.path);
    } catch (e) {
      this.log.warn(`ocipd: what agents were told is not kept: ${e.message}`);
    }
  }
}
