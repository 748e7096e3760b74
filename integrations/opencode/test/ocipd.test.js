import { test } from "node:test"
import assert from "node:assert/strict"
import fs from "node:fs"
import os from "node:os"
import path from "node:path"
import { spawn } from "node:child_process"
import { pathToFileURL } from "node:url"

const source = fs.readFileSync(new URL("../ocipd.js", import.meta.url), "utf8")

// A gate that answers each question by what the command in it says.
const gate = `
const say = (id, result) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\\n")
const text = (text, isError) => ({ content: [{ type: "text", text }], isError })
require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line)
  if (method !== "tools/call") return id === undefined ? undefined : say(id, {})
  const asked = params.arguments
  require("fs").appendFileSync(process.argv[2], JSON.stringify(asked) + "\\n")
  const answers = {
    deny: () => say(id, text(JSON.stringify({ hookSpecificOutput: { permissionDecision: "deny", permissionDecisionReason: "because" } }))),
    error: () => say(id, text("ocipd: no daemon", true)),
    nonsense: () => say(id, text("nonsense")),
    nothing: () => say(id, {}),
    other: () => say(id, text('{"continue":true}')),
    list: () => say(id, text("[1]")),
    null: () => say(id, text("null")),
    broken: () => process.stdout.write("no JSON\\n"),
    ends: () => process.exit(3),
  }
  ;(answers[asked.input.command ?? asked.input[asked.tool]] ?? (() => say(id, text("{}"))))()
})
`

// started is the plugin in a folder of its own, with what it has asked.
const started = async (t, settings, { tools = ["bash", "chat_own"], live, words } = {}) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), "ocipd-opencode"))
  t.after(() => fs.rmSync(dir, { recursive: true }))
  const log = path.join(dir, "log")
  fs.writeFileSync(path.join(dir, "gate.cjs"), gate)
  const command = words ?? [process.execPath, path.join(dir, "gate.cjs"), log]
  const file = path.join(dir, "ocipd.mjs")
  fs.writeFileSync(file, `const gate = ${JSON.stringify(command)}\nconst proxied = ${JSON.stringify(proxied)}\nconst served = ${JSON.stringify(served)}\n${source}`)
  const { ocipd } = await import(pathToFileURL(file).href)
  const hooks = await ocipd({
    directory: dir,
    client: { tool: { ids: async () => ({ data: tools }) }, mcp: { status: async () => ({ data: live === undefined ? {} : live }) } },
  })
  hooks.config(settings)
  const call = (tool, args = {}) => hooks["tool.execute.before"]({ tool, sessionID: "s", callID: "c" }, { args })
  const asked = () => (fs.existsSync(log) ? fs.readFileSync(log, "utf8").trim().split("\n").map((line) => JSON.parse(line)) : [])
  return { call, asked, dir }
}

// Programs that wait stand in for ocipd: what counts is that they run as the settings say.
const idle = [process.execPath, "-e", "process.stdin.resume()", "--"]
const proxied = [...idle, "mcp-proxy", "--agent", "a"]
const served = [...idle, "mcp"]
const proxy = [...proxied, "--name", "chat", "--", "npx", "chat"]

test("a call is allowed by an empty answer alone, and keeps the arguments that were allowed", async (t) => {
  const { call, asked, dir } = await started(t, {})
  const args = { command: "ls", more: { a: [1] } }
  await call("bash", args)
  assert.deepEqual(asked(), [{ event: "PreToolUse", tool: "bash", input: args, cwd: dir, session: "s", call: "c" }])
  assert.throws(() => { args.command = "rm" }, TypeError)
  assert.throws(() => { args.more.a[0] = 2 }, TypeError)
})

