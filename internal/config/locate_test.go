package config

import (
	"strings"
	"testing"
)

// Whoever looks for a daemon finds it by what a broken file says for certain, by the
// environment and by flags.
func TestLocate(t *testing.T) {
	const good = "ipc:\n  socket: /r/k.sock\nstore:\n  url: /s/x.db\naudit:\n  mirror: /m/a.jsonl\n  # a comment\n  keys: /k\n  checkpoints: /c\n"
	const all = "/r/k.sock /s/x.db /m/a.jsonl /k /c"
	const none = "? ? ? ? ?"
	const torn = "\nagents: [oops\n"
	for _, tt := range []struct {
		name, text string
		env        []string
		flag       string
		broken     bool
		// want are the places, a question mark for one that is in doubt.
		want string
	}{
		{"good", good, nil, "", false, all},
		{"unknown key", "polcy: 1\n" + good, nil, "", true, all},
		{"nothing of it", "polcy: 1\n", nil, "", true, "    "},
		{"unknown key in between", "ipc:\n  sockt: x\n  socket: /r/k.sock\n", nil, "", true, "/r/k.sock    "},
		{"in quotes", "ipc:\n  socket: '/r/k.sock'\nstore:\n  url: \"/s/x.db\"\n" + torn, nil, "", true, "/r/k.sock /s/x.db ? ? ?"},
		{"no YAML above", "agents: [\n" + good, nil, "", true, none},
		{"no YAML below", good + "agents: {\n", nil, "", true, all},
		{"no YAML in between", "ipc:\n  socket: /r/k.sock\nagents: [oops\nstore:\n  url: /s/x.db\n", nil, "", true, "/r/k.sock ?   "},
		{"none of it, and no YAML above", "agents: [oops\nlog:\n  level: info\n", nil, "", true, "    "},
		{"lists at the margin", "ipc:\n  socket: /r/k.sock\nroutes:\n- a: [\n", nil, "", true, "/r/k.sock ? ? ? ?"},
		{"of the defaults' file", "# ipc of it\nipc:\n  # the socket\n  socket: \"\"\n\n  max_in_flight: 1\nmetrics:\n  socket: \"\"\nagents: [\n", nil, "", true, " ? ? ? ?"},
		{"line ends of Windows", "ipc:\r\n  socket: /r/k.sock\r\n" + torn, nil, "", true, "/r/k.sock ? ? ? ?"},
		{"in braces", `{"ipc": {"socket": "/r/k.sock"}, polcy: 1}`, nil, "", true, "/r/k.sock    "},
		{"over lines", "ipc: {\n  socket: /r/k.sock\n}\npolcy: 1\n", nil, "", true, "/r/k.sock    "},
		{"aliases in whole YAML", "polcy: &x /r/k.sock\nipc: {socket: *x}\n", nil, "", true, "?    "},
		{"nothing as a value", "polcy: 1\nipc:\n  socket:\nstore:\n", nil, "", true, "    "},
		{"no text", "ipc: {socket: 12}\nstore: [x]\naudit: {mirror: [x]}\n", nil, "", true, "? ? ?  "},
		{"anchor of another section", "log: {level: &x info}\nipc: {socket: *x}\n", nil, "", false, "info    "},
		{"variables", "polcy: 1\n" + good, []string{"OCIPD_IPC_SOCKET=/v/k", "OCIPD_AUDIT_KEYS=/v"}, "", true, "/v/k /s/x.db /m/a.jsonl /v /c"},
		{"variables in place of what is in doubt", "agents: [\n", []string{"OCIPD_IPC_SOCKET=/v/k", "OCIPD_AUDIT_KEYS="}, "", true, "/v/k ? ?  ?"},
		{"a broken variable", good, []string{"OCIPD_LOG_LEVEL=loud"}, "", true, all},
		{"a broken variable and a last line without an end", strings.TrimSuffix(good, "\n"), []string{"OCIPD_LOG_LEVEL=loud"}, "", true, all},
		{"the apps' variable", "polcy: 1\n" + good, []string{"OCIPD_IPC_SOCKET=/v/k", "OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "", true, "/o/k /s/x.db /m/a.jsonl /k /c"},
		{"a flag", "polcy: 1\n" + good, []string{"OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "/f/k", true, "/f/k /s/x.db /m/a.jsonl /k /c"},
		{"a flag in place of what is in doubt", "ipc: [", nil, "/f/k", true, "/f/k ? ? ? ?"},
		{"a long section", "ipc:\n  socket: /r/k.sock\n" + strings.Repeat("  x: 1\n", 1000) + "store: [\n", nil, "", true, "/r/k.sock ? ? ? ?"},

		{"cut in the value", "polcy: 1\nipc:\n  socket: /r/k.so", nil, "", true, "? ? ? ? ?"},
		{"cut in quotes", "ipc:\n  socket: \"/r/k.so", nil, "", true, none},
		{"cut in quotes at a line's end", "ipc:\n  socket: \"/r/k.so\n", nil, "", true, none},
		{"cut above", "agents:\n  - id: \"@acm", nil, "", true, none},
		{"cut above at a line's end", "log:\n  level: info\nagents: [oops\n", nil, "", true, none},
		{"cut below", "polcy: 1\nipc:\n  socket: /r/k.sock\nlog:\n  lev", nil, "", true, "/r/k.sock ? ? ? ?"},
		{"a tab in a section", "ipc:\n  socket: /r/k.sock\n\tmax: 1\n", nil, "", true, none},
		{"a tab before it", "ipc:\n\tsocket: /r/k.sock\n", nil, "", true, none},
		{"a value that goes on", "ipc:\n  socket: /r\n    /k: x: y\n", nil, "", true, none},
		{"other columns", "ipc:\n  socket: /r/k.sock\n bad\n", nil, "", true, none},
		{"all indented", "  ipc:\n    socket: /r/k.sock\n  agents: [oops\n", nil, "", true, none},
		{"all indented, and none of it", "  log:\n    level: [\n", nil, "", true, none},
		{"braces in what is no YAML", "---\n{ipc: {socket: /r/k.sock}, agents: [oops}\n", nil, "", true, none},
		{"an anchor", "ipc:\n  socket: &s /r/k.sock\n" + torn, nil, "", true, none},
		{"an alias", "s: &s /r/k.sock\nipc:\n  socket: *s\n" + torn, nil, "", true, none},
		{"twice", "ipc:\n  socket: /r/k.sock\nipc:\n  socket: /r/l.sock\n", nil, "", true, "?    "},
		{"twice in a section", "ipc:\n  socket: /r/k.sock\n  socket: /r/l.sock\n", nil, "", true, "?    "},
		{"twice, and torn", "ipc:\n  socket: /r/k.sock\nipc:\n  socket: /r/l.sock\n" + torn, nil, "", true, none},
		{"twice in a torn section", "ipc:\n  socket: /r/k.sock\n  socket: /r/l.sock\n" + torn, nil, "", true, none},
		{"a text that looks like it", "note: |\n ipc:\n  socket: /r/k.sock\n" + torn, nil, "", true, none},
		{"a quoted text that looks like it", "note: \"\nipc:\n  socket: /r/k.sock\n\"\n" + torn, nil, "", true, none},
		{"a text as the document", "--- |\nipc:\n  socket: /r/k.sock\n\x00", nil, "", true, none},
		{"two documents", "ipc:\n  socket: /r/k.sock\n---\nipc:\n  socket: /r/l.sock\n", nil, "", true, none},
		{"two documents, and torn", "ipc:\n  socket: /r/k.sock\n---\nlog: [\n", nil, "", true, none},
		{"a mark of the byte order", "\ufeffipc:\n  socket: /r/k.sock\n" + torn, nil, "", true, none},
		{"no UTF-8", "ipc:\n  socket: /r/k.sock\n# \xff\n", nil, "", true, none},
		{"line ends of long ago", "log:\n  level: [\ripc:\r  socket: /r/k.sock\r", nil, "", true, none},
		{"quoted keys", "'ipc':\n  'socket': /r/k.sock\n" + torn, nil, "", true, none},
		{"explicit keys", "? ipc\n: socket: /r/k.sock\n" + torn, nil, "", true, none},
		{"a merge", "x: &x {socket: /r/k.sock}\nipc:\n  <<: *x\n", nil, "", true, none},
		{"two edits that met", "ipc:\n  socket: /r/k.sock\n<<<<<<< HEAD\n=======\n  socket: /r/l.sock\n>>>>>>> b\n", nil, "", true, none},
		{"a slip in the section's name", "icp:\n  socket: /r/k.sock\n", nil, "", true, "?    "},
		{"a slip in the key", "ipc:\n  sockt: /r/k.sock\n", nil, "", true, "?    "},
		{"in another section", "log:\n  socket: /r/k.sock\n", nil, "", true, "?    "},
		{"no section", "socket: /r/k.sock\n", nil, "", true, "?    "},
		{"no mapping", "- ipc\n", nil, "", true, none},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := Options{File: write(t, t.TempDir(), "ocipd.yaml", tt.text), Env: tt.env}
			if tt.flag != "" {
				opts.Flags = map[string]any{"ipc.socket": tt.flag}
			}
			c, err := Locate(opts)
			if c == nil || (err != nil) != tt.broken {
				t.Fatalf("got %v, %v", c, err)
			}
			var got []string
			for _, key := range []string{"ipc.socket", "store.url", "audit.mirror", "audit.keys", "audit.checkpoints"} {
				value := *c.places()[key]
				if err := c.Certain(key); err != nil {
					if value != "" || !strings.HasPrefix(err.Error(), "cannot tell what "+key+" is in "+opts.File+": ") {
						t.Errorf("%q and %v", value, err)
					}
					value = "?"
				}
				got = append(got, value)
			}
			if strings.Join(got, " ") != tt.want || c.File != opts.File {
				t.Errorf("%s: got %q, want %q", c.File, got, tt.want)
			}
		})
	}
	if c, err := Locate(Options{File: t.TempDir() + "/none"}); c != nil || err == nil {
		t.Errorf("a file that was named and is not there: %v, %v", c, err)
	}
	if c, err := Locate(Options{Env: []string{"HOME=" + t.TempDir()}}); c == nil || err != nil {
		t.Errorf("no file: %v, %v", c, err)
	}
	if c, err := Locate(Options{Env: []string{"HOME=" + t.TempDir(), "OCIPD_LOG_LEVEL=loud"}}); c == nil || err == nil || c.Certain(placeKeys()...) != nil {
		t.Errorf("no file and a broken variable: %v, %v", c, err)
	}
	if c, err := Locate(Options{File: t.TempDir()}); c == nil || err == nil || c.Certain(socketKey) == nil {
		t.Errorf("a directory for a file: %v, %v", c, err)
	}
}

// However a file is cut, what is found in it is what it said, or it is in doubt.
func TestLocateCut(t *testing.T) {
	for _, text := range []string{
		"polcy: 1\nagents:\n  - id: '@acme/a'\nipc:\n  apps_may_operate: true\n  socket: /r/kernel.sock\nlog: {level: info}\n",
		"ipc:\n  socket: \"/r/kernel.sock\" # here\n  max_in_flight: 3\nagents:\n- id: [\n",
		"{ipc: {socket: /r/kernel.sock}, polcy: 1}\n",
	} {
		value := strings.Index(text, "/r/kernel")
		for n := range len(text) {
			torn := text[:n]
			if _, err := Parse("x", []byte(torn)); err == nil || n < value && strings.HasSuffix(torn, "\n") {
				// Nothing shows that it was cut.
				continue
			}
			if got := readPlaces("x", []byte(torn))[socketKey]; got.doubt == "" && got.value != "/r/kernel.sock" {
				t.Errorf("%q: the socket is %q", torn, got.value)
			}
		}
	}
}

func FuzzLocate(f *testing.F) {
	f.Add("ipc:\n  socket: /x\n\t}\nstore: {url: [}\n")
	f.Add("{ipc: {socket: a}")
	f.Add("ipc:\n  socket: /x\nlog: {level: info}\n")
	f.Fuzz(func(t *testing.T, text string) {
		for key, at := range readPlaces("x", []byte(text)) {
			if Default().places()[key] == nil || at.doubt != "" && at.value != "" {
				t.Errorf("%s is %+v", key, at)
			}
		}
		// What a whole file says is what is found where something below it is
		// broken, or is in doubt.
		c, err := Parse("x", []byte(text))
		if err != nil || !strings.HasSuffix(text, "\n") {
			return
		}
		for key, at := range readPlaces("x", []byte(text+"zzz: [oops\n")) {
			if want := *c.places()[key]; at.doubt == "" && at.value != want {
				t.Errorf("%s is %q, found is %q", key, want, at.value)
			}
		}
	})
}

// A variable wins over the file, the apps' own over ocipd's, and a flag over all.
func TestSocketPrecedence(t *testing.T) {
	file := write(t, t.TempDir(), "ocipd.yaml", "ipc: {socket: /file/k}\n")
	for _, tt := range []struct {
		env          []string
		flag         any
		want, source string
	}{
		{nil, nil, "/file/k", file + ":1"},
		{[]string{"OCIPD_IPC_SOCKET=/own/k"}, nil, "/own/k", "OCIPD_IPC_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k"}, nil, "/apps/k", "OPENCLAWOS_KERNEL_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k", "OCIPD_IPC_SOCKET=/own/k"}, nil, "/apps/k", "OPENCLAWOS_KERNEL_SOCKET"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET="}, nil, "/file/k", file + ":1"},
		{[]string{"OPENCLAWOS_KERNEL_SOCKET=/apps/k"}, "/flag/k", "/flag/k", "flag ipc.socket"},
	} {
		c, err := Load(Options{File: file, Env: tt.env, Flags: map[string]any{"ipc.socket": tt.flag}})
		if err != nil {
			t.Fatal(err)
		}
		env := environ(tt.env)
		if got := SocketPath(c, func(name string) string { return env[name] }); got != tt.want || c.Source("ipc.socket") != tt.source {
			t.Errorf("%q and flag %v: %s from %s, want %s from %s", tt.env, tt.flag, got, c.Source("ipc.socket"), tt.want, tt.source)
		}
	}
	_, err := Load(Options{File: file, Env: []string{"OPENCLAWOS_KERNEL_SOCKET=/x/operator.sock"}})
	if err == nil || !strings.HasPrefix(err.Error(), "OPENCLAWOS_KERNEL_SOCKET: ipc.socket: operator.sock is the name") {
		t.Errorf("the operators' socket as the apps': %v", err)
	}
}
