package page_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// offers holds a message whose whole exchange can be approved with it.
func (w *world) offers(alice *app) (id string) {
	w.Helper()
	held := alice.say("telegram:dave", "I promise and guarantee the review by Monday.")
	if !held.Held {
		w.Fatalf("the message is not held: %+v", held)
	}
	return held.ApprovalID
}

// open opens a request, and reads it to its end.
func (w *world) open(id string) {
	w.Helper()
	w.visit("/waiting/" + id)
	w.until(`location.hash.endsWith(` + quote(id) + `) && document.querySelector(".decide")`)
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`document.querySelector(".decide .four")`)
}

// sets gives a field a value, as a person does.
func sets(selector, value string) chromedp.Action[chromedp.Void] {
	return chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%s); e.value = %s; e.dispatchEvent(new Event("input", {bubbles: true})); } undefined`, quote(selector), quote(value)))
}

// TestBounds narrows what is approved of an exchange in its words, level and rounds. Nothing wider can
// be chosen, and nothing at all is not approved.
func TestBounds(t *testing.T) {
	w := begin(t, acme)
	id := w.offers(w.people())
	w.browse(1280, 900, "light", "/waiting")
	w.open(id)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(click("dialog .check input"))
	w.until(`document.querySelector("dialog .bounds") && document.querySelector("dialog .primary:not(:disabled)") && document.querySelector("dialog .signed").textContent.includes("exchange")`)
	if levels := eval[string](w, `[...document.querySelectorAll(".bounds select:first-of-type option")].map((o) => o.textContent).join()`); !strings.HasPrefix(levels, "public,internal") || strings.Contains(levels, "confidential") {
		t.Errorf("the levels are %s", levels)
	}
	// No word at all is nothing to approve.
	w.do(chromedp.Evaluate[chromedp.Void](`document.querySelectorAll(".bounds .checks input").forEach((e) => e.click()); undefined`))
	w.until(`document.querySelector(".bounds .t-bad") && document.querySelector("dialog .primary").disabled`)
	w.do(click(".bounds .checks label:last-child input"), sets(".bounds select", "public"), sets(".bounds input[type=number]", "99"))
	w.until(`document.querySelector(".bounds input[type=number]").value === "3"`)
	w.do(sets(".bounds input[type=number]", "2"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)") && document.querySelector("dialog .signed").textContent.includes("\nround 2\n")`)
	word := eval[string](w, `document.querySelector(".bounds .checks label:last-child").textContent`)
	w.do(click("dialog .primary"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved") || document.querySelector("dialog .fault")`)
	var list api.GrantListResult
	w.ask("grant.list", nil, &list)
	if len(list.Grants) != 1 {
		t.Fatalf("%d grants: %s", len(list.Grants), eval[string](w, `document.body.innerText`))
	}
	if g := list.Grants[0]; len(g.Words) != 1 || g.Words[0] != word || g.Classification != "public" {
		t.Errorf("approved beforehand is %+v, and the person chose %s, public", g, word)
	}
	var a api.Approval
	w.ask("approval.get", map[string]any{"approvalId": id}, &a)
	if a.Decision == nil || a.Decision.Exchange == nil || a.Decision.Exchange.MaxRound != 2 {
		t.Errorf("the decision is %+v", a.Decision)
	}
}

// TestDifference changes the policy while a person reads: the page decides nothing, shows the
// difference, and has the request read to its end anew.
func TestDifference(t *testing.T) {
	w, _, _ := served(t, true, func(string, string) string { return acme + "console: {decide: session}\n" })
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	var list api.ApprovalListResult
	w.ask("approval.list", nil, &list)
	var one api.ApprovalSummary
	if err := decode(list.Approvals[1], &one); err != nil {
		t.Fatal(err)
	}
	w.open(one.ApprovalID)
	before := eval[string](w, `document.querySelector(".decide .four").textContent`)
	if err := os.WriteFile(w.path("ocipd.yaml"), []byte(acme+"console: {decide: session}\npolicy: {data: {cross_org: true}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ask("policy.reload", nil, nil)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)") || document.querySelector(".stale")`)
	if eval[bool](w, `!!document.querySelector("dialog .primary")`) {
		w.do(click("dialog .primary"))
	}
	w.until(`document.querySelector(".stale .change") && !document.querySelector("dialog")`)
	if shown := eval[string](w, `document.querySelector(".stale").textContent`); !strings.Contains(shown, "policyRevision") || strings.Count(shown, "sha256:") != 2 || !strings.Contains(shown, "Nothing was decided") {
		t.Errorf("the difference is shown as %q", shown)
	}
	var now api.Approval
	w.ask("approval.get", map[string]any{"approvalId": one.ApprovalID}, &now)
	if now.State != api.ApprovalPending {
		t.Fatalf("the request is %s", now.State)
	}
	// The end that counts is that of the changed request.
	w.until(`!document.querySelector(".one").textContent.includes(` + quote(before) + `)`)
	if eval[bool](w, `!!document.querySelector(".decide .four")`) {
		t.Error("the changed request counts as read")
	}
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`document.querySelector(".decide .four")`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(click("dialog .primary"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved") || document.querySelector("dialog .fault")`)
	w.ask("approval.get", map[string]any{"approvalId": one.ApprovalID}, &now)
	if now.State != api.ApprovalApproved {
		t.Errorf("the request is %s: %s", now.State, eval[string](w, `document.body.innerText`))
	}
}

// TestClick decides by a click where console.decide allows it: the record says that it has no proof.
func TestClick(t *testing.T) {
	w, _, _ := served(t, true, func(string, string) string { return acme + "console: {decide: session}\n" })
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(press("d"))
	w.until(`document.querySelector("dialog .danger:not(:disabled)")`)
	if said := eval[string](w, `document.querySelector("dialog").textContent`); !strings.Contains(said, "without a signature") {
		t.Errorf("the question is %q", said)
	}
	w.do(click("dialog .danger"))
	w.until(`document.querySelector(".said") || document.querySelector("dialog .fault")`)
	var page api.AuditQueryResult
	w.ask("audit.query", map[string]any{"filter": map[string]any{"event": "denied"}}, &page)
	if len(page.Records) != 1 {
		t.Fatalf("%d denials on record: %s", len(page.Records), eval[string](w, `document.body.innerText`))
	}
	record, err := audit.Parse(page.Records[0])
	if err != nil || record.Details["proof"] != "none" || record.Details["via"] != "console" {
		t.Errorf("the record has %v: %v", record.Details, err)
	}
}

// TestNoClick has no key and no permission for clicks: the page gives the command, and no button.
func TestNoClick(t *testing.T) {
	w, _, _ := served(t, false, func(string, string) string { return acme })
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(press("d"))
	w.until(`document.querySelector("dialog .fallback")`)
	if said := eval[string](w, `document.querySelector("dialog").textContent`); !strings.Contains(said, "ocipd approvals deny") || !strings.Contains(said, "ocipd console enrol") || !eval[bool](w, `!!document.querySelector("dialog a[href='#/enrol']")`) || eval[bool](w, `!!document.querySelector("dialog .danger")`) {
		t.Errorf("the question is %q", said)
	}
}

// TestGoneAndBack stops the daemon while the page is open, and starts it again. Meanwhile nothing can
// be decided, and what is shown is from before; then the page goes on by itself, and decides.
func TestGoneAndBack(t *testing.T) {
	w, _, _ := served(t, true, func(string, string) string { return acme + "console: {decide: session}\n" })
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`!document.querySelector(".decide .primary").disabled`)
	if err := w.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	w.until(`document.querySelector(".live.gone")?.textContent.includes("gone since") && document.querySelector(".gone-note")`)
	w.until(`[...document.querySelectorAll(".decide button")].every((b) => b.disabled) && document.querySelector("main.old .quote")`)
	w.do(press("a"), press("d"))
	if eval[bool](w, `!!document.querySelector("dialog")`) {
		t.Error("a question can be asked while the daemon is gone")
	}
	w.start()
	w.until(`document.querySelector(".live:not(.gone)")?.textContent === "live" && !document.querySelector(".gone-note")`)
	w.until(`!document.querySelector(".decide .primary").disabled`)
	// What happens after the daemon is back comes by the stream.
	bob := w.app("@acme/bob", api.Capabilities{})
	bob.say("telegram:dave", "I promise the minutes by Tuesday.")
	w.until(`document.querySelector(".tab .n")?.textContent === "3"`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(click("dialog .primary"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved") || document.querySelector("dialog .fault")`)
	var list api.ApprovalListResult
	w.ask("approval.list", &api.ApprovalListParams{State: api.ApprovalApproved}, &list)
	if list.Total != 1 {
		t.Errorf("%d requests are approved: %s", list.Total, eval[string](w, `document.body.innerText`))
	}
	w.until(`document.querySelector(".tab .n").textContent === "2"`)
}
