package config

import (
	"fmt"
	"os"
	"testing"
)

// own is a path in the user's directory without XDG_RUNTIME_DIR: no two users share one.
func own(name string) string { return fmt.Sprintf("/tmp/openclawos-%d/%s", os.Geteuid(), name) }

func TestLocations(t *testing.T) {
	for _, tt := range []struct {
		name              string
		env               map[string]string
		socket, url, file string // configuration
		wantFile, wantSocket, wantOperator,
		wantDatabase, wantMirror string
	}{
		{
			name:         "bare",
			wantSocket:   own("kernel.sock"),
			wantOperator: own("operator.sock"),
		},
		{
			name:         "home",
			env:          map[string]string{"HOME": "/h", "XDG_STATE_HOME": "relative", "XDG_RUNTIME_DIR": "relative"},
			wantFile:     "/h/.config/openclawos/ocipd.yaml",
			wantSocket:   own("kernel.sock"),
			wantOperator: own("operator.sock"),
			wantDatabase: "/h/.local/state/openclawos/ocipd.db",
			wantMirror:   "/h/.local/state/openclawos/audit.jsonl",
		},
		{
			name:         "xdg",
			env:          map[string]string{"HOME": "/h", "XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "XDG_RUNTIME_DIR": "/r"},
			wantFile:     "/c/openclawos/ocipd.yaml",
			wantSocket:   "/r/openclawos/kernel.sock",
			wantOperator: "/r/openclawos/operator.sock",
			wantDatabase: "/s/openclawos/ocipd.db",
			wantMirror:   "/s/openclawos/audit.jsonl",
		},
		{
			name:         "variable",
			env:          map[string]string{"OPENCLAWOS_KERNEL_SOCKET": "/v/k.sock", "XDG_RUNTIME_DIR": "/r"},
			url:          "sqlite:///d/x.db?mode=rw",
			wantSocket:   "/v/k.sock",
			wantOperator: "/v/operator.sock",
			wantDatabase: "/d/x.db",
			wantMirror:   "/d/audit.jsonl",
		},
		{
			name:   "configured",
			env:    map[string]string{"OPENCLAWOS_KERNEL_SOCKET": "/v/k.sock"},
			socket: "/c/k.sock", url: "postgres://db/x", file: "/m.jsonl",
			wantSocket:   "/c/k.sock",
			wantOperator: "/c/operator.sock",
			wantMirror:   "/m.jsonl",
		},
		{
			name:         "path",
			url:          "/d:1/x.db",
			wantSocket:   own("kernel.sock"),
			wantOperator: own("operator.sock"),
			wantDatabase: "/d:1/x.db",
			wantMirror:   "/d:1/audit.jsonl",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			getenv := func(name string) string { return tt.env[name] }
			c := Default()
			c.IPC.Socket, c.Store.URL, c.Audit.Mirror = tt.socket, tt.url, tt.file
			socket, database := SocketPath(c, getenv), DatabasePath(c, getenv)
			for _, check := range []struct{ what, got, want string }{
				{"file", FilePath(getenv), tt.wantFile},
				{"socket", socket, tt.wantSocket},
				{"operator socket", OperatorPath(socket), tt.wantOperator},
				{"database", database, tt.wantDatabase},
				{"mirror", MirrorPath(c, database), tt.wantMirror},
			} {
				if check.got != check.want {
					t.Errorf("%s is %q, want %q", check.what, check.got, check.want)
				}
			}
			if asked := ConfiguredSocket(c, getenv) != ""; asked != (tt.name == "variable" || tt.name == "configured") {
				t.Errorf("a socket was configured: %v", asked)
			}
		})
	}
}

func TestPathsBesideTheDatabase(t *testing.T) {
	for _, tt := range []struct{ configured, database, want string }{
		{"", "/d/x.db", "/d/"},
		{"/k", "/d/x.db", "/k"},
		{"/k", "", "/k"},
		{"", "", ""},
	} {
		c := Default()
		c.Audit.Mirror, c.Audit.Keys, c.Audit.Checkpoints = tt.configured, tt.configured, tt.configured
		for name, got := range map[string]string{
			"audit.jsonl": MirrorPath(c, tt.database), "keys": KeysPath(c, tt.database), "audit-checkpoints.jsonl": CheckpointsPath(c, tt.database),
		} {
			want := tt.want
			if want == "/d/" {
				want += name
			}
			if got != want {
				t.Errorf("%s configured as %q beside %q is %q, want %q", name, tt.configured, tt.database, got, want)
			}
		}
	}
}

// Place files are in a directory that belongs to one user.
func TestRunningPath(t *testing.T) {
	for _, tt := range []struct{ runtime, socket, want string }{
		{"/run/user/1000", "/run/user/1000/openclawos/kernel.sock", "/run/user/1000/openclawos/running"},
		{"/run/user/1000", "/elsewhere/kernel.sock", "/run/user/1000/openclawos/running"},
		{"", own("kernel.sock"), own("running")},
		{"", "/elsewhere/kernel.sock", ""},
		{"relative", "/elsewhere/kernel.sock", ""},
	} {
		if got := RunningPath(tt.socket, only("XDG_RUNTIME_DIR", tt.runtime)); got != tt.want {
			t.Errorf("%q, %s: %q, want %q", tt.runtime, tt.socket, got, tt.want)
		}
	}
}

func only(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}
