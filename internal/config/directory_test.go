package config

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// contacts is a directory of n entries in a style of its own.
func contacts(n int, style string) string {
	var b strings.Builder
	b.WriteString("log: {level: debug}\n\ndirectory:  # who is known\n")
	for i := range n {
		fmt.Fprintf(&b, style, i)
	}
	return b.String()
}

const (
	blockStyle = `  - instance_id: agent-%[1]d
    user_id: user-%[1]d
    org_unit: engineering
    tenant_id: acme
    # What may go there.
    accepts:
    - public
    - internal
    sessions: ["telegram:%[1]d", "irc:direct:%[1]d"]

`
	// The style of generated files: keys in the order of the alphabet, lists
	// not indented.
	dumpedStyle = "- accepts: [public, internal]\n  instance_id: agent-%[1]d\n  org_unit: engineering\n" +
		"  sessions:\n  - telegram:%[1]d\n  - irc:direct:%[1]d\n  tenant_id: acme\n  user_id: user-%[1]d\n"
	flowStyle = "   - {instance_id: agent-%[1]d, user_id: user-%[1]d, org_unit: engineering, tenant_id: acme, accepts: [public, internal],\r\n" +
		"      sessions: [\"telegram:%[1]d\", \"irc:direct:%[1]d\"]}\r\n"
)

// cutParse reads a document as if it were too long, in pieces of so many bytes,
// those aside that an earlier one has.
func cutParse(data []byte, size int, earlier *Config) (c *Config, found, err error) {
	p := &problems{file: "f", origins: map[string]origin{}}
	c = Default()
	rest, list := cut("f", data, size, earlier.known())
	if list == nil {
		return nil, nil, errors.New("nothing to cut")
	}
	p.document(rest, list, c)
	read := p.err()
	c.origins, c.cut = p.origins, p.cut
	c.inherit()
	c.check(p)
	return c, p.err(), read
}

// TestLongDirectory reads a file that is too long but for its directory, with
// every key in its place.
func TestLongDirectory(t *testing.T) {
	const n = 6500
	for name, style := range map[string]string{"block": blockStyle, "dumped": dumpedStyle, "flow": flowStyle} {
		t.Run(name, func(t *testing.T) {
			text := []byte(contacts(n, style) + "default_agent: alice\nagents:\n  - {id: alice, app: a, instance_id: a-1, user_id: u, org_unit: o, tenant_id: acme}\n")
			if len(text) <= maxFileBytes {
				t.Fatalf("%d bytes are not too long", len(text))
			}
			c := mustParse(t, string(text))
			if len(c.Directory) != n || c.DefaultAgent != "alice" || c.Log.Level != "debug" {
				t.Fatalf("%d entries, agent %q, level %q", len(c.Directory), c.DefaultAgent, c.Log.Level)
			}
			for i, d := range c.Directory {
				want := Contact{
					Kind: "agent", InstanceID: fmt.Sprintf("agent-%d", i), UserID: fmt.Sprintf("user-%d", i), OrgUnit: "engineering", TenantID: "acme",
					Accepts: []string{"public", "internal"}, Sessions: []string{fmt.Sprintf("telegram:%d", i), fmt.Sprintf("irc:direct:%d", i)},
				}
				if !reflect.DeepEqual(d, want) {
					t.Fatalf("entry %d is %+v", i, d)
				}
			}
			for _, i := range []int{0, 1, n / 2, n - 1} {
				key := fmt.Sprintf("directory[%d].user_id", i)
				line := 1 + bytes.Count(text[:bytes.Index(text, fmt.Appendf(nil, "user_id: user-%d", i))], []byte("\n"))
				if got := c.Source(key); got != fmt.Sprintf("ocipd.yaml:%d", line) {
					t.Errorf("%s comes from %s, want line %d", key, got, line)
				}
			}
			for _, key := range []string{"directory[0].kind", fmt.Sprintf("directory[%d].user_id", n), "directory[1].accepts[2]", "directory[1]x", "policy.path"} {
				if got := c.Source(key); got != SourceDefault {
					t.Errorf("%s comes from %s", key, got)
				}
			}
		})
	}
}

