// An app on the stock SDK, driven by TestRestartWithSDK.
//
//   node app.mjs SDK ROLE
//
// SDK is the folder of the built package, ROLE is channel or agent. It writes what
// happens to it as JSON lines on standard output, and calls the methods that it
// reads as JSON lines from standard input, {method, params}.
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const [sdk, role] = process.argv.slice(2);

// The SDK's heart beats every 30 seconds. Here it beats faster; nothing else of
// the SDK is touched.
const setIntervalOfNode = globalThis.setInterval;
globalThis.setInterval = (f, ms, ...args) => setIntervalOfNode(f, ms === 30000 ? 300 : ms, ...args);

const { ChannelApp, OpenClawApp } = await import(pathToFileURL(`${sdk}/dist/app.mjs`));

const tell = (line) => process.stdout.write(JSON.stringify(line) + "\n");
// What the SDK logs is for people.
for (const level of ["debug", "info", "warn", "error"]) {
  console[level] = (...args) => process.stderr.write(args.join(" ") + "\n");
}

const manifest = (id, capabilities) => ({
  id,
  name: id,
  version: "1.0.0",
  type: "app",
  main: "app.mjs",
  protocol: { version: "1.0" },
  capabilities,
});

class Chat extends ChannelApp {
  channelId = "chat";
  manifest = manifest("@sdk/channel", { channels: { provides: ["chat"] }, hooks: { subscribes: ["message_sending"] } });

  async handleInbound(event) {
    await this.dispatchInbound(event.from, event.content);
  }

  async sendMessage({ target, content, metadata }) {
    tell({ given: content });
  }
}

class Alice extends OpenClawApp {
  manifest = manifest("@sdk/agent", { hooks: { subscribes: ["message_received"] } });

  async setup() {
    await this.onHook("message_received", async ({ content }) => {
      tell({ given: content });
    });
  }
}

const app = role === "channel" ? new Chat() : new Alice();
app.kernel.on("disconnected", () => tell({ event: "disconnected" }));
app.kernel.on("event", ({ event }) => {
  if (!event.startsWith("hook:")) {
    tell({ event });
  }
});
// Without a listener, Node ends a process whose connection is refused.
app.kernel.on("error", (error) => console.warn(error.message));
await app.start();
tell({ event: "started" });

for await (const line of readline.createInterface({ input: process.stdin })) {
  const { method, params } = JSON.parse(line);
  try {
    tell({ result: await app.kernel.call(method, params) });
  } catch ({ message }) {
    tell({ failed: message });
  }
}
await app.stop("the test ends");
