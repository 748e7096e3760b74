package config

import (
	"fmt"
	"strings"
	"testing"
)

// Whoever looks for a daemon finds it by what can be read of a broken file, by the
// environment and by flags.
func TestLocate(t *testing.T) {
	const good = "ipc:\n  socket: /r/k.sock\nstore: {url: /s/x.db}\naudit:\n  mirror: /m/a.jsonl\n  # a comment\n  keys: /k\n  checkpoints: /c\n"
	const all = "/r/k.sock /s/x.db /m/a.jsonl /k /c"
	for _, tt := range []struct {
		name, text string
		env        []string
		flag       string
		broken     bool
		want       string
	}{
		{"good", good, nil, "", false, all},
		{"unknown key", "polcy: 1\n" + good, nil, "", true, all},
		{"nothing of it", "polcy: 1\n", nil, "", true, "    "},
		{"unknown key in between", "ipc:\n  sockt: x\n  socket: /r/k.sock\n", nil, "", true, "/r/k.sock    "},
		{"no YAML above", "agents: [\n" + good, nil, "", true, all},
		{"no YAML below", good + "agents: {\n", nil, "", true, all},
		{"a tab in a section", "ipc:\n  socket: /r/k.sock\n\tmax: 1\nstore: {url: /s/x.db}\n", nil, "", true, "/r/k.sock /s/x.db   "},
		{"in braces", `{"ipc": {"socket": "/r/k.sock"}, polcy: 1}`, nil, "", true, "/r/k.sock    "},
		{"over lines", "ipc: {\n  socket: /r/k.sock\n}\npolcy: 1\n", nil, "", true, "/r/k.sock    "},
		{"no text", "ipc: {socket: 12}\nstore: [x]\naudit: {mirror: [x]}\n", nil, "", true, "    "},
		{"anchor of another section", "log: {level: &x info}\nipc: {socket: *x}\n", nil, "", false, "info    "},
		{"variables", "polcy: 1\n" + good, []string{"OCIPD_IPC_SOCKET=/v/k", "OCIPD_AUDIT_KEYS=/v"}, "", true, "/v/k /s/x.db /m/a.jsonl /v /c"},
		{"a broken variable", good, []string{"OCIPD_LOG_LEVEL=loud"}, "", true, all},
		{"the apps' variable", "polcy: 1\n" + good, []string{"OCIPD_IPC_SOCKET=/v/k", "OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "", true, "/o/k /s/x.db /m/a.jsonl /k /c"},
		{"a flag", "polcy: 1\n" + good, []string{"OPENCLAWOS_KERNEL_SOCKET=/o/k"}, "/f/k", true, "/f/k /s/x.db /m/a.jsonl /k /c"},
		{"a long section", "ipc:\n  socket: /r/k.sock\n" + strings.Repeat("  x: 1\n", 1000) + "store: {url: /s/x.db}\n", nil, "", true, " /s/x.db   "},
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
			if got := fmt.Sprint(c.IPC.Socket, " ", c.Store.URL, " ", c.Audit.Mirror, " ", c.Audit.Keys, " ", c.Audit.Checkpoints); got != tt.want || c.File != opts.File {
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
}

func FuzzLocate(f *testing.F) {
	f.Add("ipc:\n  socket: /x\n\t}\nstore: {url: [}\n")
	f.Add("{ipc: {socket: a}")
	f.Fuzz(func(t *testing.T, text string) {
		found := placesIn([]byte(text))
		for key := range found {
			if Default().places()[key] == nil {
				t.Errorf("%s is no place", key)
			}
		}
		// What a whole file says is found in it, where it is read as written.
		c, err := Parse("x", []byte(text))
		if err != nil || strings.ContainsAny(text, "&*") || !strings.HasPrefix(text, "ipc:\n") {
			return
		}
		if c.IPC.Socket != "" && found[socketKey] != c.IPC.Socket && len(text) < maxSectionLines {
			t.Errorf("the socket is %q, found is %q", c.IPC.Socket, found[socketKey])
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
