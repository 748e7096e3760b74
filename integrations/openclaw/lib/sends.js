// Which tools send a message, and where in their parameters its text and its recipient
// stand. A tool that is listed and whose text or recipient is not found is refused.

/** Names under which OpenClaw takes the text of a message. The first is the one it uses. */
const TEXTS = ["message", "content", "text", "SendMessage"];

const agentSession = (p) => p.sessionKey ?? (typeof p.agentId === "string" && p.agentId !== "" ? `agent:${p.agentId}:main` : undefined);
const channelSession = (p) => {
  const to = p.target ?? p.to ?? p.channelId;
  return typeof p.channel === "string" && typeof to === "string" && to !== "" ? `${p.channel}:${to}` : undefined;
};
const conversationSession = (p) => p.sessionKey ?? p.conversationId ?? channelSession(p);

const BUILT_IN = {
  // Its reply would come in the tool's result, before it is decided about. Without waiting
  // it comes as a turn of its own, which begins when it is. What a watcher hears is text of
  // another agent's session too.
  sessions_send: { texts: TEXTS, session: agentSession, set: { timeoutSeconds: 0, watch: undefined } },
  sessions_spawn: { texts: ["task", ...TEXTS], session: (p, ctx) => agentSession(p) ?? `agent:${ctx.agentId}:main` },
  conversations_send: { texts: TEXTS, session: conversationSession },
  conversations_turn: { texts: TEXTS, session: conversationSession },
  message: { texts: [...TEXTS, "caption"], session: channelSession },
};

/** Actions of the tool "message" that send nothing. All others do. */
const SILENT = new Set(["read", "list", "search", "reactions", "list-pins", "permissions", "member-info", "role-info", "channel-info", "channel-list"]);

/**
 * @param {object} config sendTools of the plugin's configuration
 * @returns {(tool: string, params: any, ctx: any) => null | {session: string, text: string, put: (text: string) => any} | {wrong: string}}
 */
export function sender(config = {}) {
  const known = { ...BUILT_IN };
  for (const [name, tool] of Object.entries(config)) {
    known[name] = {
      texts: tool.texts ?? TEXTS,
      session: (p) => (tool.channel ? `${tool.channel}:${p[tool.recipient] ?? ""}` : p[tool.recipient]),
    };
  }
  return (tool, params, ctx) => {
    const how = Object.hasOwn(known, tool) ? known[tool] : null;
    if (!how) return null;
    if (tool === "message" && typeof params?.action === "string" && SILENT.has(params.action)) return null;
    const found = how.texts.filter((name) => params?.[name] !== undefined);
    if (found.length === 0 || found.some((name) => typeof params[name] !== "string")) {
      return { wrong: `no text of ${tool} is found in ${how.texts.join(", ")}: what cannot be read is not sent` };
    }
    // Who takes which of several is for the tool to say: they must not differ.
    const text = params[found[0]];
    if (found.some((name) => params[name] !== text)) {
      return { wrong: `${tool} has several texts, in ${found.join(" and ")}: give one` };
    }
    const session = how.session(params, ctx);
    if (typeof session !== "string" || session === "") {
      return { wrong: `for whom ${tool} is does not show in its parameters: name the agent or the session` };
    }
    // An agent's own sessions are no other principal.
    if (session.startsWith(`agent:${ctx.agentId}:`)) return null;
    const put = (decided) => {
      const changed = { ...params };
      for (const name of found) delete changed[name];
      changed[how.texts[0]] = decided;
      for (const [name, value] of Object.entries(how.set ?? {})) {
        if (value === undefined) delete changed[name];
        else changed[name] = value;
      }
      return changed;
    };
    return { session, text, put };
  };
}
