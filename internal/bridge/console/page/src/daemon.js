// The process behind the page: its session, its calls, and its one stream.
import { batch, computed, signal } from "@preact/signals";
import { base64url, hex, utf8 } from "./bytes.js";

const KEY = "ocipd.key";

// phase: "out" without a session, "in" with one. link says whether the daemon answers.
export const phase = signal(sessionStorage.getItem(KEY) ? "in" : "out");
export const person = signal(sessionStorage.getItem("ocipd.person") || "");

// signers are the names of the enrolled passkeys, and decider is the name under which a decision on
// this page is recorded: that of the passkey which signs it, or else the person's.
export const signers = signal(JSON.parse(sessionStorage.getItem("ocipd.signers") || "[]"));
export const decider = computed(() => signers.value.join(" or ") || person.value);
export const named = (names) => { sessionStorage.setItem("ocipd.signers", JSON.stringify(names ?? [])); signers.value = names ?? []; };

export const link = signal({ live: false, since: 0, because: "" });
export const status = signal(null);
export const lost = signal("");

// Records that came by the stream, oldest first, the newest one about a task, and what waits for a person,
// by id. A list is not
// copied for every record: the revision says that it has changed.
export const records = { rows: [], last: 0, rev: signal(0), tasks: signal(0) };
export const waiting = { rows: new Map(), caught: signal(false), rev: signal(0) };

const KEPT = 200_000;

export class Refusal extends Error {
  constructor(error, status) {
    super(error?.message || "The process gave no answer.");
    this.code = error?.code || "";
    this.details = error?.details;
    this.command = error?.command || error?.details?.command || "";
    this.status = status;
  }
}

const OTHER = "Another program answers at this address, or the console was started anew. Run: ocipd console";
const AWAY = "The console's process does not answer. Start it: ocipd console";

// The open stream, if there is one. Its end tells that the process may be gone: while no stream is
// open, the process has to prove that it has the session's key before it is sent anything else.
let open = null;

const random = (n) => base64url(crypto.getRandomValues(new Uint8Array(n)));

// mac is the HMAC-SHA-256 of the parts, one after the other. A key is used as the text that it is.
async function mac(key, ...parts) {
  const raw = await crypto.subtle.importKey("raw", utf8(key), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return base64url(await crypto.subtle.sign("HMAC", raw, await new Blob(parts).arrayBuffer()));
}

// send asks the process. The request has a proof that this page has the key, for this path, this body
// and this one time: whoever listens at the port never gets the key. The answer has the same proof:
// what another program says is not shown.
async function send(key, path, body, nonce, signal) {
  const text = JSON.stringify(body);
  const proof = await mac(key, "ocipd console request\0POST\n" + path + "\n" + nonce + "\n", text);
  const name = hex(await crypto.subtle.digest("SHA-256", utf8(key)));
  let answer;
  try {
    answer = await fetch(path, { method: "POST", redirect: "error", signal, headers: { "Content-Type": "application/json", Authorization: "Proof " + [name, nonce, proof].join(".") }, body: text });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    open = null;
    throw new Refusal({ code: "UNREACHABLE", message: AWAY, command: "ocipd console" }, 0);
  }
  if (answer.headers.get("Ocipd-Proof") !== await mac(key, "ocipd console answer\0" + nonce)) throw unproven(answer.status);
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    throw new Refusal(said?.error, answer.status);
  }
  return answer;
}

// unproven is the refusal for an answer without a proof: the process knows no such key, or refuses to
// look at it, or another program answers.
function unproven(status) {
  switch (status) {
    case 401: return new Refusal({ code: "UNAUTHORIZED", message: "This page's session is over.", command: "ocipd console" }, 401);
    case 503: return new Refusal({ code: "UNREACHABLE", message: "The daemon does not answer.", command: "ocipd doctor" }, 503);
    case 403: case 413: return new Refusal({ code: "FORBIDDEN", message: "The console refuses this browser or the size of this request, or another program answers. Run: ocipd console", command: "ocipd console" }, status);
  }
  return new Refusal({ code: "UNAUTHORIZED", message: OTHER, command: "ocipd console" }, 401);
}

export async function post(path, body, signal) {
  const key = sessionStorage.getItem(KEY);
  if (!key) throw new Refusal({ code: "UNAUTHORIZED", message: "There is no session.", command: "ocipd console" }, 401);
  try {
    if (!open) await send(key, "/prove", {}, random(16), signal);
    return await send(key, path, body, random(16), signal);
  } catch (e) {
    // The page may have another session by now.
    if (e.status === 401 && e.code === "UNAUTHORIZED" && sessionStorage.getItem(KEY) === key) leave(e.message);
    throw e;
  }
}

export const ask = async (path, body) => {
  const said = await (await post(path, body)).json();
  if (said.error) throw new Refusal(said.error, 200);
  return said;
};

