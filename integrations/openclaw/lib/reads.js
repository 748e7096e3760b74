// OpenClaw lets every agent read the sessions of all others, unless tools.sessions.visibility
// says otherwise. What is read there is a message that nobody has decided about.

import { misspelt } from "./spelling.js";

/** Tools that read sessions. */
const READING = new Set(["sessions_history", "sessions_search", "sessions_list"]);
/** Visibilities under which OpenClaw itself shows an agent no session of another one. */
const OWN = new Set(["self", "tree", "agent"]);
/** Parameters by which a list of sessions has their text in it, and the values without it. */
const TEXTS = { includeDerivedTitles: false, includeLastMessage: false, messageLimit: 0 };

/**
 * @param {string} tool
 * @param {any} params
 * @param {{agentId: string}} ctx
 * @param {string|undefined} visibility tools.sessions.visibility of OpenClaw's settings
 * @returns {null | {wrong: string} | {params: any}} null where nothing of others is read
 */
export function reads(tool, params, ctx, visibility) {
  if (OWN.has(visibility) || !READING.has(tool)) return null;
  const wrong = misspelt(params);
  if (wrong) return { wrong: `${tool}: ${wrong}` };
  switch (tool) {
    case "sessions_history":
    case "sessions_search": {
      const key = params?.sessionKey;
      if (typeof key === "string" && key.startsWith(`agent:${ctx.agentId}:`)) return null;
      return { wrong: `${tool} reads other agents' sessions: name one of your own as sessionKey, agent:${ctx.agentId}:… , and ask other agents by a message` };
    }
    case "sessions_list": {
      const texts = Object.keys(TEXTS).filter((name) => params?.[name]);
      if (texts.length === 0) return null;
      // OpenClaw merges these over the call's own, so that a parameter that is left out stays.
      return { params: { ...params, ...Object.fromEntries(texts.map((name) => [name, TEXTS[name]])) } };
    }
    default:
      return null;
  }
}
