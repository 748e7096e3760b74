// The page: its header, its five screens, and the keys that go between them.
import { h, render, Fragment } from "preact";
import { useState, useEffect, useLayoutEffect } from "preact/hooks";
import { enter, follow, link as daemon, lost, decider, phase, status } from "./daemon.js";
import { back, go, reread, route } from "./route.js";
import { Ask, Copy, Empty, at, clock, count } from "./parts.jsx";
import { Text } from "./text.jsx";
import { Now } from "./now.jsx";
import { Waiting, asks, total, useAsks } from "./waiting.jsx";
import { Approval } from "./approval.jsx";
import { Message, Messages } from "./messages.jsx";
import { Task, Tasks } from "./tasks.jsx";
import { Trends } from "./trends.jsx";
import { MapScreen } from "./map.jsx";
import { Health } from "./health.jsx";
import { Enrol } from "./enrol.jsx";
import { Paused, Stop } from "./stop.jsx";

const SCREENS = [["now", "Now", "◉"], ["waiting", "Waiting", "‖"], ["messages", "Messages", "≡"], ["tasks", "Tasks", "▤"], ["health", "Health", "✚"]];

// The pictures are of messages, and stand behind their screen.
const PICTURES = [["trends", "Trends"], ["map", "Map"]];

const Help = ({ close }) => <Ask title="Keys" close={close}><dl class="keys">
  {[["1 – 5", "the screens"], ["6  7", "trends, and the map of who writes to whom"], ["/", "filter"], ["j  k  ↓  ↑", "the next and the last row"], ["Enter", "open the row"], ["a  d  t  r", "approve, deny, take over, resolve"], ["Esc", "close, or back to the list"], ["?", "these keys"]].map(([k, v]) => <Fragment><dt><kbd>{k}</kbd></dt><dd>{v}</dd></Fragment>)}</dl></Ask>;

const Out = () => <main class="out"><h1>ocipd</h1><div class="panel">{lost.value && <p role="alert"><Text s={lost.value} /></p>}<p>This page needs a link of its own. Make one in a terminal:</p><Copy text="ocipd console" /></div></main>;

const screen = ({ screen, id }) => {
  switch (screen) {
    case "now": return <Now />;
    case "waiting": return id ? <Approval key={id} id={id} /> : <Waiting />;
    case "messages": return id ? <Message key={id} id={id} /> : <Messages />;
    case "trends": return <Trends />;
    case "map": return <MapScreen />;
    case "tasks": return id ? <Task key={id} id={id} /> : <Tasks />;
    case "health": return <Health />;
    case "enrol": return <Enrol />;
  }
  return <Empty mark="·">There is no such screen.</Empty>;
};

function App() {
  const [stopping, setStopping] = useState(false), [help, setHelp] = useState(false);
  useAsks();
  const waits = total.value + asks.value.length;
  const here = route.value, tab = PICTURES.some(([k]) => k === here.screen) ? "messages" : here.screen;
  useEffect(() => { document.title = (waits ? `(${waits}) ` : "") + "ocipd: " + (SCREENS.concat(PICTURES).find(([k]) => k === here.screen)?.[1] ?? here.screen); });
  // A screen begins at its beginning.
  useLayoutEffect(() => { document.getElementById("main")?.scrollTo(0, 0); scrollTo(0, 0); }, [here.screen, here.id]);
  useLayoutEffect(() => {
    const key = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      const field = e.target.closest?.("input,textarea,select");
      if (field) { if (e.key === "Escape") { field.blur(); document.querySelector("[data-list]")?.focus(); } return; }
      const place = "1234567".indexOf(e.key);
      if (place >= 0) go([...SCREENS, ...PICTURES][place][0]);
      else if (e.key === "?") setHelp(true);
      else if (e.key === "/") document.querySelector("[data-filter]")?.focus();
      else if (e.key === "Escape" && here.id) location.hash = back(here.screen);
      else if (/^(j|k|ArrowDown|ArrowUp)$/.test(e.key) && document.querySelector("[data-list]") && !e.target.closest?.("[data-list],pre")) {
        const list = document.querySelector("[data-list]");
        list.focus();
        list.dispatchEvent(new KeyboardEvent("keydown", { key: e.key, bubbles: true }));
      } else return;
      e.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  });
  if (phase.value === "out") return <Out />;
  const { live, since, because } = daemon.value, s = status.value;
  return <Fragment>
    <header class="top">
      <a class="brand" href="#/now">ocipd{s?.audit?.log && <small><Text s={s.audit.log} /></small>}</a>
      <nav class="tabs" aria-label="Screens">{SCREENS.map(([k, name, mark], i) => <a href={"#/" + k} class={"tab" + (tab === k ? " on" : "")} aria-current={here.screen === k ? "page" : tab === k ? "true" : undefined} title={"key " + (i + 1)}><i aria-hidden="true">{mark}</i><span>{name}</span>{k === "waiting" && waits > 0 && <b class="n">{waits > 999 ? "999+" : count(waits)}</b>}</a>)}</nav>
      <span class={"live" + (live ? "" : " gone")} role="status"><i aria-hidden="true" />{live ? "live" : since ? "gone since " + clock(since) : "connecting"}</span>
      <a class="person" href="#/enrol" title="Your decisions on this page are recorded under this name. Add a passkey here."><span class="hide">You decide as </span><Text s={decider.value} /></a>
      <button class="stop" onClick={() => setStopping(true)}><i aria-hidden="true">■</i> Stop</button>
    </header>
    <Paused />
    {!live && since > 0 && <aside class="gone-note" role="alert">The daemon does not answer since {at(since)}. Nothing can be decided; what you see is from before.{because && <Fragment> <Text s={because} /></Fragment>} <Copy text="ocipd doctor" /></aside>}
    <main id="main" class={live || !since ? "" : "old"} tabIndex={-1}>{screen(here)}</main>
    {stopping && <Stop close={() => setStopping(false)} />}
    {help && <Help close={() => setHelp(false)} />}
  </Fragment>;
}

await enter();
reread();
render(<App />, document.getElementById("app"));
let following = false;
const watch = async () => { if (!following && phase.value === "in") { following = true; await follow(); following = false; } };
phase.subscribe(() => { watch(); });
addEventListener("hashchange", () => { if (phase.value === "out") enter(); });
