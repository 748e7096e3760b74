package page_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// press presses a key. A browser types no character if the page has taken the key, and chromedp does:
// so a key of the page is sent without its character.
func press(key string) chromedp.Action[chromedp.Void] {
	if len(key) != 1 || key < "!" {
		return chromedp.KeyEvent(key)
	}
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
			if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key}); err != nil {
				return err
			}
		}
		return nil
	})
}

// end scrolls the page to its end.
const end = `document.querySelector("main").scrollTop = 1e6; scrollTo(0, 1e6); undefined`

// TestKeys goes through the page by keys alone: to what waits, to one request, and to its decision.
// Approve works once the end of the request was seen, and not before.
func TestKeys(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 500, "light", "")
	for key, name := range map[string]string{"1": "Now", "3": "Messages", "4": "Tasks", "5": "Health", "2": "Waiting"} {
		w.do(press(key))
		w.until(`document.querySelector(".tab.on span").textContent === ` + quote(name))
	}
	w.do(press("?"))
	w.until(`document.querySelector("dialog .keys")`)
	w.do(press("\x1b"))
	w.until(`!document.querySelector("dialog")`)
	w.do(press("2"))
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(press("/"))
	w.until(`document.activeElement.matches("[data-filter]")`)
	w.do(press("Thursday"))
	w.until(`document.querySelectorAll(".list .row").length === 1`)
	w.do(press("\x1b"), press("j"), press("\r"))
	w.until(`document.querySelector(".decide")`)
	w.do(press("a"))
	if eval[bool](w, `!!document.querySelector("dialog") || !document.querySelector(".decide .primary").disabled`) {
		t.Fatal("the request can be approved before its end was seen")
	}
	if text := eval[string](w, `document.querySelector(".quote").textContent`); !strings.Contains(text, "‹U+202E›EVE‹U+202C›") || !strings.Contains(text, "<script>alert(1)</script>") {
		t.Errorf("the message is shown as %q", text)
	}
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`!document.querySelector(".decide .primary").disabled`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	words := eval[string](w, `document.querySelector("dialog .four bdi").textContent`)
	if len(strings.Fields(words)) != 4 {
		t.Errorf("the words are %q", words)
	}
	w.do(press("\r"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved")`)
	var list api.ApprovalListResult
	w.ask("approval.list", &api.ApprovalListParams{State: api.ApprovalApproved}, &list)
	if list.Total != 1 {
		t.Errorf("%d requests are approved", list.Total)
	}
	w.until(`document.querySelector(".tab.on .n").textContent === "1"`)
}

// TestEndIsSeen scrolls to the end of a request in windows of many sizes, at each zoom of a browser: its
// end counts as seen, whatever fractions of a pixel it lies at.
func TestEndIsSeen(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 600, "light", "/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	for i, percent := range []int64{30, 50, 67, 75, 80, 90, 110, 125, 133, 150, 175, 200, 300, 400, 500} {
		w.visit("/waiting")
		w.until(`document.querySelectorAll(".list .row").length === 2`)
		w.size((1366+int64(i))*100/percent, 768*100/percent, float64(percent)/100)
		w.do(click(".list .row"))
		w.until(`document.querySelector(".decide")`)
		w.until(`(() => { ` + end + `; return !document.querySelector(".decide .primary").disabled })()`)
	}
}

