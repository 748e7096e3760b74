package roster

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func key(n byte) []byte { return bytes.Repeat([]byte{n}, 32) }

func hosts() []Host {
	return []Host{{"host-a", 1, key(1), key(2), key(5)}, {"host-b", 3, key(3), key(4), nil}}
}

func agents() []Agent {
	return []Agent{
		{ID: "alice", Host: "host-a", InstanceID: "agent-alice-1", UserID: "alice", OrgUnit: "sales", Accepts: []string{"public", "internal"}},
		{ID: "bob", Host: "host-b", InstanceID: "agent-bob-1", UserID: "bob", OrgUnit: "sales"},
	}
}

// good is a roster with a signature that nobody checks here.
func good(t testing.TB, version int) []byte {
	t.Helper()
	lines, err := Write("acme-corp", version, hosts(), agents())
	if err != nil {
		t.Fatal(err)
	}
	whole, err := Sign(lines, "SIGNATURE")
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

func TestRoster(t *testing.T) {
	text := good(t, 7)
	r, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	signed, armored := r.signed, r.signature
	if r.Tenant != "acme-corp" || r.Version != 7 || len(r.Hosts) != 2 || len(r.Agents) != 2 || armored != "SIGNATURE" || r.Line(1) != 5 {
		t.Errorf("it is %+v", r)
	}
	if !bytes.HasPrefix(text, signed) || bytes.Count(signed, []byte("\n")) != 5 {
		t.Errorf("signed is %s", signed)
	}
	if h := r.Host("host-b"); h == nil || h.Epoch != 3 || r.Host("other") != nil {
		t.Errorf("host-b is %+v", h)
	}
	next, err := Parse(good(t, 8))
	if err != nil {
		t.Fatal(err)
	}
	if next.Follows(r) != nil || r.Follows(nil) != nil || r.Follows(r) != nil {
		t.Error("the next version does not follow")
	}
	for _, version := range []int{6, 9} {
		other, err := Parse(good(t, version))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Follows(r); err == nil {
			t.Errorf("version %d follows 7", version)
		}
	}
	changed, err := Parse(bytes.Replace(text, []byte("SIGNATURE"), []byte("ANOTHER"), 1))
	if err != nil || changed.Follows(r) == nil {
		t.Errorf("another file of the same version follows: %v", err)
	}
}

// A version follows the one in force if it was made from that, by whatever versions between.
func TestHistory(t *testing.T) {
	version := func(n int, formers ...string) *Roster {
		t.Helper()
		lines, err := Write("acme-corp", n, hosts(), agents(), formers...)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Sign(lines, "SIGNATURE")
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(whole)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	all := []*Roster{version(1, new(Roster).History()...)}
	for n := range 5 {
		all = append(all, version(n+2, all[n].History()...))
	}
	for _, later := range all[1:] {
		if later.Follows(all[0]) != nil || all[0].Follows(later) == nil {
			t.Errorf("version %d follows 1: %v", later.Version, later.Follows(all[0]))
		}
	}
	if version(9, all[3].History()...).Follows(all[4]) == nil || version(2, all[5].History()...).Follows(all[4]) == nil {
		t.Error("a version that was not made from the one in force follows")
	}
	long := version(5000, append([]string{all[0].digest}, slices.Repeat([]string{all[1].digest}, maxFormer-1)...)...).History()
	if len(long) != maxFormer || long[0] != all[1].digest {
		t.Errorf("%d former versions are kept, from %s", len(long), long[0])
	}
	if _, err := Sign([]byte("{\"fleet\":\"acme-corp\",\"version\":1}\n"+strings.Repeat("{\"former\":\""+long[0]+"\"}\n", maxFormer+1)), "SIGNATURE"); err == nil {
		t.Error("a roster with more former versions is read")
	}
}

// Each fault refuses the whole file, with its line.
func TestRefused(t *testing.T) {
	text := string(good(t, 1))
	lines := strings.SplitAfter(text, "\n")
	replaced := func(old, by string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("there is no %s", old)
		}
		return strings.Replace(text, old, by, 1)
	}
	for what, tc := range map[string]struct {
		text string
		line int
		says string
	}{
		"nothing":                 {"", 1, "no signature"},
		"no signature":            {strings.Join(lines[:5], ""), 6, "no signature"},
		"an empty signature":      {replaced("SIGNATURE", ""), 6, "signature: it is empty"},
		"a line behind":           {text + lines[2], 7, "behind the signature"},
		"cut off":                 {text[:len(text)-1], 6, "cut off"},
		"an empty line":           {lines[0] + "\n" + strings.Join(lines[1:], ""), 2, "no JSON object"},
		"no head":                 {strings.Join(lines[1:], ""), 1, "cannot be read"},
		"a tenant of two lines":   {replaced("acme-corp", `acme\ncorp`), 1, "U+000A"},
		"a tenant with an escape": {replaced("acme-corp", `acme\u001b[2J`), 1, "U+001B"},
		"a tenant with a C1":      {replaced("acme-corp", `acme\u0085`), 1, "U+0085"},
		"a user with a tab":       {replaced(`"user_id":"bob"`, `"user_id":"b\tob"`), 5, "U+0009"},
		"no version":              {replaced(`,"version":1`, ""), 1, "version: it is missing"},
		"version zero":            {replaced(`"version":1`, `"version":0`), 1, "version: want"},
		"an unknown member":       {replaced(`{"host":"host-a"`, `{"host":"host-a","port":7}`[:len(`{"host":"host-a","port":7`)]), 2, "cannot be read"},
		"a doubled member":        {replaced(`"epoch":1`, `"epoch":1,"epoch":1`), 2, "duplicate"},
		"a host twice":            {replaced(`"host":"host-b","epoch"`, `"host":"host-a","epoch"`), 3, "listed already"},
		"a key twice":             {replaced("AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=", "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="), 3, "line 2 has the same key"},
		"a short key":             {replaced("AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=", "AQE="), 2, "sign: want"},
		"no epoch":                {replaced(`"epoch":1,`, ""), 2, "epoch: it is missing"},
		"an epoch of zero":        {replaced(`"epoch":1`, `"epoch":0`), 2, "epoch: want"},
		"a host's name":           {replaced(`{"host":"host-a"`, `{"host":"*"`), 2, "host: want"},
		"an agent twice":          {replaced(`"agent":"bob"`, `"agent":"alice"`), 5, "line 4 has agent alice too"},
		"an instance twice":       {replaced(`agent-bob-1`, `agent-alice-1`), 5, "line 4 has instance"},
		"an agent's host":         {replaced(`"bob","host":"host-b"`, `"bob","host":"host-c"`), 5, "no line before this one"},
		"an agent's id":           {replaced(`"agent":"bob"`, `"agent":"b:b"`), 5, "agent: want"},
		"an agent without a user": {replaced(`"user_id":"bob",`, ""), 5, "user_id: it is missing"},
		"an unknown level":        {replaced(`["public","internal"]`, `["secret"]`), 4, "accepts: want"},
		"a level twice":           {replaced(`["public","internal"]`, `["public","public"]`), 4, "accepts: want"},
		"a former version":        {replaced(lines[5], `{"former":"7"}`+"\n"+lines[5]), 6, "former: want the digest"},
		"a look-alike":            {replaced(`"agent":"bob"`, `"agent":"bo\u200bb"`), 5, "not spelled"},
	} {
		r, err := Parse([]byte(tc.text))
		fault, ok := errors.AsType[*LineError](err)
		if !ok || fault.Line != tc.line || !strings.Contains(fault.Problem, tc.says) {
			t.Errorf("%s: %+v, %v, want line %d: %s", what, r, err, tc.line, tc.says)
		}
	}
	if _, err := Parse(make([]byte, MaxBytes+1)); err == nil {
		t.Error("a file over the limit is read")
	}
}

// A host's lines name that host alone: others could give a host of the roster other keys.
func TestLines(t *testing.T) {
	line := func(value any) string {
		one, err := Line(value)
		if err != nil {
			t.Fatal(err)
		}
		return string(one)
	}
	a, b := line(hosts()[0]), line(hosts()[1])
	alice, bob := line(agents()[0]), line(agents()[1])
	h, with, err := Lines([]byte(a + alice))
	if err != nil || fmt.Sprint(h) != fmt.Sprint(hosts()[0]) || fmt.Sprint(with) != fmt.Sprint(agents()[:1]) {
		t.Errorf("%+v, %+v, %v", h, with, err)
	}
	if h, with, err = Lines([]byte(a)); err != nil || h.Name != "host-a" || len(with) != 0 {
		t.Errorf("%+v, %+v, %v", h, with, err)
	}
	for what, tc := range map[string]struct {
		text string
		line int
		says string
	}{
		"nothing":                  {"", 1, "no JSON object"},
		"no JSON":                  {"x", 1, "no JSON object"},
		"a signature":              {`{"signature":"x"}`, 1, "no JSON object"},
		"an agent alone":           {alice, 1, "no line before this one"},
		"a second host":            {a + b, 2, "no second one"},
		"a second host at the end": {a + alice + b, 3, "no second one"},
		"the host twice":           {a + a, 2, "no second one"},
		"an agent of another host": {a + alice + bob, 3, "no line before this one"},
		"an agent twice":           {a + alice + alice, 3, "line 2 has agent alice too"},
		"a line too long":          {a + alice[:len(alice)-2] + strings.Repeat(" ", maxLine) + "}\n", 2, "more than"},
	} {
		h, with, err := Lines([]byte(tc.text))
		fault, ok := errors.AsType[*LineError](err)
		if !ok || fault.Line != tc.line || !strings.Contains(fault.Problem, tc.says) {
			t.Errorf("%s: %+v, %+v, %v, want line %d: %s", what, h, with, err, tc.line, tc.says)
		}
	}
}

// No bytes crash the parser, and a file that it reads can be written and read again.
func FuzzParse(f *testing.F) {
	text := good(f, 3)
	f.Add(text)
	for i := range bytes.Count(text, []byte("\n")) {
		f.Add([]byte(strings.Join(strings.SplitAfter(string(text), "\n")[i:], "")))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		if err != nil {
			if _, ok := errors.AsType[*LineError](err); !ok {
				t.Fatalf("no line: %v", err)
			}
			return
		}
		lines, err := Write(r.Tenant, r.Version, r.Hosts, r.Agents)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Sign(lines, r.signature)
		if err != nil {
			t.Fatalf("%q is not read again: %v", b, err)
		}
		again, err := Parse(whole)
		if err != nil || fmt.Sprint(again.Hosts, again.Agents) != fmt.Sprint(r.Hosts, r.Agents) {
			t.Fatalf("%+v became %+v: %v", r, again, err)
		}
	})
}
