// Trends: what was held, refused and sent, and how long people took to decide, beside the time before.
// A person reads in one look whether today differs from yesterday.
import { h, Fragment } from "preact";
import { useState, useEffect, useRef } from "preact/hooks";
import { call } from "./daemon.js";
import { Copy, Empty, Fault, Name, clock, count, day, now, span, useLoad, wary, words } from "./parts.jsx";
import { Text } from "./text.jsx";
import { go, link, route } from "./route.js";

// MESSAGES is the filter for the decisions that the counts are of.
export const MESSAGES = "type:agent_exchange";
export const iso = (t) => new Date(t).toISOString().replace(".000Z", "Z");

// differs says whether two counts differ by more than chance: by over twice the spread of their sum.
export const differs = (a, b) => Math.abs(a - b) <= 2 * Math.sqrt(a + b) ? 0 : a > b ? 1 : -1;
export const Differs = ({ a, b, than, brief }) => {
  const d = differs(a, b);
  return <span class={"differs" + (d ? " some" : "")}><i aria-hidden="true">{["▼", "≈", "▲"][d + 1]} </i><span class={brief ? "hide" : ""}>{["fewer than ", "like ", "more than "][d + 1]}{than}</span></span>;
};

// The periods: their steps, the time before, and their words. Steps are hours and days of the person's.
const PERIODS = {
  today: { name: "Today, by hour", step: (t, n) => new Date(t.getFullYear(), t.getMonth(), t.getDate(), n), steps: 24, back: 1, word: "today", before: "yesterday" },
  days: { name: "14 days, by day", step: (t, n) => new Date(t.getFullYear(), t.getMonth(), t.getDate() - 13 + n), steps: 14, back: 14, word: "in 14 days", before: "the 14 days before" },
};
const DECIDED = ["approved", "denied", "taken_over", "resolved", "request_changes"];

const middle = (list) => list.length ? list.toSorted((a, b) => a - b)[list.length >> 1] : null;

// load counts a period and the time before it. The counts of the daemon are of half hours, since the
// hours and days of some time zones begin at half hours.
async function load(period) {
  const p = PERIODS[period], end = Date.now(), day0 = new Date(end), then0 = new Date(day0.getFullYear(), day0.getMonth(), day0.getDate() - p.back);
  const edges = (t) => Array.from({ length: p.steps + 1 }, (_, n) => +p.step(t, n));
  const at = edges(day0), then = edges(then0), from = at[0], start = then[0];
  const stats = (since, until) => call("audit.stats", { since: iso(since), until: iso(until), bucket: 1800 });
  const [here, before, byNow, ...pages] = await Promise.all([stats(from, end), stats(start, from), stats(start, Math.min(from, start + end - from)),
    ...DECIDED.map((event) => call("audit.query", { filter: { actionType: "approval", event, since: iso(start) }, limit: 500 }))]);
  const sums = (counts, at) => {
    const out = at.slice(1).map(() => ({ require_approval: 0, deny: 0, allow: 0 }));
    for (const b of counts.buckets) {
      const n = at.findLastIndex((t) => t <= Math.max(+new Date(b.start), at[0]));
      if (n < out.length) { out[n].require_approval += b.requireApproval; out[n].deny += b.deny; out[n].allow += b.allow; }
    }
    return out;
  };
  const decided = pages.flatMap((page) => page.records).filter((r) => r.details?.waitedMs >= 0).map((r) => ({ t: +new Date(r.time), ms: r.details.waitedMs, agent: r.agentId }));
  return { p, from, end, at, here, before, byNow, now: sums(here, at), was: sums(before, then), some: before.verdicts.allow + before.verdicts.deny + before.verdicts.requireApproval > 0,
    decided: decided.filter((d) => d.t >= from), decidedBefore: decided.filter((d) => d.t < from), cut: pages.some((page) => page.nextBefore) };
}

const nice = (n) => { const ten = 10 ** Math.floor(Math.log10(Math.max(n, 1))); return [1, 2, 5, 10].map((k) => k * ten).find((m) => m >= n); };
const H = 96, FOOT = 18, HEAD = 14;

