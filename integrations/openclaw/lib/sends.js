// Which tools send a message, and which of their parameters hold its text and its recipient.
// A call of such a tool is refused if its text or its recipient is not found, or if it has a
// parameter that is not known here: it could name another recipient. The daemon decides about
// all other parameters too: it gets them as the metadata of the message, looks for findings in
// their texts and opens the files that they name.

import { placeOf, within } from "./places.js";
import { misspelt } from "./spelling.js";

/** Names under which OpenClaw takes the text of a message. The first is the one it uses. */
const TEXTS = ["message", "content", "text", "SendMessage"];

/** The one value of several names of a parameter, or an error. */
function one(p, ...names) {
  const given = names.filter((name) => p[name] !== undefined);
  if (given.some((name) => p[name] !== p[given[0]])) throw new Error(`it names several recipients, in ${given.join(" and ")}: give one`);
  return p[given[0]];
}

const agentSession = (p) => {
  const ofAgent = typeof p.agentId === "string" && p.agentId !== "" ? `agent:${p.agentId}:` : undefined;
  if (typeof p.sessionKey === "string" && ofAgent && !p.sessionKey.startsWith(ofAgent)) throw new Error("agentId and sessionKey name two agents: give one");
  return p.sessionKey ?? (ofAgent && `${ofAgent}main`);
};
const labelled = (p) => {
  if (p.label !== undefined) throw new Error("a label can lead to any session: name the session by its key");
  return agentSession(p);
};
const channelSession = (p) => {
  if (p.targets !== undefined) throw new Error("it names several recipients, in targets: send to one at a time");
  const to = one(p, "target", "to", "channelId");
  if (typeof p.channel !== "string" || typeof to !== "string" || to === "") return undefined;
  within(p);
  return `${p.channel}:${placeOf(p.channel, to, p.threadId)}`;
};
const conversationSession = (p) => one(p, "sessionKey", "conversationId") ?? channelSession(p);

const CHANNEL = ["channel", "target", "to", "channelId", "targets", "accountId"];

/**
 * The parameters of a tool that are no part of its message: those that say where it goes (at), and settings of the host
 * itself (settings). Those that are a part of it beside its texts are in with.
 */
const BUILT_IN = {
  // Its reply would come in the tool's result, before the daemon decides about it. If the tool does not wait, the
  // reply comes as a turn of its own, which begins after the decision. A watcher gets text of another agent's session too.
  sessions_send: { texts: TEXTS, session: labelled, at: ["sessionKey", "agentId", "label"], settings: ["timeoutSeconds", "watch", "mode"], set: { timeoutSeconds: 0 }, off: ["watch"] },
  sessions_spawn: {
    texts: ["task", ...TEXTS],
    session: (p, ctx) => {
      const session = agentSession(p) ?? `agent:${ctx.agentId}:main`;
      if (p.context !== undefined && p.context !== "isolated" && !session.startsWith(`agent:${ctx.agentId}:`)) {
        throw new Error("its context would give another agent this conversation: leave context out");
      }
      return session;
    },
    at: ["sessionKey", "agentId"],
    settings: [
      "runtime", "model", "thinking", "runTimeoutSeconds", "timeoutSeconds", "cwd", "thread", "mode", "cleanup", "expectsCompletionMessage", "completionTarget", "sandbox", "context",
      "lightContext", "collect", "fastMode", "visible", "worktree",
    ],
    with: ["taskName", "label", "attachments", "attachAs", "outputSchema", "groupId", "streamTo", "resumeSessionId", "placement", "projectId", "projectGitUrl"],
  },
  conversations_send: { texts: TEXTS, session: conversationSession, at: ["sessionKey", "conversationId", ...CHANNEL], settings: ["timeoutSeconds"] },
  conversations_turn: { texts: TEXTS, session: conversationSession, at: ["sessionKey", "conversationId", ...CHANNEL], settings: ["timeoutSeconds"] },
  message: {
    texts: [...TEXTS, "caption"], session: channelSession, at: CHANNEL, settings: ["dryRun", "silent", "bestEffort", "idempotencyKey", "timeoutMs"],
    with: [
      "action", "threadId", "threadName", "replyTo", "messageId", "topLevel", "quoteText", "presentation", "interactive", "components", "embeds", "suppressEmbeds", "delivery", "pin",
      "effect", "effectId", "media", "mediaUrl", "mediaUrls", "fileUrl", "filePath", "path", "image", "filename", "buffer", "base64", "contentType", "mimeType", "attachments",
      "asVoice", "voiceText", "voiceProvider", "voiceId", "gifPlayback", "forceDocument", "asDocument",
      "pollQuestion", "pollOption", "pollDurationHours", "pollMulti", "pollAnonymous", "pollPublic",
    ],
  },
};