// call returns the result of a method; whole returns what the process adds beside it too.
export const whole = (method, params = {}) => ask("/call", { method, params });
export const call = async (method, params) => (await whole(method, params)).result;

// leave ends the session here, and forgets all that the page shows.
function leave(why) {
  sessionStorage.removeItem(KEY);
  sessionStorage.removeItem("ocipd.person");
  sessionStorage.removeItem("ocipd.signers");
  open?.abort();
  open = fresh = null;
  queue = [];
  batch(() => {
    Object.assign(records, { rows: [], last: 0, before: undefined });
    waiting.rows.clear();
    waiting.caught.value = false;
    records.rev.value++;
    waiting.rev.value++;
    status.value = null;
    person.value = "";
    signers.value = [];
    link.value = { live: false, since: 0, because: "" };
    phase.value = "out";
    lost.value = why;
  });
}

// enter begins a session by the key in the link, which leaves the address bar first. Both sides make
// the session's key of it.
export async function enter() {
  const code = location.hash.slice(1);
  if (!code || code.startsWith("/")) return; // a screen of the page
  history.replaceState(null, "", "/");
  try {
    const nonce = random(16);
    const { person: name, signers: names } = await (await send(code, "/session", {}, nonce)).json();
    sessionStorage.setItem(KEY, await mac(code, "ocipd console session\0" + nonce));
    sessionStorage.setItem("ocipd.person", name);
    batch(() => { person.value = name; named(names); phase.value = "in"; lost.value = ""; });
  } catch (e) {
    lost.value = e.status === 401 && e.message !== OTHER ? "This link was used, or is older than a minute." : e.message;
  }
}

let fresh = null;
let queue = [], drawing = false;
function draw() {
  drawing = false;
  const got = queue;
  queue = [];
  batch(() => {
    for (const m of got) take(m);
    if (records.rows.length > KEPT) records.rows.splice(0, records.rows.length - KEPT);
  });
}

function take(m) {
  switch (m.kind) {
    case "record":
      if (m.record.seq <= records.last) return;
      records.last = m.record.seq;
      records.rows.push(m.record);
      records.rev.value++;
      if (m.record.taskId) records.tasks.value = m.record.seq;
      break;
    case "request": {
      const a = m.approval;
      if (a.state !== "pending") waiting.rows.delete(a.approvalId);
      else waiting.rows.set(a.approvalId, { ...a, why: m.why, rank: m.rank, like: m.like });
      fresh?.add(a.approvalId);
      waiting.rev.value++;
      break;
    }
    case "caught":
      // All that waits has come anew: what is not among it waits no more.
      if (fresh) for (const id of waiting.rows.keys()) if (!fresh.has(id)) waiting.rows.delete(id);
      fresh = null;
      waiting.caught.value = true;
      waiting.rev.value++;
      break;
    case "status": status.value = m.status; link.value = { live: true, since: 0, because: "" }; break;
    case "gone": link.value = { live: false, since: +new Date(m.since), because: m.because }; break;
    case "back": fresh = new Set(); link.value = { live: true, since: 0, because: "" }; break;
  }
}

// feed puts one message of the stream aside for the next frame. A hidden page has no frames.
function feed(m) {
  queue.push(m);
  if (drawing) return;
  drawing = true;
  if (document.hidden) setTimeout(draw, 50);
  else requestAnimationFrame(draw);
}

const HIDDEN = 30_000;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const shown = () => new Promise((done) => {
  if (!document.hidden) return done();
  const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); done(); } };
  document.addEventListener("visibilitychange", look);
});

async function read(body) {
  const lines = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await lines.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) if (line) feed(JSON.parse(line));
  }
}

// follow keeps the stream, for as long as there is a session. A page that nobody sees for half a
// minute lets it go, and comes back behind the last record that it has.
export async function follow() {
  while (phase.value === "in") {
    await shown();
    const stop = new AbortController();
    let timer;
    const hide = () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => stop.abort(), HIDDEN);
    };
    document.addEventListener("visibilitychange", hide);
    try {
      if (!records.last) await recent();
      fresh = new Set();
      const answer = await post("/stream", { after: records.last }, stop.signal);
      open = stop;
      link.value = { live: true, since: 0, because: "" };
      await read(answer.body);
      throw new Refusal({ message: "The stream has ended." });
    } catch (e) {
      if (open === stop) open = null;
      if (phase.value === "out") return;
      if (e.name !== "AbortError" && (link.value.live || !link.value.since)) link.value = { live: false, since: Date.now(), because: e.message };
    }
    document.removeEventListener("visibilitychange", hide);
    clearTimeout(timer);
    await sleep(1000);
  }
}

// recent loads the newest records, behind which the stream goes on.
async function recent() {
  const page = await call("audit.query", { limit: 100 });
  records.rows = page.records.toReversed();
  records.last = records.rows.at(-1)?.seq ?? 0;
  records.before = page.nextBefore;
  records.rev.value++;
}
