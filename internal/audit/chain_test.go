package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	experiment "github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/text"
)

var start = time.Date(2026, 3, 13, 10, 0, 0, 0, time.UTC)

// record returns the record of one decision, with texts of every kind.
func record(n int) *Record {
	return &Record{
		ID: fmt.Sprintf("018f0000-0000-7000-8000-%012d", n), ActionType: ActionExchange, Side: SideSender,
		TenantID: "acme-corp", UserID: "alice", AgentID: "agent-alice-1", AppID: "@acme/alice-runtime",
		Counterparty: Counterparty{Kind: "agent", InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "marketing", TenantID: "acme-corp"},
		SessionKey:   "telegram:bob", ExchangeID: "exch-001", ConversationID: "conv-789-xyz", Round: n, MaxRounds: 3,
		ExchangeType: "information_query", Classification: "internal", PolicyApplied: "ocip.agent_exchange", PolicyRevision: "sha256:0123456789ab",
		PolicyResult: "allow", PolicyReason: `says "yes"` + " \u2028 \\ ünïcode \x00", Outcome: "in_progress",
		DataShared:    []Shared{{Source: "jira", Fields: []string{"status", "prev"}}},
		DataWithheld:  []Withheld{{Reason: "classification", Description: `","hash":"0000`}},
		Detections:    []Detection{{Rule: "commitment", Start: 1, End: 9, Zone: "quote"}},
		ContentDigest: "hmac-sha256:00", ContentBytes: 120, DispatchID: fmt.Sprint("dispatch-", n),
		Details: map[string]any{"seq": 99, "prev": "x", "hash": "y", "a": []any{1, nil, true}},
	}
}

// seal makes a log of n records, one a second.
func seal(tb testing.TB, n int) (lines [][]byte) {
	tb.Helper()
	var head Head
	for i := range n {
		body, err := Encode(record(i + 1))
		if err != nil {
			tb.Fatal(err)
		}
		var line []byte
		line, head = head.Seal(nil, start.Add(time.Duration(i)*time.Second), body)
		lines = append(lines, line)
	}
	return lines
}

func join(lines [][]byte) []byte {
	return append(bytes.Join(lines, []byte("\n")), '\n')
}

// verify returns the first fault of a log, and the last record found good.
func verify(log []byte) (Head, error) {
	var v Verifier
	_, err := v.ReadFrom(bytes.NewReader(log))
	return v.Head(), err
}