// useWidth is how wide an element is, for a picture in it.
export function useWidth() {
  const box = useRef(), [width, set] = useState(0);
  useEffect(() => {
    const seen = new ResizeObserver(([e]) => requestAnimationFrame(() => set(Math.round(e.contentRect.width))));
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  return [box, width];
}

const SERIES = { require_approval: ["Held", "held"], deny: ["Refused", "refused"], allow: ["Sent", "sent"] };
const stepName = (d, n) => d.p.back === 1 ? clock(d.at[n]).slice(0, 5) : day(d.at[n]);

// Chart is one picture of the steps. A span is chosen by the pointer, or by arrows with and without
// Shift; Enter opens it in Messages.
function Chart({ d, label, says, sel, set, open, draw }) {
  const [box, width] = useWidth(), held = useRef(null), n = d.at.length - 1, each = width / n;
  const slot = (e) => Math.max(0, Math.min(n - 1, Math.floor((e.clientX - box.current.getBoundingClientRect().left) / each)));
  const key = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const was = sel ?? { from: 0, to: 0, at: e.key === "ArrowRight" ? -1 : 1 };
    const move = { ArrowRight: 1, ArrowLeft: -1, Home: -n, End: n }[e.key];
    if (move) {
      const at = Math.max(0, Math.min(n - 1, was.at + move)), hold = e.shiftKey && sel ? sel.hold : at;
      set({ from: Math.min(hold, at), to: Math.max(hold, at), at, hold });
    } else if (e.key === "Enter" && sel) open(sel);
    else if (e.key === "Escape" && sel) set(null);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const pull = (e) => { const at = slot(e); set({ from: Math.min(held.current, at), to: Math.max(held.current, at), at, hold: held.current }); };
  const marks = [];
  for (let i = 0; i < n; i += d.p.back === 1 ? 6 : width < 420 ? 4 : 2) marks.push(i);
  return <div class="chart" ref={box} tabIndex={0} role="slider" aria-label={label + ", by " + (d.p.back === 1 ? "hour" : "day")} aria-valuemin={0} aria-valuemax={n - 1} aria-valuenow={sel?.at ?? 0} aria-valuetext={says(sel?.from ?? 0, sel?.to ?? n - 1)} onKeyDown={key}
    onPointerDown={(e) => { if (e.button) return; held.current = slot(e); e.currentTarget.setPointerCapture(e.pointerId); pull(e); }}
    onPointerMove={(e) => { if (held.current !== null) pull(e); }} onPointerCancel={() => { held.current = null; set(null); }}
    onPointerUp={(e) => { if (held.current === null) return; const at = slot(e), from = held.current; held.current = null; open({ from: Math.min(from, at), to: Math.max(from, at) }); }}>
    {width > 0 && <svg class="drawn" width={width} height={HEAD + H + FOOT} aria-hidden="true">
      {sel && <rect class="brush" x={sel.from * each} y={HEAD} width={(sel.to - sel.from + 1) * each} height={H} />}
      <line class="axis" x1={0} x2={width} y1={HEAD + H + .5} y2={HEAD + H + .5} />
      {draw(width, each)}
      {marks.map((i) => <text x={i * each + (i ? 0 : 1)} y={HEAD + H + 14}>{stepName(d, i)}</text>)}
    </svg>}</div>;
}

// Bars are the counts of a result; the outline is the time before.
function Bars({ d, result, ...rest }) {
  const now = d.now.map((s) => s[result]), was = d.was.map((s) => s[result]), most = nice(Math.max(...now, ...was, 1));
  const y = (v) => HEAD + H - v / most * H;
  const sum = (list, a, b) => list.slice(a, b + 1).reduce((x, v) => x + v, 0);
  return <Chart d={d} {...rest} label={SERIES[result][0]} says={(a, b) => `${stepName(d, a)} to ${endName(d, b)}: ${sum(now, a, b)} ${SERIES[result][1]}, ${d.p.before} ${sum(was, a, b)}`}
    draw={(width, each) => <Fragment>
      <line class="axis" x1={0} x2={width} y1={y(most)} y2={y(most)} /><text x={1} y={HEAD - 4}>{count(most)}</text>
      {now.map((v, i) => v > 0 && <rect class={"col v-" + result} x={i * each + each * .12} width={Math.max(1, each * .76)} y={Math.min(y(v), HEAD + H - 2)} height={Math.max(2, HEAD + H - y(v))} />)}
      {d.some && <path class="was" d={was.map((v, i) => `${i ? "L" : "M"}${i * each} ${y(v)}H${(i + 1) * each}`).join("")} />}
    </Fragment>} />;
}
const endName = (d, n) => d.p.back === 1 ? clock(d.at[n + 1]).slice(0, 5) : day(d.at[n]);

const TICKS = [[1e3, "1 s"], [6e4, "1 min"], [36e5, "1 h"], [864e5, "1 d"]];
// Waits has a dot for each decision, by when it was made and how long the request had waited.
function Waits({ d, ...rest }) {
  const low = Math.log(1e3), high = Math.log(864e5 * 2), y = (ms) => HEAD + H - (Math.log(Math.max(ms, 1e3)) - low) / (high - low) * H;
  const place = (t, each) => { const n = d.at.findLastIndex((x) => x <= t); return n < 0 || n >= d.at.length - 1 ? -1 : (n + (t - d.at[n]) / (d.at[n + 1] - d.at[n])) * each; };
  const was = middle(d.decidedBefore.map((x) => x.ms));
  const within = (a, b) => d.decided.filter((x) => x.t >= d.at[a] && x.t < d.at[b + 1]).map((x) => x.ms);
  return <Chart d={d} {...rest} label="Time to decide" says={(a, b) => { const list = within(a, b); return `${stepName(d, a)} to ${endName(d, b)}: ` + (list.length ? `${list.length} decided, half of them within ${span(middle(list))}` : "nothing was decided"); }}
    draw={(width, each) => <Fragment>
      {TICKS.map(([ms, name]) => <Fragment><line class="axis" x1={0} x2={width} y1={y(ms)} y2={y(ms)} /><text x={1} y={y(ms) - 3}>{name}</text></Fragment>)}
      {was !== null && <line class="was" x1={0} x2={width} y1={y(was)} y2={y(was)} />}
      {d.decided.slice(0, 500).map((x) => <circle class="dot" cx={place(x.t, each)} cy={y(x.ms)} r={3} />)}
    </Fragment>} />;
}

// Share is a row's part of the largest, by what became of it.
const Share = ({ r, most }) => <svg class="drawn share" viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">{[["require_approval", r.requireApproval], ["deny", r.deny], ["allow", r.allow]].reduce(([x, out], [c, v]) => [x + v / most * 100, v ? out.concat(<rect class={"col v-" + c} x={x} width={Math.max(1, v / most * 100)} y={0} height={8} />) : out], [0, []])[1]}</svg>;

function By({ title, rows, before, flag, time, period, name }) {
  const list = rows.filter((r) => r.allow + r.deny + r.requireApproval > 0).sort((a, b) => b.requireApproval - a.requireApproval || b.deny - a.deny || b.allow - a.allow), most = Math.max(1, ...list.map((r) => r.allow + r.deny + r.requireApproval));
  const was = new Map(before.map((r) => [r.name, r])), to = (r, result) => link("messages", "", { q: MESSAGES + " " + flag + ":" + quote(r.name), ...(result && { result }), ...period });
  const Cell = ({ r, of, result }) => <td class={r[of] ? "v-" + result : "muted"}>{r[of] ? <a href={to(r, result)}>{count(r[of])}</a> : 0}<small> {count(was.get(r.name)?.[of] ?? 0)}</small></td>;
  return <section class="panel by" aria-label={title}><h2>{title} <small>small: the time before</small></h2>{list.length ? <div class="table" role="group" tabIndex={0} aria-label={title}><table><thead><tr><th scope="col">{name}</th><th scope="col">held</th><th scope="col">refused</th><th scope="col">sent</th><th scope="col" title="half of the decisions took at most so long">to decide</th></tr></thead><tbody>
    {list.map((r) => <tr key={r.name}><th scope="row"><a href={to(r)}><Name s={r.name} /></a><Share r={r} most={most} /></th><Cell r={r} of="requireApproval" result="require_approval" /><Cell r={r} of="deny" result="deny" /><Cell r={r} of="allow" result="allow" /><td>{time(r.name)}</td></tr>)}</tbody></table></div> : <Empty mark="·" command={wary()}>No message was decided. To have one decided:</Empty>}</section>;
}
// quote is a value in a line of filters.
export const quote = (s) => /[\s"]/.test(s) ? '"' + s.replaceAll('"', "") + '"' : s;

export function Trends() {
  const period = Object.hasOwn(PERIODS, route.value.query.by) ? route.value.query.by : "today";
  const tick = Math.floor(now.value / 60_000), [sel, set] = useState(null);
  useEffect(() => set(null), [period]);
  const { value, error } = useLoad(() => load(period), [period, tick]);
  const d = value?.p === PERIODS[period] ? value : null;
  const spanOf = (s) => ({ since: iso(d.at[s.from]), until: iso(d.at[s.to + 1]) });
  const open = (result) => (s) => { set(null); go("messages", "", result === "decided" ? { q: "type:approval", ...spanOf(s) } : { q: MESSAGES, result, ...spanOf(s) }); };
  const keys = { require_approval: "requireApproval", deny: "deny", allow: "allow" };
  const mid = d && middle(d.decided.map((x) => x.ms)), midBefore = d && middle(d.decidedBefore.map((x) => x.ms));
  const whole = d && { since: iso(d.from), until: iso(d.at.at(-1)) };
  const took = (list) => { const m = middle(list); return m === null ? "" : span(m); };
  return <section class="screen trends" aria-label="Trends">
    <div class="bar"><h1>Trends</h1><Inside here="trends" />
      <div class="chips" role="group" aria-label="Period">{Object.entries(PERIODS).map(([k, p]) => <button class={"chip" + (k === period ? " on" : "")} aria-pressed={k === period} onClick={() => go("trends", "", { by: k })}>{p.name}</button>)}</div></div>
    <Fault e={error} />
    {!d ? !error && <p class="muted pad">Looking…</p> : <Fragment>
      <div class="sub"><span class="legend"><i aria-hidden="true" class="is" /> {d.p.word} <i aria-hidden="true" class="ago" /> {d.p.before}</span><span class="muted">Choose a span to open its messages.</span><Copy text={"ocipd audit stats --since " + iso(d.from)} /></div>
      <div class="charts">
        {Object.entries(keys).map(([result, of]) => <section class={"panel trend of-" + result} aria-label={SERIES[result][0]}><h2>{SERIES[result][0]}</h2>
          <p class="figure"><b>{count(d.here.verdicts[of])}</b> <span>{d.some ? <Fragment><Differs a={d.here.verdicts[of]} b={d.byNow.verdicts[of]} than={d.p.before} /> <small>{count(d.byNow.verdicts[of])} by this time</small></Fragment> : <small>the log has no message from {d.p.before}</small>}</span></p>
          <Bars d={d} result={result} sel={sel} set={set} open={open(result)} /></section>)}
        <section class="panel trend" aria-label="Time to decide"><h2>Time to decide {d.cut && <small>the newest decisions</small>}</h2>
          <p class="figure"><b>{mid === null ? "–" : span(mid)}</b> <span><small>{mid === null ? "nothing was decided " + d.p.word : "half of " + count(d.decided.length) + " took at most so long"}{midBefore !== null && "; " + d.p.before + " " + span(midBefore)}</small></span></p>
          <Waits d={d} sel={sel} set={set} open={open("decided")} /></section>
      </div>
      <div class="bys">
        <By title="By agent" name="agent" flag="agent" rows={d.here.agents} before={d.before.agents} period={whole} time={(name) => took(d.decided.filter((x) => x.agent === name).map((x) => x.ms))} />
        <By title="By rule" name="rule" flag="rule" rows={d.here.rules} before={d.before.rules} period={whole} time={(name) => { const t = d.here.ruleTimes?.find((x) => x.name === name); return t ? "≤ " + span(t.p50 * 1e3) : ""; }} /></div>
      <details class="panel"><summary>The charts as a table</summary><div class="table" role="group" tabIndex={0} aria-label="The charts as a table"><table><thead><tr><th scope="col">from</th><th scope="col">held</th><th scope="col">refused</th><th scope="col">sent</th><th scope="col">to decide</th></tr></thead><tbody>
        {d.now.map((s, n) => <tr><th scope="row"><a href={link("messages", "", { q: MESSAGES, ...spanOf({ from: n, to: n }) })}>{stepName(d, n)}</a></th>{Object.keys(keys).map((k) => <td>{count(s[k])}<small> {count(d.was[n][k])}</small></td>)}<td>{took(d.decided.filter((x) => x.t >= d.at[n] && x.t < d.at[n + 1]).map((x) => x.ms))}</td></tr>)}</tbody></table></div></details>
    </Fragment>}
  </section>;
}

// Inside goes between the list of messages and its pictures.
export const Inside = ({ here }) => <nav class="chips inside" aria-label="Messages and pictures">{[["messages", "List"], ["trends", "Trends"], ["map", "Map"]].map(([k, name]) => <a class={"chip" + (here === k ? " on" : "")} aria-current={here === k ? "page" : undefined} href={"#/" + k}>{name}</a>)}</nav>;
