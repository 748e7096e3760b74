// The receipt of a record (C2SP tlog-proof), checked here: the line's place in the tree of all
// records (RFC 6962, 2.1; RFC 9162, 2.1.3.2), and the signature of the tree's root (C2SP signed-note, Ed25519).
const utf8 = new TextEncoder();
const sha256 = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", join(parts)));

function join(parts) {
  const out = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
  let at = 0;
  for (const p of parts) { out.set(p, at); at += p.length; }
  return out;
}

const same = (a, b) => a.length === b.length && a.every((x, i) => x === b[i]);
function base64(text) {
  const out = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  if (btoa(String.fromCharCode(...out)) !== text) throw new Error("it is not strict base64");
  return out;
}

// parseKey reads a verifier key: name+hash+base64(algorithm, key).
async function parseKey(text) {
  const [name, hash, ...rest] = text.trim().split("+");
  const key = base64(rest.join("+"));
  if (key[0] !== 1 || key.length !== 33) throw new Error("the log's key is not one of Ed25519");
  const id = (await sha256(utf8.encode(name + "\n"), key)).slice(0, 4);
  if (Array.from(id, (b) => b.toString(16).padStart(2, "0")).join("") !== hash) throw new Error("the log's key does not have its own number");
  return { name, id, key: await crypto.subtle.importKey("raw", key.slice(1), "Ed25519", false, ["verify"]) };
}

// open checks a signed note by a key, and returns the lines of its text.
async function open(note, keys) {
  const cut = note.indexOf("\n\n");
  if (cut < 0) throw new Error("the checkpoint has no signature");
  const text = note.slice(0, cut + 1);
  for (const line of note.slice(cut + 2).split("\n")) {
    const [dash, name, signature] = line.split(" ");
    if (dash !== "—") continue;
    const bytes = base64(signature);
    for (const k of keys) {
      if (k.name !== name || !same(k.id, bytes.slice(0, 4))) continue;
      if (!await crypto.subtle.verify("Ed25519", k.key, bytes.slice(4), utf8.encode(text))) throw new Error("the checkpoint's signature is wrong");
      const lines = text.split("\n");
      if (lines[0] !== name) throw new Error("the checkpoint is of another log");
      return lines;
    }
  }
  throw new Error("the checkpoint is not signed by the log's key");
}

// check proves that a line is in the log, or throws the reason. It returns what covers the line.
export async function check(line, receipt, keyText) {
  const [head, ...rest] = receipt.split("\n\n");
  const lines = head.split("\n");
  if (lines.shift() !== "c2sp.org/tlog-proof@v1") throw new Error("the receipt has another form");
  if (lines[0]?.startsWith("extra ")) lines.shift();
  const index = /^index (0|[1-9]\d*)$/.exec(lines.shift() || "");
  if (!index) throw new Error("the receipt names no record");
  const path = lines.map(base64);
  // Behind the checkpoint stand those in which an older key hands over to a newer one.
  const notes = [];
  for (let i = 0; i + 1 < rest.length; i += 2) notes.push(rest[i] + "\n\n" + rest[i + 1].replace(/\n*$/, "\n"));
  const keys = [await parseKey(keyText)];
  for (const note of notes.slice(1)) {
    try {
      const next = (await open(note, keys))[3];
      if (next) keys.push(await parseKey(next.replace(/^\S+ /, "")));
    } catch { /* it hands over nothing that this key begins */ }
  }
  const [origin, sizeText, rootText] = await open(notes[0], keys);
  const size = BigInt(sizeText), root = base64(rootText);
  let at = BigInt(index[1]), last = size - 1n;
  if (at > last) throw new Error("the checkpoint does not cover the record");
  let hash = await sha256(Uint8Array.of(0), utf8.encode(line));
  for (const other of path) {
    if (last === 0n) throw new Error("the receipt's path is too long");
    if (at & 1n || at === last) {
      hash = await sha256(Uint8Array.of(1), other, hash);
      if (!(at & 1n)) while (!(at & 1n) && at !== 0n) { at >>= 1n; last >>= 1n; }
    } else {
      hash = await sha256(Uint8Array.of(1), hash, other);
    }
    at >>= 1n;
    last >>= 1n;
  }
  if (last !== 0n || !same(hash, root)) throw new Error("the record is not the one that was signed: it, or its place, was changed");
  return { seq: Number(index[1]) + 1, size: Number(size), origin, key: keyText.split("+")[1] };
}