/** Whether a setting can say something: it has spaces, signs beyond ASCII, members, or is longer than a name or a path. */
const saysText = (value) => (typeof value === "string" ? /[^!-~]/.test(value) || value.length > 128 : typeof value === "object" && value !== null);

/** A parameter of a tool that is not known here, unless it says nothing. */
const unknown = (how, p) => Object.keys(p ?? {}).find((name) => name !== "_ocip" && p[name] !== undefined && p[name] !== null && p[name] !== "" && typeof p[name] !== "boolean" &&
  ![...how.texts, ...how.at, ...(how.settings ?? []), ...(how.with ?? [])].includes(name));

/** Actions of the tool "message" that send nothing. */
const SILENT = new Set(["read", "list", "search", "reactions", "list-pins", "permissions", "member-info", "role-info", "channel-info", "channel-list"]);
/** Actions of the tool "message" that send to the recipient that its parameters name. Others are refused. */
const SENDING = new Set(["send", "sendWithEffect", "sendAttachment", "upload-file", "reply", "thread-reply", "edit", "poll"]);

/**
 * @param {object} config sendTools of the plugin's configuration. A built-in tool is not replaced.
 * @returns {(tool: string, params: any, ctx: any) => null | {session: string, text: string, metadata: object, named?: boolean, put: (text: string) => any} | {wrong: string}}
 */
export function sender(config = {}) {
  const known = { ...BUILT_IN };
  for (const [name, tool] of Object.entries(config)) {
    if (Object.hasOwn(BUILT_IN, name)) continue;
    known[name] = {
      texts: tool.texts ?? TEXTS,
      session: (p) => (tool.channel ? `${tool.channel}:${p[tool.recipient] ?? ""}` : p[tool.recipient]),
      at: [tool.recipient],
      named: true,
    };
  }
  return (tool, params, ctx) => {
    const how = Object.hasOwn(known, tool) ? known[tool] : null;
    if (!how) return null;
    const action = tool === "message" ? params?.action ?? "send" : undefined;
    if (SILENT.has(action)) return null;
    if (action !== undefined && !SENDING.has(action)) return { wrong: `ocipd does not decide about the action ${action} of message: send a text to one recipient` };
    const odd = how.named ? undefined : misspelt(params);
    if (odd) return { wrong: `${tool} is refused: ${odd}` };
    const stray = how.named ? undefined : unknown(how, params);
    if (stray) return { wrong: `${tool} is refused: it is not known what ${stray} does with the message: leave it out` };
    const found = how.texts.filter((name) => params?.[name] !== undefined);
    if (found.length === 0 || found.some((name) => typeof params[name] !== "string")) {
      return { wrong: `no text of ${tool} is found in ${how.texts.join(", ")}: what cannot be read is not sent` };
    }
    // The tool chooses one of several texts: they must be the same.
    const text = params[found[0]];
    if (found.some((name) => params[name] !== text)) {
      return { wrong: `${tool} has several texts, in ${found.join(" and ")}: give one` };
    }
    let session;
    try {
      session = how.session(params, ctx);
    } catch (e) {
      return { wrong: `${tool} is refused: ${e.message}` };
    }
    if (typeof session !== "string" || session === "") {
      return { wrong: `for whom ${tool} is does not show in its parameters: name the agent or the session` };
    }
    // An agent's own sessions are no other principal.
    if (session.startsWith(`agent:${ctx.agentId}:`)) return null;
    const said = (how.settings ?? []).find((name) => saysText(params[name]));
    if (said) return { wrong: `${tool} is refused: ${said} has a text in it, about which nobody decides` };
    const rest = { ...params };
    for (const name of ["_ocip", ...found, ...how.at, ...(how.settings ?? [])]) delete rest[name];
    if (action === "send") delete rest.action;
    for (const [name, value] of Object.entries(rest)) if (value === undefined || typeof value === "boolean") delete rest[name];
    const metadata = {};
    if (Object.keys(rest).length > 0) metadata.params = rest;
    if (how.at.includes("accountId") && params.accountId && params.accountId !== "default") metadata.accountId = params.accountId;
    const put = (decided) => {
      // OpenClaw merges these over the call's own, so that a parameter that is left out stays.
      const changed = { ...params, ...how.set };
      for (const name of [how.texts[0], ...found]) changed[name] = decided;
      for (const name of how.off ?? []) if (params[name] !== undefined) changed[name] = false;
      return changed;
    };
    return { session, text, metadata, named: how.named, put };
  };
}
