package systemd

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// unitFiles writes the units with a program that is there, and returns their paths.
func unitFiles(t *testing.T) (paths []string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not here: it is in Debian's package systemd")
	}
	dir := t.TempDir()
	for _, variable := range []string{"HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(variable, dir)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		ServiceName: Service(), SocketName: Socket(), RunnerName: Runner(), ConsoleName: Console(), ConsoleSocketName: ConsoleSocket([]string{"127.0.0.1:20001", "[::1]:20001"}),
	} {
		paths = append(paths, filepath.Join(dir, name))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, Program, program)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func TestVerify(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"verify", "--user"}, unitFiles(t)...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// setting is one that systemd-analyze looks at.
type setting struct {
	Name  string `json:"name"`
	Field string `json:"json_field"`
	Set   *bool  `json:"set"`
}

// limit is the worst score allowed, of 10.
const limit = 2.0

// TestSecurity wants a good score among the settings that an ordinary user's
// service manager can apply. security-policy.json gives the others no weight; the
// unit says why.
func TestSecurity(t *testing.T) {
	dir := filepath.Dir(unitFiles(t)[0])
	for _, name := range []string{ServiceName, ConsoleName} {
		t.Run(name, func(t *testing.T) { testSecurity(t, filepath.Join(dir, name)) })
	}
}

func testSecurity(t *testing.T, service string) {
	t.Helper()
	analyze := func(args ...string) []byte {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "systemd-analyze", append([]string{"security", "--user", "--no-pager", "--offline=true"}, append(args, service)...)...).Output()
		if err != nil && len(out) == 0 {
			t.Fatal(err)
		}
		return out
	}
	score := func(args ...string) float64 {
		t.Helper()
		found := regexp.MustCompile(`Overall exposure level for ` + filepath.Base(service) + `: ([0-9.]+) `).FindSubmatch(analyze(args...))
		if found == nil {
			t.Fatal("systemd-analyze says no score")
		}
		value, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	all, applicable := score(), score("--security-policy=security-policy.json")
	t.Logf("exposure %.1f; with the settings that only the system's manager has, %.1f", applicable, all)
	if applicable > limit {
		t.Errorf("the exposure is %.1f, want %.1f or less", applicable, limit)
	}

	// What is left out must exist, must not be set, and must be what the unit
	// names.
	var policy map[string]struct {
		Weight *int `json:"weight"`
	}
	text, err := os.ReadFile("security-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &policy); err != nil {
		t.Fatal(err)
	}
	var settings []setting
	if err := json.Unmarshal(analyze("--json=short"), &settings); err != nil {
		t.Fatal(err)
	}
	for field, p := range policy {
		i := slices.IndexFunc(settings, func(s setting) bool { return s.Field == field })
		switch {
		case i < 0:
			t.Errorf("%s is no setting", field)
		case p.Weight == nil || *p.Weight != 0:
			t.Errorf("%s has a weight of its own", field)
		case settings[i].Set != nil && *settings[i].Set:
			t.Errorf("%s is set and not counted", settings[i].Name)
		}
	}
}

// TestNoNamespace holds what the unit's last comment says: none of these, since
// each would take the daemon's sight of apps' executables and users, and the console's
// of browsers.
func TestNoNamespace(t *testing.T) {
	for line := range strings.Lines(Service() + Console()) {
		name, _, set := strings.Cut(strings.TrimSpace(line), "=")
		if !set || strings.HasPrefix(name, "#") {
			continue
		}
		for _, forbidden := range []string{
			"Private", "ProtectSystem", "ProtectHome", "ProtectProc", "ProcSubset", "ProtectKernel", "ProtectControlGroups", "ProtectClock",
			"ProtectHostname", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "NoExecPaths", "BindPaths", "BindReadOnlyPaths",
			"TemporaryFileSystem", "CapabilityBoundingSet", "Root", "MountAPIVFS", "NetworkNamespacePath", "IPCNamespacePath",
		} {
			if strings.HasPrefix(name, forbidden) {
				t.Errorf("%s= is set", name)
			}
		}
	}
}

// TestRunnerIsItsOwn holds that commands outlive the runner, have none of the daemon's
// filters, and that nothing of the daemon starts the runner.
func TestRunnerIsItsOwn(t *testing.T) {
	for _, want := range []string{"ExecStart=" + Program + " runner", "KillMode=process", "WantedBy=default.target", "Restart=on-failure"} {
		if !slices.Contains(strings.Split(Runner(), "\n"), want) {
			t.Errorf("%s has no line %s", RunnerName, want)
		}
	}
	for line := range strings.Lines(Runner()) {
		name, _, set := strings.Cut(strings.TrimSpace(line), "=")
		for _, filter := range []string{"MemoryDenyWriteExecute", "SystemCall", "Restrict", "NoNewPrivileges", "LockPersonality", "Private", "Protect"} {
			if set && strings.HasPrefix(name, filter) {
				t.Errorf("%s= would hold for the commands", name)
			}
		}
	}
	for _, unit := range []string{Service(), Socket()} {
		if strings.Contains(unit, "runner") {
			t.Error("a unit of the daemon's names the runner, which is off until asked for")
		}
	}
}

// What the daemon and the service manager share must be told both the same.
func TestUnitsFitTheDaemon(t *testing.T) {
	for _, want := range []string{
		"Type=notify", "NotifyAccess=main", "RuntimeDirectory=openclawos", "RuntimeDirectoryMode=0700", "RuntimeDirectoryPreserve=yes", "StateDirectory=openclawos",
		"Restart=on-failure", "ExecStart=" + Program + " serve",
	} {
		if !slices.Contains(strings.Split(Service(), "\n"), want) {
			t.Errorf("%s has no line %s", ServiceName, want)
		}
	}
	for _, want := range []string{"ListenStream=%t/openclawos/kernel.sock", "ListenStream=%t/openclawos/operator.sock", "SocketMode=0600", "DirectoryMode=0700"} {
		if !slices.Contains(strings.Split(Socket(), "\n"), want) {
			t.Errorf("%s has no line %s", SocketName, want)
		}
	}
}

// The console's sockets hold all its addresses, and no limit of starts closes them.
func TestConsoleSocket(t *testing.T) {
	unit := ConsoleSocket([]string{"127.0.0.1:20001", "[::1]:20001"})
	var listen []string
	for line := range strings.Lines(unit) {
		if at, ok := strings.CutPrefix(line, "ListenStream="); ok {
			listen = append(listen, strings.TrimSpace(at))
		}
	}
	if want := []string{"127.0.0.1:20001", "[::1]:20001", "%t/openclawos/console.sock"}; !slices.Equal(listen, want) {
		t.Errorf("it listens at %q, want %q", listen, want)
	}
	for _, want := range []string{"SocketMode=0600", "DirectoryMode=0700", "BindIPv6Only=ipv6-only", "WantedBy=sockets.target"} {
		if !slices.Contains(strings.Split(unit, "\n"), want) {
			t.Errorf("%s has no line %s", ConsoleSocketName, want)
		}
	}
	for _, want := range []string{"StartLimitIntervalSec=0", "Restart=on-failure", "Requires=" + ConsoleSocketName, "ExecStart=" + Program + " console"} {
		if !slices.Contains(strings.Split(Console(), "\n"), want) {
			t.Errorf("%s has no line %s", ConsoleName, want)
		}
	}
}
