package audit

import (
	"testing"
	"time"
)

func TestFilterMatch(t *testing.T) {
	odd := []string{`says "hi"`, `back\slash`, "line\nbreak", "ünïcode 李", "\u2028", "<b>&amp;</b>", "\x00\x1f", "tab\t", `","agentId":"x`, "😀"}
	for _, m := range Members() {
		t.Run(m.Name, func(t *testing.T) {
			for _, value := range append(odd, "plain") {
				var f Filter
				*m.Of(&f.Like) = value
				if f.Unbounded() {
					t.Fatal("a filter with a value selects everything")
				}
				r := &Record{}
				*m.Of(r) = value
				if !f.Match(line(t, r)) {
					t.Errorf("%q does not match itself", value)
				}
				// The line contains the value, but in another member.
				if r := (&Record{Details: map[string]any{value: value}}); f.Match(line(t, r)) {
					t.Errorf("%q matches another member", value)
				}
				*m.Of(r) = value + "x"
				if f.Match(line(t, r)) {
					t.Errorf("%q matches what only begins so", value)
				}
			}
		})
	}
}

func TestFilterText(t *testing.T) {
	tests := []struct {
		reason, text string
		want         bool
	}{
		{"Says NO to it", "says no", true},
		{"says no to it", "NO TO", true},
		{"GRÖSSE \"x\"", "größe", false},
		{"GRÖẞE \"x\"", "größe \"X", true},
		{"line\nbreak", "e\nB", true},
		{"plain", "plainer", false},
		{"plain", "pl\xffain", false},
		{"", "x", false},
		{"", "", true},
	}
	for _, tt := range tests {
		f := Filter{Text: tt.text}
		if got := f.Match(line(t, &Record{PolicyReason: tt.reason})); got != tt.want {
			t.Errorf("%q in %q: %v", tt.text, tt.reason, got)
		}
	}
	f := Filter{Text: "elsewhere"}
	if f.Match(line(t, &Record{PolicyReason: "here", Event: "elsewhere"})) {
		t.Error("a text matches another member")
	}
}

func TestFilterTogether(t *testing.T) {
	l := line(t, &Record{ActionType: ActionExchange, AgentID: "agent-alice-1", PolicyResult: "deny"})
	tests := []struct {
		name   string
		filter Filter
		want   bool
	}{
		{"nothing asked", Filter{}, true},
		{"all given", Filter{Like: Record{ActionType: ActionExchange, AgentID: "agent-alice-1", PolicyResult: "deny"}}, true},
		{"one other", Filter{Like: Record{ActionType: ActionExchange, AgentID: "agent-alice-1", PolicyResult: "allow"}}, false},
		{"not in the record", Filter{Like: Record{UserID: "alice"}}, false},
		{"not UTF-8", Filter{Like: Record{UserID: "al\xff"}}, false},
		{"since then", Filter{Since: start}, true},
		{"since later", Filter{Since: start.Add(1)}, false},
		{"until then", Filter{Until: start}, false},
		{"until later", Filter{Until: start.Add(1)}, true},
		{"in another zone", Filter{Since: start.In(time.FixedZone("", 3600)), Until: start.Add(1).In(time.FixedZone("", -3600))}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.filter.Match(l); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if unbounded := tt.name == "nothing asked"; tt.filter.Unbounded() != unbounded {
				t.Errorf("unbounded is %v", !unbounded)
			}
		})
	}
	f := Filter{}
	if f.Match([]byte("no record")) {
		t.Error("a line that is no record matches")
	}
}

func line(t *testing.T, r *Record) []byte {
	t.Helper()
	body, err := Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	l, _ := Head{}.Seal(nil, start, body)
	return l
}

func BenchmarkFilterMiss(b *testing.B) {
	l := seal(b, 1)[0]
	f := Filter{Like: Record{AgentID: "agent-nobody"}}
	b.SetBytes(int64(len(l)))
	b.ReportAllocs()
	for b.Loop() {
		if f.Match(l) {
			b.Fatal("matched")
		}
	}
}
