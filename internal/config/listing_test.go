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
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/test/buildtest"
)

// contactLines are the lines of n entries.
func contactLines(n int) string {
	var b strings.Builder
	b.WriteString("# who is known\n\n")
	for i := range n {
		fmt.Fprintf(&b, `{"instance_id":"agent-%[1]d","user_id":"user-%[1]d","org_unit":"engineering","tenant_id":"acme","accepts":["public","internal"],"sessions":["telegram:%[1]d","irc:direct:%[1]d"]}`+"\n", i)
	}
	return b.String()
}

// withListing loads a configuration with a directory file.
func withListing(t testing.TB, yaml, lines string) (*Config, string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"ocipd.yaml": yaml + "\ndirectory_file: contacts.jsonl\n", "contacts.jsonl": lines} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Load(Options{File: filepath.Join(dir, "ocipd.yaml")})
	return c, dir, err
}

func TestDirectoryFile(t *testing.T) {
	c, dir, err := withListing(t, "directory: [{kind: person, sessions: ['irc:a']}]", "# mine\n"+
		`{"kind":"person","user_id":"dave","sessions":["telegram:4711"]}`+"\r\n\n"+
		`  {"instance_id":"carol-1","user_id":"carol","org_unit":"o","tenant_id":"acme","accepts":["public","internal"]}`+"\n"+
		`{"kind":"group","sessions":["irc:#x"],"members":["carol-1","telegram:4711"]}`)
	if err != nil {
		t.Fatal(err)
	}
	want := []Contact{
		{Kind: "person", UserID: "dave", Accepts: []string{"public"}, Sessions: []string{"telegram:4711"}},
		{Kind: "agent", InstanceID: "carol-1", UserID: "carol", OrgUnit: "o", TenantID: "acme", Accepts: []string{"public", "internal"}},
		{Kind: "group", Accepts: []string{"public"}, Sessions: []string{"irc:#x"}, Members: []string{"carol-1", "telegram:4711"}},
	}
	if got := contactsOf(c.Listed, 0, c.Listed.Len()); !reflect.DeepEqual(got, want) {
		t.Errorf("listed are\n%+v\nwant\n%+v", got, want)
	}
	var kinds []string
	for contact := range c.Contacts {
		kinds = append(kinds, contact.Kind)
	}
	if !slices.Equal(kinds, []string{"person", "person", "agent", "group"}) {
		t.Errorf("all are %q", kinds)
	}
	if got, want := c.Source("directory_file[1].tenant_id"), filepath.Join(dir, "contacts.jsonl")+":4"; got != want {
		t.Errorf("an entry comes from %s, want %s", got, want)
	}
	if got := c.Source("directory_file[3]"); got != SourceDefault {
		t.Errorf("no entry comes from %s", got)
	}
	// The configuration for people has no entries of the file, and names the file.
	if again := mustParse(t, string(mustRedact(t, c))); len(again.Directory) != 1 || again.DirectoryFile != "contacts.jsonl" || again.Listed != nil {
		t.Errorf("what is shown reads as %+v", again)
	}
}

