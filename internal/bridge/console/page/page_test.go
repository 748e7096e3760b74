package page_test

import (
	"testing"

	"github.com/chromedp/chromedp"
)

// TestScreens opens every screen, in both colour schemes, wide and narrow.
func TestScreens(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.tasks()
	for _, view := range []struct {
		name          string
		width, height int64
		scheme        string
	}{{"1280-light", 1280, 800, "light"}, {"390-dark", 390, 844, "dark"}, {"1280-dark", 1280, 800, "dark"}, {"390-light", 390, 844, "light"}} {
		w.browse(view.width, view.height, view.scheme, "")
		w.until(`document.querySelectorAll(".waits .card").length > 1 && document.querySelector(".num")`)
		w.picture("now-" + view.name)
		w.guide("console-now-" + view.name)
		w.visit("/waiting")
		w.until(`document.querySelectorAll(".list .row").length > 1`)
		w.picture("waiting-" + view.name)
		w.do(click(".list .row"))
		w.until(`document.querySelector(".decide") && document.querySelector(".end")`)
		w.picture("approval-" + view.name)
		w.guide("console-request-" + view.name)
		w.do(press("d"))
		w.until(`document.querySelector("dialog .danger:not(:disabled)")`)
		w.picture("decide-" + view.name)
		w.do(press("\x1b"))
		w.until(`!document.querySelector("dialog")`)
		w.do(chromedp.Evaluate[chromedp.Void](end))
		w.until(`document.querySelector(".decide .four")`)
		w.picture("end-" + view.name)
		w.visit("/messages")
		w.until(`document.querySelectorAll(".list .row").length > 4`)
		w.picture("messages-" + view.name)
		w.guide("console-messages-" + view.name)
		w.do(click(".list .v-require_approval"))
		w.until(`[...document.querySelectorAll(".receipt")].length && ![...document.querySelectorAll(".receipt")].some((r) => r.textContent.includes("checking"))`)
		w.picture("message-" + view.name)
		w.visit("/tasks")
		w.until(`document.querySelectorAll(".list .row").length === 2`)
		w.picture("tasks-" + view.name)
		w.do(click(".list .row:last-child"))
		w.until(`document.querySelector(".effect")`)
		w.picture("task-" + view.name)
		w.visit("/health")
		w.until(`document.querySelectorAll(".health").length > 0`)
		w.picture("health-" + view.name)
		w.made = history
		w.visit("/trends?by=days")
		w.until(`document.querySelectorAll(".chart svg").length === 4`)
		w.picture("trends-" + view.name)
		w.guide("console-trends-" + view.name)
		w.made = nil
		w.visit("/map")
		w.until(`document.querySelector(".map table")`)
		w.do(chromedp.Evaluate[chromedp.Void](`document.querySelector(".map details").open = true; undefined`))
		w.until(`document.querySelector(".picture .badge")`)
		w.picture("map-" + view.name)
		w.guide("console-map-" + view.name)
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
}
