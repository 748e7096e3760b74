// Map: agents in their tenants, and the messages between them. What the wall stopped is dashed and
// counted. Each line has its row in the table.
import { h, Fragment } from "preact";
import { useRef, useState } from "preact/hooks";
import { call, records } from "./daemon.js";
import { Copy, Empty, Fault, Name, count, now, plural, short, useLoad, wary } from "./parts.jsx";
import { narrow } from "./list.jsx";
import { visible } from "./text.jsx";
import { link, route } from "./route.js";
import { Inside, iso, quote, useWidth } from "./trends.jsx";

const PERIODS = { "24h": ["24 hours", 864e5], "7d": ["7 days", 6048e5] };
// A picture has so many agents at most; the table has all.
const DRAWN = 30;
const PEOPLE = { owner: "the owner", person: "people", unknown: "unknown" };
const keyOf = (p, end) => end === "from" ? "a " + p.from : p.to ? "a " + p.to : "k " + p.kind;
const people = (k) => Object.hasOwn(PEOPLE, k) ? PEOPLE[k] : k;
const nameOf = (key) => key.startsWith("a ") ? short(key.slice(2)) : people(key.slice(2));
const all = (p) => p.sent + p.held + p.refused;
const cut = (s, n) => { s = visible(s.slice(0, 100)); return s.length > n ? s.slice(0, n - 1) + "…" : s; };

// tenantsOf finds the tenant of each agent in a record of it. Those that were found are kept.
async function tenantsOf(keys, known) {
  const take = (r) => {
    if (r.agentId && r.tenantId) known.set("a " + r.agentId, r.tenantId);
    if (r.counterparty?.instanceId && r.counterparty.tenantId) known.set("a " + r.counterparty.instanceId, r.counterparty.tenantId);
  };
  records.rows.slice(-1000).forEach(take);
  for (const key of keys) {
    if (known.has(key) || !key.startsWith("a ")) continue;
    for (const end of ["agent", "counterparty"]) {
      if (!known.has(key)) (await call("audit.query", { filter: { [end]: key.slice(2), actionType: "agent_exchange" }, limit: 1 })).records.forEach(take);
    }
    if (!known.has(key)) known.set(key, "");
  }
}

// layout places tenants in rows, and their agents on a circle in each, with their names outside of it.
export function layout(nodes, width) {
  const areas = [];
  for (const n of nodes) {
    let area = areas.find((a) => a.tenant === n.tenant && a.people === n.people);
    if (!area) areas.push(area = { tenant: n.tenant, people: n.people, nodes: [] });
    area.nodes.push(n);
  }
  areas.sort((a, b) => a.people - b.people || b.nodes.length - a.nodes.length);
  const rows = [];
  for (const a of areas) {
    const k = a.nodes.length;
    a.ring = k === 1 ? 0 : Math.min(Math.max(k === 2 ? 46 : 70, 78 / (2 * Math.sin(Math.PI / k))), width / 2 - 56);
    a.r = a.ring + 52;
    const last = rows.at(-1);
    if (last && last.wide + 2 * a.r + 60 <= width) { last.areas.push(a); last.wide += 2 * a.r + 60; } else rows.push({ areas: [a], wide: 2 * a.r });
  }
  let y = 12;
  for (const row of rows) {
    const high = Math.max(...row.areas.map((a) => a.r)), gap = (width - row.areas.reduce((s, a) => s + 2 * a.r, 0)) / (row.areas.length + 1);
    let x = 0;
    for (const a of row.areas) {
      a.x = x + gap + a.r;
      a.y = y + 20 + high;
      x = a.x + a.r;
      a.nodes.forEach((n, i) => { const t = 2 * Math.PI * i / a.nodes.length - Math.PI / (a.nodes.length === 2 ? 1 : 2); n.x = a.x + a.ring * Math.cos(t); n.y = a.y + a.ring * Math.sin(t); n.up = Math.sin(t) < -.3; });
    }
    y += 2 * high + 34;
  }
  return { areas, height: y };
}