func TestDirectoryFileErrors(t *testing.T) {
	const dave = `{"kind":"person","sessions":["telegram:4711"]}` + "\n"
	for _, tt := range []struct{ name, lines, want string }{
		{"no JSON", dave + "dave\n", "contacts.jsonl:2:1: cannot read JSON: invalid character 'd'"},
		{"no object", dave + "[1]\n", `contacts.jsonl:2:1: want an object such as {"kind":"person"`},
		{"cut short", dave + dave[:20], "contacts.jsonl:2:21: cannot read JSON: unexpected EOF"},
		{"two on a line", strings.TrimSpace(dave) + dave, "contacts.jsonl:1:47: cannot read JSON: "},
		{"unknown key", `{"kind":"person","session":["a:b"]}`, `contacts.jsonl:1:18: unknown key "session": did you mean "sessions"?`},
		{"unknown key far off", `{"colour":"red"}`, `unknown key "colour", want one of kind, instance_id`},
		{"case counts", `{"Kind":"person"}`, `unknown key "Kind": did you mean "kind"?`},
		{"duplicate key", `{"kind":"person","kind":"agent"}`, `duplicate key "kind"`},
		{"number for text", `{"user_id":7}`, `user_id: want text, got a number`},
		{"text for list", `{"sessions":"a:b"}`, `sessions: want a list of texts, got text`},
		{"number in a list", `{"sessions":["a:b",7]}`, `sessions.1: want text, got a number`},
		{"not UTF-8", "{\"user_id\":\"\xff\"}", `contacts.jsonl:1:13: cannot read JSON: invalid UTF-8`},
		{"long line", dave + `{"user_id":"` + strings.Repeat("x", maxEntryBytes) + `"}`, `contacts.jsonl:2: want an entry of at most 65536 bytes, got `},
		{"kind", `{"kind":"robot"}`, `contacts.jsonl:1: directory_file[0].kind: unknown kind "robot", want one of agent, person, group`},
		{"incomplete", "\n\n" + `{"instance_id":"i","user_id":"u","org_unit":"o"}`, `contacts.jsonl:3: directory_file[0].tenant_id: is required`},
		{"accepts nothing", `{"kind":"person","sessions":["a:b"],"accepts":[]}`, `want at least one level, or leave the key out for public`},
		{"session twice", dave + "# again\n" + dave, `contacts.jsonl:3: directory_file[1].sessions[0]: "telegram:4711" is taken by `},
		{"session of the configuration", `{"kind":"person","sessions":["irc:a"]}`, `"irc:a" is taken by directory[0].sessions[0]`},
		{"instance of an agent", `{"instance_id":"a-1","user_id":"u","org_unit":"o","tenant_id":"t"}`, `"a-1" is taken by agents[0].instance_id`},
		{"nobody in a group", `{"kind":"group","sessions":["a:b"],"members":["x"]}`, `contacts.jsonl:1: directory_file[0].members[0]: no agent and no entry has the instance_id "x"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := withListing(t, alice+"directory: [{kind: person, sessions: ['irc:a']}]", tt.lines)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got\n%v\n%v\nwant\n%s", c, err, tt.want)
			}
		})
	}
	t.Run("every line", func(t *testing.T) {
		_, dir, err := withListing(t, "", "x\n"+dave+`{"kind":7}`+"\n"+`{"kind":"robot"}`+"\n")
		var all Errors
		if !errors.As(err, &all) || len(all) != 3 {
			t.Fatalf("got %v", err)
		}
		for i, line := range []int{1, 3, 4} {
			if all[i].File != filepath.Join(dir, "contacts.jsonl") || all[i].Line != line {
				t.Errorf("problem %d is at %s:%d", i, all[i].File, all[i].Line)
			}
		}
	})
	t.Run("no file", func(t *testing.T) {
		file := write(t, t.TempDir(), "ocipd.yaml", "log: {}\ndirectory_file: /nowhere/contacts.jsonl\n")
		if _, err := Load(Options{File: file}); err == nil || err.Error() != file+":2:17: directory_file: cannot read /nowhere/contacts.jsonl: no such file or directory" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("beside nothing", func(t *testing.T) {
		if _, err := Load(Options{Env: []string{"OCIPD_DIRECTORY_FILE=contacts.jsonl"}}); err == nil || !strings.Contains(err.Error(), "want an absolute path, because there is no configuration file") {
			t.Errorf("got %v", err)
		}
	})
}

// A reload loads the changes of the file, reports the changed entries, and keeps the loaded
// ones if the file becomes empty.
func TestReloadADirectoryFile(t *testing.T) {
	text := contactLines(50)
	c, dir, err := withListing(t, "", text)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Reload(); err != nil || again != c {
		t.Fatalf("nothing changed, and there is another configuration: %v", err)
	}
	file := filepath.Join(dir, "contacts.jsonl")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(strings.Replace(text, "user-7", "user-x", 1) + `{"kind":"person","sessions":["irc:new"]}` + "\n")
	again, err := c.Reload()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	d := again.Since(c)
	for _, change := range d.Changes {
		paths = append(paths, change.Path)
	}
	if !slices.Equal(paths, []string{"directory_file.agent-7.user_id", `directory_file["irc:new"]`}) || !slices.Equal(d.Keys, []string{"directory_file"}) {
		t.Errorf("the difference is %q in %q", paths, d.Keys)
	}
	put(text + "x\n")
	if _, err := again.Reload(); err == nil || !strings.Contains(err.Error(), "contacts.jsonl:53:1: cannot read JSON") {
		t.Errorf("a broken line is %v", err)
	}
	put("\n")
	if _, err := again.Reload(); err == nil || !strings.Contains(err.Error(), "has become empty; for none, leave a line with a # in it") {
		t.Errorf("an empty file is %v", err)
	}
	put("# nobody\n")
	if none, err := again.Reload(); err != nil || none.Listed.Len() != 0 || none.Since(again).Count != 51 {
		t.Errorf("a file without entries is %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Reload(); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("no file is %v", err)
	}
	// It must not wait at a pipe: a daemon that reloads would hang.
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Reload(); err == nil || !strings.Contains(err.Error(), "it is no file") {
		t.Errorf("a pipe is %v", err)
	}
	if err := errors.Join(os.Remove(again.File), syscall.Mkfifo(again.File, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Reload(); err == nil || !strings.Contains(err.Error(), "it is no file") {
		t.Errorf("a pipe is %v", err)
	}
}

// TestHundredThousandContacts checks the promised size and its cost.
func TestHundredThousandContacts(t *testing.T) {
	const n = 100_000
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	text := contactLines(n)
	before := heap()
	c, _, err := withListing(t, "", text)
	if err != nil {
		t.Fatal(err)
	}
	if c.Listed.Len() != n || c.Listed.At(n - 1).Sessions[0] != fmt.Sprintf("telegram:%d", n-1) {
		t.Errorf("%d entries", c.Listed.Len())
	}
	if kept := heap() - before; kept > 120*n {
		t.Errorf("%d entries take %d bytes", n, kept)
	}
	runtime.KeepAlive(c)
}

// BenchmarkDirectoryFile measures a load with a directory of a hundred thousand agents.
func BenchmarkDirectoryFile(b *testing.B) {
	text := contactLines(100_000)
	c, dir, err := withListing(b, "", text)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if c, err = Load(Options{File: filepath.Join(dir, "ocipd.yaml")}); err != nil {
			b.Fatal(err)
		}
	}
	runtime.KeepAlive(c)
}

// BenchmarkReload measures a reload after a change of one line in such a directory, with
// the difference.
func BenchmarkReload(b *testing.B) {
	text := []byte(contactLines(100_000))
	c, dir, err := withListing(b, "", string(text))
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		edited := bytes.Replace(text, []byte(`"user-50000"`), fmt.Appendf(nil, `"x-%d"`, n), 1)
		if err := os.WriteFile(filepath.Join(dir, "contacts.jsonl"), edited, 0o600); err != nil {
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

// TestManyFaultsTakeNoLonger has a long list of invalid values.
func TestManyFaultsTakeNoLonger(t *testing.T) {
	var agents, routes, accepts strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&agents, "  - {id: a%d, app: a, instance_id: i%d, user_id: u, org_unit: o, tenant_id: t}\n", i, i)
		fmt.Fprintf(&routes, "  - {session: 'a:%d', agent: nobody%d}\n", i, i)
	}
	for i := range 90_000 {
		fmt.Fprintf(&accepts, "l%d, ", i)
	}
	for name, text := range map[string][2]string{
		"routes":  {"agents:\n" + agents.String() + "routes:\n" + routes.String(), ""},
		"accepts": {"directory: [{kind: person, sessions: ['a:b'], accepts: [" + accepts.String() + "]}]", ""},
		"lines":   {"", strings.Repeat("who is nobody is nobody, and who is nobody is not known to anybody at all\n", 100_000)},
		"entries": {"", strings.Repeat(`{"kind":"nobody","sessions":[""],"accepts":[]}`+"\n", 100_000)},
	} {
		began := buildtest.Used(t)
		_, _, err := withListing(t, text[0], text[1])
		var all Errors
		if !errors.As(err, &all) || len(all) != maxErrors || len(err.Error()) > 50_000 {
			t.Errorf("%s: got %d problems, %.100v", name, len(all), err)
		}
		if took := buildtest.Used(t) - began; took > 20*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
	}
}

func TestDirectoryFileBounds(t *testing.T) {
	if _, _, err := withListing(t, "", strings.Repeat("#", maxListingBytes+1)); err == nil || !strings.Contains(err.Error(), "it has more than 67108864 bytes") {
		t.Errorf("a long file is %v", err)
	}
}

// FuzzParseEntry checks that a valid line can be written, and reads as the same entry.
func FuzzParseEntry(f *testing.F) {
	for line := range strings.Lines(contactLines(2)) {
		f.Add([]byte(strings.TrimSpace(line)))
	}
	f.Add([]byte(`{"kind":"group","sessions":["irc:#x"],"members":["a"],"accepts":[]}`))
	f.Add([]byte(`{"kind":null,"sessions":null}`))
	f.Add([]byte(`{"user_id":"\ud800"}`))
	f.Add([]byte(`{"kind" : "person" ,	"accepts":["public" , "internal"], "sessions":[],"user_id":"é"}`))
	f.Add([]byte(`{"kind":"person","kind":"person"}`))
	f.Add([]byte(`{"user_id":"a\tb"}`))
	f.Add([]byte("{\"user_id\":\"\xff\"}"))
	f.Add([]byte("{\"user_id\":\"a\tb\"}"))
	f.Add([]byte(`{"sessions":["a",],"kind":"agent",}`))
	f.Add([]byte(`{"kind":"a"} {}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := ParseEntry(line)
		// What is read in one pass is what the library reads.
		if quick, ok := new(usual).parse(string(line)); ok {
			slow := Contact{Kind: defaultContact().Kind}
			if err := json.Unmarshal(line, &slow, json.RejectUnknownMembers(true)); err != nil || !reflect.DeepEqual(quick, slow) {
				t.Fatalf("%s reads as %+v, and by the library as %+v, %v", line, quick, slow, err)
			}
		}
		if err != nil {
			var fault *Error
			if !errors.As(err, &fault) || fault.Message == "" {
				t.Fatalf("got %#v", err)
			}
			return
		}
		again, err := ParseEntry(c.Line())
		if err != nil || !reflect.DeepEqual(again, c) {
			t.Errorf("%s reads as %+v, %v", c.Line(), again, err)
		}
	})
}
