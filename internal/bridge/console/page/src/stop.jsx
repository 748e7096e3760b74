// Stop: a session is enough to stop something. Going on again is a command, for the terminal.
import { h, Fragment } from "preact";
import { useState } from "preact/hooks";
import { call, status } from "./daemon.js";
import { Ask, Copy, Fault, at, quoted } from "./parts.jsx";
import { Text } from "./text.jsx";

const resume = (p) => "ocipd resume" + (p.agent ? " --agent " + quoted(p.agent) : p.channel ? " --channel " + quoted(p.channel) : "");

export function Stop({ close }) {
  const [what, setWhat] = useState("all"), [channel, setChannel] = useState(""), [note, setNote] = useState(""), [error, setError] = useState(null), [busy, setBusy] = useState(false);
  const agents = status.value?.agents ?? [];
  const stop = async (e) => {
    e.preventDefault();
    setBusy(true);
    const scope = what === "all" ? {} : what === "channel" ? { channel } : { agent: what.slice(6) };
    try {
      const { paused } = await call("sending.pause", { ...scope, ...(note && { note }) });
      if (status.value) status.value = { ...status.value, paused };
      close();
    } catch (err) { setError(err); }
    setBusy(false);
  };
  return <Ask title="Stop messages" close={close}>
    <form onSubmit={stop}>
      <p class="muted">New messages are refused, and what waits in a queue stays there. A message that an app already has cannot be taken back.</p>
      <label>Stop
        <select autofocus value={what} onInput={(e) => setWhat(e.target.value)}>
          <option value="all">everything</option>
          {agents.map((a) => <option value={"agent:" + a.id}>{"agent " + a.id}</option>)}
          <option value="channel">one channel</option>
        </select></label>
      {what === "channel" && <label>Channel<input required value={channel} onInput={(e) => setChannel(e.target.value)} placeholder="telegram" /></label>}
      <label>Note for the record<input maxLength={1024} value={note} onInput={(e) => setNote(e.target.value)} /></label>
      <Fault e={error} />
      <div class="actions"><button type="button" onClick={close}>Cancel</button><button class="stop" disabled={busy}><i aria-hidden="true">■</i> Stop {what === "all" ? "everything" : what === "channel" ? "the channel" : what.slice(6)}</button></div>
    </form>
  </Ask>;
}

// Paused names what is stopped, on every screen, and how it goes on.
export const Paused = () => {
  const paused = status.value?.paused ?? [];
  if (!paused.length) return null;
  return <aside class="paused" aria-label="Stopped">{paused.map((p) => <div><i aria-hidden="true">■</i>
    <span>Stopped: <b>{p.agent ? <Fragment>agent <Text s={p.agent} /></Fragment> : p.channel ? <Fragment>channel <Text s={p.channel} /></Fragment> : "everything"}</b>, by <Text s={p.by} /> at {at(p.since)}. To go on:</span>
    <Copy text={resume(p)} /></div>)}</aside>;
};
