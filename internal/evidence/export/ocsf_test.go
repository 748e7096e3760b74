package export

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
)

// schema is testdata/ocsf-api_activity.json: the requirements of the OCSF schema for the class, and
// for the objects in it.
type schema struct {
	Version string `json:"version"`
	Class   struct {
		Attributes map[string]attribute `json:"attributes"`
	} `json:"class"`
	Objects map[string]struct {
		Attributes  map[string]attribute `json:"attributes"`
		Constraints map[string][]string  `json:"constraints"`
	} `json:"objects"`
}

type attribute struct {
	Requirement string            `json:"requirement"`
	Type        string            `json:"type"`
	Array       bool              `json:"array"`
	Enum        map[string]string `json:"enum"`
	Profile     string            `json:"profile"`
}

func loadSchema(tb testing.TB) *schema {
	tb.Helper()
	var s schema
	if err := json.Unmarshal([]byte(readFile(tb, "testdata/ocsf-api_activity.json")), &s); err != nil {
		tb.Fatal(err)
	}
	if s.Version != OCSFVersion {
		tb.Fatalf("testdata has schema %s, the events name %s", s.Version, OCSFVersion)
	}
	return &s
}

// check returns the faults of an object.
func (s *schema) check(at string, attrs map[string]attribute, constraints map[string][]string, o map[string]any) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, at+": "+fmt.Sprintf(format, args...)) }
	for name, a := range attrs {
		if _, ok := o[name]; !ok && a.Requirement == "required" {
			bad("%s is required", name)
		}
	}
	if some := constraints["at_least_one"]; some != nil && !slices.ContainsFunc(some, func(n string) bool { _, ok := o[n]; return ok }) {
		bad("want one of %v", some)
	}
	for name, value := range o {
		a, known := attrs[name]
		if !known {
			bad("%s is no attribute", name)
			continue
		}
		list := []any{value}
		if a.Array {
			var ok bool
			if list, ok = value.([]any); !ok {
				bad("%s is no list", name)
			}
		}
		for _, v := range list {
			faults = append(faults, s.value(at+"."+name, a, v)...)
		}
	}
	return faults
}

func (s *schema) value(at string, a attribute, v any) []string {
	switch a.Type {
	case "string_t":
		if text, ok := v.(string); !ok || text == "" {
			return []string{fmt.Sprintf("%s: %v is no text", at, v)}
		}
	case "boolean_t":
		if _, ok := v.(bool); !ok {
			return []string{fmt.Sprintf("%s: %v is not true or false", at, v)}
		}
	case "integer_t", "long_t":
		n, ok := v.(float64)
		if !ok || n != math.Trunc(n) {
			return []string{fmt.Sprintf("%s: %v is no whole number", at, v)}
		}
		if _, known := a.Enum[fmt.Sprint(n)]; !known && a.Enum != nil {
			return []string{fmt.Sprintf("%s: %v is none of %v", at, n, a.Enum)}
		}
	case "object":
		if _, ok := v.(map[string]any); !ok {
			return []string{fmt.Sprintf("%s: %v is no object", at, v)}
		}
	default:
		o, known := s.Objects[a.Type]
		m, ok := v.(map[string]any)
		if !known || !ok {
			return []string{fmt.Sprintf("%s: %v is no %s", at, v, a.Type)}
		}
		return s.check(at, o.Attributes, o.Constraints, m)
	}
	return nil
}

// captions returns siblings (status and status_id) that disagree.
func captions(attrs map[string]attribute, o map[string]any) (faults []string) {
	for name, a := range attrs {
		text := strings.TrimSuffix(name, "_id")
		if id, ok := o[name].(float64); ok && text != name && a.Enum != nil && id != 99 {
			if said, ok := o[text].(string); ok && said != a.Enum[fmt.Sprint(id)] {
				faults = append(faults, fmt.Sprintf("%s is %q, and %s %v is %q", text, said, name, id, a.Enum[fmt.Sprint(id)]))
			}
		}
	}
	return faults
}

