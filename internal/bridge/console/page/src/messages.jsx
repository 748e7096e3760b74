// Messages: the log, by the filters of `ocipd audit query`, and one message from asked to answered.
import { Component, h, Fragment } from "preact";
import { useState, useEffect, useMemo, useRef } from "preact/hooks";
import { call, records, link as daemon } from "./daemon.js";
import { List } from "./list.jsx";
import { Text, visible } from "./text.jsx";
import { Copy, Empty, Facts, Fault, Level, Name, Verdict, at, bytes, clock, count, day, kind, plural, quoted, short, useLoad, wary, words } from "./parts.jsx";
import { check } from "./verify.js";
import { back, go, link, route, stay } from "./route.js";
import { Inside } from "./trends.jsx";
import { FILTERS } from "./tables.js";

const other = (r) => r.counterparty?.instanceId || r.counterparty?.userId || r.sessionKey || "";
const self = (r) => r.agentId || r.appId || r.userId || r.actor || "";
export const ends = (r) => r.side === "receiver" ? [other(r), self(r)] : [self(r), other(r)];
export const what = (r) => words(r.event || r.outcome || r.actionType).replaceAll(".", " ");
export const target = (r) => r.dispatchId ? ["messages", r.dispatchId] : r.taskId ? ["tasks", r.taskId] : ["messages", "record:" + r.seq];

// Row is one record: when, the verdict, whom, why, and the level beside it.
// A record never changes, so its row is drawn once, and anew if its agents have other names: then its
// state is another one.
export class Row extends Component {
  shouldComponentUpdate(next, state) { return next.r !== this.props.r || state !== this.state; }
  render({ r }) { return drawn(r); }
}
// A person who scrolls has thirty rows drawn in a frame: the parts of one are called, and are no
// components of their own, and none of them is a box that is only there to be hidden.
function drawn(r) {
  const [from, to] = ends(r), code = r.code ? words(r.code) : r.policyResult ? "" : what(r);
  return <Fragment>
    <span class="when"><span class="day">{day(r.time)} </span>{clock(r.time)}</span>
    {Verdict({ v: r.policyResult })}
    <span class="who">{Name({ s: from || "ocipd" })}{to && <i role="img" aria-label=" to "> → </i>}{to && Name({ s: to })}</span>
    <span class="why">{code && <b>{Text({ s: code, max: 80 })}</b>}{Level({ s: r.classification })}{!r.policyResult && r.event && Text({ s: words(r.actionType), max: 80 })}{r.policyReason && Text({ s: r.policyReason, max: 400 })}</span>
  </Fragment>;
}

const RESULTS = [["", "All"], ["require_approval", "Held"], ["deny", "Refused"], ["allow", "Sent"]];
const HOLD = "hold";

// parse reads a line of filters: name:value, and words to find in the reason. Names and times are those
// of the flags of `ocipd audit query`.
export function parse(line) {
  const filter = {}, times = {}, text = [], unknown = [], untimely = [];
  for (const [part, , , inQuotes, plain] of line.matchAll(/((\S+?):)?(?:"([^"]*)"|(\S+))/g)) {
    const value = inQuotes ?? plain ?? "", name = /^([a-z]+):/.exec(part)?.[1];
    if (name === "since" || name === "until") { if (when(value)) times[name] = value; else if (value) untimely.push(value); continue; }
    const f = name && FILTERS.find(([, flag]) => flag === name);
    if (!f) { if (name && !/^[a-z]+:\/\//.test(part)) unknown.push(name); text.push(part.replaceAll('"', "")); continue; }
    filter[f[0]] = f[0] === "result" && value === HOLD ? "require_approval" : value;
  }
  if (text.length) filter.text = text.join(" ");
  return { filter, unknown, untimely, ...times };
}

const SPANS = ["1h", "24h", "7d"];
const UNITS = { h: 36e5, m: 6e4, s: 1e3, ms: 1 };

// when is the moment that a text names, in the forms of the flag --since of `ocipd audit query`, null for none.
function when(text) {
  const now = new Date(), midnight = (back) => new Date(now.getFullYear(), now.getMonth(), now.getDate() - back);
  if (text === "now") return now;
  if (text === "today" || text === "yesterday") return midnight(text === "today" ? 0 : 1);
  if (/^\d{1,6}d$/.test(text)) { const back = midnight(parseInt(text)); back.setHours(now.getHours(), now.getMinutes(), now.getSeconds(), now.getMilliseconds()); return back; }
  if (/^(\d+(\.\d+)?(ms|h|m|s))+$/.test(text)) return new Date(now - [...text.matchAll(/([\d.]+)(ms|h|m|s)/g)].reduce((sum, [, n, unit]) => sum + n * UNITS[unit], 0));
  const [, date, clock, zone, local] = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d:\d\d(?:\.\d+)?)(Z|[+-]\d\d:\d\d)| (\d\d:\d\d(?::\d\d)?))?$/.exec(text) ?? [];
  const at = new Date(date + "T" + (clock ? clock + zone : local ?? "00:00"));
  return isNaN(at) ? null : at;
}
const moment = (t) => t && when(t) ? t : "";
export function commandOf(filter, since, until) {
  const flags = Object.entries(filter).filter(([, v]) => v).map(([name, v]) => {
    const flag = FILTERS.find(([f]) => f === name)?.[1] || name;
    return "--" + flag + " " + quoted(name === "result" && v === "require_approval" ? HOLD : v);
  });
  if (since) flags.push("--since " + quoted(since));
  if (until) flags.push("--until " + quoted(until));
  return ["ocipd audit query", ...flags].join(" ");
}

