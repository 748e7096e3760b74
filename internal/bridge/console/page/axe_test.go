package page_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openclawos/ocipd/test/buildtest"
)

// axe is the source of axe-core, which is at hand for tests alone.
func axe(t *testing.T) string {
	t.Helper()
	return string(buildtest.Gunzip(t, "testdata/axe.min.js.gz"))
}

// TestAccessible has axe-core look at every screen and every question, in both colour schemes, on a
// wide window, on a phone, and at 200 %: 640 pixels are half of 1280. Nothing is wider than its window.
func TestAccessible(t *testing.T) {
	source := axe(t)
	w := begin(t, acme)
	w.people()
	w.tasks()
	for _, scheme := range []string{"light", "dark"} {
		for _, width := range []int64{1280, 640, 390} {
			w.browse(width, 800, scheme, "")
			w.do(chromedp.Evaluate[chromedp.Void](instrument), chromedp.Evaluate[chromedp.Void](source+"; undefined"))
			for _, s := range []struct{ hash, ready, act string }{
				{"/now", `document.querySelector(".waits .card") && document.querySelector(".num")`, ""},
				{"/waiting", `document.querySelectorAll(".list .row").length > 1`, ""},
				{"", `document.querySelector(".decide")`, `document.querySelector(".list .row").click()`},
				{"", `document.querySelector("dialog .actions .danger:not(:disabled)")`, `[...document.querySelectorAll(".decide button")].find((b) => b.textContent.includes("Deny")).click()`},
				{"/messages", `document.querySelectorAll(".list .row").length > 4`, `document.querySelector("dialog button").click()`},
				{"", `document.querySelector(".receipt")`, `document.querySelector(".list .v-deny").click()`},
				{"/tasks", `document.querySelectorAll(".list .row").length === 2`, ""},
				{"", `document.querySelector(".effect")`, `document.querySelector(".list .row:last-child").click()`},
				{"/health", `document.querySelector(".health") && document.querySelector(".grid")`, ""},
				{"/trends", `document.querySelectorAll(".chart svg").length === 4`, ""},
				{"/map", `document.querySelector(".map table") && document.querySelector(".picture svg, details:not([open])")`, ""},
				{"", `document.querySelector(".picture .badge")`, `document.querySelector(".map details").open = true`},
				{"/enrol", `document.querySelector("input[inputmode]")`, ""},
				{"", `document.querySelector("dialog select")`, `document.querySelector("header .stop").click()`},
			} {
				if s.act != "" {
					w.do(chromedp.Evaluate[chromedp.Void](s.act + "; undefined"))
				}
				if s.hash != "" {
					w.visit(s.hash)
				}
				w.until(s.ready + " && underway === 0")
				here := eval[string](w, "location.hash")
				for _, found := range eval[[]string](w, `axe.run(document, {resultTypes: ["violations"]}).then((r) => r.violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).slice(0, 3).join(" | ")))`) {
					t.Errorf("%s, %d pixels, %s %s: %s", scheme, width, here, s.act, found)
				}
				if wide := eval[int](w, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
					t.Errorf("%s, %d pixels, %s: the page is %d pixels wider than its window", scheme, width, here, wide)
				}
			}
			for _, found := range eval[[]string](w, "reports") {
				t.Error(found)
			}
		}
	}
}