// kinds are the action types and events of records.
func kinds(tb testing.TB) (list []audit.Record) {
	tb.Helper()
	events := audit.Events()
	for _, action := range slices.Sorted(maps.Keys(events)) {
		for _, event := range events[action] {
			list = append(list, audit.Record{ActionType: action, Event: event})
		}
	}
	for key := range readings {
		action, event, _ := strings.Cut(key, " ")
		if !slices.ContainsFunc(list, func(r audit.Record) bool { return r.ActionType == action && r.Event == event }) {
			list = append(list, audit.Record{ActionType: action, Event: event})
		}
	}
	for _, action := range []string{audit.ActionConfigChange, audit.ActionCheckpoint, "unheard_of"} {
		list = append(list, audit.Record{ActionType: action})
	}
	if len(list) < 35 {
		tb.Fatalf("there are %d kinds of record only", len(list))
	}
	return list
}

// variants are a kind of record with little and with much content.
func variants(kind audit.Record) (list []*audit.Record) {
	for _, result := range []string{"", "allow", "deny", "require_approval"} {
		for _, side := range []string{"", audit.SideSender, audit.SideReceiver} {
			bare := kind
			bare.ID, bare.PolicyResult, bare.Side = "id-1", result, side
			full := *exchange(result)
			full.ActionType, full.Event, full.Side, full.Code = kind.ActionType, kind.Event, side, "POLICY_DENIED"
			full.Details = map[string]any{"by": "operator", "pid": 4711, "uid": 1000, "success": false}
			full.ApprovalID, full.RunID = "a-1", "r-1"
			withheld := full
			withheld.DataWithheld = []audit.Withheld{{Reason: "level", Description: "salary"}}
			person := bare
			person.UserID, person.AppID, person.SessionKey = "alice", "app", "irc:bob"
			person.Details = map[string]any{"by": "", "pid": "x", "success": true}
			list = append(list, &bare, &full, &withheld, &person)
		}
	}
	return list
}

var mapping = &Mapping{Version: "1.2.3", Host: "host-1", Log: "log-1"}

// notSaid are the recommended attributes for which no record has a value.
var notSaid = []string{
	"http_request", "http_response", // the socket does not speak HTTP
	"observables",   // their values are in raw_data
	"confidence_id", // rules decide here, they do not guess
}

// Every kind of record maps to an event in which every required attribute is there, of the right
// type and with a value of the schema.
func TestOCSFRequired(t *testing.T) {
	s := loadSchema(t)
	log := newMemory()
	for _, kind := range kinds(t) {
		log.add(t, variants(kind)...)
	}
	log.add(t, &audit.Record{ID: "last"})
	said := map[string]bool{}
	prev := ""
	for _, line := range log.lines {
		r := Read(line)
		var o map[string]any
		out := mapping.OCSF(&r)
		if err := json.Unmarshal(out, &o); err != nil {
			t.Fatal(err)
		}
		if faults := append(s.check("", s.Class.Attributes, nil, o), captions(s.Class.Attributes, o)...); len(faults) > 0 {
			t.Fatalf("%s\n%s\n%s", line, out, strings.Join(faults, "\n"))
		}
		for name := range o {
			said[name] = true
		}
		if o["type_uid"] != 600300+o["activity_id"].(float64) || o["class_uid"] != 6003.0 || o["category_uid"] != 6.0 {
			t.Fatalf("%s: wrong class", out)
		}
		if o["activity_id"] == 99.0 && o["activity_name"] == "" || o["time"] != float64(r.Entry.Time.UnixMilli()) {
			t.Fatalf("%s: wrong activity or time", out)
		}
		md := o["metadata"].(map[string]any)
		if md["uid"] != r.Entry.Hash.String() || md["sequence"] != float64(r.Entry.Seq) || fmt.Sprint(md["profiles"]) != "[security_control record_integrity]" {
			t.Fatalf("%s: wrong metadata", out)
		}
		att := o["attestation_list"].([]any)[0].(map[string]any)
		if fp := att["fingerprint"].(map[string]any); fp["value"] != md["uid"] || att["chain_uid"] != "log-1" {
			t.Fatalf("%s: wrong attestation", out)
		}
		if before, ok := att["prev_event"].(map[string]any); ok != (prev != "") || ok && before["uid"] != prev {
			t.Fatalf("%s: the event before it is not %s", out, prev)
		}
		prev = md["uid"].(string)
		sum := sha256.Sum256(line)
		if o["raw_data"] != string(line) || o["raw_data_hash"].(map[string]any)["value"] != hex.EncodeToString(sum[:]) {
			t.Fatalf("%s: the line is not in it", out)
		}
		own := o["unmapped"].(map[string]any)
		if own["seq"] != float64(r.Entry.Seq) || own["prev"] != r.Entry.Prev.String() || own["hash"] != prev {
			t.Fatalf("%s: the chain is not in it", out)
		}
	}
	for name, a := range s.Class.Attributes {
		if a.Requirement == "recommended" && said[name] == slices.Contains(notSaid, name) {
			t.Errorf("recommended %s: said %v", name, said[name])
		}
	}
}