// usePages is the log behind a filter, newest first: pages by a cursor, and new records on top.
function usePages(filter, since, until) {
  const key = JSON.stringify([filter, since, until]);
  const [state, set] = useState({ rows: [], next: 0, key: "" });
  const busy = useRef(""), error = useRef(null);
  const plain = !Object.keys(filter).length && !since && !until;
  const load = async (before, rows) => {
    const mine = key + before;
    if (busy.current === mine) return;
    busy.current = mine;
    try {
      const asked = { ...filter, ...(since && { since: when(since).toISOString() }), ...(until && { until: when(until).toISOString() }) };
      const page = await call("audit.query", { ...(Object.keys(asked).length && { filter: asked }), limit: before ? 1000 : 200, ...(before && { before }) });
      if (busy.current !== mine) return;
      error.current = null;
      set({ rows: rows.concat(page.records), next: page.nextBefore, key });
    } catch (e) {
      error.current = e;
      set({ rows, next: 0, key });
    }
    busy.current = "";
  };
  useEffect(() => { busy.current = ""; load(0, []); }, [key]);
  records.rev.value;
  // What the stream has brought since the first page.
  const top = state.rows[0]?.seq ?? 0;
  const fresh = useMemo(() => {
    if (state.key !== key) return [];
    const out = [];
    for (let i = records.rows.length - 1; i >= 0 && records.rows[i].seq > top; i--) if (plain || (!until || new Date(records.rows[i].time) < when(until)) && matches(records.rows[i], filter)) out.push(records.rows[i]);
    return out;
  }, [records.rev.value, state, key]);
  const rows = useMemo(() => fresh.length ? fresh.concat(state.rows) : state.rows, [fresh, state]);
  return { rows, loading: state.key !== key, error: error.current, more: state.next ? () => load(state.next, state.rows) : null, whole: !state.next };
}

const PATHS = { app: "appId", tenant: "tenantId", user: "userId", session: "sessionKey", exchange: "exchangeId", conversation: "conversationId", chain: "chainId", rule: "policyApplied", result: "policyResult", dispatch: "dispatchId", run: "runId", approval: "approvalId", task: "taskId", record: "id" };
const matches = (r, filter) => Object.entries(filter).every(([name, v]) => {
  if (name === "text") return (r.policyReason || "").toLowerCase().includes(v.toLowerCase());
  if (name === "agent" || name === "counterparty") { const id = name === "agent" ? r.agentId : r.counterparty?.instanceId; return id === v || short(id) === v; }
  if (name === "channel") return r.address?.channel === v;
  return (r[PATHS[name] || name] || "") === v;
});

const TIMES = [["", "since", "records from this time on: RFC 3339, a date, a duration back such as 2h or 7d, today, yesterday"], ["", "until", "records before this time"]];

