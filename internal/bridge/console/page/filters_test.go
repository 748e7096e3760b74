package page_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
)

// TestAgentFilter finds an agent's records by its name, as by its instance id, among those that are there
// and those that come.
func TestAgentFilter(t *testing.T) {
	w := begin(t, acme)
	alice := w.people()
	w.browse(1280, 800, "light", "/messages")
	w.until(`document.querySelectorAll(".list .row").length > 4`)
	size := `Number(document.querySelector(".list .row")?.getAttribute("aria-setsize") ?? 0)`
	for member, of := range map[string]struct{ name, id string }{"counterparty": {"bob", "agent-bob-1"}, "agent": {"alice", "agent-alice-1"}} {
		var found api.AuditQueryResult
		w.ask("audit.query", object{"filter": object{member: of.id}}, &found)
		for _, by := range []string{of.name, of.id} {
			w.do(sets("[data-filter]", member+":nobody"))
			w.until(`document.querySelector(".messages .empty")`)
			w.do(sets("[data-filter]", member+":"+by))
			w.until(fmt.Sprintf("%s === %d", size, len(found.Records)))
		}
	}
	w.do(sets("[data-filter]", "agent:nobody"))
	w.until(`document.querySelector(".messages .empty")`)
	w.do(sets("[data-filter]", "agent:alice"))
	w.until(size + " > 0")
	before := eval[int](w, size)
	alice.say("telegram:alice", "The build is red.")
	w.until(fmt.Sprintf("%s === %d", size, before+1))
}

