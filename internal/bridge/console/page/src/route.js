// The screen is named in the address, behind the sign #, so that back and forward work.
import { signal } from "@preact/signals";

const read = () => {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const parts = path.split("/").filter(Boolean).map((p) => { try { return decodeURIComponent(p); } catch { return p; } });
  return { screen: parts[0] || "now", id: parts[1] || "", query: Object.fromEntries(new URLSearchParams(query)) };
};

export const route = signal(read());
export const reread = () => { route.value = read(); };
addEventListener("hashchange", reread);

export const link = (screen, id, query) => "#/" + screen + (id ? "/" + encodeURIComponent(id) : "") + (query && Object.keys(query).length ? "?" + new URLSearchParams(query) : "");

// stay puts what a screen shows into its address, without a step in the history, unless the person is
// on the way to another one; back is the address of a screen as the person left it.
const left = {};
export const stay = (screen, query) => {
  left[screen] = link(screen, "", query);
  const here = read();
  if (here.screen === screen && !here.id) history.replaceState(null, "", left[screen]);
};
export const back = (screen) => left[screen] ?? link(screen);

export const go = (...to) => { location.hash = link(...to); };
