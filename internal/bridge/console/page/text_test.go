package page_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// replaced is a JSON text with another text in place of each string, but for the members of keep.
func replaced(from jsontext.Value, keep map[string]bool, next func() string) jsontext.Value {
	var out bytes.Buffer
	enc := jsontext.NewEncoder(&out, jsontext.AllowInvalidUTF8(true))
	dec := jsontext.NewDecoder(bytes.NewReader(from))
	name := ""
	for {
		kind, n := dec.StackIndex(dec.StackDepth())
		token, err := dec.ReadToken()
		if err != nil {
			return bytes.TrimSpace(out.Bytes())
		}
		if token.Kind() == '"' {
			switch member := kind == '{' && n%2 == 0; {
			case member:
				name = token.String()
			case !keep[name]:
				token = jsontext.String(strings.ToValidUTF8(next(), "\ufffd"))
			}
		}
		if err := enc.WriteToken(token); err != nil {
			panic(err)
		}
	}
}

// instrument counts the calls of the page that are under way, and keeps reports of its policy.
const instrument = `(() => {
	const real = window.fetch;
	window.underway = 0;
	window.reports = [];
	window.fetch = async (...a) => { underway++; try { return await real(...a); } finally { underway--; } };
	document.addEventListener("securitypolicyviolation", (e) => reports.push("policy: " + e.violatedDirective + " " + e.blockedURI));
	window.addEventListener("error", (e) => reports.push("error: " + e.message));
	window.addEventListener("unhandledrejection", (e) => reports.push("rejection: " + e.reason));
})()`

// inspection goes through screens, and says what no text may bring about.
const inspection = `(async (screens, odd) => {
	const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
	const known = new Set("HTML HEAD META TITLE LINK SCRIPT BODY DIV HEADER NAV MAIN SECTION ARTICLE ASIDE FIGURE A B I P H1 H2 SMALL SPAN BDI MARK PRE CODE BUTTON INPUT LABEL SELECT OPTION DATALIST DETAILS SUMMARY DL DT DD OL UL LI KBD DIALOG FORM FIELDSET LEGEND TEXTAREA TABLE THEAD TBODY TR TH TD".split(" "));
	const drawn = new Set("svg g rect path circle line text".split(" "));
	const found = [];
	const hidden = new RegExp(odd, "u");
	for (const s of screens) {
		location.hash = s;
		do await frame(); while (underway > 0);
		await frame();
		const all = document.querySelectorAll("*");
		for (const e of all) {
			if (!known.has(e.tagName) && !(drawn.has(e.tagName) && e.closest("svg.drawn"))) found.push(s + ": an element " + e.tagName);
			for (const a of e.attributes) {
				if (/^on|^src(set|doc)?$|^action$|^formaction$|^popover/.test(a.name) && !(e.tagName === "SCRIPT" && a.value === "/app.js")) found.push(s + ": an attribute " + a.name);
				if (a.name === "href" && !/^(#\/|\/app\.css$|\/icon\.svg$)/.test(a.value)) found.push(s + ": an address " + a.value.slice(0, 80));
				if (a.name === "style" && /url|fixed/.test(a.value)) found.push(s + ": a style " + a.value.slice(0, 80));
				if (a.name === "class" && /stolen/.test(a.value)) found.push(s + ": a class " + a.value.slice(0, 80));
				if (/^(title|aria-label)$/.test(a.name) && hidden.test(a.value)) found.push(s + ": " + a.name + " has a character that does not show: " + JSON.stringify(hidden.exec(a.value)[0]));
			}
		}
		if (document.scripts.length !== 1 || document.styleSheets.length !== 1 || document.body.children.length > 2) found.push(s + ": something beside the page");
		const text = document.getElementById("app").textContent.replaceAll("\n", "");
		const at = hidden.exec(text);
		if (at) found.push(s + ": shows " + JSON.stringify(text.slice(Math.max(0, at.index - 20), at.index + 20)));
		if (!document.querySelector("header.top")) { found.push(s + ": the page has gone"); break; }
	}
	found.push(...reports.splice(0));
	return found;
})`

// oddCharacters is the class of the characters that a page never shows as they are.
const oddCharacters = `[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ufffd\ue000]|[\u{e0000}-\u{e0fff}]|[\u0300-\u036f]{6}`

// TestEveryTextIsText puts hostile texts in place of every string member of all that the page gets,
// and each text once in the place of each. No text becomes an element, an address or a request, and
// none hides a character.
func TestEveryTextIsText(t *testing.T) { everyText(t, 1) }

// TestTextIsText is TestEveryTextIsText with some of the texts in each place.
func TestTextIsText(t *testing.T) { everyText(t, 16) }

// everyText puts every step'th of the hostile texts in each place.
func everyText(t *testing.T, step int) {
	payloads := append(hostile(), "x stolen-class", "stolen-class")
	if len(payloads) < 200 {
		t.Fatalf("there are %d texts", len(payloads))
	}
	w := begin(t, acme)
	w.people()
	w.tasks()
	var tasks taskapi.List
	w.ask("task.list", nil, &tasks)
	var held api.ApprovalListResult
	w.ask("approval.list", nil, &held)
	var one api.ApprovalSummary
	if err := json.Unmarshal(held.Approvals[0], &one); err != nil {
		t.Fatal(err)
	}
	var page api.AuditQueryResult
	w.ask("audit.query", map[string]any{"filter": map[string]any{"dispatch": one.DispatchID}}, &page)
	var status jsontext.Value
	w.ask("kernel.status", nil, &status)
	w.browse(1280, 800, "light", "")
	w.do(chromedp.Evaluate[chromedp.Void](instrument))
	round, n := 0, 0
	next := func() string { n++; return payloads[(round+n)%len(payloads)] }
	keep := map[string]bool{"approvalId": true}
	w.answer = func(method string, result jsontext.Value) jsontext.Value {
		w.mu.Lock()
		defer w.mu.Unlock()
		n = len(method)
		return replaced(result, keep, next)
	}
	for ; round < len(payloads); round += step {
		w.mu.Lock()
		n = 0
		row := replaced(held.Approvals[0], map[string]bool{"approvalId": true, "state": true}, next)
		record := replaced(page.Records[0], nil, next)
		shown := replaced(status, nil, next)
		why, like := next(), next()
		w.mu.Unlock()
		record = bytes.Replace(record, fmt.Appendf(nil, `"seq":%d,`, seqOf(t, page.Records[0])), fmt.Appendf(nil, `"seq":%d,`, 1_000_000+round), 1)
		w.pushed <- map[string]any{"kind": "status", "status": shown}
		w.pushed <- map[string]any{"kind": "record", "record": record}
		w.pushed <- map[string]any{"kind": "request", "approval": row, "why": why, "rank": 0, "like": like}
		screens := []string{"/now", "/waiting", "/waiting/" + one.ApprovalID, "/messages", "/messages/" + one.DispatchID, "/tasks", "/tasks/" + tasks.Tasks[0].ID, "/health", "/trends", "/map"}
		names, _ := json.Marshal(screens)
		for _, found := range eval[[]string](w, inspection+"("+string(names)+", "+quote(oddCharacters)+")") {
			t.Errorf("text %d: %s", round, found)
		}
		if t.Failed() {
			break
		}
	}
	for _, fault := range w.faults {
		t.Error(fault)
	}
}

func seqOf(t *testing.T, line jsontext.Value) (seq uint64) {
	t.Helper()
	var r struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return r.Seq
}
