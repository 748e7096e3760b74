// OpenClaw lets every agent read the sessions of all others, unless tools.sessions.visibility
// says otherwise. What is read there is a message that nobody has decided about.

/** Visibilities under which OpenClaw itself shows an agent no session of another one. */
const OWN = new Set(["self", "tree", "agent"]);
/** Parameters by which a list of sessions has their text in it. */
const TEXTS = ["includeDerivedTitles", "includeLastMessage", "messageLimit"];

/**
 * @param {string} tool
 * @param {any} params
 * @param {{agentId: string}} ctx
 * @param {string|undefined} visibility tools.sessions.visibility of OpenClaw's settings
 * @returns {null | {wrong: string} | {params: any}} null where nothing of others is read
 */
export function reads(tool, params, ctx, visibility) {
  if (OWN.has(visibility)) return null;
  switch (tool) {
    case "sessions_history":
    case "sessions_search": {
      const key = params?.sessionKey;
      if (typeof key === "string" && key.startsWith(`agent:${ctx.agentId}:`)) return null;
      return { wrong: `${tool} reads other agents' sessions: name one of your own as sessionKey, agent:${ctx.agentId}:… , and ask other agents by a message` };
    }
    case "sessions_list": {
      if (!TEXTS.some((name) => params?.[name])) return null;
      const bare = { ...params };
      for (const name of TEXTS) delete bare[name];
      return { params: bare };
    }
    default:
      return null;
  }
}
