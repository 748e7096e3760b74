// Passkeys: the browser asks the person's key to sign the challenge that the process made, once the
// page has found that it stands for the decision that the person makes.
import { base64url, bytes, hex, utf8 } from "./bytes.js";

const digest = async (text) => hex(await crypto.subtle.digest("SHA-256", utf8(text)));

// covers reports whether a text is the one that a signature for a decision about a request covers:
// the request, the decision, the digest of what is on the screen, the own words or the bounds, and the note.
async function covers(text, a, { decision, content, exchange: b, note }) {
  let want = "ocipd approval v1\n" + a.approvalId + "\n" + decision + "\n" + a.digest + "\n", rest = "";
  if (content) want += "content sha256:" + await digest(a.salt + content) + "\n";
  else if (b) rest = "words " + b.words.join() + "\nclassification " + b.classification + "\nround " + b.maxRound + "\nuntil " + new Date(b.until).toISOString() + "\n";
  if (note) rest += "note sha256:" + await digest(note) + "\n";
  if (!text.startsWith(want) || !text.endsWith(rest)) return false;
  const between = text.slice(want.length, text.length - rest.length);
  return b && !content ? /^exchange ".*" conversation ".*"\nfrom ".*"\nto ".*"\n$/.test(between) : between === "" && text === want + rest;
}

// challengeOf is what a key signs for a text: the text as OpenSSH packs it (PROTOCOL.sshsig).
async function challengeOf(text) {
  const out = [...utf8("SSHSIG")], sum = await crypto.subtle.digest("SHA-512", utf8(text));
  for (const part of [utf8("approval@ocipd"), utf8(""), utf8("sha512"), new Uint8Array(sum)]) out.push(0, 0, 0, part.length, ...part);
  return Uint8Array.from(out);
}

// sign has a key sign the text for a decision about the request a, and nothing else.
export async function sign({ text, challenge, credentials }, a, asked) {
  const made = await challengeOf(text);
  if (!await covers(text, a, asked) || base64url(made) !== challenge) throw new Error("What the console wants signed is not the decision on this screen. Nothing was signed or decided.");
  const got = await navigator.credentials.get({ publicKey: {
    challenge: made, rpId: location.hostname, userVerification: "required", timeout: 120_000,
    allowCredentials: credentials.map((c) => ({ type: "public-key", id: bytes(c.id) })),
  } });
  return {
    credentialId: got.id, clientDataJSON: base64url(got.response.clientDataJSON),
    authenticatorData: base64url(got.response.authenticatorData), signature: base64url(got.response.signature),
  };
}

const ES256 = -7; // the one algorithm for which OpenSSH has a form

export async function enrol() {
  const made = await navigator.credentials.create({ publicKey: {
    challenge: crypto.getRandomValues(new Uint8Array(32)), rp: { id: location.hostname, name: "ocipd" },
    user: { id: crypto.getRandomValues(new Uint8Array(16)), name: "ocipd", displayName: "ocipd" },
    pubKeyCredParams: [{ type: "public-key", alg: ES256 }], attestation: "none", timeout: 120_000,
    authenticatorSelection: { userVerification: "required", residentKey: "discouraged" },
  } });
  if (made.response.getPublicKeyAlgorithm() !== ES256) throw new Error("This key has another algorithm than ES256, which signatures need.");
  return { spki: base64url(made.response.getPublicKey()), credentialId: made.id, clientDataJSON: base64url(made.response.clientDataJSON) };
}

export const refused = (e) => e.name === "NotAllowedError" ? new Error("No key has signed: the question was closed, or its time was over. Nothing was decided.") : e;