// line is a curve from one agent to another, that bends to the right of its way: the way back has its own.
function line(a, b, bend) {
  const dx = b.x - a.x, dy = b.y - a.y, far = Math.hypot(dx, dy) || 1, ux = dx / far, uy = dy / far;
  const cx = (a.x + b.x) / 2 - uy * far * bend, cy = (a.y + b.y) / 2 + ux * far * bend;
  const toward = (p, r) => { const x = cx - p.x, y = cy - p.y, l = Math.hypot(x, y) || 1; return [p.x + x / l * r, p.y + y / l * r, x / l, y / l]; };
  const [x0, y0] = toward(a, 20), [x1, y1, vx, vy] = toward(b, 25);
  const tip = [x1 - vx * 6, y1 - vy * 6];
  return { d: `M${x0} ${y0}Q${cx} ${cy} ${x1} ${y1}`, head: `M${tip[0]} ${tip[1]}L${x1 + vx * 3 - vy * 5} ${y1 + vy * 3 + vx * 5}L${x1 + vx * 3 + vy * 5} ${y1 + vy * 3 - vx * 5}Z`, at: (t) => [(1 - t) * (1 - t) * x0 + 2 * t * (1 - t) * cx + t * t * x1, (1 - t) * (1 - t) * y0 + 2 * t * (1 - t) * cy + t * t * y1] };
}

const WAYS = [["allow", (p) => p.sent, .1, "sent"], ["require_approval", (p) => p.held, .2, "held"], ["deny", (p) => p.refused - p.wall, .3, "refused"], ["wall", (p) => p.wall, .16, "stopped by the wall"]];

// A badge stands in the middle of its line, or beside it where it would cover a name.
const half = (text) => 4 + 3.3 * text.length;
function place(way, wide, names) {
  const free = ([x, y]) => names.every((n) => Math.abs(n.x - x) > half(n.text) + wide / 2 || Math.abs(n.y - 4 - y) > 18);
  return way.at([.5, .42, .58, .34, .66, .26, .74].find((t) => free(way.at(t))) ?? .5);
}

// Plate is a name on a ground of its own, which hides the lines behind it.
const Plate = ({ x, y, text, of = "" }) => { const wide = 2 * half(text); return <Fragment><rect class="plate" x={x - wide / 2} y={y - 12} width={wide} height={16} rx={4} /><text class={"label" + of} x={x} y={y}>{text}</text></Fragment>; };

function Picture({ pairs, tenants }) {
  const [box, width] = useWidth();
  const keys = [...new Set(pairs.flatMap((p) => [keyOf(p, "from"), keyOf(p, "to")]))].slice(0, DRAWN);
  const nodes = keys.map((key) => ({ key, people: !key.startsWith("a "), tenant: tenants.get(key) ?? "" })), of = new Map(nodes.map((n) => [n.key, n]));
  const drawn = pairs.filter((p) => of.has(keyOf(p, "from")) && of.has(keyOf(p, "to")) && keyOf(p, "from") !== keyOf(p, "to"));
  const { areas, height } = layout(nodes, Math.max(width, 280)), most = Math.max(1, ...drawn.map(all));
  const ways = drawn.flatMap((p) => WAYS.filter(([, n]) => n(p) > 0).map(([way, n, bend]) => ({ way, n: n(p), ...line(of.get(keyOf(p, "from")), of.get(keyOf(p, "to")), bend) })));
  const names = nodes.map((n) => ({ x: n.x, y: n.y + (n.up ? -25 : 32), text: cut(nameOf(n.key), 18) })), titles = areas.map((a) => ({ x: a.x, y: a.y - a.r - 6, text: a.people ? "people" : cut(a.tenant, 28) || "no tenant" }));
  return <div class="picture" ref={box}>{width > 0 && <svg class="drawn" width={width} height={height} role="img" aria-label={`${count(nodes.length)} senders and receivers in ${plural(areas.length, "area")}; the table has each line`}>
    {areas.map((a) => <g><circle class={"area" + (a.people ? " people" : "")} cx={a.x} cy={a.y} r={a.r} /></g>)}
    {ways.map((w) => <g class={"way w-" + w.way}><path d={w.d} stroke-width={1.5 + 5.5 * Math.sqrt(w.n / most)} /><path class="head" d={w.head} /></g>)}
    {nodes.map((n, i) => <g class="node"><circle cx={n.x} cy={n.y} r={18} /><text x={n.x} y={n.y + 4}>{cut(nameOf(n.key).replace(/^(agent-|the )/, ""), 40).slice(0, 2)}</text><Plate {...names[i]} /></g>)}
    {titles.map((n) => <Plate {...n} of=" tenant" />)}
    {ways.filter((w) => w.way !== "allow").map((w) => { const text = count(w.n), wide = 12 + 7 * text.length, [x, y] = place(w, wide, names.concat(titles)); return <g class={"badge b-" + w.way}><rect x={x - wide / 2} y={y - 9} width={wide} height={18} rx={9} /><text x={x} y={y + 4}>{text}</text></g>; })}
  </svg>}{keys.length === DRAWN && <p class="muted">The picture has the {DRAWN} busiest; the table has all.</p>}</div>;
}

