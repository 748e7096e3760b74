//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// typedClient is a client by the declarations. Its last function has the calls of the plugin for
// OpenClaw, which is JavaScript, and faults that the compiler has to find.
const typedClient = `import type { ErrorCode, EventMessage, Events, Methods, RequestMessage, ResponseMessage, StreamMessage } from "./protocol.js";

type Line = ResponseMessage | EventMessage | StreamMessage;

export class Refused extends Error {
  constructor(readonly code: ErrorCode, message: string) { super(message); }
}

export class Client {
  #token: string | undefined;
  #waiting = new Map<string, (answer: ResponseMessage) => void>();
  #next = 0;
  constructor(readonly write: (line: string) => void, readonly told: <E extends keyof Events>(event: E, payload: Events[E]) => void) {}

  async call<M extends keyof Methods>(method: M, params: Methods[M]["params"]): Promise<Methods[M]["result"]> {
    const request: RequestMessage = { id: String(++this.#next), type: "request", method, params };
    if (this.#token !== undefined) request.token = this.#token;
    const answer = await new Promise<ResponseMessage>((resolve) => {
      this.#waiting.set(request.id, resolve);
      this.write(JSON.stringify(request) + "\n");
    });
    if (!answer.success) throw new Refused(answer.error?.code ?? "UNKNOWN_ERROR", answer.error?.message ?? "");
    return answer.result as Methods[M]["result"];
  }

  read(text: string): void {
    const line = JSON.parse(text) as Line;
    switch (line.type) {
      case "response":
        this.#waiting.get(line.requestId)?.(line);
        break;
      case "event":
        this.told(line.event, line.payload as Events[typeof line.event]);
        break;
      case "stream":
        if (line.done) this.#waiting.delete(line.requestId);
        break;
    }
  }

  async gateway(text: string): Promise<string> {
    const registered = await this.call("app.register", { manifest: {
      id: "@openclawos/openclaw", name: "OpenClaw", version: "1.0.0", type: "agent", protocol: { version: "1.0" }, capabilities: { redeem: true },
    } });
    this.#token = registered.token;
    await this.call("app.ready", {});
    await this.call("app.heartbeat", { status: { load: 0.5 } });
    const asked = await this.call("hook.emit", { hookName: "message_sending", data: { sessionKey: "telegram:4711", content: text } });
    if (asked.held && asked.approvalId !== undefined) {
      const redeemed = await this.call("approval.redeem", { approvalId: asked.approvalId, requestKey: "k" });
      await this.call("approval.confirm", { claim: redeemed.claim, outcome: "sent" });
    }
    for (const open of (await this.call("approval.redeemable", {})).approvals) await this.call("approval.get", { approvalId: open.approvalId });
    // @ts-expect-error a member that the method does not have
    await this.call("approval.get", { approval: "x" });
    // @ts-expect-error no such method
    await this.call("approval.forget", {});
    // @ts-expect-error the content is a text
    const sent = await this.call("message.dispatch", { sessionKey: "telegram:4711", content: 7 });
    return sent.dispatchId;
  }
}

export function heard(event: "app:lost", payload: Events["app:lost"]): string { return event + payload.appId; }
`

// typedApp uses the Node SDK, with a fault that the compiler has to find.
const typedApp = `import { Agent, App, grantText, NotSent, Operator, Refused } from "./index.js";

const app = await App.connect({
  id: "@acme/bot", channels: { chat: async (m) => { if (!m.target) throw new NotSent("nobody"); } },
  intercept: (m) => { m.content = m.content.trim(); }, receive: (m) => console.log(m.replyTo), send: ({ sessionKey, content }) => console.log(sessionKey, content),
});
const sent = await app.dispatch("chat:dave", "Hello");
if (sent.held && sent.approvalId) console.log((await app.outcome(sent.approvalId)).released);
try { await app.call("approval.get", { approvalId: "x" }); } catch (e) { if (e instanceof Refused && e.code === "FORBIDDEN") console.log(e.verdict?.code); }
// @ts-expect-error a member that the method does not have
await app.call("approval.get", { approval: "x" });
const agent = await Agent.connect("t");
console.log((await agent.send("chat:dave", "Hello")).status, (await agent.read({ wait: 1 })).messages[0]?.text);
const operator = await Operator.connect();
const grant = { grantId: "g", agent: "a", receiver: "b", words: ["promise"], classification: "internal", until: 1, maxUses: 1 };
console.log(grantText(grant), (await operator.addGrant(grant, "s")).state);
`

// The declarations that `ocipd protocol types` prints compile under tsc --strict, for each socket,
// and so does a client that is written by them, as well as the one of schema.md, and an app on the Node SDK.
func TestProtocolTypes(t *testing.T) {
	ocipd := os.Getenv(variable)
	if ocipd == "" {
		t.Fatalf("%s names no program: run make e2e", variable)
	}
	tsc, err := filepath.Abs("node_modules/.bin/tsc")
	if err != nil {
		t.Fatal(err)
	}
	compile := func(files map[string]string, args ...string) {
		t.Helper()
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(tsc, append([]string{"--strict", "--noEmit", "--target", "es2022", "--module", "nodenext", "--exactOptionalPropertyTypes"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("tsc %q: %v\n%s", args, err, out)
		}
	}
	app := map[string]string{"package.json": `{"type":"module"}`, "app.ts": typedApp}
	for _, name := range []string{"index.d.ts", "protocol.d.ts"} {
		text, err := os.ReadFile("../sdk/node/" + name)
		if err != nil {
			t.Fatal(err)
		}
		app[name] = string(text)
	}
	compile(app, "app.ts")
	page, err := os.ReadFile("../docs/reference/protocol/schema.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(page), "\n```ts\n")
	shown, _, found := strings.Cut(shown, "\n```\n")
	if !found {
		t.Fatal("schema.md shows no client")
	}
	for _, socket := range []string{"app", "operator", "all"} {
		types, err := exec.Command(ocipd, "protocol", "types", "--for", socket).Output()
		if err != nil {
			t.Fatal(err)
		}
		compile(map[string]string{"protocol.ts": string(types)}, "protocol.ts")
		if socket != "operator" {
			compile(map[string]string{"protocol.ts": string(types), "client.ts": typedClient, "page.ts": shown, "package.json": `{"type":"module"}`}, "client.ts", "page.ts")
		}
	}
}