test("every other answer, and no answer, refuses the call", async (t) => {
  const { call } = await started(t, {})
  await assert.rejects(call("bash", { command: "deny" }), /^Error: because$/)
  for (const [command, why] of [["error", /no daemon/], ["nonsense", /could not be decided/], ["nothing", /could not be decided/], ["other", /not understood/], ["list", /not understood/], ["null", /not understood/], ["broken", /no JSON/], ["ends", /has ended \(3\)/]]) {
    await assert.rejects(call("bash", { command }), why, command)
  }
  await call("bash", { command: "ls" }) // another process answers by now
  const missing = await started(t, {}, { words: ["/nowhere/ocipd"] })
  await assert.rejects(missing.call("bash"), /cannot be started/)
})

test("a call that can be of several servers has to be allowed as one of each", async (t) => {
  const { call, asked } = await started(t, {}, { live: { chat: {}, chat_x: {} } })
  await assert.rejects(call("chat_x_send", { mcp__chat_x__send: "deny" }), /because/)
  await assert.rejects(call("chat_x_send", { mcp__chat__x_send: "deny" }), /because/)
  assert.equal(asked().length, 3)
})

test("the proxy decides about calls of its servers while it runs, and about no others", async (t) => {
  const chat = (...command) => ({ mcp: { chat: { type: "local", command } } })
  for (const [name, settings, tool, options, ...want] of [
    ["behind the proxy", chat(...proxy), "chat_send", {}, undefined],
    ["a server of the daemon", chat(...served, "--token-file", "t"), "chat_send", {}, undefined],
    ["with headers", { mcp: { chat: { type: "local", command: proxy, environment: { OCIPD_HEADERS: "A: b", T: "x" } } } }, "chat_send", {}, undefined],
    ["another server by the same name runs", chat(...proxy), "chat_send", { runs: false }, "mcp__chat__send"],
    ["the proxy runs for another folder", chat(...proxy), "chat_send", { folder: "/" }, "mcp__chat__send"],
    ["replaced by a project", chat(...idle, "chat"), "chat_send", {}, "mcp__chat__send"],
    ["of another agent", chat(...idle, "mcp-proxy", "--agent", "b", "--name", "chat", "--", "npx"), "chat_send", {}, "mcp__chat__send"],
    ["under another name", chat(...proxied, "--name", "other", "--", "npx"), "chat_send", {}, "mcp__chat__send"],
    ["with nothing behind it", chat(...proxied, "--name", "chat", "--"), "chat_send", {}, "mcp__chat__send"],
    ["asking another daemon", { mcp: { chat: { type: "local", command: proxy, environment: { OCIPD_SOCKET: "/x" } } } }, "chat_send", {}, "mcp__chat__send"],
    ["of another daemon", chat(...served, "--token-file", "t", "--socket", "/x"), "chat_send", {}, "mcp__chat__send"],
    ["of a daemon with another configuration", chat(...served, "--config=/x"), "chat_send", {}, "mcp__chat__send"],
    ["over HTTP", { mcp: { chat: { type: "remote", command: proxy } } }, "chat_send", {}, "mcp__chat__send"],
    ["a tool of opencode with such a name", chat(...proxy), "chat_own", {}, "chat_own", "mcp__chat__own"],
    ["a server that was added since", chat(...proxy), "chat_x_send", { live: { chat: {}, chat_x: {} } }, "mcp__chat__x_send", "mcp__chat_x__send"],
    ["servers that opencode does not tell of", {}, "chat_send", { live: null }, "chat_send", "mcp__?__chat_send"],
    ["servers of which the settings alone tell", chat(...proxy), "chat_send", { live: null }, "chat_send", "mcp__chat__send", "mcp__?__chat_send"],
    ["a server that is only added", {}, "chat_send", { live: { chat: {} } }, "mcp__chat__send"],
  ]) {
    const { call, asked, dir } = await started(t, settings, options)
    const command = settings.mcp?.chat.command
    let server
    if (command && options.runs !== false) {
      server = spawn(command[0], command.slice(1), { cwd: options.folder ?? dir, stdio: ["pipe", "ignore", "ignore"] })
      await new Promise((begun) => server.on("spawn", begun))
    }
    await call(tool)
    assert.deepEqual(asked().map((question) => question.tool), want.filter((one) => one), name)
    server?.kill()
  }
})
