package service

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/systemd"
)

// host is a home with a service manager that records its commands.
type host struct {
	*Manager
	t         *testing.T
	home      string
	out, said bytes.Buffer
}

// newHost makes a host. script is the body of systemctl, with its arguments in $*.
func newHost(t *testing.T, script string) *host {
	t.Helper()
	h := &host{t: t, home: t.TempDir()}
	h.Manager = &Manager{&cli.Process{
		Stdout: &h.out, Stderr: &h.said, Version: "2.0.0",
		Env: []string{"HOME=" + h.home, "XDG_DATA_DIRS=" + h.home + "/share", "PATH=" + h.home + "/bin", "ASKED=" + h.home + "/asked"},
	}}
	h.write("bin/systemctl", "#!/bin/sh\necho \"$*\" >>\"$ASKED\"\n"+script+"\n", 0o700)
	t.Setenv("PATH", h.home+"/bin:"+os.Getenv("PATH"))
	return h
}

func (h *host) write(name, text string, mode os.FileMode) {
	h.t.Helper()
	path := filepath.Join(h.home, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode)); err != nil {
		h.t.Fatal(err)
	}
}

// asked are the service manager's commands.
func (h *host) asked() string {
	text, err := os.ReadFile(filepath.Join(h.home, "asked"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		h.t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "--user --no-pager ", "")
}

// files are the files below the home, without its programs.
func (h *host) files() (names []string) {
	err := filepath.WalkDir(h.home, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(h.home, path)
		if !e.IsDir() && !strings.HasPrefix(name, "bin/") && name != "asked" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return names
}

func (h *host) installation(dryRun bool) *Installation {
	h.t.Helper()
	i, err := h.Installation(h.t.Context(), func(dataHome, _ string) ([]File, error) {
		return []File{{filepath.Join(dataHome, "man", "man1", "ocipd.1"), []byte("a page")}}, nil
	}, dryRun)
	if err != nil {
		h.t.Fatal(err)
	}
	i.program, i.booted = h.home+"/bin/ocipd", h.home
	return i
}

const (
	socketUnit  = ".config/systemd/user/" + systemd.SocketName
	serviceUnit = ".config/systemd/user/" + systemd.ServiceName
	runnerUnit  = ".config/systemd/user/ocipd-runner.service"
	page        = ".local/share/man/man1/ocipd.1"
)

func TestInstallAndUninstall(t *testing.T) {
	h := newHost(t, "")
	if err := h.installation(true).Install(Wanted{}); err != nil {
		t.Fatal(err)
	}
	if got := h.files(); len(got) > 0 || h.asked() != "" || !strings.Contains(h.out.String(), "would write "+h.home+"/"+socketUnit) || !strings.Contains(h.out.String(), "would run systemctl --user enable --now ") {
		t.Errorf("a rehearsal leaves %q, asks %q and says\n%s", got, h.asked(), &h.out)
	}
	for range 2 {
		if err := h.installation(false).Install(Wanted{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := h.files(); !slices.Equal(got, []string{runnerUnit, serviceUnit, socketUnit, page}) {
		t.Errorf("installed: %q", got)
	}
	unit, err := os.ReadFile(filepath.Join(h.home, serviceUnit))
	if err != nil || !strings.Contains(string(unit), "="+h.home+"/bin/ocipd serve\n") {
		t.Errorf("%v, the unit is\n%s", err, unit)
	}
	if asked := h.asked(); strings.Count(asked, "daemon-reload\nenable --now ocipd.socket ocipd.service\n") != 2 || strings.Contains(asked, "restart ") {
		t.Errorf("it asks\n%s", asked)
	}
	if !strings.Contains(h.out.String(), "left the units in ") {
		t.Errorf("the second time it says\n%s", &h.out)
	}
	for _, dir := range []string{".config/openclawos", ".local/state/openclawos"} {
		if info, err := os.Stat(filepath.Join(h.home, dir)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}

	h.write(".local/state/openclawos/ocipd.db", "messages", 0o600)
	h.write(".config/systemd/user/mine.service", "mine", 0o600)
	h.out.Reset()
	if err := h.installation(false).Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := h.files(); !slices.Equal(got, []string{".config/systemd/user/mine.service", ".local/state/openclawos/ocipd.db"}) {
		t.Errorf("uninstalled, there stays %q", got)
	}
	if said := h.out.String(); !strings.Contains(said, "messages, records and keys  "+h.home) || !strings.Contains(h.asked(), "disable --now ") || !strings.Contains(said, "removed units") {
		t.Errorf("it says\n%s", said)
	}
	h.out.Reset()
	if err := h.installation(false).Uninstall(); err != nil || !strings.Contains(h.out.String(), "nothing of the service is installed") {
		t.Errorf("again: %v\n%s", err, &h.out)
	}
}

// A service that runs another program, or another unit, is restarted.
func TestInstallRestartsWhatIsStale(t *testing.T) {
	h := newHost(t, `case "$*" in *show\ ocipd.service*) printf 'ActiveState=active\nMainPID=%s\n' $$;; esac`)
	if err := h.installation(false).Install(Wanted{}); err != nil {
		t.Fatal(err)
	}
	if asked := h.asked(); !strings.HasSuffix(asked, "restart ocipd.service\ntry-restart ocipd-runner.service\n") {
		t.Errorf("it asks\n%s", asked)
	}
}

func TestInstallWithoutManager(t *testing.T) {
	h := newHost(t, `echo "Failed to connect to bus" >&2; exit 1`)
	if err := h.installation(false).Install(Wanted{}); !errors.Is(err, cli.ErrSaid) || !strings.Contains(h.said.String(), "Failed to connect to bus") || !strings.Contains(h.said.String(), "loginctl enable-linger") {
		t.Errorf("it ends with %v and says\n%s", err, &h.said)
	}
	if got := h.files(); !slices.Contains(got, serviceUnit) {
		t.Errorf("written is %q", got)
	}
	// On a machine that systemd does not run, the installation is complete, and says how to start.
	h.out.Reset()
	i := h.installation(false)
	i.booted = filepath.Join(h.home, "nothing")
	if err := i.Install(Wanted{}); err != nil || !strings.Contains(h.out.String(), "systemd does not run this machine") || !strings.Contains(h.out.String(), "    "+h.home+"/bin/ocipd serve\n") {
		t.Errorf("without systemd it ends with %v and says\n%s", err, &h.out)
	}
	if _, err := h.Report(t.Context()); err == nil || !strings.Contains(err.Error(), "ocipd status") {
		t.Errorf("a report ends with %v", err)
	}
}

// If a package has installed the same units, none is written over them.
func TestInstallBesideAPackage(t *testing.T) {
	h := newHost(t, "")
	i := h.installation(false)
	i.program = systemd.Program
	h.write("share/systemd/user/"+systemd.SocketName, systemd.Socket(), 0o600)
	h.write("share/systemd/user/"+systemd.ServiceName, systemd.Service(), 0o600)
	h.write("share/systemd/user/"+systemd.RunnerName, systemd.Runner(), 0o600)
	if err := i.Install(Wanted{NoStart: true}); err != nil {
		t.Fatal(err)
	}
	if got := h.files(); slices.Contains(got, serviceUnit) || slices.Contains(got, page) || h.Packaged() != h.home+"/share/systemd/user" {
		t.Errorf("written is %q, beside %s", got, h.Packaged())
	}
	if h.asked() != "" || !strings.Contains(h.out.String(), "start it with: systemctl --user daemon-reload") {
		t.Errorf("it asks %q and says\n%s", h.asked(), &h.out)
	}
}

func TestReport(t *testing.T) {
	h := newHost(t, `
case "$*" in
*show\ ocipd.service*) printf 'LoadState=loaded\nActiveState=failed\nSubState=failed\nUnitFileState=enabled\nResult=exit-code\nMainPID=0\nNRestarts=3\nExecStart={ path=%s/bin/ocipd ; argv[]=ocipd serve ; }\n' "$HOME";;
*show\ ocipd.socket*) printf 'LoadState=not-found\nActiveState=inactive\nSubState=dead\nResult=success\n';;
esac`)
	h.write("bin/ocipd", "#!/bin/sh\necho '{\"version\":\"1.9.0\"}'\n", 0o700)
	r, err := h.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := Status{
		Service: unitReport{systemd.ServiceName, "failed", "failed", "enabled", "exit-code"}, Socket: unitReport{Unit: systemd.SocketName, State: "not installed"},
		Runner: unitReport{Unit: systemd.RunnerName}, Console: unitReport{Unit: systemd.ConsoleName}, ConsoleSocket: unitReport{Unit: systemd.ConsoleSocketName},
		Installed: "1.9.0", Program: h.home + "/bin/ocipd", Restarts: 3,
	}
	if *r != want {
		t.Errorf("%+v, want %+v", *r, want)
	}
	if err := h.Print(r); err != nil {
		t.Fatal(err)
	}
	if got, want := h.out.String(), "ocipd.service  failed (failed), enabled, last result exit-code\nocipd.socket   not installed\n  installed  1.9.0  "+h.home+"/bin/ocipd\n"; got != want {
		t.Errorf("it prints\n%swant\n%s", got, want)
	}
}

func TestQuoteExec(t *testing.T) {
	for path, want := range map[string]string{
		"/usr/bin/ocipd": "/usr/bin/ocipd", "/home/me/my programs/ocipd": `"/home/me/my programs/ocipd"`, "/opt/100%/ocipd": "/opt/100%%/ocipd",
		`/a"b`: "", "/a'b": "", `/a\b`: "", "/a$b": "", "/a;b": "", "/a\nb": "", "/a\x7fb": "", "/a\xffb": "",
	} {
		if got, err := quoteExec(path); got != want || (err == nil) != (want != "") {
			t.Errorf("%q becomes %q, %v", path, got, err)
		}
	}
}

func TestUnitNamesTheConfiguration(t *testing.T) {
	h := newHost(t, "")
	h.ConfigFile = h.home + "/my files/ocipd.yaml"
	if text, err := h.installation(false).unit(systemd.Service(), "serve"); err != nil || !strings.Contains(text, ` serve --config "`+h.home+`/my files/ocipd.yaml"`+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
	h.Socket = "/somewhere.sock"
	if _, err := h.Installation(t.Context(), nil, false); err == nil {
		t.Error("it takes --socket")
	}
	h.Socket, h.Env = "", nil
	if _, err := h.Installation(t.Context(), nil, false); err == nil || !strings.Contains(err.Error(), "HOME is not set") {
		t.Errorf("without a home: %v", err)
	}
}

func TestEnvironmentsAreCompared(t *testing.T) {
	h := newHost(t, "")
	h.Env = append(h.Env, "XDG_STATE_HOME=/here", "XDG_RUNTIME_DIR=/run/user/1")
	h.installation(false).compareEnvironment("XDG_STATE_HOME=/there\nXDG_RUNTIME_DIR=/run/user/1\n")
	if got := h.said.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "XDG_STATE_HOME is /here here, and /there for the service") {
		t.Errorf("it says\n%s", got)
	}
}

func TestProgramOf(t *testing.T) {
	for text, want := range map[string]string{
		"{ path=/usr/bin/ocipd ; argv[]=/usr/bin/ocipd serve ; ignore_errors=no }": "/usr/bin/ocipd",
		"{ path=/my programs/ocipd ; argv[]=x }":                                   "/my programs/ocipd", "": "", "nothing": "",
	} {
		if got := programOf(text); got != want {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
}

func TestFormer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "ocipd")
	if got := formerOf(program); got != "" {
		t.Errorf("there is none, and it is %q", got)
	}
	if err := os.WriteFile(program+formerSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := formerOf(program); got != "" && os.Geteuid() != 0 {
		t.Errorf("it is no program, and it is %q", got)
	}
	if err := os.Chmod(program+formerSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := formerOf(program); got != program+formerSuffix {
		t.Errorf("it is %q", got)
	}
}