func TestOCSFVerdicts(t *testing.T) {
	for _, c := range []struct {
		name                                  string
		change                                func(*audit.Record)
		status, action, disposition, severity float64
		alert                                 bool
	}{
		{"allowed", func(*audit.Record) {}, 1, 1, 1, 1, false},
		{"denied", func(r *audit.Record) { r.PolicyResult = "deny" }, 2, 2, 2, 3, true},
		{"held", func(r *audit.Record) { r.PolicyResult = "require_approval" }, 99, 99, 14, 2, false},
		{"withheld", func(r *audit.Record) { r.DataWithheld = []audit.Withheld{{Reason: "level"}} }, 1, 4, 7, 1, false},
		{"approved", func(r *audit.Record) { r.ActionType, r.Event = audit.ActionApproval, "approved" }, 1, 1, 8, 1, false},
		{"a person denied", func(r *audit.Record) { r.ActionType, r.Event = audit.ActionApproval, "denied" }, 2, 2, 25, 3, true},
		{"refused", func(r *audit.Record) { *r = audit.Record{ActionType: audit.ActionSecurity, Event: "sender_refused"} }, 2, 2, 26, 3, true},
		{"failed", func(r *audit.Record) { *r = audit.Record{ActionType: audit.ActionDelivery, Event: "failed"} }, 2, 3, 27, 3, true},
		{"lost", func(r *audit.Record) { *r = audit.Record{ActionType: audit.ActionAppLifecycle, Event: "lost"} }, 2, 3, 17, 2, false},
		{"started", func(r *audit.Record) { *r = audit.Record{ActionType: audit.ActionSecurity, Event: "daemon_started"} }, 1, 3, 17, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := exchange("allow")
			c.change(rec)
			log := newMemory()
			log.add(t, rec)
			r := Read(log.lines[0])
			var o map[string]any
			if err := json.Unmarshal(mapping.OCSF(&r), &o); err != nil {
				t.Fatal(err)
			}
			got := []any{o["status_id"], o["action_id"], o["disposition_id"], o["severity_id"], o["is_alert"]}
			if want := []any{c.status, c.action, c.disposition, c.severity, c.alert}; !slices.Equal(got, want) {
				t.Errorf("status, action, disposition, severity, alert: %v, want %v", got, want)
			}
		})
	}
}

// On the receiver's record the counterparty is the actor.
func TestOCSFSides(t *testing.T) {
	for side, want := range map[string][2]string{
		audit.SideSender: {"agent-alice-1", "agent-dave-1"}, audit.SideReceiver: {"agent-dave-1", "agent-alice-1"},
	} {
		rec := exchange("allow")
		rec.Side = side
		log := newMemory()
		log.add(t, rec)
		r := Read(log.lines[0])
		ev := mapping.ocsf(&r)
		if got := [2]string{ev.SrcEndpoint.UID, ev.DstEndpoint.UID}; got != want {
			t.Errorf("%s: from %v, want %v", side, got, want)
		}
	}
}

