package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"go.yaml.in/yaml/v3"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// rule is a Sigma rule in the part of the language that the examples use: one selection, or a count
// of another rule's findings.
type rule struct {
	Title, ID, Name, Level string
	Logsource              map[string]string
	Detection              struct {
		Selection map[string]any
		Condition string
	}
	Correlation struct {
		Type      string
		Rules     []string
		GroupBy   []string `yaml:"group-by"`
		Timespan  string
		Condition map[string]int
	}
}

// dotted returns the value in an event under a name with dots.
func dotted(o map[string]any, name string) any { return at(o, strings.Split(name, ".")...) }

// selects reports whether an event matches a selection.
func (r *rule) selects(o map[string]any) bool {
	for name, want := range r.Detection.Selection {
		list, ok := want.([]any)
		if !ok {
			list = []any{want}
		}
		if !slices.ContainsFunc(list, func(want any) bool { return fmt.Sprint(dotted(o, name)) == fmt.Sprint(want) }) {
			return false
		}
	}
	return true
}

// counts returns the values of the group for which a rule with a correlation fires.
func (r *rule) counts(t *testing.T, events []map[string]any) (groups []string) {
	t.Helper()
	span, err := time.ParseDuration(r.Correlation.Timespan)
	if err != nil || r.Correlation.Type != "event_count" || len(r.Correlation.GroupBy) != 1 || r.Correlation.Condition["gte"] == 0 {
		t.Fatalf("%+v is no correlation that is known: %v", r.Correlation, err)
	}
	times := map[string][]float64{}
	for _, o := range events {
		if group, ok := dotted(o, r.Correlation.GroupBy[0]).(string); ok {
			times[group] = append(times[group], o["time"].(float64))
		}
	}
	for group, list := range times {
		for i := r.Correlation.Condition["gte"] - 1; i < len(list); i++ {
			if list[i]-list[i+1-r.Correlation.Condition["gte"]] <= float64(span.Milliseconds()) {
				groups = append(groups, group)
				break
			}
		}
	}
	slices.Sort(groups)
	return groups
}

// rulesIn reads the rules of a file.
func rulesIn(t *testing.T, file string) (rules []rule) {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(readFile(t, file)))
	for {
		var r rule
		err := dec.Decode(&r)
		if errors.Is(err, io.EOF) {
			return rules
		}
		if err != nil || r.Title == "" || len(r.ID) != 36 || r.Level == "" || r.Correlation.Type == "" && (r.Detection.Condition != "selection" || r.Logsource["product"] != ProductName) {
			t.Fatalf("%s: %+v, %v", file, r, err)
		}
		rules = append(rules, r)
	}
}

