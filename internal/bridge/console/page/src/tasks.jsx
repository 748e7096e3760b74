// Tasks: what they ask people, and how far each is.
import { h, Fragment } from "preact";
import { useState } from "preact/hooks";
import { call, waiting } from "./daemon.js";
import { List } from "./list.jsx";
import { Text } from "./text.jsx";
import { Ask, Copy, Empty, Facts, Fault, Level, Name, ago, at, kind, now, quoted, useLoad, words } from "./parts.jsx";
import { Asks, KINDS } from "./waiting.jsx";
import { go, link } from "./route.js";

const TaskRow = ({ t }) => <Fragment>
  <span class={"phase" + kind("p-", t.questions?.length ? "asks" : t.phase)}><Text s={words(t.phase)} /></span>
  <span class="who"><Name s={t.title} /></span>
  <span class="why">{t.questions?.length > 0 && <b class="tag">asks you</b>}{t.circuit_status === "open" && <b class="tag">circuit open</b>}{t.waits_for && <span>waits for <Text s={words(t.waits_for)} /></span>}<Level s={t.classification} /></span>
  <span class="when">{ago(t.updated_at)}</span></Fragment>;

export function Tasks() {
  const [open, setOpen] = useState(true), [find, setFind] = useState(""), [pages, setPages] = useState({ rows: [], next: "" });
  const minute = Math.floor(now.value / 15_000);
  const { value, error } = useLoad(async () => {
    const got = await call("task.list", { newest: true, limit: 200, ...(open && { open }) });
    setPages({ rows: got.tasks ?? [], next: got.next });
    return got;
  }, [open, minute]);
  const more = pages.next && !find ? async () => {
    const after = pages.next;
    setPages({ ...pages, next: "" });
    const got = await call("task.list", { newest: true, limit: 200, after, ...(open && { open }) });
    setPages((was) => ({ rows: was.rows.concat(got.tasks ?? []), next: got.next }));
  } : null;
  const rows = find ? pages.rows.filter((t) => (t.title + " " + t.phase + " " + t.task_id + " " + t.workspace).toLowerCase().includes(find.toLowerCase())) : pages.rows;
  return <section class="screen" aria-label="Tasks">
    <div class="bar"><h1>Tasks</h1><div class="chips" role="group" aria-label="Which">{[[true, "Open"], [false, "All"]].map(([v, name]) => <button class={"chip" + (open === v ? " on" : "")} aria-pressed={open === v} onClick={() => setOpen(v)}>{name}</button>)}</div>
      <input type="search" data-filter placeholder="Filter: title, phase  ( / )" aria-label="Filter tasks" value={find} onInput={(e) => setFind(e.target.value)} /></div>
    <Fault e={error} />
    <Asks />
    {rows.length ? <List rows={rows} keyOf={(t) => t.task_id} draw={(t) => <TaskRow t={t} />} open={(t) => go("tasks", t.task_id)} more={more} label="Tasks, newest first" height={40} tall={66} />
      : value && <Empty mark="·" command={find ? "ocipd task list" : "ocipd task create --help"}>{find ? "No task has this text. All tasks:" : open ? "No task is open. To make one:" : "There are no tasks. To make one:"}</Empty>}
  </section>;
}

function Kill({ task, effect, close, done }) {
  const [reason, setReason] = useState(""), [error, setError] = useState(null);
  const kill = async (e) => {
    e.preventDefault();
    try { await call("task.kill_effect", { task_id: task, effect_id: effect.effect_id, reason }); done(); } catch (err) { setError(err); }
  };
  return <Ask title="Stop the running effect" close={close}><form onSubmit={kill}>
    <p><Text s={effect.requested_action || effect.side_effect_kind} /></p>
    <label>Reason, for the record<input autofocus required value={reason} onInput={(e) => setReason(e.target.value)} /></label><Fault e={error} />
    <div class="actions"><button type="button" onClick={close}>Cancel</button><button class="stop">Stop it</button></div></form></Ask>;
}

// has says whether a run of an effect is in a state. The run that undoes an effect has its own.
const has = (e, state) => (e.runs ?? []).some((r) => r.state === state);
// A task's view has the newest entries of each part. IDS name what an entry is found by.
const IDS = { attempts: "attempt_id", reviews: "review_id", effects: "effect_id", approvals: "approval_id", artifacts: "artifact_id" };