// TestLineFormat documents the format that an auditor's own tool must be able to read. A line is
// one JSON object: seq and time first, then the record's members that are not empty, then prev, the
// hash of the line before, and hash, the SHA-256 of all bytes of the line before `","hash":"`.
func TestLineFormat(t *testing.T) {
	golden, err := os.ReadFile("testdata/golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	lines := seal(t, 2)
	body, err := Encode(&Record{ID: "018f0000-0000-7000-8000-000000000003", ActionType: ActionSecurity})
	if err != nil {
		t.Fatal(err)
	}
	head, err := HeadOf(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	last, _ := head.Seal(nil, start.Add(2*time.Second+123456789), body)
	if got := join(append(lines, last)); !bytes.Equal(got, golden) {
		t.Errorf("sealed as\n%s\nwant\n%s", got, golden)
	}
	if head, err := verify(golden); err != nil || head.Seq != 3 {
		t.Errorf("verified up to %d: %v", head.Seq, err)
	}
	for line := range bytes.Lines(golden) {
		if !json.Valid(line) {
			t.Errorf("not JSON for another decoder: %s", line)
		}
	}
}

// TestEveryBitIsCovered changes every byte of a log, in several ways. Each
// change is found, at its own record or, for a newline, at the one it breaks.
func TestEveryBitIsCovered(t *testing.T) {
	log := join(seal(t, 3))
	for i, old := range log {
		want := uint64(1 + bytes.Count(log[:i], []byte("\n")))
		for _, changed := range []byte{old ^ 1, old ^ 0x20, old ^ 0x80, '\n', '"', 0} {
			if changed == old {
				continue
			}
			log[i] = changed
			head, err := verify(log)
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Fatalf("byte %d changed from %q to %q: got %v", i, old, changed, err)
			}
			if fault.Seq != want || head.Seq != want-1 {
				t.Fatalf("byte %d changed from %q to %q: fault at record %d after %d, want %d", i, old, changed, fault.Seq, head.Seq, want)
			}
		}
		log[i] = old
	}
	if _, err := verify(log); err != nil {
		t.Fatalf("the log itself: %v", err)
	}
}

// TestEveryCutInsideALineIsFound cuts a log at every byte. A cut between lines leaves a shorter log
// that is sound in itself: the chain alone cannot tell. To detect it, a verifier needs the head
// from elsewhere, such as the database or a checkpoint; this test says so rather than hide it.
func TestEveryCutInsideALineIsFound(t *testing.T) {
	log := join(seal(t, 3))
	for end := range len(log) {
		head, err := verify(log[:end])
		whole := uint64(bytes.Count(log[:end], []byte("\n")))
		if head.Seq != whole {
			t.Fatalf("cut at %d: good up to %d, want %d", end, head.Seq, whole)
		}
		if atBoundary := end == 0 || log[end-1] == '\n'; atBoundary {
			if err != nil {
				t.Fatalf("cut between lines at %d: %v", end, err)
			}
			continue
		}
		var fault *Fault
		if !errors.As(err, &fault) || fault.Seq != whole+1 {
			t.Fatalf("cut at %d: got %v, want a fault at record %d", end, err, whole+1)
		}
	}
}

// TestWhatWasDoneToTheLog changes a log as an attacker might who wants a record to be gone.
func TestWhatWasDoneToTheLog(t *testing.T) {
	other := func(t *testing.T, prev Head, n int) []byte {
		t.Helper()
		r := record(n)
		r.UserID = "mallory"
		body, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		line, _ := prev.Seal(nil, start.Add(time.Minute), body)
		return line
	}
	tests := []struct {
		name    string
		change  func(t *testing.T, lines [][]byte) [][]byte
		seq     uint64
		problem string // a part
	}{
		{"first dropped", func(_ *testing.T, l [][]byte) [][]byte { return l[1:] }, 1, "record 2 stands here"},
		{"one dropped", func(_ *testing.T, l [][]byte) [][]byte { return slices.Delete(l, 2, 3) }, 3, "record 4 stands here: records are missing or moved"},
		{"doubled", func(_ *testing.T, l [][]byte) [][]byte { return slices.Insert(l, 2, l[1]) }, 3, "record 2 stands here again"},
		{"swapped", func(_ *testing.T, l [][]byte) [][]byte { l[2], l[3] = l[3], l[2]; return l }, 3, "record 4 stands here"},
		{"moved back", func(_ *testing.T, l [][]byte) [][]byte { return append(l[:4:4], l[0]) }, 5, "record 1 stands here again"},
		{"two logs joined", func(_ *testing.T, l [][]byte) [][]byte { return append(l, l...) }, 6, "record 1 stands here again"},
		{"inserted, sealed on the one before", func(t *testing.T, l [][]byte) [][]byte {
			return slices.Insert(l, 3, other(t, headOf(t, l[2]), 9))
		}, 5, "record 4 stands here again"},
		{"replaced, sealed on the one before", func(t *testing.T, l [][]byte) [][]byte {
			l[2] = other(t, headOf(t, l[1]), 3)
			return l
		}, 4, "as the record before it"},
		{"replaced, with its old hash", func(_ *testing.T, l [][]byte) [][]byte {
			l[2] = bytes.Replace(l[2], []byte("alice"), []byte("carol"), 1)
			return l
		}, 3, "does not match its hash"},
		{"of another log", func(t *testing.T, l [][]byte) [][]byte {
			l[2] = other(t, Head{Seq: 2, Time: start}, 3)
			return l
		}, 3, "as the record before it"},
		{"clock turned back", func(t *testing.T, l [][]byte) [][]byte {
			// Seal would not do that, so the test does it by hand.
			head := headOf(t, l[1])
			head.Time = time.Time{}
			body, err := Encode(record(3))
			if err != nil {
				t.Fatal(err)
			}
			l[2], _ = head.Seal(nil, start.Add(-time.Hour), body)
			return l
		}, 3, "older than the record before it"},
		{"empty line", func(_ *testing.T, l [][]byte) [][]byte { return slices.Insert(l, 2, []byte(nil)) }, 3, "cut short"},
		{"carriage returns", func(_ *testing.T, l [][]byte) [][]byte { l[0] = append(l[0], '\r'); return l }, 1, "does not end in a hash"},
		{"blank in front", func(_ *testing.T, l [][]byte) [][]byte { l[1] = append([]byte(" "), l[1]...); return l }, 2, "does not match its hash"},
		{"hash in capitals", func(_ *testing.T, l [][]byte) [][]byte {
			end := len(l[1]) - len(lineEnd)
			copy(l[1][end-hashText:end], bytes.ToUpper(l[1][end-hashText:end]))
			return l
		}, 2, "lower-case"},
		{"prose", func(_ *testing.T, l [][]byte) [][]byte { l[1] = bytes.Repeat([]byte("lorem "), 60); return l }, 2, "does not end in a hash"},
		{"hash of something that is no record", func(_ *testing.T, l [][]byte) [][]byte {
			var line []byte
			line, _ = headOf(t, l[0]).Seal(nil, start, []byte(`{"id":1}`))
			l[1] = line
			return l
		}, 2, "not an audit record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			head, err := verify(join(tt.change(t, seal(t, 5))))
			var fault *Fault
			if !errors.As(err, &fault) {
				t.Fatalf("got %v, want a fault", err)
			}
			if fault.Seq != tt.seq || head.Seq != tt.seq-1 || !strings.Contains(fault.Problem, tt.problem) {
				t.Errorf("good up to %d, then %v; want record %d: %s", head.Seq, err, tt.seq, tt.problem)
			}
		})
	}
}