// Any line becomes a valid event that contains the line.
func FuzzOCSF(f *testing.F) {
	log := newMemory()
	log.add(f, exchange("deny"))
	f.Add(log.lines[0])
	for _, line := range []string{
		"", "{}", "null", `{"seq":1}`, `{"seq":1,"time":"9999-12-31T23:59:59Z"}`, "\xff\xfe", `{"seq":1,"details":{"a":"\ud800"}}`,
		`{"seq":1,"seq":2}`, `{"seq":18446744073709551615,"details":{"pid":1e308,"by":"\u0000"}}`,
	} {
		f.Add([]byte(line))
	}
	s := loadSchema(f)
	f.Fuzz(func(t *testing.T, line []byte) {
		r := Read(line)
		out := mapping.OCSF(&r)
		var o map[string]any
		if err := json.Unmarshal(out, &o); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		for name, a := range s.Class.Attributes {
			if _, ok := o[name]; !ok && a.Requirement == "required" {
				t.Fatalf("%q: no %s", out, name)
			}
		}
		if strings.ContainsRune(string(out), '\n') || !strings.HasPrefix(string(out), eventStart) {
			t.Fatalf("%q is no line of the file sink", out)
		}
		if again := mapping.OCSF(&r); string(again) != string(out) {
			t.Fatal("the same line became another event")
		}
	})
}

func BenchmarkOCSF(b *testing.B) {
	log := newMemory()
	log.add(b, exchange("allow"))
	b.SetBytes(int64(len(log.lines[0])))
	for b.Loop() {
		r := Read(log.lines[0])
		mapping.OCSF(&r)
	}
}

func BenchmarkMappings(b *testing.B) {
	log := newMemory()
	log.add(b, exchange("allow"))
	for name, one := range map[string]func(*Record){
		"otlp": func(r *Record) {
			if _, err := mapping.encodeOTLP([]Record{*r}); err != nil {
				b.Fatal(err)
			}
		},
		"syslog":  func(r *Record) { mapping.Syslog(r, DefaultMaxBytes) },
		"journal": func(r *Record) { mapping.Journal(r) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r := Read(log.lines[0])
				one(&r)
			}
		})
	}
}