// useParts loads the older entries of a task's parts, a page at a time.
function useParts(id, t) {
  const [old, set] = useState({}), [error, setError] = useState(null);
  const merged = (part, key) => [...new Map([...(old[part]?.rows ?? []), ...(t?.[part] ?? [])].map((x) => [x[key], x])).values()];
  const more = async (part) => {
    try {
      const rows = old[part]?.rows ?? [], after = part === "events" ? rows[0]?.seq ?? t.events[0].seq : rows.at(-1)?.[IDS[part]];
      const got = await call("task.get", { task_id: id, part, ...(after && { after: String(after) }) });
      const events = part === "events" && got.events.filter((e) => e.seq < after);
      set((was) => ({ ...was, [part]: events ? { rows: events.concat(was.events?.rows ?? []), end: !events.length } : { rows: rows.concat(got[part]), end: !got.more?.includes(part) } }));
    } catch (e) { setError(e); }
  };
  const older = (part) => (part === "events" ? t.events?.[0]?.n !== 1 && t.events?.length > 0 && merged("events", "seq")[0].n !== 1 : t.more?.includes(part)) && !old[part]?.end && <button class="older" onClick={() => more(part)}>Older {part}</button>;
  return { error, older, of: Object.fromEntries([...Object.keys(IDS), "events"].map((part) => [part, merged(part, IDS[part] ?? "seq")])) };
}

const json = (v) => typeof v === "string" ? v : JSON.stringify(v, null, 1);