export function Messages() {
  const query = route.value.query;
  const [line, setLine] = useState(query.q ?? ""), [result, setResult] = useState(query.result ?? ""), [since, setSince] = useState(moment(query.since)), [until, setUntil] = useState(moment(query.until));
  useEffect(() => { setLine(query.q ?? ""); setResult(query.result ?? ""); setSince(moment(query.since)); setUntil(moment(query.until)); }, [route.value]);
  const { filter, unknown, untimely, ...typed } = useMemo(() => parse(line), [line]);
  const full = result ? { ...filter, result } : filter;
  const shown = { ...(line && { q: line }), ...(result && { result }), ...(since && { since }), ...(until && { until }) };
  const keep = () => stay("messages", shown);
  // Browsers bound how often an address changes: it is that of a line whose typing has paused.
  useEffect(() => { const timer = setTimeout(keep, 200); return () => clearTimeout(timer); }, [line, result, since, until]);
  const from = typed.since ?? since, to = typed.until ?? until;
  const { rows, error, loading, more, whole } = usePages(full, from, to);
  return <section class="screen messages" aria-label="Messages">
    <div class="bar"><h1>Messages</h1><Inside here="messages" />
      <div class="chips" role="group" aria-label="Result">{RESULTS.map(([v, name]) => <button class={"chip" + (result === v ? " on" : "")} aria-pressed={result === v} onClick={() => setResult(v)}>{name}</button>)}</div>
      <div class="chips" role="group" aria-label="Time">{SPANS.map((v) => <button class={"chip" + (since === v ? " on" : "")} aria-pressed={since === v} onClick={() => { setSince(since === v ? "" : v); setUntil(""); }}>{v}</button>)}</div>
      {since && !SPANS.includes(since) && <button class="chip on span" onClick={() => { setSince(""); setUntil(""); }} aria-label="Messages of any time"><Text s={at(when(since)) + (until ? " – " + at(when(until)) : "")} /> <i aria-hidden="true">✕</i></button>}
      <input type="search" data-filter list="filters" placeholder="agent:… since:… or words of the reason  ( / )" aria-label="Filter messages" value={line} onInput={(e) => setLine(e.target.value)} />
      <datalist id="filters">{FILTERS.concat(TIMES).map(([, flag, help]) => <option value={flag + ":"}>{help}</option>)}</datalist></div>
    <div class="sub"><Copy text={commandOf(full, from, to)} />{unknown.length > 0 && <span class="t-bad">No filter is called <Text s={unknown.join(", ")} />.</span>}{untimely.length > 0 && <span class="t-bad"><Text s={untimely.join(", ")} /> is no time such as 2026-01-02T15:04:05Z, 2026-01-02, 2h, 7d or today.</span>}<span class="muted">{count(rows.length)}{!whole && "+"}</span></div>
    <Fault e={error} />
    {rows.length ? <List rows={rows} keyOf={(r) => r.seq} draw={(r) => <Row r={r} />} open={(r) => { keep(); go(...target(r)); }} more={more} label="Records, newest first" height={38} tall={66} />
      : loading ? <p class="muted pad">Looking…</p> : Object.keys(full).length || from || to ? <Empty mark="·" command="ocipd audit query">No record has all of this. All records:</Empty>
      : <Empty mark="·" command={wary()}>No message was decided yet. To have one decided:</Empty>}
  </section>;
}

// Receipt checks one record in this browser.
function Receipt({ seq, line }) {
  const [state, set] = useState({ word: "checking…", tone: "" });
  useEffect(() => {
    let on = true;
    (async () => {
      const got = await call("audit.inspect", { seq });
      if (!got.line) return { word: "not in the database any more", tone: "t-bad" };
      if (JSON.stringify(JSON.parse(got.line)) !== JSON.stringify(line)) return { word: "changed: the log has another line than the one shown", tone: "t-bad" };
      if (!got.receipt) return { word: "not signed yet: a checkpoint is made every minute", tone: "muted" };
      const proof = await check(got.line, got.receipt, got.key);
      if (proof.seq !== seq) return { word: "the receipt is of record " + proof.seq, tone: "t-bad" };
      return { word: "checked in this browser: in the log of " + count(proof.size) + " records, signed by key " + proof.key, tone: "t-good" };
    })().catch((e) => ({ word: e.message, tone: e.status === undefined ? "t-bad" : "muted", bad: e.status === undefined })).then((s) => on && set(s));
    return () => { on = false; };
  }, [seq]);
  return <p class={"receipt " + state.tone}><i aria-hidden="true">{state.tone === "t-good" ? "✓ " : state.tone === "t-bad" ? "✕ " : "· "}</i>{state.tone === "t-bad" && <b>Not proven: </b>}<Text s={state.word} /></p>;
}

const detail = (v) => typeof v === "string" ? v : JSON.stringify(v);
const SHOWN = new Set(["seq", "time", "id", "prev", "hash", "actionType", "event", "side", "policyResult", "policyReason", "code", "classification", "rows", "state", "details", "agentId", "counterparty"]);

