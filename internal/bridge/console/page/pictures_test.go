package page_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
)

// history answers for the counts of a log of many days. In the last day, more was held than in any day
// before, and the rest is as it was.
func history(method string, params jsontext.Value) any {
	switch method {
	case "audit.stats":
		var p api.AuditStatsParams
		if err := json.Unmarshal(params, &p); err != nil || p.Pairs {
			return nil
		}
		return counted(&p)
	case "audit.query":
		var p struct {
			Filter struct{ Event, Since string }
		}
		if err := json.Unmarshal(params, &p, json.MatchCaseInsensitiveNames(true)); err != nil || p.Filter.Event != "approved" {
			return nil
		}
		since, err := time.Parse(time.RFC3339, p.Filter.Since)
		if err != nil {
			return nil
		}
		var list []jsontext.Value
		for at, n := since.Add(20*time.Minute), 1; at.Before(time.Now()); at, n = at.Add(70*time.Minute), n+1 {
			list = append(list, encode(map[string]any{"seq": n, "time": at, "agentId": "agent-alice-1", "event": "approved", "details": map[string]any{"waitedMs": 4000 * (n%9 + 1) * (n%9 + 1)}}))
		}
		return api.AuditQueryResult{Records: list}
	}
	return nil
}

func counted(p *api.AuditStatsParams) audit.Stats {
	tally := audit.NewTally(p.Since, p.Until, time.Duration(p.Bucket)*time.Second)
	yesterday := time.Now().Add(-24 * time.Hour)
	for at := tally.Since(); at.Before(tally.Until()); at = at.Add(30 * time.Minute) {
		for _, one := range []struct {
			agent, rule, result string
			n                   int
		}{
			{"agent-alice-1", "ocip.agent_exchange", audit.ResultAllow, 12 + at.Hour()%5*3}, {"agent-bob-1", "ocip.agent_exchange", audit.ResultAllow, 7 + at.Hour()%3*4},
			{"agent-alice-1", "commitment", audit.ResultApproval, at.Hour() % 2}, {"agent-alice-1", "tenant-wall", audit.ResultDeny, at.Hour() % 3},
			{"agent-planner-1", "commitment", audit.ResultApproval, map[bool]int{true: 6}[at.After(yesterday)]},
		} {
			tally.AddAt(at, one.result, one.n)
			tally.AddFor(audit.Subject{Agent: one.agent, Rule: one.rule, Result: one.result}, one.n)
		}
	}
	return tally.Stats()
}

// span is the time of the address of Messages.
func (w *world) span() (since, until time.Time, result string) {
	w.Helper()
	_, query, _ := strings.Cut(eval[string](w, "location.hash"), "?")
	q, err := url.ParseQuery(query)
	if err == nil {
		since, err = time.Parse(time.RFC3339, q.Get("since"))
	}
	if err == nil {
		until, err = time.Parse(time.RFC3339, q.Get("until"))
	}
	if err != nil {
		w.Fatal(err)
	}
	return since, until, q.Get("result")
}

