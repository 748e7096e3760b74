// The process behind the page: its session, its calls, and its one stream.
import { signal, batch } from "@preact/signals";
import { base64url, bytes, hex, utf8 } from "./bytes.js";

const TOKEN = "ocipd.token";

// phase: "out" without a session, "in" with one. link says whether the daemon answers.
export const phase = signal(sessionStorage.getItem(TOKEN) ? "in" : "out");
export const person = signal(sessionStorage.getItem("ocipd.person") || "");
export const link = signal({ live: false, since: 0, because: "" });
export const status = signal(null);
export const lost = signal("");

// Records that came by the stream, oldest first, and what waits for a person, by id. A list is not
// copied for every record: the revision says that it has changed.
export const records = { rows: [], last: 0, rev: signal(0) };
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

// The open stream, if there is one. Its end tells that the process may be gone: while no stream is
// open, each request has to be preceded by a proof that the process knows the session.
let open = null;

async function send(path, body, init) {
  try {
    return await fetch(path, { method: "POST", redirect: "error", ...init, headers: { "Content-Type": "application/json", ...init.headers }, body: JSON.stringify(body) });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    open = null;
    throw new Refusal({ code: "UNREACHABLE", message: "The console's process does not answer. Start it: ocipd console", command: "ocipd console" }, 0);
  }
}

// prove has the process show that it knows the session, before it gets the bearer: whoever listens at
// the port now may be another program. What such a program says is not shown.
async function prove(token, signal) {
  const nonce = crypto.getRandomValues(new Uint8Array(32));
  const session = hex(await crypto.subtle.digest("SHA-256", utf8(token)));
  const answer = await send("/prove", { session, nonce: base64url(nonce) }, { signal });
  if (answer.status === 503) throw new Refusal({ code: "UNREACHABLE", message: "The daemon does not answer.", command: "ocipd doctor" }, 503);
  let good = false;
  if (answer.status === 200) {
    try {
      const { proof } = await answer.json();
      const key = await crypto.subtle.importKey("raw", utf8(token), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
      good = await crypto.subtle.verify("HMAC", key, bytes(proof), Uint8Array.of(...utf8("ocipd console prove\0"), ...nonce));
    } catch (e) {
      if (e.name === "AbortError") throw e; // otherwise it is no proof
    }
  }
  if (good) return;
  if (sessionStorage.getItem(TOKEN) === token) leave(OTHER);
  throw new Refusal({ code: "UNAUTHORIZED", message: OTHER, command: "ocipd console" }, 401);
}

export async function post(path, body, init = {}) {
  const token = path !== "/session" && sessionStorage.getItem(TOKEN);
  if (token && !open) await prove(token, init.signal);
  const answer = await send(path, body, { ...init, ...(token && { headers: { Authorization: "Bearer " + token } }) });
  if (answer.status === 401 && token) leave("This page's session is over.");
  if (!answer.ok) {
    const said = await answer.json().catch(() => null);
    throw new Refusal(said?.error, answer.status);
  }
  return answer;
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
  sessionStorage.removeItem(TOKEN);
  sessionStorage.removeItem("ocipd.person");
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
    link.value = { live: false, since: 0, because: "" };
    phase.value = "out";
    lost.value = why;
  });
}

// enter trades the code of the link for a session. The fragment leaves the address bar first.
export async function enter() {
  const code = location.hash.slice(1);
  if (!code || code.startsWith("/")) return; // a screen of the page
  history.replaceState(null, "", "/");
  try {
    const { token, person: name } = await ask("/session", { code });
    sessionStorage.setItem(TOKEN, token);
    sessionStorage.setItem("ocipd.person", name);
    batch(() => { person.value = name; phase.value = "in"; lost.value = ""; });
  } catch (e) {
    lost.value = e.status === 401 ? "This link was used, or is older than a minute." : e.message;
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
      const answer = await post("/stream", { after: records.last }, { signal: stop.signal });
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
