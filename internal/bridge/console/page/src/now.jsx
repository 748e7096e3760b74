// Now: what is wrong, what waits, what changed in a day, and the last messages.
import { h, Fragment } from "preact";
import { call, ask, records, status, waiting } from "./daemon.js";
import { Copy, Empty, Fault, Name, ago, at, count, kind, now, short, useLoad, wary, words } from "./parts.jsx";
import { Text } from "./text.jsx";
import { Question, Request, asks as asked, groups, total } from "./waiting.jsx";
import { Row, ends, target, what } from "./messages.jsx";
import { Differs, MESSAGES, differs } from "./trends.jsx";
import { go, link } from "./route.js";

// bad are the lines that somebody has to see to.
export const bad = (line) => line.health === "warn" || line.health === "fail";

export function useHealth() {
  const half = Math.floor(now.value / 30_000);
  const { value, error } = useLoad(() => ask("/health", {}), [half]);
  const lines = Array.isArray(value) ? value : value?.lines ?? value?.result ?? [];
  return { lines, error, loaded: !!value };
}

export const Line = ({ l }) => <div class={"health" + kind("h-", l.health)}><i aria-hidden="true">{l.health === "fail" ? "✕" : bad(l) ? "!" : "✓"}</i><div><b><Text s={l.check} /> <span class="hide"><Text s={l.health} /></span></b> <Text s={l.text} lines />{l.advice && <p class="advice"><Text s={l.advice} lines /></p>}</div></div>;

function Wrong() {
  const { lines, error, loaded } = useHealth();
  const wrong = lines.filter(bad);
  return <section class={"panel wrong" + (wrong.length ? " some" : "")} aria-label="What is wrong"><h2>{wrong.length ? "What is wrong" : "Health"}{wrong.length > 0 && <b class="n">{wrong.length}</b>}</h2>
    <Fault e={error} />
    {wrong.slice(0, 6).map((l) => <Line l={l} />)}
    {wrong.length > 6 && <a class="more" href="#/health">{wrong.length - 6} more ›</a>}
    {loaded && !wrong.length && <p class="fine"><i aria-hidden="true">✓ </i>Nothing is wrong. <a href="#/health">All {count(lines.length)} checks ›</a></p>}
    {!loaded && !error && <p class="muted">Looking…</p>}
  </section>;
}

function Waits() {
  const asks = asked.value;
  const list = groups.value, room = 6;
  return <section class="panel waits" aria-label="Waits for you"><h2>Waits for you{total.value + asks.length > 0 && <b class="n">{count(total.value + asks.length)}</b>}</h2>
    {asks.slice(0, 3).map((q) => <Question q={q} />)}{asks.length > 3 && <a class="more" href="#/waiting">{count(asks.length - 3)} more questions ›</a>}
    <div class="cards">{list.slice(0, room).map((g) => <a class="card" href={link("waiting", g[0].approvalId)}><Request group={g} /></a>)}</div>
    {list.length > room && <a class="more" href="#/waiting">{count(list.length - room)} more ›</a>}
    {!list.length && !asks.length && (waiting.caught.value ? <Fragment><p class="fine"><i aria-hidden="true">✓ </i>Nothing waits for you. To have a message wait, which leaves if you approve it:</p><Copy text={wary()} /></Fragment> : <p class="muted">Looking…</p>)}
  </section>;
}

const CHANGES = ["config_change", "policy_change", "security", "app_lifecycle"];
function Changed() {
  const hour = Math.floor(now.value / 300_000);
  const { value, error } = useLoad(async () => {
    const since = new Date(Date.now() - 864e5).toISOString();
    const pages = await Promise.all(CHANGES.map((actionType) => call("audit.query", { filter: { actionType, since }, limit: 12 })));
    return pages.flatMap((p) => p.records).sort((a, b) => b.seq - a.seq);
  }, [hour]);
  // Like events stand together: whom they are about, once.
  const list = [];
  for (const r of value ?? []) {
    const about = r.agentId || r.appId || (typeof r.details?.by === "string" ? r.details.by : ""), key = r.actionType + " " + r.event, last = list.find((g) => g.key === key);
    if (!last) list.push({ key, r, n: 1, about: about ? [about] : [] });
    else { last.n++; if (about && !last.about.includes(about)) last.about.push(about); }
  }
  return <section class="panel changed" aria-label="Changed in a day"><h2>Changed in a day</h2><Fault e={error} />
    {list.length ? <ul>{list.slice(0, 8).map(({ key, r, n, about }) => <li key={key}><a href={n > 1 ? link("messages", "", { q: "type:" + r.actionType + (r.event ? " event:" + r.event : ""), since: "24h" }) : link(...target(r))}><span class="when">{at(r.time)}</span><span class="ev"><b><Text s={what(r)} /></b>{n > 1 && " ×" + n} <span class="muted"><Text s={words(r.actionType)} /></span></span>{about.length > 0 && <span class="about"><Text s={about.slice(0, 4).map(short).join(", ")} />{about.length > 4 && " …"}</span>}</a></li>)}</ul> : value && <Empty mark="·" command="ocipd config reload">Nothing: no setting, policy or app. After a change of the configuration:</Empty>}
  </section>;
}

// Day counts the last day beside the day before: does today differ from yesterday?
function Day() {
  const five = Math.floor(now.value / 300_000);
  const { value } = useLoad(async () => {
    const t = Date.now(), stats = (a, b) => call("audit.stats", { since: new Date(a).toISOString(), until: new Date(b).toISOString(), bucket: 3600 });
    return Promise.all([stats(t - 864e5, t), stats(t - 1728e5, t - 864e5)]);
  }, [five]);
  if (!value) return null;
  const [today, before] = value.map((s) => s.verdicts);
  const figures = [["held", "require_approval", "requireApproval"], ["refused", "deny", "deny"], ["sent", "allow", "allow"]];
  const other = figures.map(([word, , key]) => [differs(today[key], before[key]), word]).filter(([d]) => d).map(([d, word]) => (d > 0 ? "more " : "fewer ") + word);
  return <section class="panel figures" aria-label="The last 24 hours"><h2>The last 24 hours <small>and the day before</small></h2><p class={"day-differs" + (other.length ? " some" : " muted")}>{other.length ? "Unlike the day before: " + other.join(", ") + "." : "Like the day before."}</p><div>{figures.map(([word, result, key]) =>
    <a class={"num v-" + result} href={link("messages", "", { q: MESSAGES, result, since: "24h" })}><b>{count(today[key])}</b><span>{word}</span><small>{count(before[key])}<span class="hide"> the day before</span> <Differs a={today[key]} b={before[key]} than="the day before" brief /></small></a>)}</div><p class="pictures"><a href="#/trends">Trends ›</a><a href="#/map">Map ›</a></p></section>;
}

function Last() {
  records.rev.value;
  const list = [];
  for (let i = records.rows.length - 1; i >= 0 && list.length < 12; i--) if (records.rows[i].side !== "receiver" && (records.rows[i].policyResult || records.rows[i].actionType === "delivery")) list.push(records.rows[i]);
  return <section class="panel last" aria-label="The last messages"><h2>The last messages</h2>
    {list.length ? <div class="feed">{list.map((r) => <a key={r.seq} class="row" href={link(...target(r))}><Row r={r} /></a>)}</div> : <Empty mark="·" command={wary()}>No message yet. To have one decided:</Empty>}
    <a class="more" href="#/messages">All messages ›</a></section>;
}

export const Now = () => <div class="screen now"><h1 class="hide">Now</h1><Wrong /><Waits /><div class="side"><Day /><Changed /></div><Last /></div>;