// TestEndIsSeenLate has the browser tell only once of the end: that it was not seen at first, and that
// it was seen then. A busy browser tells both at once.
func TestEndIsSeenLate(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 500, "light", "/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(chromedp.Evaluate[chromedp.Void](`{
		const Real = IntersectionObserver;
		window.told = [];
		window.IntersectionObserver = class extends Real {
			constructor(tell, how) {
				let kept = [];
				super((all) => { kept.push(...all); told.push(kept.length); if (kept.at(-1).isIntersecting) { tell(kept, this); kept = []; } }, how);
			}
		};
	} undefined`), click(".list .row"))
	w.until(`told[0] === 1`)
	w.until(`(() => { ` + end + `; return told.at(-1) === 2 && !document.querySelector(".decide .primary").disabled })()`)
}

// TestNames has the daemon give an agent another id: rows that are on the screen have it too.
func TestNames(t *testing.T) {
	w := begin(t, acme)
	w.people()
	var status jsontext.Value
	w.ask("kernel.status", nil, &status)
	for hash, row := range map[string]string{"/messages": ".list .row", "/now": ".feed .row"} {
		w.browse(1280, 900, "light", hash)
		w.until(`document.querySelector(` + quote(row) + `) && [...document.querySelectorAll(` + quote(row+" .name") + `)].some((e) => e.textContent === "alice")`)
		w.pushed <- map[string]any{"kind": "status", "status": jsontext.Value(strings.ReplaceAll(string(status), `"id":"alice"`, `"id":"alicia"`))}
		w.until(`[...document.querySelectorAll(` + quote(row+" .name") + `)].some((e) => e.textContent === "alicia")`)
	}
}

// TestNote has a note signed with the decision, and narrower bounds of the exchange.
func TestNote(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 900, "light", "/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(press("d"))
	w.until(`document.querySelector("dialog .danger:not(:disabled)")`)
	w.do(chromedp.SendKeys("dialog input[maxlength]", "not this week"))
	w.until(`document.querySelector("dialog .signed")?.textContent.includes("note sha256:") && document.querySelector("dialog .danger:not(:disabled)")`)
	w.do(click("dialog .danger"))
	w.until(`document.querySelector(".said")?.textContent.includes("nothing was sent")`)
	var page api.AuditQueryResult
	w.ask("audit.query", map[string]any{"filter": map[string]any{"event": "denied"}}, &page)
	if len(page.Records) != 1 || !strings.Contains(string(page.Records[0]), "not this week") {
		t.Errorf("the record is %s", page.Records)
	}
}

// TestStale refuses a decision about what has changed, and shows the change.
func TestStale(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 900, "light", "/waiting")
	w.until(`document.querySelectorAll(".list .row").length === 2`)
	w.answer = func(method string, result jsontext.Value) jsontext.Value {
		if method == "approval.get" {
			// What the person reads is from before a change.
			return jsontext.Value(strings.Replace(string(result), `"digest":"sha256:`, `"digest":"sha256:00`, 1))
		}
		return result
	}
	w.do(click(".list .row"))
	w.until(`document.querySelector(".decide")`)
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`!document.querySelector(".decide .primary").disabled`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(press("\r"))
	w.until(`document.querySelector(".stale") && !document.querySelector("dialog")`)
	var list api.ApprovalListResult
	w.ask("approval.list", nil, &list)
	if list.Total != 2 {
		t.Errorf("%d requests wait", list.Total)
	}
	// What is the same again is read again: its end is on the screen all the time.
	w.size(1280, 4000, 1)
	w.until(`!document.querySelector(".decide .primary").disabled`)
	w.do(press("a"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(press("\r"))
	w.until(`!document.querySelector("dialog")`)
	w.until(`!document.querySelector(".decide .primary").disabled`)
}

// TestReceipt checks a record's receipt in the browser, and sees each change of one byte: in the
// record, in its path and in the signature.
func TestReceipt(t *testing.T) {
	w := begin(t, acme)
	change := func(line, receipt string) (string, string) { return line, receipt }
	w.answer = func(method string, result jsontext.Value) jsontext.Value {
		if method != "audit.inspect" {
			return result
		}
		got := api.AuditInspection{}
		if err := decode(result, &got); err != nil {
			t.Error(err)
		}
		got.Line, got.Receipt = change(got.Line, got.Receipt)
		return encode(got)
	}
	w.browse(1280, 800, "light", "/messages/record:1")
	settled := `document.querySelector(".receipt") && !document.querySelector(".receipt").textContent.includes("checking")`
	w.until(settled)
	if said := eval[string](w, `document.querySelector(".receipt").textContent`); !strings.Contains(said, "checked in this browser") {
		t.Fatalf("the receipt is %q", said)
	}
	for what, with := range map[string]func(line, receipt string) (string, string){
		"record": func(line, receipt string) (string, string) {
			return strings.Replace(line, `"id":"0`, `"id":"1`, 1), receipt
		},
		"signature": func(line, receipt string) (string, string) { return line, flip(receipt, len(receipt)-12) },
		"path": func(line, receipt string) (string, string) {
			return line, flip(receipt, strings.Index(receipt, "\n\n")-20)
		},
		"size": func(line, receipt string) (string, string) {
			return line, strings.Replace(receipt, "\n3\n", "\n4\n", 1)
		},
		"index": func(line, receipt string) (string, string) {
			return line, strings.Replace(receipt, "index 0", "index 1", 1)
		},
	} {
		change = with
		w.visit("/messages")
		w.until(`document.querySelector(".list")`)
		w.visit("/messages/record:1")
		w.until(settled)
		if said := eval[string](w, `document.querySelector(".receipt").textContent`); !strings.Contains(said, "Not proven") {
			t.Errorf("with another %s the page says %q", what, said)
		}
	}
}

// flip changes one character of base64.
func flip(s string, at int) string {
	other := byte('A')
	if s[at] == other {
		other = 'B'
	}
	return s[:at] + string(other) + s[at+1:]
}

// TestStop pauses an agent from the header, and shows on every screen how to go on.
func TestStop(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 800, "light", "")
	w.do(click("header .stop"))
	w.until(`document.querySelectorAll("dialog option").length > 3`)
	w.do(chromedp.SetValue("dialog select", "agent:alice"), chromedp.Evaluate[chromedp.Void](`document.querySelector("dialog select").dispatchEvent(new Event("input", {bubbles: true})); undefined`))
	w.until(`document.querySelector("dialog .actions .stop").textContent.includes("alice")`)
	w.do(click("dialog .actions .stop"))
	w.until(`document.querySelector(".paused")?.textContent.includes("ocipd resume --agent alice")`)
	var status api.Status
	w.ask("kernel.status", nil, &status)
	if len(status.Paused) != 1 || status.Paused[0].Agent != "alice" {
		t.Errorf("paused is %+v", status.Paused)
	}
}
