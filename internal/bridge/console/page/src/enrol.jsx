// A passkey is enrolled at the terminal: the page shows that it is the person's by the code there.
import { h } from "preact";
import { useState } from "preact/hooks";
import { ask, named } from "./daemon.js";
import { Copy, Fault } from "./parts.jsx";
import { Text } from "./text.jsx";
import { enrol, refused } from "./passkey.js";

export function Enrol() {
  const [code, setCode] = useState(""), [error, setError] = useState(null), [line, setLine] = useState("");
  const start = async (e) => {
    e.preventDefault();
    setError(null);
    try {
      const made = await enrol().catch((e) => { throw refused(e); });
      const got = await ask("/enrol", { code, ...made });
      named(got.signers);
      setLine(got.line || "The terminal has the line of your key.");
    } catch (err) { setError(err); }
  };
  return <section class="screen one"><div class="bar"><h1>Add a passkey</h1></div><div class="panel">
    <p>A passkey signs your decisions on this page. Run this in a terminal: it shows six digits, and adds the line of your key to the people who may decide (<code>approvals.allowed_signers</code>). From the first line on, each decision has to be signed.</p><p><Copy text="ocipd console enrol" /></p>
    <form onSubmit={start}><label>The six digits<input inputMode="numeric" pattern="[0-9]{6}" required autoComplete="off" value={code} onInput={(e) => setCode(e.target.value)} /></label>
      <Fault e={error} />{line && <p class="said" role="status"><Text s={line} lines /></p>}
      <div class="actions"><button class="primary">Make the passkey</button></div></form></div></section>;
}
