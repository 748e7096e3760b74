package buildtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Isolated takes the user's machine away from the tests of a package: its variables,
// programs, home, sockets, time zone, locale and file mode mask. Every TestMain runs its
// tests by it, `buildtest.Isolated(m).Run()`; test/archtest wants it wherever tests
// can reach any of that.
//
// The tests keep variables of the Go toolchain that say how they run, those named in
// keep, and the programs of [programs] as far as the machine has them. Programs of
// agents' runtimes are not there, and HOME does not exist: a test that needs one makes
// it. A process that a test starts from its own program keeps what the test gives it.
func Isolated(m *testing.M, keep ...string) *Tests {
	t := &Tests{m: m}
	if !slices.Contains(os.Args, byGoTest) {
		return t
	}
	var err error
	if t.dir, err = os.MkdirTemp("", "ocipd-test"); err == nil {
		err = t.isolate(append(keep, "GORACE", "GOCOVERDIR", "GODEBUG", "GOTRACEBACK"))
	}
	if err != nil {
		panic("cannot isolate the tests: " + err.Error())
	}
	// Tests end soon: an eighth of their time would go into memory that they need no more.
	debug.SetGCPercent(400)
	return t
}

// Tests are the tests of a package: a [testing.M].
type Tests struct {
	m *testing.M
	// dir has links to programs in bin. Nothing else is there before a test makes it.
	dir string
}

// Run runs the tests and returns their exit code, which a TestMain need not pass on.
func (t *Tests) Run() int {
	code := t.m.Run()
	if t.dir != "" {
		_ = os.RemoveAll(t.dir) // it is a temporary directory
	}
	return code
}

// RunWith builds programs of the module at root into a directory that exists while the tests
// run, and sets dir to it. It returns the tests' exit code.
func (t *Tests) RunWith(dir *string, root string, packages ...string) int {
	var err error
	if *dir, err = os.MkdirTemp("", "ocipd-programs"); err != nil {
		panic("cannot build programs: " + err.Error())
	}
	defer func() { _ = os.RemoveAll(*dir) }() // it is a temporary directory
	for _, pkg := range packages {
		if _, err := Program(root, pkg, *dir); err != nil {
			panic("cannot build programs: " + err.Error())
		}
	}
	return t.Run()
}

// byGoTest is the flag that `go test` gives to each program of tests, and no test to
// its own.
const byGoTest = "-test.paniconexit0"

func (t *Tests) isolate(keep []string) error {
	bin := filepath.Join(t.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	env := map[string]string{
		// Programs that keep something at home, as the go command does, make the folder.
		"PATH": bin, "HOME": filepath.Join(t.dir, "home"), "XDG_RUNTIME_DIR": filepath.Join(t.dir, "run"),
		"USER": "tester", "LOGNAME": "tester", "LANG": "C.UTF-8", "TZ": "UTC",
		// The race detector would have each program that is started wait a second at its end.
		"GORACE": "atexit_sleep_ms=0",
	}
	// Tests build programs, with the caches and settings of the Go toolchain.
	if home, err := os.UserHomeDir(); err == nil {
		env["GOPATH"] = filepath.Join(home, "go")
	}
	if dir, err := os.UserCacheDir(); err == nil {
		env["GOCACHE"] = filepath.Join(dir, "go-build")
	}
	if dir, err := os.UserConfigDir(); err == nil {
		env["GOENV"] = filepath.Join(dir, "go", "env")
	}
	keep = append(keep, strings.Fields("GOPATH GOCACHE GOENV GOMODCACHE GOFLAGS GOPROXY GONOSUMDB GOSUMDB GOTOOLCHAIN GOROOT GOTMPDIR")...)
	for _, name := range keep {
		if value, ok := os.LookupEnv(name); ok {
			env[name] = value
		}
	}
	for _, name := range programs() {
		// A test that needs a program which is not installed skips itself, or fails and names it.
		if path, err := exec.LookPath(name); err == nil && filepath.IsAbs(path) {
			if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
				return err
			}
		}
	}
	os.Clearenv()
	for name, value := range env {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	syscall.Umask(0o022)
	return nil
}

// programs are those that tests and the pages of the documentation may use.
func programs() []string {
	return strings.Fields(`
		awk base64 basename bash bwrap cat chgrp chmod chown chromium cmp comm cp curl cut date dbus-daemon dd df diff dirname du
		echo env expr false find fold git go grep gunzip gzip head hostname id install jq kill ln ls make man mkdir mkfifo mktemp
		mv nc node nohup od openssl paste printenv printf ps pwd python3 readlink realpath rm rmdir script sed seq setpriv setsid
		sh sha256sum sleep socat sort split sqlite3 ssh-add ssh-agent ssh-keygen stat stty sync
		systemd-analyze systemd-socket-activate tac tail tar tee test timeout touch tr true truncate tty uname uniq
		unshare unzip wc which xargs xxd yes zstd`)
}
