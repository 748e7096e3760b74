// What people decide is acted on outside of the request that the plugin was read in.
import assert from "node:assert/strict";
import { AsyncLocalStorage } from "node:async_hooks";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { test } from "node:test";

const line = (frame) => JSON.stringify({ id: "k", timestamp: 1, ...frame }) + "\n";

test("a plugin that is read in a request does not keep its rights", async () => {
  const dir = mkdtempSync(join(tmpdir(), "ocip-"));
  const path = join(dir, "kernel.sock");
  // As ocipd answers; an approval is decided once the app is there.
  const daemon = createServer((s) => createInterface({ input: s }).on("line", (text) => {
    const q = JSON.parse(text);
    s.write(line({ type: "response", requestId: q.id, success: true, result: { token: "t" } }));
    if (q.method === "app.ready") s.write(line({ type: "event", event: "approval:resolved", payload: { approvalId: "a" } }));
  })).listen(path);
  // The Gateway's own, which begins outside of every request.
  const gateway = createServer((s) => s.end()).listen(0, "127.0.0.1");
  await Promise.all([once(daemon, "listening"), once(gateway, "listening")]);

  const request = new AsyncLocalStorage();
  const { Kernel } = await request.run("the reload", () => import("../lib/kernel.js?read-in-a-request"));
  await once(createConnection(gateway.address().port, "127.0.0.1"), "close");
  let kernel;
  const seen = await new Promise((resolved) => {
    let connected;
    kernel = new Kernel({
      socket: path, manifest: {}, connected: () => { connected = request.getStore(); },
      resolved: () => resolved([connected, request.getStore()]),
    });
    request.run("a hook", () => kernel.ask("status.get", {})).catch(() => {});
  });
  kernel.close();
  daemon.close();
  gateway.close();
  rmSync(dir, { recursive: true });
  assert.deepEqual(seen, [undefined, undefined]);
});
