// Small parts that every screen uses.
import { h, Fragment } from "preact";
import { useState, useEffect, useRef, useLayoutEffect } from "preact/hooks";
import { computed, signal } from "@preact/signals";
import { status } from "./daemon.js";
import { Text, visible } from "./text.jsx";

export const now = signal(Date.now());
setInterval(() => { if (!document.hidden) now.value = Date.now(); }, 1000);

const two = (n) => String(n).padStart(2, "0");
const dated = (t, form) => { const d = new Date(t); return isNaN(d) ? "?" : form(d); };
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");
export const clock = (t) => dated(t, (d) => two(d.getHours()) + ":" + two(d.getMinutes()) + ":" + two(d.getSeconds()));
export const day = (t) => dated(t, (d) => d.getDate() + " " + MONTHS[d.getMonth()]);
export const at = (t) => dated(t, (d) => (d.toDateString() === new Date(now.value).toDateString() ? "" : day(t) + " ") + clock(t));
export const span = (ms) => !(ms >= 0) ? "0 s" : ms < 6e4 ? Math.floor(ms / 1e3) + " s" : ms < 36e5 ? Math.floor(ms / 6e4) + " min" : ms < 1728e5 ? Math.floor(ms / 36e5) + " h" : Math.floor(ms / 864e5) + " d";
export const ago = (t) => span(now.value - new Date(t)) + " ago";
export const count = (n) => n.toLocaleString("en");
export const bytes = (n) => n < 1024 ? n + " B" : n < 1 << 20 ? (n / 1024).toFixed(1) + " KiB" : n < 1 << 30 ? (n / (1 << 20)).toFixed(1) + " MiB" : (n / (1 << 30)).toFixed(1) + " GiB";
export const words = (code) => String(code ?? "").toLowerCase().replaceAll("_", " ");
export const plural = (n, one) => count(n) + " " + one + (n === 1 ? "" : "s");

// kind is a class of an element by a word of the daemon. A text that is no word gives none.
export const kind = (prefix, s) => /^[a-z_]{1,30}$/.test(s) ? " " + prefix + s : "";

// A verdict is a shape, a word and a colour. What waits for a person is the loudest of them.
const VERDICTS = { allow: ["✓", "sent"], deny: ["✕", "refused"], require_approval: ["‖", "held"], "": ["·", "noted"] };
export function Verdict({ v, word = true }) {
  const known = Object.hasOwn(VERDICTS, v || "") ? v || "" : "";
  const [shape, said] = VERDICTS[known];
  return <span class={"verdict v-" + (known || "none")}><i aria-hidden="true">{shape}</i>{word ? said : <span class="hide">{said}</span>}</span>;
}

// short is the id of an agent of this daemon, by its instance id. Others have the name that they came with.
const agents = computed(() => new Map((status.value?.agents ?? []).map((a) => [a.instanceId, a.id])));
export const short = (s) => agents.value.get(s) ?? s;
export const Name = ({ s }) => Text({ class: "name", title: short(s) === s || s == null ? undefined : visible(String(s).slice(0, 200)), s: short(s), max: 120 });
export const Level = ({ s }) => s ? <span class={"level" + kind("l-", s)}>{Text({ s, max: 40 })}</span> : null;
export const Pair = ({ from, to }) => <span class="pair"><Name s={from} /><i aria-hidden="true"> → </i><span class="hide"> to </span><Name s={to} /></span>;

// Copy is a command, and a button that copies it. The text that is copied is the text that is shown.
export function Copy({ text }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return <span class="copy"><code><Text s={text} /></code><button type="button" onClick={copy} aria-label={"Copy: " + visible(text)}>{done ? "copied" : "copy"}</button></span>;
}

// quoted is one argument of a command in a shell.
export const quoted = (s) => /^[\w@%+=:,./-]+$/.test(s) ? s : "'" + visible(s).replaceAll("'", "'\\''") + "'";

// wary is a command that fills what is empty: its message is held, since it promises something to a
// stranger. Where there is no agent yet, it is the command that adds one.
export const wary = () => {
  const [one, another] = status.value?.agents ?? [];
  return one ? `ocipd send telegram:4711 'I promise the report by Friday.'${another ? " --agent " + quoted(one.id) : ""}` : "ocipd config add-agent --help";
};

export const Empty = ({ children, command, mark = "✓" }) => <div class="empty"><i aria-hidden="true">{mark}</i><p>{children}</p>{command && <Copy text={command} />}</div>;
export const Fault = ({ e }) => e ? <div class="fault" role="alert"><p><Text s={e.message} lines /></p>{e.command && <Copy text={e.command} />}</div> : null;

// Ask is a question in front of the page. Escape closes it from the moment that it is there, and the
// focus returns.
export function Ask({ title, close, children, wide }) {
  const box = useRef();
  useLayoutEffect(() => { box.current.showModal(); return () => box.current?.close(); }, []);
  return <dialog ref={box} class={wide ? "wide" : ""} aria-label={title} onClose={close}>
    <header><h2>{title}</h2><button type="button" class="plain" onClick={close} aria-label="Close">✕</button></header>
    {children}
  </dialog>;
}

// useLoad calls for something when its keys change, and says how far it is.
export function useLoad(load, keys) {
  const [got, set] = useState({});
  const [round, again] = useState(0);
  useEffect(() => {
    let on = true;
    load().then((value) => on && set({ value }), (error) => on && set((was) => ({ value: was.value, error })));
    return () => { on = false; };
  }, [...keys, round]);
  return { ...got, again: () => again((n) => n + 1) };
}

export const Facts = ({ rows }) => <dl class="facts">{rows.filter((r) => r && r[1] != null && r[1] !== "").map(([name, value]) => <Fragment><dt>{name}</dt><dd>{typeof value === "object" ? value : <Text s={value} />}</dd></Fragment>)}</dl>;
