// One request: all that the terminal shows of it, in the same words, and the decision.
import { h, Fragment } from "preact";
import { useState, useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { ask, whole, waiting, decider, person, signers, link as daemon } from "./daemon.js";
import { Text, Marked, oddIn } from "./text.jsx";
import { Ask, Copy, Empty, Fault, Level, at, kind, now, span, useLoad } from "./parts.jsx";
import { groups, KINDS } from "./waiting.jsx";
import { refused, sign } from "./passkey.js";
import { go, link } from "./route.js";

// Part draws one part of a request's description. The process makes the parts, and all words in
// them; the terminal draws the same ones.
function Part({ p }) {
  const tone = kind("t-", p.tone);
  if (p.kind === "heading") return <h2><Text s={p.text} /></h2>;
  if (p.kind === "quote") return <figure class="quote"><pre tabIndex={0} role="group" aria-label="Text of somebody else"><Marked s={p.text} marks={p.marks} /></pre></figure>;
  if (p.kind === "item") return <p class={"item" + tone}><b><Text s={p.text} /></b></p>;
  if (p.kind === "fact" || p.kind === "code") return <div class={"fact" + tone}><span class="fn"><Text s={p.name} /></span><span class="fv">{p.kind === "code" ? <code><Text s={p.text} /></code> : <Text s={p.text} />}</span></div>;
  return <p class={"say" + tone}>{p.tone === "bad" && <i aria-hidden="true">⚠ </i>}{p.text}</p>;
}

// sections parts the description at its headings.
export function sections(parts) {
  const out = [{ parts: [] }];
  for (const p of parts) {
    if (p.kind === "title") continue;
    if (p.kind === "heading") out.push({ head: p, parts: [] });
    else out.at(-1).parts.push(p);
  }
  return out.filter((s) => s.head || s.parts.length);
}

// Bounds narrow what is approved of the rest of an exchange. Nothing can be widened.
const LEVELS = ["public", "internal", "confidential", "restricted"];
function Bounds({ offered, set }) {
  const [words, setWords] = useState(offered.words), [level, setLevel] = useState(offered.classification), [round, setRound] = useState(offered.maxRound), [until, setUntil] = useState(offered.until);
  useEffect(() => { set(words.length ? { words, classification: level, maxRound: Number(round), until } : null); }, [words, level, round, until]);
  const ends = [15 * 60e3, 3600e3, 4 * 3600e3, 24 * 3600e3].filter((ms) => Date.now() + ms < offered.until);
  return <fieldset class="bounds"><legend>The rest of the exchange, within these bounds</legend>
    <div class="checks">{offered.words.map((w) => <label><input type="checkbox" checked={words.includes(w)} onChange={(e) => { const on = e.currentTarget.checked; setWords((was) => offered.words.filter((x) => x === w ? on : was.includes(x))); }} /><Text s={w} /></label>)}</div>
    <div class="fields">
      <label>Highest level<select value={level} onInput={(e) => setLevel(e.target.value)}>{LEVELS.slice(0, LEVELS.indexOf(offered.classification) + 1).map((l) => <option>{l}</option>)}</select></label>
      {offered.maxRound > 0 && <label>Last round<input type="number" min={1} max={offered.maxRound} value={round} onInput={(e) => setRound(Math.min(offered.maxRound, Math.max(1, e.target.value | 0)))} onChange={(e) => { e.currentTarget.value = round; }} /></label>}
      <label>Ends<select onInput={(e) => setUntil(e.target.value === "" ? offered.until : Math.min(offered.until, Date.now() + Number(e.target.value)))}>
        <option value="">{at(offered.until)}</option>{ends.map((ms) => <option value={ms}>in {span(ms)}</option>)}</select></label>
    </div>
    {!words.length && <p class="t-bad">Choose a word, or leave the exchange out.</p>}
  </fieldset>;
}

const TITLES = { approve: "Approve", deny: "Deny", takeover: "Take over", resolve: "Resolve", request_changes: "Ask for changes" };

// Decide asks for the decision itself: it shows the text that is signed, and has it signed.
function Decide({ a, shown, decision, close, done, stale }) {
  const [note, setNote] = useState(""), [own, setOwn] = useState(""), [rest, setRest] = useState(false), [bounds, setBounds] = useState(null);
  const [texts, setTexts] = useState(null), [error, setError] = useState(null), [busy, setBusy] = useState(false);
  const asked = { approvalId: a.approvalId, decision, ...(note && { note }), ...(own && { content: own }), ...(rest && bounds && { exchange: bounds }) };
  const key = JSON.stringify(asked);
  // What is signed has the note in it: another note is another text.
  useEffect(() => {
    let on = true;
    setTexts(null);
    const timer = setTimeout(() => ask("/texts", asked).then((t) => {
      if (!on) return;
      if (t.digest && t.digest !== a.digest) stale({});
      else setTexts({ ...t, key });
    }, (e) => on && setError(e)), texts ? 250 : 0);
    return () => { on = false; clearTimeout(timer); };
  }, [key]);
  const ready = texts?.key === key && (!rest || bounds);
  const decide = async (e) => {
    e.preventDefault();
    setBusy(true);
    setError(null);
    try {
      let assertion;
      if (texts.credentials?.length) assertion = await sign(texts, a, asked).catch((e) => { throw refused(e); });
      const { said } = await ask("/decide", { ...asked, digest: a.digest, ...(assertion && { assertion }) });
      done(said);
    } catch (err) {
      if (err.details?.ocip?.code === "APPROVAL_STALE") { stale(err.details.ocip); return; }
      setError(err);
    }
    setBusy(false);
  };
  const command = texts?.command;
  const names = [...new Set((texts?.credentials ?? []).map((c) => c.name).filter(Boolean))];
  const here = texts && (texts.credentials?.length > 0 || texts.click);
  return <Ask title={TITLES[decision] + "?"} close={close} wide>
    <form onSubmit={decide}>
      <p><Text s={shown.does?.[decision]} /></p>
      {shown.words && <p class="four"><Text s={shown.words} /><small>These four words stand for exactly what you saw. The terminal shows the same ones.</small></p>}
      {decision === "takeover" && <label>Your own words (empty: as it is)<textarea rows={4} value={own} onInput={(e) => setOwn(e.target.value)} /></label>}
      {decision === "approve" && a.exchange && <label class="check"><input type="checkbox" checked={rest} onChange={(e) => setRest(e.target.checked)} /> Approve the rest of the exchange too</label>}
      {rest && <Bounds offered={a.exchange} set={setBounds} />}
      <label>Note for the record<input autofocus maxLength={1024} value={note} onInput={(e) => setNote(e.target.value)} /></label>
      {texts?.text && <details><summary>The text that is signed</summary><pre class="signed" tabIndex={0}><Text s={texts.text} lines /></pre></details>}
      <Fault e={error} />
      {texts && !here && <div class="fallback"><p>{texts.signature ? "No passkey of this page may decide. Decide in a terminal:" : "Nobody may sign decisions yet, and a click alone decides nothing here. Decide in a terminal:"}</p>{command && <Copy text={command} />}<p>To decide on this page, <a href={link("enrol")}>add a passkey</a>. The command in a terminal:</p><Copy text="ocipd console enrol" /></div>}
      {texts && here && <p class="muted small">Recorded as <b><Text s={texts.credentials?.length ? names.join(" or ") || "the name of your passkey" : person.value} /></b>{texts.credentials?.length ? ", signed by your passkey" : ", without a signature"}. {command && <span>In a terminal: <code><Text s={command} /></code></span>}</p>}
      <div class="actions"><button type="button" onClick={close}>Cancel</button>
        {(!texts || here) && <button class={decision === "deny" ? "danger" : "primary"} disabled={!ready || busy || !daemon.value.live}>{busy ? "Waiting for your key…" : texts?.credentials?.length ? TITLES[decision] + " with passkey" : TITLES[decision]}</button>}</div>
    </form>
  </Ask>;
}

// Difference shows what changed while a person was reading.
const Difference = ({ obstacle }) => <section class="panel stale" role="alert"><h2>It has changed since you saw it. Nothing was decided.</h2>
  {(obstacle.changed ?? []).map((c) => <div class="change"><b><Text s={c.field} /></b><div><span>was</span><pre><Text s={c.was} lines /></pre></div><div><span>now</span><pre><Text s={c.now} lines /></pre></div></div>)}
  <p>Read it again below, and decide anew.</p></section>;

const KEYS = { a: "approve", d: "deny", t: "takeover", r: "resolve", c: "request_changes" };

export function Approval({ id }) {
  const row = waiting.rows.get(id);
  waiting.rev.value;
  const { value, error, again } = useLoad(() => whole("approval.get", { approvalId: id }), [id, row?.given]);
  const end = useRef(), [seen, setSeen] = useState(""), [asking, setAsking] = useState(""), [said, setSaid] = useState(""), [obstacle, setObstacle] = useState(null);
  const a = value?.result?.approvalId === id ? value.result : null, shown = value?.shown ?? {};
  const digest = a?.digest;
  useEffect(() => { setSeen(""); setAsking(""); setSaid(""); setObstacle(null); }, [id]);
  // A busy browser tells several things at once: that the end was not seen, and that it was seen then.
  // What was loaded anew is looked at anew, also if it is the same and its end stays where it is. In a
  // low window a jump to the end of the page goes past this end, and fractions of a pixel are cut off.
  useEffect(() => {
    if (!end.current || !digest) return;
    const look = new IntersectionObserver((all) => { if (all.some((e) => e.isIntersecting)) setSeen(digest); }, { threshold: .9, rootMargin: "9999999px 0px 0px" });
    look.observe(end.current);
    return () => look.disconnect();
  }, [value]);
  const offered = a?.state === "pending" ? shown.decisions ?? [] : [];
  const may = (d) => offered.includes(d) && daemon.value.live && !(d === "approve" && (!a.approvable || a.blocked)) && (seen === digest || (d !== "approve" && d !== "takeover"));
  // The keys are those of what is on the screen from the moment that it is there.
  useLayoutEffect(() => {
    const key = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || e.target.closest?.("input,textarea,select")) return;
      const d = KEYS[e.key];
      if (d && may(d)) { e.preventDefault(); setAsking(d); }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });
  if (error && !a) return <section class="screen"><Fault e={error} /><a class="back" href="#/waiting">‹ Waiting</a></section>;
  if (!a) return <section class="screen"><p class="muted pad">Looking…</p></section>;
  const order = groups.value.flatMap((g) => g.map((x) => x.approvalId)), place = order.indexOf(id), next = order.filter((x) => x !== id)[Math.max(0, place)] || order.find((x) => x !== id);
  const soon = a.expiresAt - now.value < 600_000;
  const blocked = !offered.includes("approve") ? "This request cannot be approved." : !a.approvable || a.blocked ? "It cannot be approved: " + (a.blocked || shown.instead) : "";
  const rest = blocked ? offered.includes("takeover") && "The button Take over works once you have scrolled to the end." : "The button Approve works once you have scrolled to the end.";
  const blocks = sections(shown.parts ?? []);
  const odd = oddIn(a.content || "");
  return <section class="screen one" aria-label="One request">
    <nav class="crumb"><a class="back" href="#/waiting">‹ Waiting</a><span>{place >= 0 && <span>{place + 1} of {order.length} </span>}</span></nav>
    <h1><Text s={shown.title} /></h1>
    <p class="lead"><span class="tag"><Text s={shown.why || row?.why || KINDS[a.kind]} /></span><Level s={a.classification} />{a.state === "pending" ? <span class={soon ? "soon" : "muted"}>{span(a.expiresAt - now.value)} left</span> : <b><Text s={a.state.replaceAll("_", " ")} /></b>}{odd > 0 && <span class="t-bad"><i aria-hidden="true">⚠ </i>{odd} odd character{odd > 1 ? "s" : ""}</span>}</p>
    {said && <div class="said" role="status"><i aria-hidden="true">✓ </i><Text s={said} />{next ? <a href={link("waiting", next)}>Next ›</a> : <a href="#/waiting">Waiting ›</a>}</div>}
    {obstacle && <Difference obstacle={obstacle} />}
    <Fault e={error} />
    {blocks.map((b) => <section class={"panel" + (b.parts.some((p) => p.kind === "quote") ? " quoted" : "")}>{b.head && <Part p={b.head} />}{b.parts.map((p) => <Part p={p} />)}</section>)}
    {a.state === "pending" && <section class="panel"><h2>If you decide</h2>
      <div class="fact"><span class="fn">recorded as</span><span class="fv"><b><Text s={decider.value} /></b>{a.signatureRequired && !signers.value.length && ", or as the name of your passkey"}</span></div>
      {a.exchange ? <div class="fact"><span class="fn">exchange</span><span class="fv">the rest of it can be approved too, within bounds</span></div> : a.noExchange && <div class="fact"><span class="fn">exchange</span><span class="fv"><Text s={a.noExchange} /></span></div>}
    </section>}
    <div key="end" ref={end} class="end">This is the end of the request.</div>
    {offered.length > 0 && <div class="decide" role="group" aria-label="Decide">
      <span class="muted" role="status">{!daemon.value.live ? "the daemon does not answer" : <Fragment>{blocked && <Fragment><Text s={blocked} /> </Fragment>}{seen === digest ? <span class="four"><Text s={shown.words} /></span> : rest}</Fragment>}</span>
      {offered.map((d) => <button class={{ approve: "primary", deny: "danger" }[d] || ""} disabled={!may(d)} onClick={() => setAsking(d)}><kbd aria-hidden="true">{Object.keys(KEYS).find((k) => KEYS[k] === d)}</kbd>{TITLES[d]}</button>)}
    </div>}
    {asking && <Decide a={a} shown={shown} decision={asking} close={() => setAsking("")}
      done={(text) => { setAsking(""); setSaid(text); again(); }} stale={(o) => { setAsking(""); setObstacle(o); setSeen(""); again(); }} />}
  </section>;
}
