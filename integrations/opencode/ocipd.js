// The gate of opencode. Before each call of a tool it asks the daemon, through the command that
// gate names, and throws the daemon's reason unless the answer allows the call: opencode then
// does not make the call, and its model reads the reason. No answer is a refusal too.
//
// `ocipd integrate opencode` writes this file, with the lines above: gate has the words of that
// command, proxied those that begin the command of an MCP server behind the proxy, and served
// those that begin the command of a server of the daemon itself.
import { spawn } from "node:child_process"
import fs from "node:fs"
import path from "node:path"

// A call may wait for a person, so that the program that answers is asked meanwhile whether it
// still runs. All times are in milliseconds.
const WAIT = 300_000
const PING = 5_000
const SILENCE = 15_000
const LOOK = 2_000

// steers are variables by which the proxy would find another daemon, or load other code. The one
// that is left out holds the headers of a server over HTTP.
const steers = /^(?!OCIPD_HEADERS$)(OCIPD_|OPENCLAWOS_|LD_)/

// Asker speaks to one process of the gate: lines of JSON-RPC, as MCP has them.
class Asker {
  #next = 0
  #waiting = new Map()
  #heard = Date.now()
  #rest = ""

  constructor() {
    const child = spawn(gate[0], gate.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    this.child = child
    child.on("error", (error) => this.#end(`${gate[0]} cannot be started: ${error.message}`))
    child.on("exit", (code, signal) => this.#end(`${gate[0]} has ended (${signal ?? code})`))
    child.stdin.on("error", () => this.#end(`${gate[0]} takes no question`))
    child.stdout.setEncoding("utf8")
    for (const part of [child, child.stdin, child.stdout]) part.unref?.() // it ends with opencode
    child.stdout.on("data", (text) => this.#read(text))
    this.#call("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "opencode", version: "1" } }).catch(() => {})
    this.#send({ method: "notifications/initialized" })
  }

  // ask returns the text of the gate's answer.
  async ask(question) {
    const until = Date.now() + WAIT
    this.#heard = Date.now()
    const watch = setInterval(() => {
      const now = Date.now()
      if (now - this.#heard > SILENCE) this.#end(`${gate[0]} has not answered within ${SILENCE / 1000} s`)
      else if (now > until) this.#end(`nothing was decided within ${WAIT / 1000} s`)
      else this.#call("ping").catch(() => {})
    }, PING)
    try {
      const got = await this.#call("tools/call", { name: "decide", arguments: question })
      const text = (got?.content ?? []).map((part) => part.text ?? "").join("")
      if (got?.isError) throw new Error(text)
      return text
    } finally {
      clearInterval(watch)
    }
  }

  #send(message) {
    this.child.stdin.write(JSON.stringify({ jsonrpc: "2.0", ...message }) + "\n")
  }

  #call(method, params) {
    if (this.over) return Promise.reject(new Error(this.over))
    const id = this.#next++
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      this.#send({ id, method, params })
    })
  }

  #read(text) {
    this.#heard = Date.now()
    const lines = (this.#rest + text).split("\n")
    this.#rest = lines.pop()
    for (const line of lines) {
      let said
      try {
        said = JSON.parse(line)
      } catch {
        return this.#end(`${gate[0]} has said something that is no JSON`)
      }
      const asked = this.#waiting.get(said.id)
      if (said.method || !asked) continue
      this.#waiting.delete(said.id)
      if (said.error) asked.reject(new Error(said.error.message))
      else asked.resolve(said.result)
    }
  }

  // #end refuses all that waits. The next call starts another process.
  #end(why) {
    if (this.over) return
    this.over = why
    this.child.kill("SIGKILL")
    for (const asked of this.#waiting.values()) asked.reject(new Error(why))
    this.#waiting.clear()
  }
}

// One process answers for all of opencode's folders.
let asker
const ask = (question) => {
  if (!asker || asker.over) asker = new Asker()
  return asker.ask(question)
}

// frozen keeps a hook that runs afterwards from changing what was allowed.
const frozen = (value) => {
  if (value && typeof value === "object") {
    Object.freeze(value)
    Object.values(value).forEach(frozen)
  }
  return value
}

// plain is a name as opencode writes it in the name of a tool.
const plain = (name) => name.replace(/[^a-zA-Z0-9_-]/g, "_")

// finds are options with which ocipd finds a daemon. A later one would take the place of the entered one.
const finds = /^--(socket|config)(=|$)/

// behind reports whether the entry of a server starts the proxy as ocipd entered it, or a server
// of the daemon itself. A project's settings can have changed it.
const behind = (name, server) => {
  const begins = (words) => server.command.length > words.length && words.every((word, i) => server.command[i] === word)
  return server?.type === "local" && Array.isArray(server.command) &&
    (begins([...proxied, "--name", name, "--"]) || (begins(served) && !server.command.slice(served.length).some((word) => finds.test(word)))) &&
    !Object.keys(server.environment ?? {}).some((variable) => steers.test(variable))
}

// runs reports whether opencode has started a server's command in a folder, and it still runs. A
// client of opencode, such as an editor, can put another server in the place of one in the
// settings; opencode ends the former then.
const runs = (server, directory) => {
  const line = server.command.join("\0") + "\0"
  const folder = fs.realpathSync(path.resolve(directory, server.cwd ?? ""))
  return fs.readdirSync("/proc").some((pid) => {
    try {
      if (!/^\d+$/.test(pid) || fs.readFileSync(`/proc/${pid}/cmdline`, "utf8") !== line || fs.readlinkSync(`/proc/${pid}/cwd`) !== folder) return false
      const [state, parent] = fs.readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ")
      return Number(parent) === process.pid && state !== "Z"
    } catch {
      return false // it has ended meanwhile, or is somebody else's
    }
  })
}

export const ocipd = async ({ client, directory }) => {
  let settings = {}
  let own

  // live are the names of the servers that run.
  const live = async () => {
    own ??= (await client.tool.ids({ throwOnError: true })).data
    return Object.keys((await client.mcp.status({ throwOnError: true })).data)
  }

  // owners are the MCP servers that can have a tool: more than one if a server's name begins with
  // that of another one. "" is opencode itself, and "?" a server of which opencode does not tell in time.
  const owners = async (tool) => {
    const late = new Promise((_, fail) => setTimeout(fail, LOOK).unref())
    const running = await Promise.race([live(), late]).catch(() => undefined)
    const names = [...new Set([...Object.keys(settings.mcp ?? {}), ...(running ?? [])])].filter((name) => tool.startsWith(plain(name) + "_"))
    if (!running) return ["", ...names, "?"]
    return names.length === 0 || own.includes(tool) ? ["", ...names] : names
  }

  // decides reports whether the proxy, or the daemon's own server, decides about a server's calls.
  const decides = (name) => {
    try {
      const server = settings.mcp?.[name]
      return behind(name, server) && runs(server, directory)
    } catch {
      return false // nothing shows which processes run
    }
  }

  return {
    config: (merged) => {
      settings = merged
    },
    "tool.execute.before": async (input, output) => {
      const names = await owners(input.tool)
      if (names.length === 1 && names[0] !== "" && decides(names[0])) return
      // A policy can have a rule for each of the servers, so that the call has to be allowed as one of each.
      for (const name of names) {
        const tool = name === "" ? input.tool : `mcp__${name}__${name === "?" ? input.tool : input.tool.slice(plain(name).length + 1)}`
        let said
        try {
          said = JSON.parse(await ask({ event: "PreToolUse", tool, input: output.args ?? {}, cwd: directory, session: input.sessionID, call: input.callID }))
        } catch (error) {
          throw new Error(`ocipd: ${input.tool} was not called, since it could not be decided: ${error.message}. Do not retry.`)
        }
        if (said === null || typeof said !== "object" || Object.keys(said).length > 0) {
          throw new Error(said?.hookSpecificOutput?.permissionDecisionReason ?? `ocipd: ${input.tool} was not called, since the answer is not understood. Do not retry.`)
        }
      }
      frozen(output.args)
    },
  }
}
