// A list of any length: the document holds the rows that are on the screen, and a few more.
import { h } from "preact";
import { useState, useRef, useEffect, useLayoutEffect } from "preact/hooks";

export const narrow = () => matchMedia("(max-width: 700px)").matches;

// List draws rows of one height. It is a cursor: what lies below what is loaded is asked for when
// its end comes near. The chosen row moves by j, k and the arrows, and Enter opens it.
export function List({ rows, keyOf, draw, open, more, label, height = 40, tall = 60, children }) {
  const box = useRef(), first = useRef();
  const [top, setTop] = useState(0), [room, setRoom] = useState(600), [chosen, choose] = useState(-1);
  const [each, setEach] = useState(narrow() ? tall : height);
  const n = rows.length;
  useEffect(() => {
    const seen = new ResizeObserver(([e]) => { setRoom(e.contentRect.height); setEach(narrow() ? tall : height); });
    seen.observe(box.current);
    return () => seen.disconnect();
  }, []);
  // A row that comes in on top moves nothing that a person is reading.
  const newest = n ? keyOf(rows[0]) : "";
  useLayoutEffect(() => {
    const was = first.current;
    first.current = newest;
    if (!was || was === newest || box.current.scrollTop < each) return;
    const moved = rows.findIndex((r) => keyOf(r) === was);
    if (moved > 0) {
      box.current.scrollTop += moved * each;
      if (chosen >= 0) choose(chosen + moved);
    }
  }, [newest]);
  const from = Math.max(0, Math.floor(top / each) - 3), slots = Math.ceil(room / each) + 7, to = Math.min(n, from + slots);
  useEffect(() => { if (more && to >= n - 20) more(); }, [to, n]);
  const go = (i) => {
    i = Math.min(n - 1, Math.max(0, i));
    choose(i);
    const y = i * each, b = box.current;
    if (y < b.scrollTop) b.scrollTop = y;
    else if (y + each > b.scrollTop + room) b.scrollTop = y + each - room;
  };
  const key = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const page = Math.max(1, Math.floor(room / each) - 1);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page }[e.key];
    if (step) go(chosen + step);
    else if (e.key === "Home") go(0);
    else if (e.key === "End") go(n - 1);
    else if (e.key === "Enter" && chosen >= 0 && open) open(rows[chosen]);
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  // An element is used again for another row, at the same place of the document: a jump changes texts,
  // and makes and moves no elements. Rows have their order from aria-posinset. A row has no transform
  // and no clip of its own, which the browser would carry through each frame, and no id but the chosen one.
  const shown = [];
  for (let i = from; i < to; i++) {
    const r = rows[i];
    shown[i % slots] = <div key={i % slots} id={i === chosen ? "row-" + i : undefined} role="option" aria-selected={i === chosen} aria-posinset={i + 1} aria-setsize={n}
      class={"row" + (i === chosen ? " on" : "")} style={{ top: i * each + "px", height: each + "px" }}
      onClick={() => { choose(i); open?.(r); }}>{draw(r)}</div>;
  }
  return <div class="list" ref={box} data-list tabIndex={0} role="listbox" aria-label={label} aria-activedescendant={chosen >= from && chosen < to ? "row-" + chosen : undefined}
    onScroll={(e) => setTop(e.currentTarget.scrollTop)} onKeyDown={key}>
    <div role="presentation" class="rows" style={{ height: n * each + "px" }}>{shown}</div>
    {children}
    {top > each * 3 && <button class="newest" tabIndex={-1} onClick={() => { box.current.scrollTop = 0; }}>↑ newest</button>}
  </div>;
}