// TestDetections runs the example detections, the Sigma rules and the SQL, over events. Both find
// exactly the intended events.
func TestDetections(t *testing.T) {
	log := newMemory()
	add := func(id, action, event, result string, change func(*audit.Record)) {
		t.Helper()
		rec := &audit.Record{ID: id, ActionType: action, Event: event, PolicyResult: result}
		if change != nil {
			change(rec)
		}
		log.add(t, rec)
	}
	details := func(d map[string]any) func(*audit.Record) { return func(r *audit.Record) { r.Details = d } }
	for _, event := range []string{"log_damaged", "altered_row", "unsigned_tail", "undecided_message", "undecided_word", "mirror_lost"} {
		add("changed "+event, audit.ActionSecurity, event, "", nil)
	}
	add("forked", audit.ActionSecurity, "witness_refused", "", nil)
	add("paused", audit.ActionSecurity, "sending_paused", "", nil)
	add("resumed", audit.ActionSecurity, "sending_resumed", "", nil)
	add("false app", audit.ActionSecurity, "binding_refused", "", nil)
	add("false agent", audit.ActionSecurity, "sender_refused", "", nil)
	add("signers", audit.ActionConfigChange, "signers_changed", "", nil)
	add("configuration", audit.ActionConfigChange, "loaded", "", nil)
	add("unsigned", audit.ActionApproval, "approved", "", details(map[string]any{"by": "uid:1000"}))
	add("unsigned words", audit.ActionApproval, "taken_over", "", details(map[string]any{"by": "uid:1000"}))
	add("signed", audit.ActionApproval, "approved", "", details(map[string]any{"by": "ann@acme", "signature": "U1NIU0lH"}))
	add("denied", audit.ActionApproval, "denied", "", details(map[string]any{"by": "uid:1000"}))
	add("effect failed", audit.ActionTask, "effect.finished", "allow", details(map[string]any{"now": map[string]any{"state": "failed"}}))
	add("effect unknown", audit.ActionTask, "effect.unknown", "allow", nil)
	add("effect done", audit.ActionTask, "effect.finished", "allow", details(map[string]any{"now": map[string]any{"state": "done"}}))
	add("secret", audit.ActionExchange, "", "deny", func(r *audit.Record) { r.Code = "CLASSIFICATION_VIOLATION" })
	add("policy", audit.ActionExchange, "", "deny", func(r *audit.Record) { r.Code = "POLICY_DENIED" })
	add("sent", audit.ActionExchange, "", "allow", nil)
	for i := range 10 {
		add(fmt.Sprint("again ", i), audit.ActionExchange, "", "deny", func(r *audit.Record) { r.AgentID = "agent-eve-1" })
	}
	for i := range 9 {
		add(fmt.Sprint("seldom ", i), audit.ActionExchange, "", "deny", func(r *audit.Record) { r.AgentID = "agent-bob-1" })
	}

	conn, err := sqlite.OpenConn(":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, `CREATE TABLE ocsf (event TEXT)`, nil); err != nil {
		t.Fatal(err)
	}
	var events []map[string]any
	ids := map[string]string{}
	for i, line := range log.lines {
		r := Read(line)
		var o map[string]any
		text := mapping.OCSF(&r)
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		// The events are one second apart.
		o["time"] = float64(1_795_000_000_000 + 1000*i)
		if text, err = json.Marshal(o); err != nil {
			t.Fatal(err)
		}
		if err := sqlitex.Execute(conn, `INSERT INTO ocsf VALUES (?)`, &sqlitex.ExecOptions{Args: []any{string(text)}}); err != nil {
			t.Fatal(err)
		}
		events, ids[r.Entry.Hash.String()] = append(events, o), r.Entry.ID
	}
	query := func(file string) (first []string) {
		t.Helper()
		err := sqlitex.ExecuteTransient(conn, strings.TrimRight(strings.TrimSpace(readFile(t, file)), ";"), &sqlitex.ExecOptions{ResultFunc: func(stmt *sqlite.Stmt) error {
			first = append(first, stmt.ColumnText(0))
			return nil
		}})
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return first
	}

	const dir = "../../../examples/detections/"
	want := map[string][]string{
		"log-changed": {"changed log_damaged", "changed altered_row", "changed unsigned_tail", "changed undecided_message", "changed undecided_word", "changed mirror_lost"},
		"log-forked":  {"forked"}, "sending-paused": {"paused"}, "false-identity": {"false app", "false agent"}, "signers-changed": {"signers"},
		"unsigned-approval": {"unsigned", "unsigned words"}, "effect-not-done": {"effect failed", "effect unknown"}, "secret-refused": {"secret"},
		"refused-again-and-again": {"agent-eve-1"},
	}
	files, err := filepath.Glob(dir + "*.yml")
	if err != nil || len(files) != len(want) {
		t.Fatalf("there are the rules %q, %v", files, err)
	}
	page := readFile(t, dir+"README.md")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yml")
		if !strings.Contains(page, "| ["+name+"]("+name+".yml) |") {
			t.Errorf("the page does not list %s", name)
		}
		rules := rulesIn(t, file)
		var bySigma []string
		for _, o := range events {
			if len(rules) == 1 && rules[0].selects(o) {
				bySigma = append(bySigma, ids[dotted(o, "metadata.uid").(string)])
			}
		}
		bySQL := query(dir + name + ".sql")
		if len(rules) == 2 {
			bySigma = rules[1].counts(t, slices.DeleteFunc(slices.Clone(events), func(o map[string]any) bool { return !rules[0].selects(o) }))
		} else {
			for i := range bySQL {
				bySQL[i] = ids[bySQL[i]]
			}
		}
		if !slices.Equal(bySigma, want[name]) || !slices.Equal(bySQL, want[name]) {
			t.Errorf("%s finds %q by Sigma and %q by SQL, want %q", name, bySigma, bySQL, want[name])
		}
	}
}