func TestFileSink(t *testing.T) {
	path := t.TempDir() + "/ocsf.jsonl"
	log := newMemory()
	log.fill(t, 3)
	o := options(t, log, Spec{Name: "siem", Type: TypeOCSF, Path: path, From: FromStart})
	set := start(t, o)
	events := func(path string) (list []string) {
		for line := range strings.Lines(readFile(t, path)) {
			list = append(list, line)
		}
		return list
	}
	sent := func(n uint64) func() bool { return func() bool { return set.Status()[0].Seq == n } }
	eventually(t, "three records", sent(3))
	if got := events(path); len(got) != 3 {
		t.Fatalf("%d events", len(got))
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v, %v", info.Mode(), err)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	log.fill(t, 2)
	eventually(t, "five records", sent(5))
	if a, b := len(events(path+".1")), len(events(path)); a != 3 || b != 2 {
		t.Fatalf("%d events in the old file and %d in the new", a, b)
	}
	if err := set.Close(); err != nil {
		t.Fatal(err)
	}
	// A crash left the last line incomplete.
	if err := os.Truncate(path, int64(len(readFile(t, path))-10)); err != nil {
		t.Fatal(err)
	}
	log.fill(t, 1)
	set = start(t, o)
	eventually(t, "six records", sent(6))
	for _, line := range events(path) {
		if !json.Valid([]byte(line)) || !strings.HasSuffix(line, "\n") {
			t.Errorf("torn line %q", line)
		}
	}
	if got := events(path); len(got) != 2 || !strings.Contains(got[1], `"sequence":6`) {
		t.Errorf("after the crash: %d events", len(got))
	}
}

// A line of another program without an end is not removed.
func TestFileSinkKeepsOthers(t *testing.T) {
	path := t.TempDir() + "/notes.txt"
	if err := os.WriteFile(path, []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := newMemory()
	log.fill(t, 1)
	r := Read(log.lines[0])
	sink := &fileSink{path: path, mapping: mapping}
	if _, err := sink.Send(t.Context(), []Record{r}); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readFile(t, path); !strings.HasPrefix(got, "dear diary\n{") {
		t.Errorf("%.40q", got)
	}
	if _, err := (&fileSink{path: "/dev/null", mapping: mapping}).Send(t.Context(), []Record{r}); err == nil {
		t.Error("a device was taken for a file")
	}
}

// A person who can write to the folder of the file, or above it, cannot make the sink write
// elsewhere, neither when it opens the file nor later.
func TestFileSinkFollowsNoLink(t *testing.T) {
	log := newMemory()
	log.fill(t, 1)
	records := []Record{Read(log.lines[0])}
	const precious = "precious\n"
	for name, plant := range map[string]func(dir, victim, path string) error{
		"a link":       func(_, victim, path string) error { return os.Symlink(victim, path) },
		"no file yet":  func(_, victim, path string) error { return os.Symlink(victim+".new", path) },
		"another name": func(_, victim, path string) error { return os.Link(victim, path) },
		"a folder": func(dir, victim, path string) error {
			return errors.Join(os.Chmod(dir, 0o777), os.Symlink(filepath.Dir(victim), filepath.Dir(path)))
		},
	} {
		for _, before := range []bool{true, false} {
			dir := t.TempDir()
			victim, path := filepath.Join(dir, "home", "siem", "ocsf.jsonl"), filepath.Join(dir, "siem", "ocsf.jsonl")
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(os.MkdirAll(filepath.Dir(victim), 0o700))
			must(os.WriteFile(victim, []byte(precious), 0o600))
			must(os.Mkdir(filepath.Dir(path), 0o700))
			sink := &fileSink{path: path, mapping: mapping}
			if !before {
				_, err := sink.Send(t.Context(), records)
				must(err)
			}
			must(os.RemoveAll(path))
			if name == "a folder" {
				must(os.Remove(filepath.Dir(path)))
			}
			must(plant(dir, victim, path))
			if _, err := sink.Send(t.Context(), records); err == nil || !strings.Contains(err.Error(), "link") {
				t.Errorf("%s: %v", name, err)
			}
			must(sink.Close())
			if got := readFile(t, victim); got != precious {
				t.Errorf("%s: %.60q was written", name, got)
			}
			if _, err := os.Stat(victim + ".new"); err == nil {
				t.Errorf("%s: a file was made", name)
			}
		}
	}
	// An operator's own link leads to the folder.
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	sink := &fileSink{path: filepath.Join(dir, "link", "ocsf.jsonl"), mapping: mapping}
	if _, err := sink.Send(t.Context(), records); err != nil {
		t.Error(err)
	}
	if err := sink.Close(); err != nil {
		t.Error(err)
	}
}

func TestSummary(t *testing.T) {
	log := newMemory()
	rec := exchange("deny")
	rec.Code, rec.PolicyReason = "POLICY_DENIED", "no\nway\x1b[31m\u202e"+strings.Repeat("ä", 2000)
	log.add(t, rec)
	r := Read(log.lines[0])
	got := summary(&r)
	if want := "agent_exchange deny: agent-alice-1 to agent-dave-1, POLICY_DENIED: no way [31m "; !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(got) > maxSummary || !strings.HasSuffix(got, "ä…") || strings.ToValidUTF8(got, "") != got {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-8:])
	}
	if !time.UnixMilli(mapping.ocsf(&r).Time).Equal(began.Truncate(time.Millisecond)) {
		t.Error("wrong time")
	}
}