// Step is one record of a message's way.
function Step({ r, of }) {
  const [from, to] = ends(r), [was, then] = ends(of);
  const rest = Object.entries(r).filter(([k, v]) => !SHOWN.has(k) && v !== "" && v != null);
  return <li class={"step" + kind("s-", r.policyResult)}>
    <div class="head"><Verdict v={r.policyResult} /><b><Text s={r.policyResult ? (r.side ? "decided, " + r.side + "’s side" : "decided") : what(r)} /></b><span class="muted">{at(r.time)}</span><a class="seq" href={link("messages", "record:" + r.seq)}>record {r.seq}</a></div>
    {(from !== was || to !== then) && <p class="who"><Name s={from} />{to && <Fragment><i aria-hidden="true"> → </i><span class="hide"> to </span><Name s={to} /></Fragment>} <Level s={r.classification} /></p>}
    {(r.code || r.policyReason) && <p>{r.code && <b><Text s={words(r.code)} /> </b>}<Text s={r.policyReason} /></p>}
    {r.details?.by && <p class="muted">by <Text s={detail(r.details.by)} />{r.details.via && <Fragment>, via <Text s={detail(r.details.via)} /></Fragment>}</p>}
    {r.approvalId && <p><a href={link("waiting", r.approvalId)}>the request to a person ›</a></p>}
    <Receipt seq={r.seq} line={r} />
    <details><summary>the whole record</summary><Facts rows={[...rest.map(([k, v]) => [k, detail(v)]), ...Object.entries(r.details ?? {}).map(([k, v]) => ["details." + k, detail(v)]), ["hash", r.hash], ["follows", r.prev]]} /></details>
  </li>;
}

// Talk is an exchange, both sides as a conversation.
function Talk({ id }) {
  const { value, error } = useLoad(() => call("exchange.get", { exchangeId: id }), [id]);
  if (error) return <section class="panel"><h2>The exchange</h2><Fault e={error} /></section>;
  const side = value?.exchanges?.[0];
  if (!side) return null;
  return <section class="panel"><h2>The exchange <small><Text s={words(side.outcome)} />, round {side.currentRound} of {side.maxRounds}</small></h2>
    {side.transcript?.length ? <ol class="talk">{side.transcript.map((t) => <li class={t.sender === side.agent ? "me" : ""}><b><Text s={short(t.sender)} /> <span class="muted">round {t.round}</span></b><pre><Text s={t.content ?? t.text ?? t.summary ?? ""} lines /></pre></li>)}</ol> : <p class="muted">Nothing of it is kept.</p>}
    {(side.dataWithheld ?? []).map((w) => <p class="t-warn">withheld: <Text s={w.description} /> <span class="muted"><Text s={w.reason} /></span></p>)}
    <Copy text={"ocipd exchanges show " + quoted(id)} /></section>;
}

export function Message({ id }) {
  const alone = /^record:(\d+)$/.exec(id);
  const seen = records.rows.findLast((r) => r.dispatchId === id)?.seq;
  records.rev.value;
  const { value, error } = useLoad(async () => {
    if (alone) {
      const got = await call("audit.inspect", { seq: Number(alone[1]) });
      return got.line ? [JSON.parse(got.line)] : [];
    }
    return (await call("audit.query", { filter: { dispatch: id }, limit: 1000 })).records.toReversed();
  }, [id, seen]);
  if (error) return <section class="screen"><a class="back" href={back("messages")}>‹ Messages</a><Fault e={error} /></section>;
  if (!value) return <section class="screen"><p class="muted pad">Looking…</p></section>;
  if (!value.length) return <section class="screen"><a class="back" href={back("messages")}>‹ Messages</a><Empty mark="·">The log has no record of this message.</Empty></section>;
  const first = value.find((r) => r.policyResult) ?? value[0], [from, to] = ends(first);
  const exchange = value.find((r) => r.exchangeId)?.exchangeId;
  return <section class="screen one" aria-label="One message">
    <nav class="crumb"><a class="back" href={back("messages")}>‹ Messages</a><Copy text={alone ? "ocipd audit show " + alone[1] : "ocipd audit query --dispatch " + quoted(id)} /></nav>
    <h1><Text s={short(from || "ocipd")} />{to && <Fragment> → <Text s={short(to)} /></Fragment>}</h1>
    <p class="lead"><Verdict v={first.policyResult} /><Level s={first.classification} />{first.code && <b><Text s={words(first.code)} /></b>}<span class="muted">{at(first.time)}, {plural(value.length, "record")}{first.contentBytes ? ", " + bytes(first.contentBytes) : ""}</span></p>
    <ol class="steps">{value.map((r) => <Step key={r.seq} r={r} of={first} />)}</ol>
    {exchange && <Talk id={exchange} />}
  </section>;
}