// The table has so many pairs, and as many more at each press of its button.
const LISTED = 200;

export function MapScreen() {
  const since = Object.hasOwn(PERIODS, route.value.query.since) ? route.value.query.since : "24h", [name, ms] = PERIODS[since];
  const tick = Math.floor(now.value / 60_000), known = useRef(new Map()), [open, setOpen] = useState(!narrow()), [listed, setListed] = useState(LISTED);
  const { value, error } = useLoad(async () => {
    const stats = await call("audit.stats", { since: iso(Date.now() - ms), bucket: 86400, pairs: true }), pairs = stats.pairs ?? [];
    await tenantsOf(new Set(pairs.slice(0, LISTED).flatMap((p) => [keyOf(p, "from"), keyOf(p, "to")]).slice(0, 2 * DRAWN)), known.current);
    return { pairs, count: stats.pairCount ?? pairs.length, since, tenants: new Map(known.current) };
  }, [since, tick]);
  const got = value?.since === since ? value : null;
  const list = got ? got.pairs.toSorted((a, b) => b.wall - a.wall || b.refused - a.refused || b.held - a.held || b.sent - a.sent) : [];
  const to = (p, result, rule) => link("messages", "", { q: (rule ? "rule:" + rule + " " : "") + "agent:" + quote(p.from) + " side:sender" + (p.to ? " counterparty:" + quote(p.to) : ""), ...(result && { result }), since });
  const Cell = ({ p, n, result, rule }) => <td class={n ? "v-" + result : "muted"}>{n ? <a href={to(p, result, rule)}>{count(n)}</a> : 0}</td>;
  const wall = list.reduce((s, p) => s + p.wall, 0);
  return <section class="screen map" aria-label="Map">
    <div class="bar"><h1>Map</h1><Inside here="map" />
      <div class="chips" role="group" aria-label="Period">{Object.entries(PERIODS).map(([k, [words]]) => <a class={"chip" + (k === since ? " on" : "")} aria-current={k === since ? "true" : undefined} href={link("map", "", { since: k })}>{words}</a>)}</div></div>
    <Fault e={error} />
    {!got ? !error && <p class="muted pad">Looking…</p> : !list.length ? <Empty mark="·" command={wary()}>No agent wrote to anybody in {name}. To have one write:</Empty> : <Fragment>
      <div class="sub"><span class="legend">{WAYS.map(([way, , , words]) => <Fragment><i aria-hidden="true" class={"w-" + way} /> {words} </Fragment>)}</span><Copy text={`ocipd call audit.stats '{"pairs":true}'`} /></div>
      <details class="panel" open={open} onToggle={(e) => setOpen(e.currentTarget.open)}><summary>Who writes to whom{wall > 0 && <b class="t-bad">, {count(wall)} stopped by the wall</b>}</summary>{open && <Picture pairs={got.pairs} tenants={got.tenants} />}</details>
      <section class="panel" aria-label="Pairs"><h2>Pairs <small>{count(got.count)}, with what was stopped first</small></h2><div class="table" role="group" tabIndex={0} aria-label="Pairs"><table><thead><tr><th scope="col">from → to</th><th scope="col" title="stopped by the wall between tenants">at the wall</th><th scope="col" title="for another reason">refused</th><th scope="col">held</th><th scope="col">sent</th></tr></thead><tbody>
        {list.slice(0, listed).map((p) => <tr key={p.from + " " + keyOf(p, "to")}><th scope="row"><a href={to(p)}><Name s={p.from} /><i aria-hidden="true"> → </i><span class="hide"> to </span><Name s={p.to || people(p.kind)} /></a></th><Cell p={p} n={p.wall} result="deny" rule="tenant-wall" /><Cell p={p} n={p.refused - p.wall} result="deny" /><Cell p={p} n={p.held} result="require_approval" /><Cell p={p} n={p.sent} result="allow" /></tr>)}</tbody></table>{listed < list.length && <button class="rest" onClick={() => setListed(listed + LISTED)}>More</button>}</div>
        {got.count > list.length && <p class="muted">These are the {count(list.length)} pairs with most messages. All messages of one agent: <a href="#/messages">Messages ›</a></p>}</section>
    </Fragment>}
  </section>;
}
