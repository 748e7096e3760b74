// Passkeys: the browser asks the person's key to sign the challenge that the process made.
const base64url = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));

export async function sign({ challenge, credentials }) {
  const got = await navigator.credentials.get({ publicKey: {
    challenge: bytes(challenge), rpId: location.hostname, userVerification: "required", timeout: 120_000,
    allowCredentials: credentials.map((id) => ({ type: "public-key", id: bytes(id) })),
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
