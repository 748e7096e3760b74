// What was approved and is being sent is noted on the disk before ocipd is asked for it, so
// that a Gateway that was killed on the way neither loses nor doubles it.
import { randomUUID } from "node:crypto";
import { closeSync, fsyncSync, mkdirSync, openSync, readdirSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";

export class Claims {
  /** @param {string} folder */
  constructor(folder) {
    this.folder = folder;
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  }

  path(approvalId) {
    if (!/^[\w-]+$/.test(approvalId)) throw new Error(`no id of an approval: ${approvalId}`);
    return join(this.folder, `${approvalId}.json`);
  }

  /** Begins a claim, or returns the one that an earlier process has begun. */
  begin(approvalId) {
    const before = this.of(approvalId);
    if (before) return { ...before, before: true };
    const claim = { approvalId, requestKey: randomUUID(), sending: false };
    this.write(claim);
    return claim;
  }

  /** Notes that from now on the message may have left. */
  sending(claim) {
    claim.sending = true;
    this.write(claim);
  }

  end(approvalId) {
    rmSync(this.path(approvalId), { force: true });
  }

  of(approvalId) {
    try {
      return JSON.parse(readFileSync(this.path(approvalId), "utf8"));
    } catch (e) {
      if (e.code === "ENOENT") return null;
      throw e;
    }
  }

  list() {
    return readdirSync(this.folder).filter((name) => name.endsWith(".json")).map((name) => name.slice(0, -5));
  }

  write(claim) {
    const path = this.path(claim.approvalId);
    const file = openSync(`${path}.part`, "w", 0o600);
    try {
      writeSync(file, JSON.stringify(claim));
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(`${path}.part`, path);
    const folder = openSync(this.folder, "r");
    try {
      fsyncSync(folder);
    } finally {
      closeSync(folder);
    }
  }
}