// TestHundredThousandContacts holds the size that is promised, and what reading
// it keeps: not the twentyfold of one tree of nodes.
func TestHundredThousandContacts(t *testing.T) {
	const n = 100_000
	text := []byte(contacts(n, "- {kind: person, sessions: ['a:%d']}\n"))
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	c, err := Parse("f", text)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Directory) != n || c.Directory[n-1].Sessions[0] != fmt.Sprintf("a:%d", n-1) {
		t.Errorf("%d entries", len(c.Directory))
	}
	if kept := heap() - before; kept > 300*n {
		t.Errorf("%d entries take %d bytes", n, kept)
	}
	runtime.KeepAlive(c)
}

// BenchmarkLongDirectory is what a start takes for a directory of a hundred
// thousand agents.
func BenchmarkLongDirectory(b *testing.B) {
	text := []byte(contacts(100_000, blockStyle))
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse("f", text); err != nil {
			b.Fatal(err)
		}
	}
}

// A reload of a long directory reads what has changed of it, and gives what a
// start gives.
func TestReloadALongDirectory(t *testing.T) {
	const n = 8_000
	text := contacts(n, blockStyle)
	file := write(t, t.TempDir(), "ocipd.yaml", text)
	first, err := Load(Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	entry := func(i int) string { return fmt.Sprintf(blockStyle, i) }
	for _, tt := range []struct {
		name, text string
		kept       int // of a hundred entries
		want       []string
	}{
		{"nothing", text + "# a comment\n", 85, nil},
		{"a line", strings.Replace(text, "user_id: user-3999\n", "user_id: a-longer-name\n", 1), 85, []string{"directory.agent-3999.user_id"}},
		{"an entry is gone", strings.Replace(text, entry(10), "", 1), 85, []string{"directory.agent-10"}},
		{"entries come", strings.Replace(text, entry(n-5), entry(n)+entry(n+1)+entry(n-5), 1), 85, []string{"directory.agent-8000", "directory.agent-8001"}},
		{"both ends", "directory:\n" + entry(n) + strings.Replace(text[strings.Index(text, entry(0)):], entry(n-1), "", 1), 85, []string{"directory.agent-8000", "directory.agent-7999", "log.level"}},
		{"entries move", strings.Replace(text, entry(7), "", 1) + entry(7), 85, nil},
		{"another style", contacts(n, dumpedStyle), 0, nil},
		{"a fault", strings.Replace(text, "user_id: user-3999\n", "\n", 1), 0, nil},
		{"no YAML", strings.Replace(text, "user_id: user-3999\n", "\"\n", 1), 0, nil},
		{"a name is taken", strings.Replace(text, "agent-7000\n", "agent-3\n", 1), 0, nil},
		{"a session is taken", strings.Replace(text, "telegram:7000\"", "telegram:3\"", 1), 0, nil},
		{"names change places", strings.NewReplacer("instance_id: agent-7000\n", "instance_id: agent-2000\n", "instance_id: agent-2000\n", "instance_id: agent-7000\n").Replace(text), 75,
			[]string{"directory.agent-7000.sessions", "directory.agent-7000.user_id", "directory.agent-2000.sessions", "directory.agent-2000.user_id"}},
		{"an agent takes a name", text + "agents:\n  - {id: a, app: a, instance_id: agent-7000, user_id: u, org_unit: o, tenant_id: t}\n", 0, nil},
		{"everything twice", text + text[strings.Index(text, entry(0)):], 0, nil},
		{"a list that is short", contacts(3, blockStyle), 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(t, filepath.Dir(file), "ocipd.yaml", tt.text)
			want, failure := Load(Options{File: file})
			got, err := first.Reload()
			if failure != nil {
				if err == nil || err.Error() != failure.Error() {
					t.Fatalf("got %v, want %v", err, failure)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !same(got, want) || got.sum != want.sum {
				t.Fatal("it reads as another configuration than at a start")
			}
			kept := 0
			for i := range got.Directory {
				at := Path{}.Key("directory").Index(i).Key("user_id")
				if i%1000 < 2 && got.SourceAt(at) != want.SourceAt(at) {
					t.Errorf("%s comes from %s, want %s", at, got.SourceAt(at), want.SourceAt(at))
				}
				if i < n && slices.ContainsFunc(first.Directory[max(0, i-2):min(n, i+3)], func(c Contact) bool { return &c.Accepts[0] == &got.Directory[i].Accepts[0] }) {
					kept++
				}
			}
			if kept < n*tt.kept/100 {
				t.Errorf("%d of %d entries are kept", kept, n)
			}
			var keys []string
			for _, c := range got.Since(first).Changes {
				keys = append(keys, c.Path)
			}
			slices.Sort(keys)
			slices.Sort(tt.want)
			if tt.kept > 0 && !slices.Equal(keys, tt.want) {
				t.Errorf("the difference is %q, want %q", keys, tt.want)
			}
		})
	}
}

// BenchmarkReload is what a reload takes of such a directory of which one line is
// another, with the difference.
func BenchmarkReload(b *testing.B) {
	text := []byte(contacts(100_000, blockStyle))
	file := filepath.Join(b.TempDir(), "ocipd.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		b.Fatal(err)
	}
	c, err := Load(Options{File: file})
	if err != nil {
		b.Fatal(err)
	}
	line := []byte("    user_id: user-50000\n")
	at := bytes.Index(text, line)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		edited := slices.Concat(text[:at], fmt.Appendf(nil, "    user_id: user-%d\n", n), text[at+len(line):])
		if err := os.WriteFile(file, edited, 0o600); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		again, err := c.Reload()
		if err != nil {
			b.Fatal(err)
		}
		if d := again.Since(c); d.Count != 1 {
			b.Fatalf("the difference is %+v", d)
		}
		c = again
	}
}

func TestLongDirectoryFaults(t *testing.T) {
	const n = 20
	list := contacts(n, flowStyle)
	lines := strings.Count(list, "\n")
	entry := func(text string) string { return list + "   - " + text + "\n" }
	for _, tt := range []struct{ name, text, want string }{
		{"unknown key", entry("{instance: x}"), fmt.Sprintf(`f:%d:7: unknown key "instance"`, lines+1)},
		{"wrong type", entry("{kind: person, sessions: ['a:b', 7]}"), fmt.Sprintf("f:%d:39: directory[20].sessions[1]: want text", lines+1)},
		{"no mapping", entry("seven"), fmt.Sprintf("f:%d:6: directory[20]: want a mapping", lines+1)},
		{"twice", entry("{kind: person,\n     kind: agent}"), fmt.Sprintf(`f:%d:6: duplicate key "kind", first at line %d`, lines+2, lines+1)},
		{"taken", entry("{kind: person, sessions: ['telegram:7']}"), fmt.Sprintf(`f:%d:32: directory[20].sessions[0]: "telegram:7" is taken by directory[7].sessions[0]`, lines+1)},
		{"missing", entry("{instance_id: i, user_id: u, org_unit: o}"), fmt.Sprintf("f:%d:6: directory[20].tenant_id: is required", lines+1)},
		{"by default", entry("{kind: person, sessions: ~}"), fmt.Sprintf("f:%d:6: directory[20].sessions: a person is known by sessions alone", lines+1)},
		{"empty", entry(""), "f:4:4: directory[20].instance_id: is required"},
		{"no YAML", entry("{kind: person\n   - {}"), "cannot read YAML"},
		{"a fault after it", list + "log: {level: loud}\n", fmt.Sprintf("f:%d:1: duplicate key \"log\", first at line 1", lines+1)},
		{"second directory", list + "directory: []\n", fmt.Sprintf("f:%d:1: duplicate key \"directory\", first at line 3", lines+1)},
		{"second document", list + "---\nlog: {}\n", "a second YAML document"},
		{"another column", list + " - {kind: person, sessions: ['a:b']}\n", "cannot read YAML"},
		{"text like an entry", entry("{kind: person, sessions: ['a:b\n   - c']}"), "cannot read YAML"},
		{"text like the key", "apps: {a: 'x\n" + list[strings.Index(list, "directory:"):] + "'}\n", "directory: cannot tell where the list begins"},
		{"alias of another piece", strings.Replace(list, "accepts: [public", "accepts: &a [public", 1) + "   - {kind: person, sessions: ['a:b'], accepts: *a}\n", "unknown anchor"},
		{"too deep", entry("{kind: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "}"), "want text, got a list"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err, _ := cutParse([]byte(tt.text), 200, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.300v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestLongDirectoryBounds(t *testing.T) {
	// Two texts that are too long and soon read.
	filler := "  # " + strings.Repeat("x", maxFileBytes/2) + "\n"
	list := strings.Replace(contacts(2, blockStyle), "  - ", filler+"  - ", 1) + filler
	bomb := "  - {kind: person, sessions: &s ['a:b'" + strings.Repeat(", 'a:b'", 2000) + "]}\n" + strings.Repeat("  - {kind: person, sessions: *s}\n", 1550)
	if c, err := Parse("f", []byte(list)); err != nil || len(c.Directory) != 2 {
		t.Fatalf("cannot read the list that all begin with: %v", err)
	}
	for _, tt := range []struct{ name, text, want string }{
		{"the rest too long", list + "apps: {b: " + strings.Repeat("x", maxFileBytes) + "}\n", "more than 1048576 bytes"},
		{"lines of another sort", strings.ReplaceAll(list, "\n", "\r"), "more than 1048576 bytes"},
		{"one line", "directory: [" + strings.Repeat("{kind: person, sessions: ['a:b']}, ", 40_000) + "]", "more than 1048576 bytes"},
		{"an entry too long", list + "  - {kind: person, sessions: ['a:b'" + strings.Repeat(", 'a:b'", 200_000) + "]}\n", "cannot read an entry of more than 1048576 bytes"},
		{"text like an entry", list + "  - {kind: person, sessions: ['a:b\n  - c']}\n", "cannot tell where each entry begins"},
		{"bomb", list + bomb, "cannot read more than 3000000 values"},
		{"too many", list + strings.Repeat("  -\n", maxDirectoryValues), "cannot read more than 3000000 entries"},
		{"longer than any", strings.Repeat("#", maxLongFileBytes+1), "more than 67108864 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := Parse("f", []byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %.300v\nwant %s", err, tt.want)
			}
		})
	}
}

