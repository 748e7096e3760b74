// The gate: what OpenClaw's hooks ask, and what ocipd says.
import { createHash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { Claims } from "./claims.js";
import { elsewhere } from "./elsewhere.js";
import { Kernel, KernelError } from "./kernel.js";
import { Notices } from "./notices.js";
import { placeOf } from "./places.js";
import { reads } from "./reads.js";
import { sender } from "./sends.js";

/** How many texts are remembered until their receiver's run begins, and how many decisions about one text. */
const REMEMBERED = 4096;
const OF_ONE_TEXT = 64;
/** OpenClaw's own prompt for telling a channel of an exchange that is over. */
const ANNOUNCE = "Agent-to-agent announce step.";

const FROM_AGENTS = "inter_session";

/** Words that OpenClaw takes for itself when they are all that an agent says, and sends to nobody. */
const CONTROL = new Set(["REPLY_SKIP", "ANNOUNCE_SKIP", "NO_REPLY", "HEARTBEAT_OK"]);

/** What an agent is told of its message that a person has approved. */
const OUTCOMES = {
  sent: "It has been sent: do not send it again.",
  not_sent: "It could not be sent; a person sees to it.",
  unknown: "Whether it has been sent is not known; a person sees to it.",
};

export class Gate {
  /**
   * @param {object} o
   * @param {string} o.socket
   * @param {string} o.appId
   * @param {string} o.version
   * @param {string} o.state folder for what is being sent
   * @param {"off"|"record"|"enforce"} o.tools
   * @param {object} [o.sendTools]
   * @param {{info: Function, warn: Function, error: Function}} o.log
   * @param {() => string|undefined} [o.visibility] tools.sessions.visibility of OpenClaw's settings
   * @param {(agentId: string, text: string) => void} [o.tell] says something in an agent's session
   * @param {(ctx: {agentId: string}, message: {sessionKey: string, content: string, metadata?: object}, ticket: string) => Promise<void>} o.send sends a released message
   */
  constructor({ socket, appId, version, state, tools, sendTools, log, send, visibility = () => undefined, tell = () => {} }) {
    this.tools = tools;
    this.log = log;
    this.send = send;
    this.visibility = visibility;
    this.tell = (agentId, text) => {
      this.notices.add(agentId, text);
      tell(agentId, text);
    };
    this.find = sender(sendTools);
    this.claims = new Claims(state);
    this.notices = new Notices(state, log);
    /** Decided messages by who said what, in their order: what was decided travels beside OpenClaw's text. */
    this.decided = new Map();
    /** The exchange that a run answers in, by the run's id. */
    this.runs = new Map();
    /** Runs that no message of another agent began. */
    this.own = new Set();
    /** Agents whose next run may follow from another agent's text that is in no prompt. */
    this.nudged = new Set();
    /** Messages that were let go and that no run has begun with, by dispatch id, in their order. */
    this.onTheirWay = new Map();
    /** The dispatch ids of messages whose tool has not ended, by the call's id. */
    this.calls = new Map();
    /** Pairs of agents whose last message was refused. */
    this.refused = new Set();
    /** Released messages by ticket, which the gate lets pass once. */
    this.tickets = new Map();
    this.redeeming = new Set();
    this.kernel = new Kernel({
      socket,
      manifest: {
        id: appId, name: "OpenClaw Gateway", version, type: "extension", main: "index.js", protocol: { version: "1.0" },
        capabilities: { redeem: true },
      },
      resolved: (outcome) => void this.resolved(outcome),
      connected: () => void this.recover(),
    });
  }

  key(session, text) {
    return createHash("sha256").update(`${session}\0${text}`).digest("base64");
  }

  /** Remembers what was decided about a text of a session to another, beside what was decided about the same text before. */
  remember(session, to, text, decision) {
    const key = this.key(session, text);
    const message = { ...decision, to: agentOf(to) };
    put(this.decided, key, [...(this.decided.get(key) ?? []).slice(1 - OF_ONE_TEXT), message]);
    if (decision.dispatchId && message.to) put(this.onTheirWay, decision.dispatchId, { pair: pair(session, message.to), message });
  }

  /**
   * What was decided about a text that an agent's run begins with. Two messages on their way can have one text: each run
   * takes a decision of its own, the newest, since the host drops some replies and says nothing of it. A run more has the
   * last one once more, which ocipd refuses.
   */
  decisionOf(key, agentId) {
    const messages = (this.decided.get(key) ?? []).filter((m) => !m.to || m.to === agentId);
    return messages.findLast((m) => !m.begun) ?? messages.at(-1);
  }

  /**
   * A run began with a text of a session that is none of those decided about. One of its messages was
   * changed on the way, and nobody knows which: none of those on their way comes any more.
   */
  async lost(from, agentId) {
    for (const [dispatchId, { pair: of, message }] of [...this.onTheirWay]) {
      if (of !== pair(from, agentId)) continue;
      message.refused = "the message is on record as not taken";
      await this.notSent(dispatchId, "a run began with another text than the one that was decided about");
    }
  }

  // ---- what an agent sends by a tool

  /** before_tool_call. It fails closed by itself: what it throws blocks the tool too. */
  async beforeTool(event, ctx) {
    const ticket = event.params?._ocip?.release;
    if (ticket !== undefined) return this.released(event, ctx, ticket);
    const found = this.find(event.toolName, event.params, ctx);
    if (!found) {
      const wrong = elsewhere(event.toolName, event.params, ctx);
      if (wrong) return block(`ocipd: ${event.toolName} is refused: ${wrong}. Do not retry.`);
      const read = reads(event.toolName, event.params, ctx, this.visibility());
      if (read?.wrong) return block(`ocipd: refused: ${read.wrong}`);
      return (await this.otherTool(event, ctx)) ?? read ?? undefined;
    }
    if (found.wrong) return block(found.wrong);
    // What else a tool does that only the settings name is not known: its call is decided too.
    const refused = found.named && await this.otherTool(event, ctx);
    if (refused) return refused;
    const answer = await this.decide(found.session, found.text, { ...found.metadata, ...this.asks(found, ctx) }, ctx);
    if (!answer.allowed) return block(this.reason(answer));
    if (!asDecided(found, answer.data)) {
      await this.notSent(answer.data.dispatchId, "its other parameters were changed after the call");
      return block("ocipd: refused: the parameters of the call are not the ones that were decided about. Do not retry.");
    }
    this.allow(ctx, found.session, answer.data);
    const to = agentOf(found.session);
    if (to && event.params.mode !== undefined) this.nudged.add(to);
    const call = event.toolCallId ?? ctx.toolCallId;
    if (call) this.calls.set(call, answer.data.dispatchId);
    return { params: found.put(answer.data.content) };
  }

  /** A message that an agent sends another by a tool opens an exchange; its answers stay in it. */
  asks(found, ctx) {
    if (!agentOf(found.session)) return {};
    return { exchange: { new: true, ownTurn: this.own.has(ctx.runId) } };
  }

  /** after_tool_call: a message that the host itself refused was not sent. */
  async afterTool(event, ctx) {
    const call = event.toolCallId ?? ctx.toolCallId;
    const dispatchId = this.calls.get(call);
    this.calls.delete(call);
    const status = event.result?.details?.status;
    if (dispatchId && (event.error || status === "error" || status === "forbidden")) await this.notSent(dispatchId, event.error ?? event.result.details.error ?? status);
  }

  /** Tells ocipd that a message which it let go went to nobody. */
  async notSent(dispatchId, why) {
    this.onTheirWay.delete(dispatchId);
    try {
      await this.kernel.ask("approval.confirm", { dispatchId, outcome: "not_sent", note: String(why).slice(0, 500) });
    } catch (e) {
      this.log.warn(`ocipd: it is not on record that ${dispatchId} was not sent: ${e.message}`);
    }
  }

  allow(ctx, session, data) {
    const from = ctx.sessionKey ?? `agent:${ctx.agentId}:main`;
    this.remember(from, session, data.content, { metadata: data.metadata, dispatchId: data.dispatchId });
    this.refused.delete(pair(from, session));
  }

  /** Asks ocipd whether a message may leave. What fails is a refusal. */
  async decide(session, text, metadata, ctx, disclosure) {
    let answer;
    try {
      answer = await this.kernel.ask("hook.emit", {
        hookName: "message_sending", data: { sessionKey: session, content: text, metadata, disclosure }, context: { agentId: ctx.agentId },
      });
    } catch (e) {
      if (!(e instanceof KernelError)) throw e;
      answer = { allowed: false, reason: e.message };
    }
    if (!answer.allowed) this.refused.add(pair(ctx.sessionKey ?? `agent:${ctx.agentId}:main`, session));
    return answer;
  }

  reason(answer) {
    if (answer.held) return `ocipd: HELD ${answer.approvalId}: ${answer.reason}. ${decisions(answer)} Do not retry, and do not send it another way.`;
    return `ocipd: refused: ${answer.reason ?? "without a reason"}. Do not retry.`;
  }

  async otherTool(event, ctx) {
    if (this.tools === "off") return undefined;
    try {
      const answer = await this.kernel.ask("hook.emit", {
        hookName: "tool_executing", data: { toolName: event.toolName, params: event.params ?? {} }, context: { agentId: ctx.agentId },
      });
      // The daemon's own settings say whether its answer holds: where it records alone, it allows.
      if (answer.held) return block(`ocipd: HELD ${answer.approvalId}: ${answer.reason}. A person has to approve it; then the same call is let through. Do not retry before your user says so.`);
      if (!answer.allowed) return block(this.reason(answer));
    } catch (e) {
      return block(`ocipd: ${e.message}`);
    }
    return undefined;
  }

  // ---- what runs between agents without a tool

  /** before_agent_run, which is closed: a run that another agent's text begins needs a decision. */
  async beforeRun(event, ctx) {
    const source = ctx.inputProvenance;
    if (source?.kind !== FROM_AGENTS) {
      if (!this.nudged.delete(ctx.agentId) && ctx.runId) this.own.add(ctx.runId);
      return undefined;
    }
    const from = source.sourceSessionKey ?? "";
    if (this.withoutNotices(ctx.agentId, event.prompt) === ANNOUNCE) {
      // Its system prompt has the last reply in it.
      return this.refused.has(pair(from, ctx.sessionKey)) || this.refused.has(pair(ctx.sessionKey, from)) ? withheld("the last message of these two was refused") : undefined;
    }
    if (from.startsWith(`agent:${ctx.agentId}:`)) return undefined; // the agent's own
    const text = this.decided.has(this.key(from, event.prompt)) ? event.prompt : this.withoutNotices(ctx.agentId, event.prompt);
    const key = this.key(from, text);
    const decided = this.decisionOf(key, ctx.agentId);
    if (decided) decided.begun = true;
    if (!decided || decided.refused) {
      if (!decided) {
        this.log.error(`ocipd: ${ctx.sessionKey} was to run on a text of ${from} that nobody decided about`);
        await this.lost(from, ctx.agentId);
      }
      return withheld(decided?.refused ?? "no decision about this message is known");
    }
    let answer;
    try {
      answer = await this.kernel.ask("hook.emit", {
        hookName: "message_received", data: { sessionKey: ctx.sessionKey, content: text, metadata: decided.metadata }, context: { agentId: ctx.agentId },
      });
    } catch (e) {
      answer = { allowed: false, reason: e.message };
    }
    if (!answer.allowed) {
      this.refused.add(pair(from, ctx.sessionKey));
      if (!decided.taken) await this.notSent(decided.dispatchId, answer.reason);
      return withheld(answer.reason);
    }
    decided.taken = true;
    this.onTheirWay.delete(decided.dispatchId);
    if (ctx.runId) this.runs.set(ctx.runId, { to: replies(from), exchange: decided.metadata?.exchange?.id });
    return undefined;
  }

  /** before_agent_finalize: the reply of a run goes back to the agent that began it. */
  async beforeFinalize(event, ctx) {
    const run = this.runs.get(event.runId ?? ctx.runId);
    const text = event.lastAssistantMessage;
    if (!run || typeof text !== "string" || text.trim() === "" || CONTROL.has(text.trim())) return undefined;
    const metadata = run.exchange ? { exchange: { id: run.exchange } } : {};
    const answer = await this.decide(run.to, text, metadata, ctx, "annotation");
    // The host sends the text as it is: the label travels in the annotation.
    if (answer.allowed) this.remember(ctx.sessionKey, run.to, text, { metadata: answer.data.metadata, dispatchId: answer.data.dispatchId });
    else this.remember(ctx.sessionKey, run.to, text, { refused: this.reason(answer) });
    return undefined;
  }

  runEnded(event, ctx) {
    this.runs.delete(event?.runId ?? ctx?.runId);
    this.own.delete(event?.runId ?? ctx?.runId);
  }

  /** before_message_write puts the annotation beside OpenClaw's provenance. */
  annotate(event) {
    const m = event.message;
    if (m?.role !== "user" || m.provenance?.kind !== FROM_AGENTS) return undefined;
    const text = typeof m.content === "string" ? m.content : (m.content ?? []).map((p) => p.text ?? "").join("");
    // What is written has the host's own lines before it.
    for (let at = 0; at >= 0; at = text.indexOf("\n", at) + 1 || -1) {
      const messages = this.decided.get(this.key(m.provenance.sourceSessionKey, text.slice(at))) ?? [];
      const ocip = (messages.findLast((d) => d.begun && d.metadata) ?? messages.at(-1))?.metadata?.ocip;
      if (ocip) return { message: { ...m, ocip } };
    }
    return undefined;
  }

  /** A prompt without what this plugin has told the agent, which the host puts before it. */
  withoutNotices(agentId, prompt) {
    let text = prompt;
    for (const notice of this.notices.of(agentId)) {
      const rest = text.trimStart();
      if (rest.startsWith(notice)) text = rest.slice(notice.length).replace(/^\s+/, "");
    }
    return text;
  }

  // ---- channels

  /** message_sending is open where it fails: every error cancels. */
  async channelSending(event, ctx, time) {
    let timer;
    const late = new Promise((_, failed) => { timer = setTimeout(() => failed(new Error("ocipd did not answer in time")), time); });
    try {
      const agentId = agentOf(ctx.sessionKey);
      if (!agentId) return { cancel: true, cancelReason: "ocipd: whose message this is does not show" };
      const session = `${ctx.channelId}:${placeOf(ctx.channelId, String(event.to ?? ctx.conversationId), event.threadId ?? event.metadata?.threadId)}`;
      const metadata = ctx.accountId && ctx.accountId !== "default" ? { accountId: ctx.accountId } : {};
      // Files that go along: the daemon opens them.
      const { channel: _channel, accountId: _account, ...rest } = event.metadata ?? {};
      if (Object.keys(rest).length > 0) metadata.params = rest;
      const answer = await Promise.race([this.decide(session, event.content, metadata, { agentId, sessionKey: ctx.sessionKey }), late]);
      if (!answer.allowed) return { cancel: true, cancelReason: this.reason(answer) };
      return { content: answer.data.content };
    } catch (e) {
      return { cancel: true, cancelReason: `ocipd: ${e.message}` };
    } finally {
      clearTimeout(timer);
    }
  }

  // ---- what people decide

  async resolved({ approvalId, resolution, note }) {
    if (resolution === "approved" || resolution === "taken_over") {
      await this.redeem(approvalId);
      return;
    }
    const what = `${resolution}${note ? `: ${note}` : ""}`;
    this.log.info(`ocipd: ${approvalId} is ${what}`);
    try {
      const { agentId } = await this.kernel.ask("approval.get", { approvalId });
      this.tell(agentId, `ocipd: your message ${approvalId} was not sent: it is ${what}.`);
    } catch (e) {
      this.log.warn(`ocipd: the agent is not told of ${approvalId}: ${e.message}`);
    }
  }

  /** Sends what a person has approved, once. */
  async redeem(approvalId) {
    if (this.redeeming.has(approvalId)) return;
    this.redeeming.add(approvalId);
    try {
      const claim = this.claims.begin(approvalId);
      const { claim: id, data } = await this.kernel.ask("approval.redeem", { approvalId, requestKey: claim.requestKey });
      if (claim.sending) {
        // An earlier process was killed while it sent: nobody knows whether it did.
        await this.kernel.ask("approval.confirm", { claim: id, outcome: "unknown" });
        this.claims.end(approvalId);
        return;
      }
      const { agentId } = await this.kernel.ask("approval.get", { approvalId });
      const ticket = claim.requestKey;
      this.tickets.set(ticket, data);
      let outcome = "sent";
      try {
        this.claims.sending(claim);
        await this.send({ agentId }, data, ticket);
      } catch (e) {
        // A ticket that is still there was not taken: nothing has left.
        outcome = this.tickets.has(ticket) ? "not_sent" : "unknown";
        this.log.error(`ocipd: ${approvalId} could not be sent: ${e.message}`);
      } finally {
        this.tickets.delete(ticket);
      }
      await this.kernel.ask("approval.confirm", { claim: id, outcome });
      this.claims.end(approvalId);
      this.tell(agentId, `ocipd: your message ${approvalId} was approved. ${OUTCOMES[outcome]}`);
    } catch (e) {
      if (e.code === "NOT_FOUND" || e.code === "CONFLICT") this.claims.end(approvalId);
      this.log.warn(`ocipd: ${approvalId} is not sent: ${e.message}`);
    } finally {
      this.redeeming.delete(approvalId);
    }
  }

  /** The released message passes the gate once, as it was approved. */
  released(event, ctx, ticket) {
    const data = this.tickets.get(ticket);
    const found = this.find(event.toolName, event.params, ctx);
    if (!data || !found || found.wrong || found.text !== data.content || found.session !== data.sessionKey || !(agentOf(found.session) || asDecided(found, data))) {
      return block("ocipd: no such message was released");
    }
    this.tickets.delete(ticket);
    this.allow(ctx, data.sessionKey, data);
    const params = found.put(data.content);
    delete params._ocip;
    return { params };
  }

  /** After a start, and after ocipd was away: what was approved meanwhile is sent. */
  async recover() {
    try {
      const { approvals } = await this.kernel.ask("approval.redeemable", {});
      const ready = new Set(approvals.map((a) => a.approvalId));
      for (const id of this.claims.list()) ready.add(id);
      for (const id of ready) await this.redeem(id);
    } catch (e) {
      this.log.warn(`ocipd: what was approved meanwhile is not known: ${e.message}`);
    }
  }

  close() {
    this.kernel.close();
  }
}

/** What can become of a held message. */
const decisions = ({ ocip }) => (ocip?.blocked
  ? `It cannot be sent as it is, whoever approves: ${ocip.blocked}. A person denies it, settles the exchange, or answers in your place.`
  : "A person decides; if it is approved, it is sent without you.");

/** Whether a call has the parameters that the daemon decided about. */
const asDecided = (found, { metadata = {} }) => isDeepStrictEqual(found.metadata.params, metadata.params) && (found.metadata.accountId ?? metadata.accountId) === metadata.accountId;

const block = (reason) => ({ block: true, blockReason: reason });
const withheld = (reason) => ({ outcome: "block", reason, message: `ocipd: message withheld: ${reason}` });
/** Puts a value at the end of a map, and drops the first ones of too many. */
const put = (map, key, value) => {
  map.delete(key);
  map.set(key, value);
  for (const old of map.keys()) {
    if (map.size <= REMEMBERED) break;
    map.delete(old);
  }
};
const pair = (from, to) => `${from}\n${to}`;

/** The session key by which an agent's message is answered. */
const replies = (session) => {
  const agent = agentOf(session);
  return agent ? `agent:${agent}:main` : session;
};

const agentOf = (session) => /^agent:([^:]+):/.exec(session ?? "")?.[1];