export function Task({ id }) {
  const tick = Math.floor(now.value / 5000);
  const { value: t, error, again } = useLoad(() => call("task.get", { task_id: id }), [id, tick]);
  const [kill, setKill] = useState(null), { of, older, error: partly } = useParts(id, t);
  if (error && !t) return <section class="screen"><a class="back" href="#/tasks">‹ Tasks</a><Fault e={error} /></section>;
  if (!t) return <section class="screen"><p class="muted pad">Looking…</p></section>;
  // Its tool calls wait among the requests, and are none of its approvals.
  waiting.rev.value;
  const calls = [...waiting.rows.values()].filter((a) => a.taskId === id && !of.approvals.some((x) => x.approval_id === a.approvalId));
  const effect = (a) => of.effects.find((e) => e.effect_id === a.effect_id);
  return <section class="screen one" aria-label="One task">
    <nav class="crumb"><a class="back" href="#/tasks">‹ Tasks</a><Copy text={"ocipd task show " + quoted(id)} /></nav>
    <h1><Text s={t.title} /></h1>
    <p class="lead"><span class="phase"><Text s={words(t.phase)} /></span><Level s={t.classification} />{t.circuit_status === "open" && <span class="tag">circuit open: <Text s={t.circuit_reason} /></span>}<span class="muted">{ago(t.updated_at)}, {t.retries_left} retries left</span></p>
    {t.circuit_status === "open" && <p>A person closes the circuit: <Copy text={"ocipd task circuit close " + quoted(id)} /></p>}
    <Fault e={partly} />
    {t.unblock?.length > 0 && <section class="panel"><h2>What it waits for</h2>{t.unblock.map((u) => <p><Text s={u} lines /></p>)}</section>}
    {t.spec?.goal && <section class="panel"><h2>Goal</h2><figure class="quote"><pre tabIndex={0}><Text s={t.spec.goal} lines /></pre></figure>{t.spec.acceptance_criteria?.length > 0 && <ul class="points">{t.spec.acceptance_criteria.map((c) => <li><Text s={c} lines /></li>)}</ul>}</section>}
    <section class="panel"><h2>Approvals</h2>{older("approvals")}{calls.map((a) => <p><span class="tag">pending</span> {KINDS[a.kind]} <b><Text s={a.summary} max={400} /></b> <a href={link("waiting", a.approvalId)}>asked {at(a.askedAt)}</a></p>)}{of.approvals.length ? of.approvals.map((a) => <p><span class={a.status === "pending" ? "tag" : "kind"}><Text s={words(a.status)} /></span> {effect(a) && <b><Text s={effect(a).requested_action || effect(a).side_effect_kind} /> </b>}<a href={link("waiting", a.approval_id)}>asked {at(a.asked_at)} by <Text s={a.requested_by} /></a>{a.resolved_by && <Fragment>, decided by <Text s={a.resolved_by} /></Fragment>}{a.note && <Fragment>: <Text s={a.note} /></Fragment>}</p>) : !calls.length && <Empty mark="·" command="ocipd task request-approval --help">Nothing was asked.</Empty>}</section>
    <section class="panel"><h2>Effects</h2>{older("effects")}{of.effects.length ? of.effects.map((e) => <article class="effect"><p><span class={has(e, "outcome_unknown") ? "tag" : "kind"}><Text s={words(e.state)} /></span> <b><Text s={e.requested_action || e.side_effect_kind} /></b> <span class="muted">planned by <Text s={e.planned_by} />{e.late && ", after the reviews"}</span></p>
      {(e.runs ?? []).map((r) => <Fragment><p class="muted">run {r.run}{r.compensation && ", which undoes it"}: <Text s={words(r.state)} /> by <Text s={r.actor} />, {at(r.started_at)}{r.ended_at && " to " + at(r.ended_at)}{r.settled_by && <Fragment>, settled by <Text s={r.settled_by} /></Fragment>}{r.evidence && <Fragment>: <Text s={r.evidence} lines /></Fragment>}</p>
        {r.receipt != null && <details><summary>receipt of run {r.run}</summary><pre class="signed" tabIndex={0}><Text s={json(r.receipt)} lines /></pre></details>}</Fragment>)}
      {has(e, "started") && <button class="danger" onClick={() => setKill(e)}>Stop it</button>}
      {has(e, "outcome_unknown") && <Copy text={"ocipd task effect settle --task " + quoted(id)} />}</article>) : <Empty mark="·" command="ocipd task effect plan --help">No effect was planned.</Empty>}</section>
    <section class="panel"><h2>Artifacts</h2>{older("artifacts")}{of.artifacts.length ? of.artifacts.map((x) => <p><span class="kind"><Text s={words(x.kind)} /></span> <Text s={x.uri} /> <span class="muted">by <Text s={x.actor} /></span></p>) : <Empty mark="·" command="ocipd task artifact --help">No artifact was recorded.</Empty>}</section>
    <section class="panel"><h2>Reviews</h2>{older("reviews")}{of.reviews.length ? of.reviews.map((r) => <article><p><span class="kind"><Text s={words(r.verdict)} /></span> <b><Text s={words(r.review_type)} /></b> by <Text s={r.actor} /> <span class="muted">{at(r.at)}{r.stale && ", of an older revision"}</span></p>{r.summary && <p><Text s={r.summary} lines /></p>}{(r.findings ?? []).map((f) => <p class="finding"><b><Text s={f.severity} /></b> <Text s={f.message} lines /> {f.file && <code><Text s={f.file + (f.line ? ":" + f.line : "")} /></code>}</p>)}</article>) : <Empty mark="·" command="ocipd task review --help">Nobody has reviewed it.</Empty>}</section>
    <section class="panel"><h2>Attempts</h2>{older("attempts")}{of.attempts.length ? of.attempts.map((x) => <p><span class="kind"><Text s={words(x.status)} /></span> attempt {x.ordinal} by <Text s={x.actor} /> <span class="muted">{at(x.started_at)}{x.ended_at && " to " + at(x.ended_at)}</span>{x.error_summary && <Fragment>: <Text s={x.error_summary} lines /></Fragment>}</p>) : <Empty mark="·" command="ocipd task start-attempt --help">Nobody has begun.</Empty>}</section>
    <section class="panel"><h2>Events</h2>{older("events")}<ol class="events">{of.events.map((e) => <li><span class="when">{at(e.at)}</span> <Text s={words(e.event).replaceAll(".", " ")} />{e.now?.phase && <b> to <Text s={words(e.now.phase)} /></b>} <span class="muted"><Text s={e.actor} />{e.reason && <Fragment>: <Text s={e.reason} lines /></Fragment>}</span></li>)}</ol><a href={link("messages", "", { q: "task:" + id })}>All records ›</a></section>
    {kill && <Kill task={id} effect={kill} close={() => setKill(null)} done={() => { setKill(null); again(); }} />}
  </section>;
}