// TestManyFaultsTakeNoLonger has every value of a long list wrong.
func TestManyFaultsTakeNoLonger(t *testing.T) {
	var agents, routes, accepts strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&agents, "  - {id: a%d, app: a, instance_id: i%d, user_id: u, org_unit: o, tenant_id: t}\n", i, i)
		fmt.Fprintf(&routes, "  - {session: 'a:%d', agent: nobody%d}\n", i, i)
	}
	for i := range 90_000 {
		fmt.Fprintf(&accepts, "l%d, ", i)
	}
	for name, text := range map[string]string{
		"routes":  "agents:\n" + agents.String() + "routes:\n" + routes.String(),
		"accepts": "directory: [{kind: person, sessions: ['a:b'], accepts: [" + accepts.String() + "]}]",
		"entries": contacts(10_000, "- {kind: nobody, sessions: [%d], accepts: []}  # who is nobody is nobody, and who is nobody is not known to anybody at all\n"),
	} {
		began := time.Now()
		_, err := Parse("f", []byte(text))
		var all Errors
		if !errors.As(err, &all) || len(all) != maxErrors || len(err.Error()) > 50_000 {
			t.Errorf("%s: got %d problems, %.100v", name, len(all), err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

// FuzzCut holds a directory that is read entry by entry to the same read as a
// whole: it is the same, or it is refused.
func FuzzCut(f *testing.F) {
	for _, style := range []string{blockStyle, dumpedStyle, flowStyle} {
		f.Add([]byte(contacts(3, style)), uint8(1))
		f.Add([]byte(contacts(3, style)+"log: {format: json}\n"), uint8(100))
	}
	f.Add([]byte("directory:\n- {kind: person, sessions: [\"a:b\n- c\"]}\n- {}\n"), uint8(1))
	f.Add([]byte("directory:\n- &a {kind: person, sessions: ['a:b']}\n- *a\n"), uint8(1))
	f.Add([]byte("apps: {a: \"\ndirectory:\n- b\"}\n"), uint8(1))
	f.Add([]byte("directory:\n  -\n    kind: person\n    sessions:\n      - a:b\n  - kind: |\n     person\n...\n"), uint8(9))
	f.Fuzz(func(t *testing.T, data []byte, size uint8) {
		pieces, found, read := cutParse(data, int(size), nil)
		if read != nil {
			return // refused
		}
		whole, err := Parse("f", data)
		if (err == nil) != (found == nil) {
			t.Fatalf("%q: as a whole %v, in pieces %v", data, err, found)
		}
		if err != nil {
			if errors.As(err, new(Errors)) && err.Error() != found.Error() {
				t.Fatalf("%q: as a whole\n%v\nin pieces\n%v", data, err, found)
			}
			return
		}
		if !reflect.DeepEqual(whole.Directory, pieces.Directory) || !reflect.DeepEqual(whole.Apps, pieces.Apps) || whole.Log != pieces.Log {
			t.Fatalf("%q: as a whole %+v, in pieces %+v", data, whole, pieces)
		}
		for i, d := range whole.Directory {
			for _, key := range []string{"kind", "user_id", "accepts", "accepts[0]", "sessions", "sessions[0]"} {
				key = fmt.Sprintf("directory[%d].%s", i, key)
				if a, b := whole.Source(key), pieces.Source(key); a != b {
					t.Fatalf("%q: %s of %+v from %s as a whole, from %s in pieces", data, key, d, a, b)
				}
			}
		}
	})
}

// FuzzKnown holds a file of which an earlier state is known to the same file read
// for the first time.
func FuzzKnown(f *testing.F) {
	for _, style := range []string{blockStyle, dumpedStyle, flowStyle} {
		f.Add([]byte(contacts(9, style)), uint8(60), uint16(200), uint8(7), []byte("7"))
		f.Add([]byte(contacts(9, style)), uint8(10), uint16(30), uint8(0), fmt.Appendf(nil, style, 10))
	}
	f.Fuzz(func(t *testing.T, data []byte, size uint8, at uint16, gone uint8, come []byte) {
		earlier, found, read := cutParse(data, int(size), nil)
		if read != nil || found != nil {
			return
		}
		begin := min(int(at), len(data))
		edited := slices.Concat(data[:begin], come, data[min(begin+int(gone), len(data)):])
		want, wrong, refused := cutParse(edited, int(size), nil)
		got, found, read := cutParse(edited, int(size), earlier)
		if fmt.Sprint(found, read) != fmt.Sprint(wrong, refused) {
			t.Fatalf("%q to %q: got %v, %v, want %v, %v", data, edited, found, read, wrong, refused)
		}
		if refused != nil {
			return
		}
		if !reflect.DeepEqual(got.Directory, want.Directory) || !reflect.DeepEqual(got.origins, want.origins) || !reflect.DeepEqual(got.cut.starts, want.cut.starts) {
			t.Fatalf("%q to %q: got %+v, want %+v", data, edited, got, want)
		}
		for i, p := range got.cut.pieces {
			if p.contacts != nil || p.values != want.cut.pieces[i].values || p.text != want.cut.pieces[i].text {
				t.Fatalf("%q to %q: got the piece %+v, want %+v", data, edited, p, want.cut.pieces[i])
			}
		}
	})
}
