// Texts of others. They are only ever text nodes, and a character that does not show as itself is
// written by its name, by the same rule and in the same form as the terminal has it.
import { h } from "preact";
import { HIDDEN, MARKS } from "./tables.js";

// A table is the bounds of ranges, as differences in base 36: in, out, in, out.
const bounds = (table) => {
  let at = 0;
  return Uint32Array.from(table.split(" "), (n) => (at += parseInt(n, 36)));
};
const hidden = bounds(HIDDEN), marks = bounds(MARKS);

function within(list, c) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] <= c) low = middle + 1;
    else high = middle;
  }
  return low % 2 === 1;
}

export const shows = (c) => !within(hidden, c);
export const isMark = (c) => within(marks, c);
export const nameOf = (c) => c === 9 ? "‹tab›" : "‹U+" + c.toString(16).toUpperCase().padStart(4, "0") + "›";

const PLAIN = /^[\x20-\x7e]*$/;
const MAX_MARKS = 4;

// pieces parts a text into runs that show, as strings, and names, as {name}. Lines are kept if
// wanted; otherwise their ends are named like other characters.
export function pieces(text, lines = false) {
  if (PLAIN.test(text)) return text ? [text] : [];
  const out = [];
  let run = "", stacked = MAX_MARKS;
  for (const char of text) {
    const c = char.codePointAt(0);
    if (lines && c === 10) { run += char; stacked = MAX_MARKS; continue; }
    let named = !shows(c) || c === 0x2039 || c === 0x203a;
    if (!named && isMark(c)) named = ++stacked > MAX_MARKS;
    else if (!named) stacked = 0;
    if (!named) { run += char; continue; }
    stacked = MAX_MARKS;
    if (run) out.push(run);
    run = "";
    out.push({ name: nameOf(c) });
  }
  if (run) out.push(run);
  return out;
}

export const visible = (text) => pieces(text).map((p) => p.name || p).join("");
export const oddIn = (text) => pieces(text, true).filter((p) => p.name).length;

const drawn = (text, lines) => pieces(text, lines).map((p) => p.name ? <b class="odd" title="This character does not show as itself; this is its name.">{p.name}</b> : p);

// Text is one text of somebody else.
export function Text({ s, lines, max, class: name, title }) {
  s = s == null ? "" : typeof s === "object" ? JSON.stringify(s) : String(s);
  if (max && s.length > max) s = s.slice(0, max) + "…";
  if (PLAIN.test(s)) return <bdi class={name} title={title}>{s}</bdi>;
  return <bdi class={name} title={title}>{drawn(s, lines)}</bdi>;
}

// Marked is a text with findings in it, by their bytes in UTF-8.
export function Marked({ s, marks: found = [] }) {
  if (!found.length) return <bdi>{drawn(s, true)}</bdi>;
  const wanted = new Set();
  for (const m of found) { wanted.add(m.start); wanted.add(m.end); }
  const at = new Map([[0, 0]]);
  let bytes = 0, index = 0;
  for (const char of s) {
    if (wanted.has(bytes)) at.set(bytes, index);
    const c = char.codePointAt(0);
    bytes += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    index += char.length;
  }
  at.set(bytes, index);
  const cuts = [...at.values()].sort((a, b) => a - b);
  const spans = found.map((m) => [at.get(m.start), at.get(m.end), m.label]).filter(([a, b]) => a < b);
  const out = [];
  for (let i = 0; i + 1 < cuts.length; i++) {
    const text = drawn(s.slice(cuts[i], cuts[i + 1]), true);
    const labels = spans.filter(([a, b]) => a <= cuts[i] && cuts[i + 1] <= b).map((m) => m[2]);
    out.push(labels.length ? <mark title={visible(labels.join(", "))}>{text}</mark> : text);
  }
  return <bdi>{out}</bdi>;
}
