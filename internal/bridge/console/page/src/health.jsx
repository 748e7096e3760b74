// Health: the lines of `ocipd doctor`, and what hands the log on, waits, and is approved beforehand.
import { h, Fragment } from "preact";
import { useState } from "preact/hooks";
import { call, status } from "./daemon.js";
import { Copy, Empty, Fault, Name, ago, at, bytes, count, now, plural, quoted, useLoad } from "./parts.jsx";
import { Text } from "./text.jsx";
import { Line, bad, useHealth } from "./now.jsx";

const Table = ({ title, rows, more, empty, command, children }) => <section class="panel"><h2>{title}{rows?.length > 0 && <small>{count(rows.length)}{more && "+"}</small>}</h2>{rows?.length ? <div class="table" role="group" tabIndex={0} aria-label={title}>{rows.map(children)}{more && <button class="rest" onClick={more}>More</button>}</div> : rows && <Empty mark="·" command={command}>{empty}</Empty>}</section>;
const Way = ({ error, since, children }) => <div class={"line" + (error ? " h-fail" : "")}><i aria-hidden="true">{error ? "✕" : "✓"}</i>{children}{error && <span class="t-bad"><Text s={error} />{since && ", since " + at(since)}</span>}</div>;

// useCursor is a list by a cursor: page asks for a page from a place on, and has the place of the next.
// What was loaded is loaded anew, with the same number of pages.
const START = {};
function useCursor(page, tick) {
  const [pages, set] = useState(1);
  const got = useLoad(async () => {
    let rows = [], next = START;
    for (let i = 0; i < pages && next; i++) { const one = await page(next === START ? undefined : next, rows.length); rows = rows.concat(one.rows); next = one.next; }
    return { rows, next };
  }, [tick, pages]);
  return { rows: got.value?.rows, error: got.error, more: got.value?.next ? () => set(pages + 1) : null };
}

export function Health() {
  const { lines, error, loaded } = useHealth();
  const [round, setRound] = useState(0), [fault, setFault] = useState(null);
  const tick = Math.floor(now.value / 15_000);
  const queue = useCursor(async (after) => { const got = await call("queue.list", { limit: 100, ...(after && { after }) }); return { rows: got.messages, next: got.next }; }, tick);
  const contacts = useCursor(async (_, offset) => { const got = await call("contact.list", { limit: 100, offset }), end = offset + got.contacts.length; return { rows: got.contacts, next: got.contacts.length > 0 && end < got.total }; }, tick);
  const grants = useCursor(async (after) => { const got = await call("grant.list", { limit: 100, ...(after && { after }) }); return { rows: got.grants, next: got.next }; }, tick + " " + round);
  const s = status.value, ordered = lines.filter(bad).concat(lines.filter((l) => !bad(l)));
  const revoke = async (id) => { try { await call("grant.revoke", { grantId: id }); setFault(null); setRound(round + 1); } catch (e) { setFault(e); } };
  return <section class="screen health-screen" aria-label="Health"><div class="bar"><h1>Health</h1><Copy text="ocipd doctor" /><a class="add" href="#/enrol">Add a passkey</a></div>
    <div class="grid">
      <section class="panel wide"><h2>Checks</h2><Fault e={error} />{ordered.map((l) => <Line l={l} />)}{!loaded && !error && <p class="muted">Looking…</p>}</section>
      {s && <section class="panel"><h2>The daemon</h2>
        <Way><span>version <Text s={s.version} />, up since {at(s.startedAt)}</span></Way>
        <Way error={s.audit.fault || s.audit.damaged}><span>log <b><Text s={s.audit.log} /></b>: {count(s.audit.seq)} records, {count(s.audit.signed)} signed, {count(s.audit.mirrored)} copied</span></Way>
        <Way error={s.store.disk !== "ok" && "disk: " + s.store.disk}><span>disk: {bytes(s.store.freeBytes)} free</span></Way>
        <Way error={s.policy.refusal} since={s.policy.refusedAt}><span>policy <Text s={s.policy.source} />, revision <Text s={s.policy.revision} /></span></Way>
        <Way error={s.config.refusal} since={s.config.refusedAt}><span>configuration <Text s={s.configFile || "defaults"} />{s.pendingRestart?.length > 0 && <Fragment>; takes a restart: <Text s={s.pendingRestart.join(", ")} /></Fragment>}</span></Way></section>}
      <Table title="Sinks" rows={s?.sinks} empty={<Fragment>The log is handed to no other system. {s?.configFile ? <Fragment>Name one under audit.sinks in <Text s={s.configFile} />, as docs/guides/exporting.md says; then restart the daemon:</Fragment> : "To have a configuration, which names such systems under audit.sinks:"}</Fragment>} command={s?.configFile ? "systemctl --user restart ocipd.service" : "ocipd config init"}>{(x) => <Way error={x.error} since={x.failingSince}><Name s={x.name} /> <span><Text s={x.type} />, {x.lag ? plural(x.lag, "record") + " behind" : "up to date"}{x.note && <Fragment>; <Text s={x.note} /></Fragment>}</span></Way>}</Table>
      <Table title="Witnesses" rows={s && (s.witnesses ?? [])} empty="No witness signs the log." command="ocipd audit witness add --help">{(x) => <Way error={x.refused ? "it has signed another log" : x.error} since={x.failingSince}><Name s={x.name} /> <span>{x.signed ? count(x.signed) + " records" : "nothing signed yet"}</span></Way>}</Table>
      <Table title="Apps" rows={s?.apps} empty="No app is connected." command="ocipd integrate">{(x) => <Way error={!x.ready && x.health}><Name s={x.id} /> <span><Text s={x.version} />, seen {ago(x.lastSeenAt)}</span></Way>}</Table>
      <Table title="Queue" rows={queue.rows} more={queue.more} empty="Nothing waits to be delivered. To send something:" command="ocipd send --help">{(m) => <div class="line"><i aria-hidden="true">{m.paused ? "■" : "·"}</i><Name s={m.queue} /><span><Text s={m.summary} /></span><span class="muted">{bytes(m.bytes)}{m.paused && <Fragment>, stopped by <Text s={m.paused} /></Fragment>}</span>{!m.handed && <Copy text={"ocipd queue drop " + quoted(m.dispatchId)} />}</div>}</Table>
      <Table title="Approved beforehand" rows={grants.rows} more={grants.more} empty="Nothing is approved beforehand." command="ocipd preapprovals add --help">{(g) => <div class="line"><i aria-hidden="true">✓</i><span><Name s={g.agent} /> → <Name s={g.receiver} /></span><span>words <Text s={(g.words ?? []).join(", ")} />, up to <Text s={g.classification} />, {g.maxUses ? `${g.uses} of ${g.maxUses} used` : `${g.uses} used`}, until {at(g.until)}</span><button class="danger" onClick={() => revoke(g.grantId)}>Take back</button></div>}</Table>
      <Fault e={fault ?? queue.error ?? contacts.error ?? grants.error} />
      <Table title="Contacts" rows={contacts.rows} more={contacts.more} empty="Your agents spoke to nobody yet. To send a message:" command="ocipd send --help">{(c) => <div class="line"><i aria-hidden="true">{c.kind === "unknown" ? "?" : "·"}</i><Name s={c.sessionKey} /><span><Text s={c.kind} /> <Text s={c.instanceId || c.userId || ""} />{c.learned && ", by what it said itself"}</span><span class="muted">{plural(c.messageCount, "message")} with <Text s={c.agent} />, {ago(c.lastActiveAt)}</span></div>}</Table>
    </div></section>;
}