func headOf(t *testing.T, line []byte) Head {
	t.Helper()
	h, err := HeadOf(line)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestClockSteppingBackDoesNotShow seals with a clock that goes anywhere.
func TestClockSteppingBackDoesNotShow(t *testing.T) {
	var head Head
	var v Verifier
	body, err := Encode(record(1))
	if err != nil {
		t.Fatal(err)
	}
	zone := time.FixedZone("elsewhere", 5*3600)
	latest := time.Time{}
	for _, now := range []time.Time{start, start.Add(-time.Hour), start.Add(999), start.Add(time.Microsecond), start.Add(-1), start.In(zone), start.Add(time.Hour).In(zone)} {
		var line []byte
		line, head = head.Seal(nil, now, body)
		if err := v.Add(line); err != nil {
			t.Fatal(err)
		}
		if head.Time.Before(latest) || head.Time.Location() != time.UTC {
			t.Errorf("at %s the record has %s", now, head.Time)
		}
		if latest = head.Time; v.Head() != head {
			t.Errorf("verified as %+v, sealed as %+v", v.Head(), head)
		}
	}
}

// TestSealAppends seals several lines into one buffer, as a commit does.
func TestSealAppends(t *testing.T) {
	var log []byte
	var head Head
	for i := range 3 {
		body, err := Encode(record(i + 1))
		if err != nil {
			t.Fatal(err)
		}
		log, head = head.Seal(log, start.Add(time.Duration(i)*time.Second), body)
		log = append(log, '\n')
	}
	if !bytes.Equal(log, join(seal(t, 3))) {
		t.Error("sealed otherwise than one by one")
	}
}

// The encoder writes a record as the JSON library does: with each field alone, with all of them and
// with none.
func TestEncodeAsTheLibrary(t *testing.T) {
	full := Record{
		DataShared:   []Shared{{Source: "calendar", Fields: []string{"a", "b"}}, {}},
		DataWithheld: []Withheld{{Reason: "too high", Description: "\"it\""}},
		Detections:   []Detection{{Rule: "r", Start: 1, End: 2, Zone: "quote", Shadow: true}, {}},
		Details:      map[string]any{"b": 1, "a": map[string]any{"z": nil, "y": []any{true, "x"}}},
		Rows:         []RowChange{{Table: "t", Key: []string{"k"}, Was: map[string]any{"b": "x", "a": 1}, Now: map[string]any{"b": "y", "a": 2}}, {Table: "t", Add: -1, Stated: true}},
		State:        []TableState{{Table: "t", Open: 2, Digest: Hash{1}}},
	}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			switch field := v.Field(i); field.Kind() {
			case reflect.String:
				field.SetString(v.Type().Field(i).Name + " \"\\\u2028\n")
			case reflect.Int:
				field.SetInt(int64(i) - 15)
			case reflect.Struct:
				fill(field)
			}
		}
	}
	fill(reflect.ValueOf(&full).Elem())
	records := []Record{full, {}}
	for i := range reflect.TypeFor[Record]().NumField() {
		var one Record
		value := reflect.ValueOf(full).Field(i)
		if value.IsZero() {
			t.Errorf("field %d has no value to test with", i)
		}
		reflect.ValueOf(&one).Elem().Field(i).Set(value)
		records = append(records, one)
	}
	for i := range reflect.TypeFor[Counterparty]().NumField() {
		var one Record
		reflect.ValueOf(&one.Counterparty).Elem().Field(i).Set(reflect.ValueOf(full.Counterparty).Field(i))
		records = append(records, one)
	}
	for _, r := range records {
		want, err := experiment.Marshal(&r, experiment.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		want = text.EscapeJSON(want, 0)
		got, err := Encode(&r)
		if err != nil || string(got) != string(want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, r := range map[string]*Record{
		"too large":   {Content: strings.Repeat("x", MaxBodyBytes)},
		"not UTF-8":   {Content: "a\xffb"},
		"no JSON":     {Details: map[string]any{"f": func() {}}},
		"not a digit": {Details: map[string]any{"f": make(chan int)}},
	} {
		if body, err := Encode(r); err == nil {
			t.Errorf("%s: encoded as %.100s", name, body)
		}
	}
	large := &Record{Content: strings.Repeat("x", MaxBodyBytes-100)}
	body, err := Encode(large)
	if err != nil {
		t.Fatal(err)
	}
	line, _ := Head{}.Seal(nil, start, body)
	if head, err := verify(append(line, '\n')); err != nil || head.Seq != 1 {
		t.Errorf("the largest record: %v", err)
	}
}

func TestReadFromFaults(t *testing.T) {
	broken := errors.New("the disk is gone")
	log := join(seal(t, 2))
	var v Verifier
	n, err := v.ReadFrom(io.MultiReader(bytes.NewReader(log), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || n != int64(len(log)) || v.Head().Seq != 2 {
		t.Errorf("read %d bytes up to record %d: %v", n, v.Head().Seq, err)
	}
	var fault *Fault
	if _, err := verify(bytes.Repeat([]byte("x"), 3*MaxBodyBytes)); !errors.As(err, &fault) || fault.Seq != 1 {
		t.Errorf("a line without end: %v", err)
	}
	// The lines come in pieces of any size.
	v = Verifier{}
	if _, err := v.ReadFrom(iotest.OneByteReader(bytes.NewReader(log))); err != nil || v.Head().Seq != 2 {
		t.Errorf("byte by byte: up to %d, %v", v.Head().Seq, err)
	}
}

func TestHeadOf(t *testing.T) {
	for _, line := range []string{"", "{}", "null", "[]", `{"seq":0}`, `{"seq":-1}`, `{"seq":"1"}`, `{"seq":1,"prev":"zz"}`, `{"seq":1} {}`, `{"seq":1,"seq":2}`} {
		if h, err := HeadOf([]byte(line)); err == nil {
			t.Errorf("%q is taken for record %d", line, h.Seq)
		}
	}
}

// FuzzCheck gives Check any line. An accepted line must have the claimed content; above all, no
// second line may fit the same place.
func FuzzCheck(f *testing.F) {
	lines := seal(f, 3)
	head, err := HeadOf(lines[0])
	if err != nil {
		f.Fatal(err)
	}
	for _, line := range lines {
		f.Add(line)
	}
	f.Add([]byte(hashMember + strings.Repeat("0", hashText) + lineEnd))
	f.Fuzz(func(t *testing.T, line []byte) {
		next, err := head.Check(line)
		if err != nil {
			var fault *Fault
			if !errors.As(err, &fault) || fault.Seq != 2 || next != head {
				t.Fatalf("got %v and head %d", err, next.Seq)
			}
			return
		}
		entry, err := Parse(line)
		if err != nil {
			t.Fatalf("checked, but not to be read: %v", err)
		}
		if next.Seq != 2 || entry.Prev != head.Hash || next.Hash != entry.Hash || entry.Time.Before(head.Time) {
			t.Fatalf("accepted %s", line)
		}
	})
}

// FuzzParse expects a parsed record to be the same after it is encoded and parsed again.
func FuzzParse(f *testing.F) {
	for _, line := range seal(f, 2) {
		f.Add(line)
	}
	f.Add([]byte(`{"id":"","details":{"a":[1e400]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		entry, err := Parse(line)
		if err != nil {
			return
		}
		body, err := Encode(&entry.Record)
		if err != nil {
			return // longer than a record may be
		}
		sealed, head := Head{Seq: 6}.Seal(nil, start, body)
		if _, err := (Head{Seq: 6}).Check(sealed); err != nil {
			t.Fatalf("read %s, sealed as %s: %v", line, sealed, err)
		}
		again, err := Parse(sealed)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Encode(&again.Record)
		if err != nil || !bytes.Equal(body, twice) || again.Seq != head.Seq {
			t.Fatalf("encoded as %s, then as %s: %v", body, twice, err)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	r := record(1)
	var head Head
	var line []byte
	b.ReportAllocs()
	for b.Loop() {
		body, err := Encode(r)
		if err != nil {
			b.Fatal(err)
		}
		line, head = head.Seal(line[:0], start, body)
	}
	b.SetBytes(int64(len(line)))
}

func BenchmarkVerify(b *testing.B) {
	log := join(seal(b, 1000))
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	for b.Loop() {
		if head, err := verify(log); err != nil || head.Seq != 1000 {
			b.Fatal(head.Seq, err)
		}
	}
}

// A hash is written as everybody writes it, whatever its bytes are.
func TestHashText(t *testing.T) {
	var h Hash
	for i := range 256 {
		for at := range h {
			h[at] = byte(i + 7*at)
		}
		if text := h.text(); string(text[:]) != hex.EncodeToString(h[:]) {
			t.Fatalf("%s, want %s", text, hex.EncodeToString(h[:]))
		}
	}
}
