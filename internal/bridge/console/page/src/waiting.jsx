// What waits for a person: requests of all kinds, and the questions of tasks.
import { h, Fragment } from "preact";
import { useEffect, useState } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { call, link as daemon, phase, records, waiting } from "./daemon.js";
import { List } from "./list.jsx";
import { Text } from "./text.jsx";
import { Empty, Level, Name, ago, count, now, span, wary } from "./parts.jsx";
import { go, link } from "./route.js";

export const KINDS = { message: "message", escalation: "for you to answer", effect: "effect", permission: "tool call", delivery: "sent or not?" };

// groups are the requests that wait: like ones together, the most pressing first, and agents by
// turns, so that none fills the page. The process says what is like what, and what presses most.
export const groups = computed(() => {
  waiting.rev.value;
  const all = [...waiting.rows.values()].sort((a, b) => a.rank - b.rank || a.askedAt - b.askedAt || (a.approvalId < b.approvalId ? -1 : 1));
  const like = new Map(), agents = new Map();
  for (const a of all) {
    const key = a.like || a.approvalId;
    if (like.has(key)) { like.get(key).push(a); continue; }
    const group = [a];
    like.set(key, group);
    const agent = a.agent || a.agentId;
    if (agents.has(agent)) agents.get(agent).push(group);
    else agents.set(agent, [group]);
  }
  const lanes = [...agents.values()], out = [];
  for (let turn = 0; out.length < like.size; turn++) for (const lane of lanes) if (turn < lane.length) out.push(lane[turn]);
  return out;
});

export const total = computed(() => { waiting.rev.value; return waiting.rows.size; });

export const toOf = (a) => a.counterparty || a.counterpartyUserId || (a.kind === "message" || a.kind === "delivery" ? a.sessionKey : a.target || a.taskId || a.sessionKey);
const left = (a) => a.expiresAt - now.value;

export function Request({ group }) {
  const a = group[0], soon = left(a) < 600_000;
  return <Fragment>
    <span class="mark" aria-hidden="true">‖</span>
    <span class="who"><Name s={a.agentId || a.agent} />{toOf(a) && <Fragment><i aria-hidden="true"> → </i><span class="hide"> to </span><Name s={toOf(a)} /></Fragment>}{group.length > 1 && <b class="times"> ×{group.length}</b>}</span>
    <span class="says"><Text s={a.summary || a.reason} max={400} /></span>
    <span class="why"><span class="tag"><Text s={a.why || KINDS[a.kind]} max={80} /></span>{a.kind !== "message" && a.why !== KINDS[a.kind] && <span class="kind">{KINDS[a.kind]}</span>}<Level s={a.classification} /></span>
    <span class="likely">{a.likelihood && <Text s={a.chance ? `${a.likelihood}, ${a.chance} %` : a.likelihood} />}</span>
    <span class={"left" + (soon ? " soon" : "")}><span class="hide">asked {ago(a.askedAt)}, </span>{span(left(a))} left</span>
  </Fragment>;
}

// asks are what tasks ask people besides requests: outcomes that nobody knows, open circuits. They are
// loaded anew each minute, and when a task has changed.
const questions = signal([]);
export const asks = computed(() => { waiting.rev.value; return questions.value.filter((q) => !q.approval_id || !waiting.rows.has(q.approval_id)); });
const MOST = 1000;
export function useAsks() {
  const minute = Math.floor(now.value / 60_000);
  useEffect(() => {
    if (phase.value !== "in") return;
    let on = true;
    const timer = setTimeout(async () => {
      const found = [];
      let after = "";
      do {
        const got = await call("task.list", { open: true, newest: true, limit: 200, ...(after && { after }) });
        for (const t of got.tasks ?? []) for (const q of t.questions ?? []) found.push({ task: t, ...q });
        after = got.next;
      } while (on && after && found.length < MOST);
      if (on) questions.value = found;
    }, 50);
    return () => { on = false; clearTimeout(timer); };
  }, [minute, records.tasks.value, phase.value]);
}

// Asks lists them, with the rest behind a button.
export function Asks() {
  const [n, show] = useState(20), list = asks.value;
  return list.length > 0 && <div class="questions" role="group" aria-label="Tasks ask">{list.slice(0, n).map((q) => <Question q={q} />)}{list.length > n && <button onClick={() => show(n + 100)}>{count(list.length - n)} more</button>}</div>;
}

export const Question = ({ q }) => <a class="question" href={link("tasks", q.task.task_id)}><span class="mark" aria-hidden="true">?</span>
  <span class="who"><Name s={q.task.title} /></span><span class="says">{q.about === "outcome" && "nobody knows how it ended: "}<Text s={q.text} /></span><span class="left">{ago(q.since)}</span></a>;

const Nothing = () => <Empty command={wary()}>Nothing waits for you. Messages that commit somebody, that go round in circles, or that the policy holds come here. To have one wait, which leaves if you approve it:</Empty>;

export function Waiting() {
  const [find, setFind] = useState("");
  const wanted = find.toLowerCase();
  const rows = !wanted ? groups.value : groups.value.filter((g) => [g[0].agentId, g[0].agent, toOf(g[0]), g[0].summary, g[0].why, g[0].code, g[0].kind].some((t) => t && t.toLowerCase().includes(wanted)));
  return <section class="screen waiting" aria-label="Waiting">
    <div class="bar"><h1>Waiting <small>{count(total.value + asks.value.length)}{groups.value.length !== total.value && " in " + count(groups.value.length) + " groups"}</small></h1>
      <input type="search" data-filter placeholder="Filter: agent, receiver, words  ( / )" aria-label="Filter what waits" value={find} onInput={(e) => setFind(e.target.value)} /></div>
    <Asks />
    {rows.length ? <List rows={rows} keyOf={(g) => g[0].approvalId} draw={(g) => <Request group={g} />} open={(g) => go("waiting", g[0].approvalId)} label="Requests that wait, the most pressing first" height={56} tall={104} />
      : find ? <Empty mark="·" command="ocipd approvals list">Nothing that waits has this text. All that waits:</Empty> : !waiting.caught.value && daemon.value.live ? <p class="muted pad">Looking…</p> : asks.value.length ? null : <Nothing />}
  </section>;
}
