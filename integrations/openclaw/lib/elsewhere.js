// Tools that have OpenClaw itself bring a text to somebody, later or at a place that no parameter names.
// Nobody could decide about that text then, so such a call is refused.

/** The host repairs parameters before it reads them, so every value at any depth counts, also of an object written as a text. */
function* valuesOf(value, name = "") {
  if (typeof value === "string" && /^\s*[{[]/.test(value)) {
    try {
      yield* valuesOf(JSON.parse(value), name);
    } catch {
      // It is a text.
    }
  }
  if (value !== null && typeof value === "object") {
    for (const [key, one] of Object.entries(value)) yield* valuesOf(one, Array.isArray(value) ? name : key);
  } else if (typeof value === "string") {
    yield [name, value.trim()];
  }
}

const bare = (name) => name.replace(/[^a-z]/gi, "").toLowerCase();

function automation(params, ctx) {
  for (const [name, value] of valuesOf(params)) {
    if (value.toLowerCase() === "webhook") return "it would post the text of a run to a web address, about which nobody decides: have it delivered to a channel";
    // An id of another agent, or a session of one: agent:ID:… or session:agent:ID:…
    const agent = bare(name) === "agentid" ? value : /^(?:session:)?agent:([^:]+):/i.exec(value)?.[1];
    if (agent && agent.toLowerCase() !== ctx.agentId?.toLowerCase()) return `it would give agent ${agent} a text that nobody decides about: use sessions_send`;
  }
  return undefined;
}

/** The settings of a session have texts, which its agent and its user see. */
function settings(params, ctx) {
  for (const [name, value] of valuesOf(params)) {
    if (["sessionkey", "targets"].includes(bare(name)) && value !== "" && !["current", "main"].includes(value) && !value.startsWith(`agent:${ctx.agentId}:`)) {
      return `it would change the session ${value}, which is not known to be one of your own: name it as agent:${ctx.agentId}:…`;
    }
  }
  return undefined;
}

const TOOLS = {
  automations: automation,
  sessions: settings,
  cron: automation,
  github_publish: (params) => (params?.title || params?.body ? "the repository that shows title and body is in no parameter: leave them out" : undefined),
};

/**
 * @param {string} tool
 * @param {any} params
 * @param {{agentId: string}} ctx
 * @returns {string|undefined} the reason for a refusal
 */
export const elsewhere = (tool, params, ctx) => (Object.hasOwn(TOOLS, tool) ? TOOLS[tool](params, ctx) : undefined);
