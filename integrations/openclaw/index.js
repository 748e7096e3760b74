// ocipd for OpenClaw: every message of an agent is decided before it leaves.
//
// OpenClaw evaluates this file several times in one process, so what is known stands on
// globalThis. Nothing is connected before the first hook: the command line loads plugins
// too.
import { homedir } from "node:os";
import { join } from "node:path";
import { Gate } from "./lib/gate.js";

const VERSION = "0.5.0";
const GATE = Symbol.for("openclawos.ocipd.gate");
/** Behind every other plugin: what is decided about is what leaves. */
const LAST = -1_000_000;
/** The host's own limit is 15 s, and a channel's hook is open behind it. */
const CHANNEL_TIME = 10_000;

const socketOf = (config) => config.socket || process.env.OPENCLAWOS_KERNEL_SOCKET ||
  (process.env.XDG_RUNTIME_DIR ? join(process.env.XDG_RUNTIME_DIR, "openclawos", "kernel.sock") : `/tmp/openclawos-${process.geteuid()}/kernel.sock`);

const stateOf = (config) => config.state || join(process.env.OPENCLAW_STATE_DIR || join(homedir(), ".openclaw"), "ocipd");

/** Sends a released message as its agent, through OpenClaw's own tool. */
async function send(api, { agentId }, { sessionKey: session, content: text, metadata = {} }, ticket) {
  const { createOpenClawCodingTools } = await import("openclaw/plugin-sdk/agent-harness");
  const from = `agent:${agentId}:main`;
  const tools = createOpenClawCodingTools({ config: api.config, agentId, sessionKey: from, runtimePolicySessionKey: from });
  const colon = session.indexOf(":");
  const [channel, target] = [session.slice(0, colon), session.slice(colon + 1)];
  const [name, params] = channel === "agent"
    ? ["sessions_send", { sessionKey: session, message: text, timeoutSeconds: 0 }]
    : ["message", { action: "send", ...metadata.params, channel, target, message: text, accountId: metadata.accountId }];
  const tool = tools.find((t) => t.name === name);
  if (!tool) throw new Error(`OpenClaw gives agent ${agentId} no tool ${name}`);
  const result = await tool.execute(`ocipd-${ticket}`, { ...params, _ocip: { release: ticket } });
  const details = result?.details;
  if (details?.status === "error") throw new Error(details.error ?? "the tool failed");
}

function gateOf(api) {
  const config = api.pluginConfig ?? {};
  globalThis[GATE] ??= new Gate({
    socket: socketOf(config), appId: config.appId || "@openclaw/gateway", version: VERSION, state: stateOf(config),
    tools: config.tools || "record", sendTools: config.sendTools, log: api.logger,
    visibility: () => globalThis[GATE].api.config?.tools?.sessions?.visibility,
    tell: (agentId, text) => globalThis[GATE].api.session?.workflow?.enqueueNextTurnInjection?.({ sessionKey: `agent:${agentId}:main`, text })
      ?.catch?.((e) => api.logger.warn(`ocipd: agent ${agentId} is not told: ${e.message}`)),
    send: (...args) => send(globalThis[GATE].api, ...args),
  });
  // The newest instance has the configuration in force.
  globalThis[GATE].api = api;
  return globalThis[GATE];
}

export default {
  id: "ocip",
  name: "ocipd",
  register(api) {
    const last = { priority: LAST };
    api.on("before_tool_call", (event, ctx) => gateOf(api).beforeTool(event, ctx), last);
    api.on("after_tool_call", (event, ctx) => gateOf(api).afterTool(event, ctx), last);
    api.on("before_agent_run", (event, ctx) => gateOf(api).beforeRun(event, ctx), last);
    api.on("before_agent_finalize", (event, ctx) => gateOf(api).beforeFinalize(event, ctx), last);
    api.on("agent_end", (event, ctx) => gateOf(api).runEnded(event, ctx), last);
    api.on("before_message_write", (event) => gateOf(api).annotate(event), last);
    api.on("message_sending", (event, ctx) => gateOf(api).channelSending(event, ctx, CHANNEL_TIME), last);
    // What was approved while no Gateway ran is sent when one does.
    api.on("gateway_start", () => { gateOf(api).kernel.open().catch(() => {}); });
    api.on("gateway_stop", () => { globalThis[GATE]?.close(); globalThis[GATE] = undefined; });
  },
};