// TestTimeFilter has every form of a time that `ocipd audit query --since` takes, typed into the filter.
func TestTimeFilter(t *testing.T) {
	w := begin(t, acme)
	w.people()
	asked := make(chan time.Time, 100)
	w.made = func(method string, params jsontext.Value) any {
		var p api.AuditQueryParams
		if method == "audit.query" && json.Unmarshal(params, &p) == nil {
			asked <- p.Filter.Since
		}
		return nil
	}
	w.browse(1280, 800, "light", "/messages")
	w.until(`document.querySelectorAll(".list .row").length > 4`)
	for _, form := range []string{"now", "today", "yesterday", "7d", "2h", "90m", "1h30m", "1.5h", "2026-01-02", "2026-01-02 15:04", "2026-01-02 15:04:05", "2026-01-02T15:04:05Z", "2026-01-02T15:04:05.5+02:00"} {
		for len(asked) > 0 {
			<-asked
		}
		w.do(sets("[data-filter]", `since:"`+form+`"`))
		want, err := cli.Moment(form, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got.Sub(want).Abs() > patience {
			t.Errorf("since:%s is %s, want %s", form, got, want)
		}
	}
	w.do(sets("[data-filter]", "since:2h until:now agent:alice"))
	w.until(`document.querySelector(".sub code").textContent === "ocipd audit query --agent alice --since 2h --until now" && document.querySelectorAll(".list .row").length > 3`)
	for _, form := range []string{"soon", "2026-01-02T15:04", "-2h", "2 h", "2026-13-01"} {
		if _, err := cli.Moment(form, time.Now()); err == nil {
			t.Fatalf("%s is a time", form)
		}
		w.do(sets("[data-filter]", `since:"`+form+`"`))
		w.until(`document.querySelector(".sub .t-bad")?.textContent.startsWith(` + quote(form+" is no time") + `)`)
	}
	if !eval[bool](w, `[...document.querySelectorAll("#filters option")].some((o) => o.value === "since:")`) {
		t.Error("the filter does not offer since:")
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
}

// TestCursors goes to the end of each list: of queues, contacts, questions, and the parts of a task.
func TestCursors(t *testing.T) {
	w := begin(t, acme)
	w.tasks()
	const many = 250
	var open struct {
		Tasks []object `json:"tasks"`
	}
	w.ask("task.list", object{"open": true, "limit": 1}, &open)
	id, _ := open.Tasks[0]["task_id"].(string)
	var view object
	w.ask("task.get", object{"task_id": id}, &view)
	// page is a part of a list of many, of at most so many entries.
	page := func(from, most int, one func(i int) object) (rows []object, end int) {
		for end = from; end < min(many, from+most); end++ {
			rows = append(rows, one(end))
		}
		return rows, end
	}
	attempt := func(i int) object {
		return object{"attempt_id": fmt.Sprintf("att_%03d", i), "ordinal": i, "actor": "builder", "status": "failed", "started_at": time.Now()}
	}
	w.made = func(method string, params jsontext.Value) any {
		var p struct {
			After, Part string
			Offset      int
		}
		_ = json.Unmarshal(params, &p, json.MatchCaseInsensitiveNames(true))
		var from int
		_, _ = fmt.Sscanf(p.After, "at-%d", &from)
		switch {
		case method == "queue.list":
			rows, end := page(from, 100, func(i int) object {
				return object{"queue": fmt.Sprintf("queue-%d", i), "summary": "x", "bytes": 1, "dispatchId": fmt.Sprint(i)}
			})
			got := object{"messages": rows}
			if end < many {
				got["next"] = fmt.Sprintf("at-%d", end)
			}
			return got
		case method == "grant.list":
			rows, end := page(from, 100, func(i int) object {
				return object{"grantId": fmt.Sprint(i), "agent": "alice", "receiver": "dave", "classification": "internal", "until": time.Now().UnixMilli()}
			})
			got := object{"grants": rows}
			if end < many {
				got["next"] = fmt.Sprintf("at-%d", end)
			}
			return got
		case method == "contact.list":
			rows, _ := page(p.Offset, 100, func(i int) object {
				return object{"sessionKey": fmt.Sprintf("telegram:%d", i), "kind": "unknown", "agent": "alice", "messageCount": 1, "lastActiveAt": time.Now().UnixMilli()}
			})
			return object{"contacts": rows, "total": many}
		case method == "task.list":
			rows, end := page(from, 100, func(i int) object {
				return object{"task_id": fmt.Sprintf("tsk_%d", i), "title": fmt.Sprintf("Task %d", i), "phase": "executing", "updated_at": time.Now(), "questions": []object{{"about": "circuit", "text": "it broke", "since": time.Now()}}}
			})
			got := object{"tasks": rows}
			if end < many {
				got["next"] = fmt.Sprintf("at-%d", end)
			}
			return got
		case method == "task.get" && p.Part == "attempts":
			if p.After != "" {
				_, _ = fmt.Sscanf(p.After, "att_%03d", &from)
				from++
			}
			rows, end := page(from, 100, attempt)
			got := object{"attempts": rows}
			if end < many {
				got["more"] = []string{"attempts"}
			}
			return got
		case method == "task.get" && p.Part == "":
			rows, _ := page(many-20, 20, attempt)
			view["attempts"], view["more"] = rows, []string{"attempts"}
			return view
		}
		return nil
	}
	w.browse(1280, 900, "light", "/health")
	w.until(fmt.Sprintf(`document.querySelector('.tab[href="#/waiting"] .n')?.textContent === "%d"`, many))
	for _, list := range []string{"Queue", "Approved beforehand", "Contacts"} {
		rows := `document.querySelectorAll(` + quote(`.table[aria-label="`+list+`"] .line`) + `).length`
		for _, n := range []int{100, 200, many} {
			w.until(fmt.Sprintf("%s === %d", rows, n))
			if n < many {
				w.do(click(`.table[aria-label="` + list + `"] .rest`))
			}
		}
		w.until(`!document.querySelector(` + quote(`.table[aria-label="`+list+`"] .rest`) + `)`)
	}
	w.visit("/waiting")
	for _, n := range []int{20, 120, 220, many} {
		w.until(fmt.Sprintf(`document.querySelectorAll(".question").length === %d`, n))
		if n < many {
			w.do(click(".questions button"))
		}
	}
	w.visit("/tasks/" + id)
	attempts := `[...document.querySelectorAll(".panel")].find((e) => e.querySelector(":scope > h2")?.textContent === "Attempts")`
	w.until(`document.querySelector(".one")`)
	w.until(attempts + `.querySelectorAll("p").length === 20`)
	for _, n := range []int{120, 220, many} {
		w.do(chromedp.Evaluate[chromedp.Void](attempts + `.querySelector(".older").click(); undefined`))
		w.until(fmt.Sprintf(`%s.querySelectorAll("p").length === %d`, attempts, n))
	}
	w.until(`!` + attempts + `.querySelector(".older")`)
	for _, fault := range w.faults {
		t.Error(fault)
	}
}

// TestLowWindow is a phone at 200 %: nothing stands still over what a person reads, the page is no wider
// than its window, and a request can be read to its end and approved.
func TestLowWindow(t *testing.T) {
	w := begin(t, acme)
	alice := w.people()
	id := w.offers(alice)
	w.browse(195, 422, "light", "")
	for _, s := range []struct{ hash, ready string }{
		{"/now", `.waits .card`}, {"/waiting", `.list .row`}, {"/messages", `.list .row`}, {"/tasks", `.screen[aria-label=Tasks] .empty`}, {"/health", `.health`}, {"/waiting/" + id, `.decide`},
	} {
		w.visit(s.hash)
		w.until(`document.querySelector(` + quote(s.ready) + `)`)
		for _, found := range eval[[]string](w, `[...document.querySelectorAll("body *")].filter((e) => /fixed|sticky/.test(getComputedStyle(e).position) && !e.matches(".newest")).map((e) => e.className)`) {
			t.Errorf("%s: %s is fixed", s.hash, found)
		}
		if wide := eval[int](w, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
			t.Errorf("%s is %d pixels wider than its window: %s", s.hash, wide, eval[string](w, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + "." + e.className).slice(0, 8).join(" ")`))
		}
	}
	if !eval[bool](w, `document.querySelector(".decide .primary").disabled && scrollY === 0`) {
		t.Error("the request counts as read")
	}
	w.do(chromedp.Evaluate[chromedp.Void](end))
	w.until(`!document.querySelector(".decide .primary").disabled`)
	w.do(click(".decide .primary"))
	w.until(`document.querySelector("dialog .primary:not(:disabled)")`)
	w.do(press("\r"))
	w.until(`document.querySelector(".said")?.textContent.includes("approved")`)
}

// TestLongTextIsReadToItsEnd has a text that is longer than the window: its end is not seen before the
// person has scrolled through all of it.
func TestLongTextIsReadToItsEnd(t *testing.T) {
	w := begin(t, acme)
	alice := w.people()
	text := "I promise the review by Monday.\n"
	for i := range 300 {
		text += fmt.Sprintf("Line %d.\n", i)
	}
	held := alice.say("telegram:dave", text)
	w.browse(1280, 700, "light", "/waiting/"+held.ApprovalID)
	w.until(`document.querySelector(".decide")`)
	if !eval[bool](w, `(() => { const pre = document.querySelector(".quote pre"); return pre.clientHeight > 4000 && pre.scrollHeight <= pre.clientHeight + 1; })()`) {
		t.Error("a part of the text is out of sight at the end of the page")
	}
}

// TestDay has a person read in one look whether today differs from yesterday, in words.
func TestDay(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.made = history
	w.browse(1280, 900, "light", "")
	w.until(`document.querySelector(".day-differs")?.textContent === "Unlike the day before: more held."`)
	w.made = func(method string, params jsontext.Value) any {
		if method != "audit.stats" {
			return nil
		}
		return object{"verdicts": object{"allow": 10, "deny": 1, "requireApproval": 1, "none": 0}}
	}
	w.visit("/health")
	w.until(`document.querySelector(".health")`)
	w.visit("/now")
	w.until(`document.querySelector(".day-differs")?.textContent === "Like the day before."`)
}

// TestCountsOfMessages holds the sums of the page to messages: each counts once, also between two agents of
// the daemon, and so does one that the wall has stopped.
func TestCountsOfMessages(t *testing.T) {
	w := begin(t, acme)
	w.people()
	w.browse(1280, 900, "light", "")
	figure := func(word string) string {
		return `[...document.querySelectorAll(".num")].find((e) => e.textContent.includes(` + quote(word) + `))?.querySelector("b").textContent`
	}
	w.until(figure("held") + ` === "2" && ` + figure("refused") + ` === "1" && ` + figure("sent") + ` === "3"`)
	w.visit("/map")
	w.until(`document.querySelector(".map table")`)
	if row := eval[string](w, `[...[...document.querySelectorAll(".map tbody tr")].find((e) => e.textContent.includes("eve")).querySelectorAll("td")].map((e) => e.textContent).join()`); row != "1,0,0,0" {
		t.Errorf("the message at the wall counts as %s", row)
	}
}