// TestTrends has a person see that the last days differ from those before, and open the messages of a
// span that is chosen by the pointer and by keys.
func TestTrends(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.made = history
	w.browse(1280, 900, "light", "/trends?by=days")
	w.until(`document.querySelectorAll(".chart svg").length === 4`)
	says := func(name string) string {
		return eval[string](w, `document.querySelector(`+quote(`.trend[aria-label="`+name+`"]`)+`).textContent`)
	}
	if held, sent := says("Held"), says("Sent"); !strings.Contains(held, "more than the 14 days before") || strings.Contains(sent, "fewer") {
		t.Errorf("the trends say %q and %q", held, sent)
	}
	if n := eval[int](w, `document.querySelectorAll(".dot").length`); n == 0 {
		t.Error("no decision has a dot")
	}
	const chart = `.trend[aria-label="Held"] .chart`
	at := eval[[]float64](w, `(() => { const e = document.querySelector(`+quote(chart)+`); e.scrollIntoView(); const b = e.getBoundingClientRect(); return [b.left, b.top + 60, b.width / 14]; })()`)
	mouse := func(kind input.DispatchMouseEventType, slot float64) chromedp.Action[chromedp.Void] {
		return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
			_, err := chromedp.Call(ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at[0] + slot*at[2], Y: at[1], Button: input.MouseButtonLeft, ClickCount: 1})
			return err
		})
	}
	w.do(mouse(input.DispatchMouseEventTypeMousePressed, 2.5), mouse(input.DispatchMouseEventTypeMouseMoved, 3.5), mouse(input.DispatchMouseEventTypeMouseMoved, 4.5))
	w.until(`document.querySelectorAll(".brush").length === 4`)
	w.do(mouse(input.DispatchMouseEventTypeMouseReleased, 4.5))
	w.until(`location.hash.startsWith("#/messages?") && document.querySelector(".chip.span")`)
	since, until, result := w.span()
	// Three days by the person's calendar, one of which may be an hour shorter or longer.
	if days := until.Sub(since).Hours() / 24; days < 2.9 || days > 3.1 || result != "require_approval" {
		t.Errorf("the span is %s to %s of %s", since, until, result)
	}
	if command := eval[string](w, `document.querySelector(".sub code").textContent`); !strings.HasPrefix(command, "ocipd audit query --type agent_exchange --result hold --since "+since.Format(time.RFC3339)+" --until "+until.Format(time.RFC3339)) {
		t.Errorf("the command is %q", command)
	}

	w.visit("/trends?by=days")
	w.until(`document.querySelectorAll(".chart svg").length === 4`)
	w.do(chromedp.Evaluate[chromedp.Void](`document.querySelector('.trend[aria-label="Refused"] .chart').focus(); undefined`))
	for _, step := range []struct{ key, shift, saw string }{{"End", "false", "13"}, {"ArrowLeft", "true", "12"}} {
		w.do(chromedp.Evaluate[chromedp.Void](`document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: ` + quote(step.key) + `, shiftKey: ` + step.shift + `, bubbles: true})); undefined`))
		w.until(`document.activeElement.getAttribute("aria-valuenow") === ` + quote(step.saw))
	}
	if said := eval[string](w, `document.activeElement.getAttribute("aria-valuetext")`); !strings.Contains(said, "refused") {
		t.Errorf("the chart says %q", said)
	}
	w.do(press("\r"))
	w.until(`location.hash.startsWith("#/messages?") && document.querySelector(".chip.span")`)
	if since, until, result = w.span(); until.Sub(since) < 46*time.Hour || until.Sub(since) > 50*time.Hour || until.Before(time.Now()) || result != "deny" {
		t.Errorf("the span of the last two days is %s to %s of %s", since, until, result)
	}
	w.until(`document.querySelectorAll(".list .row").length === 1`) // the real log has one
	w.do(click(".chip.span"), chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll(".chip")].find((c) => c.textContent === "All").click(); undefined`))
	w.until(`document.querySelectorAll(".list .row").length > 5 && !document.querySelector(".chip.span")`)
}

// TestMap shows who wrote to whom: what the wall stopped is dashed and counted, each line has its row,
// and a number opens its messages.
func TestMap(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 900, "light", "")
	w.do(press("7"))
	w.until(`document.querySelector(".picture svg")`)
	if areas := eval[string](w, `[...document.querySelectorAll(".tenant")].map((e) => e.textContent).toSorted().join()`); areas != "acme-corp,globex-inc,people" {
		t.Errorf("the areas are %s", areas)
	}
	if dashed := eval[string](w, `[...document.querySelectorAll(".w-wall path:first-child")].map((e) => getComputedStyle(e).strokeDasharray).join()`); dashed != "6px, 6px" {
		t.Errorf("what the wall stopped is drawn as %q", dashed)
	}
	// No line and no number crosses a name.
	for _, crossed := range eval[[]string](w, `(() => {
		const svg = document.querySelector(".picture svg");
		svg.scrollIntoView();
		return [...svg.querySelectorAll(".label")].filter((e) => {
			const b = e.getBoundingClientRect();
			return [.1, .3, .5, .7, .9].some((x) => [.2, .5, .8].some((y) => document.elementsFromPoint(b.left + x * b.width, b.top + y * b.height)[0]?.closest(".way, .badge")));
		}).map((e) => e.textContent);
	})()`) {
		t.Errorf("something crosses the name %s", crossed)
	}
	if counts := eval[string](w, `[...document.querySelectorAll(".badge.b-wall")].map((e) => e.textContent).join()`); counts != "1" {
		t.Errorf("what the wall stopped is counted as %q", counts)
	}
	var stats api.AuditStats
	w.ask("audit.stats", map[string]any{"pairs": true}, &stats)
	if rows := eval[int](w, `document.querySelectorAll(".map tbody tr").length`); rows != len(stats.Pairs) {
		t.Errorf("%d pairs have %d rows", len(stats.Pairs), rows)
	}
	w.do(click(".map tbody tr td.v-deny a"))
	w.until(`location.hash.startsWith("#/messages") && document.querySelectorAll(".list .row").length === 1`)
	if row := eval[string](w, `document.querySelector(".list .row").textContent`); !strings.Contains(row, "agent-eve-1") || !strings.Contains(row, "refused") {
		t.Errorf("the message is %q", row)
	}
	w.visit("/now")
	w.until(`document.querySelector(".waits .card")`)
	if n := eval[int](w, `document.querySelectorAll(".now svg").length`); n != 0 {
		t.Errorf("%d pictures stand beside what waits", n)
	}
}
