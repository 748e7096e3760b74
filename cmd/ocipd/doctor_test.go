package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/doctor"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// clinic is a home with a daemon's files, for the doctor to examine.
type clinic struct {
	t    *testing.T
	home string
	env  []string
}

// newClinic makes a home without any installation.
func newClinic(t *testing.T) *clinic {
	t.Helper()
	// Socket addresses are limited in length, so the directory's name must be short.
	home, err := os.MkdirTemp("", "clinic")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	c := &clinic{t: t, home: home}
	// One process is daemon, app and operator here.
	c.env = []string{"HOME=" + home, "XDG_RUNTIME_DIR=" + c.path("run"), "OCIPD_APPROVALS_NOTIFY_DESKTOP=false", appsMayOperate}
	c.must(os.Mkdir(c.path("run"), 0o700))
	return c
}

const appsMayOperate = "OCIPD_IPC_APPS_MAY_OPERATE=true"

// Places in a clinic.
const (
	clinicConfig = ".config/openclawos/ocipd.yaml"
	clinicState  = ".local/state/openclawos"
	clinicRun    = "run/openclawos"
)

const clinicYAML = `agents:
  - {id: alice, app: "@acme/alice", instance_id: agent-alice-1, user_id: alice, org_unit: engineering, tenant_id: acme-corp}
`

func (c *clinic) path(name string) string { return filepath.Join(c.home, name) }

func (c *clinic) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *clinic) write(name, text string, mode fs.FileMode) {
	c.t.Helper()
	path := c.path(name)
	c.must(errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)))
}

func (c *clinic) read(name string) []byte {
	c.t.Helper()
	text, err := os.ReadFile(c.path(name))
	c.must(err)
	return text
}

func (c *clinic) ocipd(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	env := c.env
	if len(args) > 0 && args[0] == "doctor" {
		// The doctor would rightly complain about the settings that make the test possible.
		env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return kv == appsMayOperate })
	}
	code = run(c.t.Context(), args, strings.NewReader(""), &out, &errs, env)
	return code, out.String(), errs.String()
}

// serve runs a daemon until the returned function is called.
func (c *clinic) serve() (stop func()) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	var served sync.WaitGroup
	served.Go(func() {
		var errs bytes.Buffer
		if code := run(ctx, []string{"serve", "--log-level", "error"}, strings.NewReader(""), &bytes.Buffer{}, &errs, c.env); code != cli.ExitDone {
			c.t.Errorf("serve exits %d: %s", code, errs.String())
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		served.Wait()
	})
	c.t.Cleanup(stop)
	if code, _, said := c.ocipd("status", "--wait", "20s", "--json"); code != cli.ExitDone {
		c.t.Fatalf("status exits %d: %s", code, said)
	}
	return stop
}

// lived makes a home in which a daemon has run.
func lived(t *testing.T) *clinic {
	t.Helper()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	c.serve()()
	return c
}

// moved makes another home with this one's content.
func (c *clinic) moved(t *testing.T) *clinic {
	t.Helper()
	other := newClinic(t)
	copyTree(t, c.home, other.home)
	return other
}

// examine returns the doctor's findings.
func (c *clinic) examine(args ...string) (found []doctor.Diagnosis, code int) {
	c.t.Helper()
	code, out, said := c.ocipd(append([]string{"doctor", "--json"}, args...)...)
	if said != "" {
		c.t.Errorf("doctor says %q", said)
	}
	for line := range strings.Lines(out) {
		var f doctor.Diagnosis
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			c.t.Fatalf("%q: %v", line, err)
		}
		found = append(found, f)
	}
	return found, code
}

// ask returns the doctor's findings of one check, with more in the environment.
func (c *clinic) ask(check string, env ...string) []doctor.Diagnosis {
	c.t.Helper()
	more := *c
	more.env = append(slices.Clone(c.env), env...)
	found, _ := more.examine()
	return slices.DeleteFunc(found, func(f doctor.Diagnosis) bool { return f.Check != check })
}

// complaints are the problems that the test's machine does not cause.
func complaints(found []doctor.Diagnosis) (bad []doctor.Diagnosis) {
	for _, f := range found {
		machine := f.Check == "machine" || f.Check == "service" || f.Check == "clock" && strings.Contains(f.Text, "time service") ||
			f.Check == "disk" && (strings.Contains(f.Text, "fsync") || strings.Contains(f.Text, "are free"))
		if f.Health != doctor.Pass && f.Health != doctor.Mended && !machine {
			bad = append(bad, f)
		}
	}
	return bad
}

// asleep reports a finding about a daemon that does not run.
func asleep(f doctor.Diagnosis) bool {
	return f.Check == "daemon" && strings.HasPrefix(f.Text, "not running: nobody")
}

func said(found []doctor.Diagnosis, check string, how doctor.Health, text string) bool {
	return slices.ContainsFunc(found, func(f doctor.Diagnosis) bool {
		return (check == "" || f.Check == check) && f.Health == how && strings.Contains(f.Text, text)
	})
}

func TestDoctorOfAHealthyDaemon(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	stop := c.serve()
	found, code := c.examine()
	if bad := complaints(found); len(bad) > 0 || code != cli.ExitDone {
		t.Errorf("a healthy daemon: exits %d, %+v", code, bad)
	}
	for _, name := range doctor.Checks() {
		if !slices.ContainsFunc(found, func(f doctor.Diagnosis) bool { return f.Check == name }) {
			t.Errorf("%s is not reported", name)
		}
	}
	// A living daemon's sockets are not removed.
	if found, _ := c.examine("--fix"); said(found, "", doctor.Mended, "") || !cli.Exists(c.path(clinicRun+"/operator.sock")) {
		t.Errorf("it did %+v", found)
	}
	stop()
	found, code = c.examine()
	if bad := complaints(found); len(bad) != 1 || !asleep(bad[0]) || code != cli.ExitDone {
		t.Errorf("stopped: exits %d, %+v", code, bad)
	}
	found, _ = c.examine("-q")
	if len(found) == 0 || slices.ContainsFunc(found, func(f doctor.Diagnosis) bool { return f.Health == doctor.Pass }) {
		t.Errorf("-q shows %+v", found)
	}
	if left, err := filepath.Glob(c.path(clinicState + "/.ocipd-doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestDoctorBeforeAnythingIsInstalled(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	found, code := c.examine("--fix")
	if bad := complaints(found); len(bad) != 1 || !asleep(bad[0]) || code != cli.ExitDone {
		t.Errorf("exits %d, %+v", code, bad)
	}
	_, out, _ := c.ocipd("doctor")
	words := strings.Join(strings.Fields(out), " ")
	for _, want := range []string{"no configuration file; using defaults", "ocipd config init", "the first start makes", clinicState, "no record yet"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	for _, made := range []string{".local", ".config", clinicRun} {
		if cli.Exists(c.path(made)) {
			t.Errorf("the doctor made %s", made)
		}
	}
	for line := range strings.Lines(out) {
		if blank := strings.TrimLeft(line, " "); strings.Contains(line, "\x1b") || len(line)-len(blank) > 0 && strings.Contains(line, "to do: ") != strings.HasPrefix(blank, "to do: ") {
			t.Errorf("folded, or coloured: %q", line)
		}
	}
}

// TestDoctorFinds breaks one thing at a time.
func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	chmod := func(name string, mode fs.FileMode) func(*clinic) {
		return func(c *clinic) { c.must(os.Chmod(c.path(name), mode)) }
	}
	remove := func(name string) func(*clinic) {
		return func(c *clinic) { c.must(os.RemoveAll(c.path(name))) }
	}
	also := func(yaml string) func(*clinic) {
		return func(c *clinic) {
			c.write(clinicConfig, clinicYAML+strings.ReplaceAll(yaml, "HOME", c.home)+"\n", 0o600)
		}
	}
	const db = clinicState + "/ocipd.db"
	sound := lived(t)
	for _, test := range []struct {
		name  string
		wreck func(*clinic)
		check string
		want  doctor.Health
		text  string
		// fixed is set if --fix repairs it.
		fixed bool
	}{
		{"unknown key", also("ocpi: {}"), "config", doctor.Fail, `did you mean "ocip"`, false},
		{"no YAML", also("a: ["), "config", doctor.Fail, "cannot read YAML", false},
		{"open config", chmod(clinicConfig, 0o666), "config", doctor.Fail, "others can write to the configuration", true},
		{"open config directory", chmod(".config/openclawos", 0o777), "config", doctor.Fail, "others can write to the configuration's directory", true},
		{"secrets in sight", func(c *clinic) {
			also("channels: {telegram: {botToken: x}}")(c)
			chmod(clinicConfig, 0o644)(c)
		}, "config", doctor.Warn, "others can get at the configuration", true},
		{"kept for a season", also("audit: {keep: 2160h}"), "keep", doctor.Warn, "records are removed for good after 90d0h", false},
		{"no signers", also("approvals: {allowed_signers: HOME/signers}"), "config", doctor.Fail, "approvals.allowed_signers", false},

		{"open policy directory", func(c *clinic) {
			c.copyPolicy()
			c.must(os.Chmod(c.path("policy"), 0o777))
			also("policy: {path: HOME/policy}")(c)
		}, "policy", doctor.Fail, "can be written by everybody (mode 0777)", false},
		{"open policy", func(c *clinic) {
			c.copyPolicy()
			c.must(os.Chmod(c.path("policy/cross_org.rego"), 0o666))
			also("policy: {path: HOME/policy}")(c)
		}, "policy", doctor.Fail, "cross_org.rego can be written by everybody (mode 0666)", false},
		{"open folder in the policy", func(c *clinic) {
			c.copyPolicy()
			c.must(errors.Join(os.Mkdir(c.path("policy/more"), 0o700), os.Chmod(c.path("policy/more"), 0o777)))
			also("policy: {path: HOME/policy}")(c)
		}, "policy", doctor.Fail, "policy/more can be written by everybody (mode 0777)", false},
		{"policy by an open link", func(c *clinic) {
			c.copyPolicy()
			c.must(errors.Join(os.Mkdir(c.path("links"), 0o700), os.Symlink(c.path("policy"), c.path("links/now")), os.Chmod(c.path("links"), 0o777)))
			also("policy: {path: HOME/links/now}")(c)
		}, "policy", doctor.Fail, "links can be written by everybody (mode 0777)", false},
		{"policy that does not compile", func(c *clinic) {
			c.copyPolicy()
			c.write("policy/bad.rego", "package bad\n\nx if nonesuch\n\ny if nonesuch\n", 0o600)
			also("policy: {path: HOME/policy}")(c)
		}, "policy", doctor.Fail, "bad.rego:5: ", false},
		{"open signers", func(c *clinic) {
			c.write("signers", "carol ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n", 0o662)
			also("approvals: {allowed_signers: HOME/signers}")(c)
		}, "config", doctor.Fail, "others can change the file of who may sign decisions", false},
		{"open notice", func(c *clinic) {
			c.write("bin/notify", "#!/bin/sh\n", 0o777)
			also("approvals: {notify: {command: [HOME/bin/notify]}}")(c)
		}, "config", doctor.Fail, "others can change the program of approvals.notify.command", false},
		{"no notice", also("approvals: {notify: {command: [HOME/bin/notify]}}"), "config", doctor.Fail, "which approvals.notify.command names", false},
		{"open program of an agent", func(c *clinic) {
			c.write("bin/alice", "#!/bin/sh\n", 0o777)
			c.write(clinicConfig, strings.Replace(clinicYAML, "id: alice,", "id: alice, exe: "+c.path("bin/alice")+",", 1), 0o600)
		}, "config", doctor.Fail, "others can change the program of agent alice", false},
		{"open authorities of a sink", func(c *clinic) {
			c.write("ca.pem", "", 0o666)
			also("audit: {sinks: [{name: siem, type: otlp, endpoint: \"https://127.0.0.1:9/v1/logs\", tls: {ca: HOME/ca.pem}}]}")(c)
		}, "config", doctor.Fail, "others can change the list of authorities of the sink siem", false},
		{"open unit", func(c *clinic) { c.write(".config/systemd/user/ocipd.service", "[Service]\n", 0o666) }, "files", doctor.Fail, "others can change the service's unit", false},

		{"open state", chmod(clinicState, 0o777), "files", doctor.Fail, "others can write to the directory of the state", true},
		{"state in sight", chmod(clinicState, 0o755), "files", doctor.Warn, "others can get at the directory of the state", true},
		{"open database", chmod(db, 0o666), "files", doctor.Fail, "others can write to the database", true},
		{"database in sight", chmod(db, 0o640), "files", doctor.Warn, "others can get at the database", true},
		{"database for nobody", chmod(db, 0o400), "files", doctor.Fail, "its owner cannot use the database", true},
		{"keys in sight", chmod(clinicState+"/keys", 0o750), "files", doctor.Fail, "the daemon refuses it", true},
		{"key in sight", chmod(clinicState+"/keys/checkpoint.key", 0o640), "files", doctor.Fail, "others can get at a key", true},
		{"key with two names", func(c *clinic) {
			c.must(os.Link(c.path(clinicState+"/keys/checkpoint.key"), c.path("copy")))
		}, "files", doctor.Fail, "2 names", false},
		{"open mirror", chmod(clinicState+"/audit.jsonl", 0o622), "files", doctor.Fail, "others can write to the mirror", true},
		{"open checkpoints", chmod(clinicState+"/audit-checkpoints.jsonl", 0o602), "files", doctor.Fail, "others can write to the file of checkpoints", true},
		{"open runtime directory", chmod(clinicRun, 0o777), "files", doctor.Fail, "others can write to the directory of the sockets", true},
		{"linked runtime directory", func(c *clinic) {
			c.must(os.Rename(c.path(clinicRun), c.path("elsewhere")))
			c.must(os.Symlink(c.path("elsewhere"), c.path(clinicRun)))
		}, "files", doctor.Fail, "is a symbolic link", false},
		{"no socket", func(c *clinic) { c.write(clinicRun+"/operator.sock", "", 0o600) }, "files", doctor.Fail, "is something else", false},
		{"somebody else's", func(c *clinic) {
			if os.Geteuid() != 0 {
				c.t.Skip("only root gives files away")
			}
			c.must(os.Chown(c.path(db), 4711, -1))
		}, "files", doctor.Fail, "belongs to user 4711", false},
		{"no directory for a sink", also("audit: {sinks: [{name: siem, type: ocsf, path: HOME/siem/ocsf.jsonl}]}"), "files", doctor.Fail, "of the sink siem", true},
		{"no directory for metrics", also("metrics: {socket: HOME/m/m.sock}"), "files", doctor.Fail, "of metrics.socket", true},
		{"units without state", func(c *clinic) {
			c.write(".config/systemd/user/ocipd.service", "[Service]\n", 0o600)
			remove(clinicState)(c)
		}, "files", doctor.Warn, "which systemd may replace", true},
		{"database gone", remove(db), "files", doctor.Fail, "is gone", false},
		{"database by a link", func(c *clinic) {
			c.must(errors.Join(os.Rename(c.path(db), c.path("x.db")), os.Symlink(c.path("x.db"), c.path(db))))
		}, "files", doctor.Warn, "is a symbolic link to", false},
		{"database with two names", func(c *clinic) { c.must(os.Link(c.path(db), c.path("x.db"))) }, "files", doctor.Fail, "2 names", false},
		{"mirror by a link", func(c *clinic) {
			mirror := c.path(clinicState + "/audit.jsonl")
			c.must(errors.Join(os.Rename(mirror, c.path("m")), os.Symlink(c.path("m"), mirror)))
		}, "files", doctor.Warn, "is a symbolic link to", false},
		{"mirror with two names", func(c *clinic) {
			c.must(os.Link(c.path(clinicState+"/audit.jsonl"), c.path("m")))
		}, "files", doctor.Fail, "2 names", false},
		{"write-ahead log by a link", func(c *clinic) { c.must(os.Symlink(c.path("x"), c.path(db+"-wal"))) }, "files", doctor.Fail, "and the daemon made none", false},
		{"shared memory by a link", func(c *clinic) { c.must(os.Symlink(c.path("x"), c.path(db+"-shm"))) }, "files", doctor.Fail, "and the daemon made none", false},
		{"shared memory with two names", func(c *clinic) {
			c.write("x", "", 0o600)
			c.must(os.Link(c.path("x"), c.path(db+"-shm")))
		}, "files", doctor.Fail, "2 names", false},
		{"keys by a link", func(c *clinic) {
			c.must(errors.Join(os.Rename(c.path(clinicState+"/keys"), c.path("k")), os.Symlink(c.path("k"), c.path(clinicState+"/keys"))))
		}, "files", doctor.Fail, "the daemon refuses it", false},

		{"dead sockets", func(c *clinic) { c.deadSocket("kernel.sock"); c.deadSocket("operator.sock") }, "daemon", doctor.Warn, "are still there", true},
		{"locked", func(c *clinic) {
			lock, err := os.OpenFile(c.path(clinicRun+"/kernel.sock.lock"), os.O_RDWR, 0)
			c.must(err)
			c.t.Cleanup(func() { lock.Close() })
			c.must(unix.Flock(int(lock.Fd()), unix.LOCK_EX))
		}, "daemon", doctor.Fail, "has the lock and does not answer", false},

		{"full disk", also("store: {warn_free_bytes: 0, min_free_bytes: 4611686018427387904}"), "disk", doctor.Fail, "nothing new is taken up", false},
		{"disk filling up", also("store: {warn_free_bytes: 4611686018427387904}"), "disk", doctor.Warn, "less than store.warn_free_bytes", false},
		{"no reserve", remove(db + ".reserve"), "disk", doctor.Warn, "the reserve", false},

		{"no policy", also("policy: {path: HOME/policy}"), "policy", doctor.Fail, "cannot use", false},
		{"policy's tests", func(c *clinic) {
			c.copyPolicy()
			c.write("policy/more_test.rego", "package more_test\n\ntest_never if { 1 == 2 }\n", 0o600)
			also("policy: {path: HOME/policy}")(c)
		}, "policy", doctor.Fail, "1 of ", false},

		{"changed record", func(c *clinic) { c.replace(db, "daemon_stopped", "daemon_stopqed") }, "log", doctor.Fail, "the end of the log is damaged", false},
		{"no database", func(c *clinic) { c.write(db, strings.Repeat("no database at all, but a text\n", 100), 0o600) }, "log", doctor.Fail, "another program's", false},
		{"older copy", func(c *clinic) {
			before := c.read(db)
			c.serve()()
			c.write(db, string(before), 0o600)
		}, "log", doctor.Fail, "cut or replaced by an older copy", false},
		{"another log", func(c *clinic) { c.write(db, string(lived(c.t).read(db)), 0o600) }, "log", doctor.Fail, "is not the key that signs this log", false},
		{"lost key", remove(clinicState + "/keys/checkpoint.key"), "log", doctor.Fail, "the signing key is not in", false},
		{"lost keys", remove(clinicState + "/keys"), "log", doctor.Fail, "", false},
		{"checkpoints of nonsense", func(c *clinic) { c.write(clinicState+"/audit-checkpoints.jsonl", "nonsense\n", 0o600) }, "log", doctor.Fail, "is not a checkpoint", false},
		{"checkpoints gone", remove(clinicState + "/audit-checkpoints.jsonl"), "log", doctor.Warn, "the checkpoints outside the log are gone", false},
		{"latched", func(c *clinic) { c.write(db+".latched", "x\n", 0o600) }, "log", doctor.Warn, "closed the database after a fault", false},

		{"mirror gone", remove(clinicState + "/audit.jsonl"), "mirror", doctor.Warn, "is not there", false},
		{"mirror behind", func(c *clinic) {
			text := bytes.TrimSuffix(c.read(clinicState+"/audit.jsonl"), []byte("\n"))
			c.write(clinicState+"/audit.jsonl", string(text[:bytes.LastIndexByte(text, '\n')+1]), 0o600)
		}, "mirror", doctor.Warn, "the mirror ends at record", false},
		{"mirror of nonsense", func(c *clinic) { c.write(clinicState+"/audit.jsonl", "nonsense\n", 0o600) }, "mirror", doctor.Fail, "the mirror is damaged", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := sound.moved(t)
			test.wreck(c)
			var how []string
			if !test.fixed {
				how = append(how, "--fix") // it still reports what it cannot repair
			}
			found, code := c.examine(how...)
			if !said(found, test.check, test.want, test.text) {
				t.Fatalf("not found: %+v", complaints(found))
			}
			if test.want == doctor.Fail && code != cli.ExitFailed {
				t.Errorf("exits %d", code)
			}
			for _, f := range complaints(found) {
				// Faults of the configuration share one advice at the end.
				if f.Advice == "" && f.Check != "config" {
					t.Errorf("no advice: %+v", f)
				}
			}
			if test.fixed {
				found, _ = c.examine("--fix")
			}
			if said(found, test.check, doctor.Mended, "") != test.fixed {
				t.Errorf("--fix finds %+v", complaints(found))
			}
			if !test.fixed {
				return
			}
			found, code = c.examine()
			bad := slices.DeleteFunc(complaints(found), asleep)
			if len(bad) > 0 || code != cli.ExitDone {
				t.Errorf("after --fix it exits %d: %+v", code, bad)
			}
			if !strings.Contains(test.name, "disk") {
				c.serve()()
			}
		})
	}
}

// deadSocket leaves a socket without a listener.
func (c *clinic) deadSocket(name string) {
	c.t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	c.must(err)
	path := c.path(filepath.Join(clinicRun, name))
	c.must(errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), os.Chmod(path, 0o600), unix.Close(fd)))
}

// replace changes a text in a file to another of the same length.
func (c *clinic) replace(name, old, text string) {
	c.t.Helper()
	before := c.read(name)
	after := bytes.ReplaceAll(before, []byte(old), []byte(text))
	if bytes.Equal(before, after) || len(before) != len(after) {
		c.t.Fatalf("%s does not hold %q", name, old)
	}
	c.write(name, string(after), 0o600)
}

// copyPolicy makes the built-in policy the operator's own.
func (c *clinic) copyPolicy() {
	c.t.Helper()
	files, err := filepath.Glob("../../configs/policies/*.rego")
	if err != nil || len(files) == 0 {
		c.t.Fatalf("no policy: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		c.must(err)
		c.write("policy/"+filepath.Base(file), string(text), 0o600)
	}
}

// TestDoctorOfTheService has a service manager that answers about the units.
func TestDoctorOfTheService(t *testing.T) {
	c := lived(t)
	c.write("bin/systemctl", "#!/bin/sh\ncat \"$ANSWER\"\n", 0o700)
	t.Setenv("PATH", c.path("bin")+":"+os.Getenv("PATH"))
	path := "PATH=" + os.Getenv("PATH")
	for _, test := range []struct {
		name, answer string
		want         doctor.Health
		text         string
	}{
		{"not installed", "LoadState=not-found\nActiveState=inactive\n", doctor.Pass, "not installed as a service"},
		{"failed", "LoadState=loaded\nActiveState=failed\nResult=exit-code\n", doctor.Fail, "ocipd.service failed (exit-code)"},
		{"restarts", "LoadState=loaded\nActiveState=active\nNRestarts=3\n", doctor.Warn, "started again 3 times"},
		{"disabled", "LoadState=loaded\nActiveState=active\nUnitFileState=disabled\n", doctor.Warn, "it does not start at login"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.write("answer", test.answer, 0o600)
			if found := c.ask("service", "ANSWER="+c.path("answer"), path); !said(found, "", test.want, test.text) {
				t.Errorf("found %+v", found)
			}
		})
	}
	// The manager holds the sockets: a connection would start the daemon.
	c.write(".config/systemd/user/ocipd.service", "[Service]\n", 0o600)
	c.write("bin/systemctl", "#!/bin/sh\ncase \"$*\" in *ocipd.socket*) echo ActiveState=active;; *) echo ActiveState=inactive;; esac\n", 0o700)
	if found := c.ask("daemon", path); len(found) != 1 || !said(found, "", doctor.Pass, "it starts when somebody connects") {
		t.Errorf("found %+v", found)
	}
}

// TestDoctorWritesTheTombstone removes records, and loses their tombstone's copy.
func TestDoctorWritesTheTombstone(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML+"audit: {rotate: {bytes: 4096}}\n", 0o600)
	stop := c.serve()
	for n := range 30 {
		if code, _, said := c.ocipd("call", "app.register", fmt.Sprintf(`{"manifest":{"id":"a%d","name":"a","version":"1.0.0","type":"agent","protocol":{"version":"1.0"}}}`, n)); code != cli.ExitDone {
			t.Fatal(said)
		}
	}
	c.retire()
	stop()
	path := c.path(clinicState + "/audit-tombstone.note")
	before, err := os.ReadFile(path)
	c.must(err)
	c.must(os.WriteFile(path, []byte("another"), 0o600))
	if found, _ := c.examine(); !said(found, "log", doctor.Warn, "is another one") {
		t.Errorf("another tombstone is not found: %+v", complaints(found))
	}
	c.must(os.Remove(path))
	if found, _ := c.examine("--fix"); !said(found, "log", doctor.Mended, path) {
		t.Errorf("--fix finds %+v", complaints(found))
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the tombstone is %q, %v", after, err)
	}
	if code, out, said := c.ocipd("audit", "verify"); code != cli.ExitDone {
		t.Errorf("verify exits %d: %s%s", code, out, said)
	}
}

// retire removes all removable records, after segments are compressed.
func (c *clinic) retire() {
	c.t.Helper()
	operator, err := client.Dial(c.t.Context(), c.path(clinicRun+"/operator.sock"))
	c.must(err)
	defer operator.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var gone api.AuditRetireResult
		c.must(operator.Call(ctx, "audit.retire", map[string]any{"before": time.Now().Add(time.Hour)}, &gone))
		if gone.Segments > 0 {
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			c.t.Fatal("no segment was removed")
		}
	}
}

// TestDoctorLeavesOthersAlone has the daemon's files in directories that are not its own:
// their modes stay, even with --fix, and the advice names another place.
func TestDoctorLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	sound := lived(t)
	for _, test := range []struct {
		name string
		// mode is the mode of the directory, and place the checked file in it.
		mode  fs.FileMode
		args  func(dir string) []string
		yaml  string
		check string
		key   string
	}{
		{"configuration in a shared directory", fs.ModeSticky | 0o777, func(dir string) []string { return []string{"--config", dir + "/c.yaml"} }, "", "config", "--config"},
		{"configuration in a group's directory", fs.ModeSetgid | 0o775, func(dir string) []string { return []string{"--config", dir + "/c.yaml"} }, "", "config", "--config"},
		{"sockets in a shared directory", fs.ModeSticky | 0o777, func(dir string) []string { return []string{"--socket", dir + "/kernel.sock"} }, "", "files", "ipc.socket"},
		{"sockets in a directory of others", 0o755, func(dir string) []string { return []string{"--socket", dir + "/kernel.sock"} }, "", "files", "ipc.socket"},
		{"database in a shared directory", fs.ModeSticky | 0o777, nil, "store: {url: DIR/x.db}", "files", "store.url"},
		{"database in a group's directory", fs.ModeSetgid | 0o775, nil, "store: {url: DIR/x.db}", "files", "store.url"},
		{"keys in a directory of others", 0o755, nil, "audit: {keys: DIR}", "files", "audit.keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := sound.moved(t)
			dir := c.path("mnt")
			c.write("mnt/c.yaml", clinicYAML, 0o600)
			c.write("mnt/id_ed25519.pub", "a key of its owner's, and not the daemon's\n", 0o644)
			c.must(os.Chmod(dir, test.mode))
			c.write(clinicConfig, clinicYAML+strings.ReplaceAll(test.yaml, "DIR", dir)+"\n", 0o600)
			var args []string
			if test.args != nil {
				args = test.args(dir)
			}
			found, _ := c.examine(append([]string{"--fix"}, args...)...)
			if said(found, "", doctor.Mended, dir) {
				t.Errorf("--fix did %+v", found)
			}
			at := slices.IndexFunc(found, func(f doctor.Diagnosis) bool {
				return f.Check == test.check && f.Health != doctor.Pass && strings.Contains(f.Text, dir+" (mode ")
			})
			if at < 0 || strings.Contains(found[at].Advice, "chmod") || !strings.Contains(found[at].Advice, test.key) {
				t.Errorf("found %+v", complaints(found))
			}
			for path, want := range map[string]fs.FileMode{dir: test.mode, dir + "/id_ed25519.pub": 0o644} {
				info, err := os.Stat(path)
				c.must(err)
				if now := info.Mode() &^ fs.ModeDir; now != want {
					t.Errorf("%s has mode %v, had %v", path, now, want)
				}
			}
		})
	}
}

// TestDoctorKeepsFurtherBits checks that a repair of a mode keeps its other bits, and that
// neither a home nor a shared directory is repaired, whatever its name.
func TestDoctorKeepsFurtherBits(t *testing.T) {
	t.Parallel()
	c := lived(t)
	state := c.path(clinicState)
	c.must(os.Chmod(state, fs.ModeSetgid|0o757))
	if found, _ := c.examine("--fix"); !said(found, "files", doctor.Mended, "chmod 2700 "+state) {
		t.Errorf("--fix finds %+v", complaints(found))
	}
	if info, err := os.Stat(state); err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	c.must(os.Chmod(state, fs.ModeSticky|0o777))
	if found, _ := c.examine("--fix"); said(found, "files", doctor.Mended, "") || !said(found, "files", doctor.Fail, state+" (mode 1777)") {
		t.Errorf("--fix finds %+v", found)
	}
	c.must(os.Chmod(state, 0o700))
	// The home itself is named openclawos.
	home := c.path("openclawos")
	c.must(errors.Join(os.Mkdir(home, 0o700), os.Chmod(home, 0o755)))
	c.env = append(c.env, "HOME="+home)
	if found, _ := c.examine("--fix", "--socket", home+"/kernel.sock"); said(found, "", doctor.Mended, "") || !said(found, "files", doctor.Warn, home+" (mode 0755)") {
		t.Errorf("--fix finds %+v", found)
	}
}

// TestDoctorMissesDigestKeys loses the digest keys, in a log that has such digests and in
// one without them.
func TestDoctorMissesDigestKeys(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	keys := c.path(clinicState + "/keys/digest.json")
	stop := c.serve()
	stop()
	text, err := os.ReadFile(keys)
	c.must(err)
	c.must(os.Remove(keys))
	if found, _ := c.examine(); said(found, "log", doctor.Fail, "") {
		t.Errorf("with no digest on record: %+v", complaints(found))
	}
	c.must(os.WriteFile(keys, text, 0o600))
	stop = c.serve()
	app, err := client.Dial(t.Context(), c.path(clinicRun+"/kernel.sock"))
	c.must(err)
	_, err = app.Register(t.Context(), &api.Manifest{
		ID: "@acme/alice", Name: "Alice", Version: "1.0.0", Type: "agent", Protocol: api.ManifestProtocol{Version: "1.0"},
	})
	c.must(err)
	// The message is recorded, whatever its decision.
	_ = app.Call(t.Context(), "message.dispatch", map[string]any{"sessionKey": "telegram:dave", "content": "How far is it?"}, nil)
	c.must(app.Close())
	stop()
	if found, _ := c.examine(); said(found, "log", doctor.Fail, "") {
		t.Errorf("with the keys there: %+v", complaints(found))
	}
	c.must(os.Remove(keys))
	if found, code := c.examine(); !said(found, "log", doctor.Fail, "the keys of digests are gone ("+keys+")") || code != cli.ExitFailed {
		t.Errorf("exits %d: %+v", code, complaints(found))
	}
}

// serveApart runs a daemon in a separate process, in the directory here, and returns its id.
func (c *clinic) serveApart(args ...string) int {
	c.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(c.t.Context()), os.Args[0], append([]string{"serve", "--log-level", "error"}, args...)...)
	cmd.Env = append(slices.Clone(c.env), asProgram+"=1", "GORACE="+os.Getenv("GORACE"))
	cmd.Dir = c.path("here")
	c.must(os.MkdirAll(cmd.Dir, 0o700))
	c.must(cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended by itself
		if err := cmd.Wait(); err != nil {
			c.t.Error(err)
		}
	})
	return cmd.Process.Pid
}

// TestDoctorBesideAnotherDaemon has a daemon with other sockets use the database.
func TestDoctorBesideAnotherDaemon(t *testing.T) {
	t.Parallel()
	c := lived(t)
	socket := c.path("run/other/kernel.sock")
	pid := c.serveApart("--socket", socket)
	if code, _, said := c.ocipd("status", "--wait", "20s", "--socket", socket); code != cli.ExitDone {
		t.Fatal(said)
	}
	found, code := c.examine()
	if !said(found, "daemon", doctor.Fail, fmt.Sprintf("process %d uses the database %s", pid, c.path(clinicState+"/ocipd.db"))) || code != cli.ExitFailed {
		t.Errorf("exits %d: %+v", code, complaints(found))
	}
	if found, _ := c.examine("--socket", socket); !said(found, "daemon", doctor.Pass, "answers on") {
		t.Errorf("of the other one: %+v", complaints(found))
	}
}

// TestAnotherFileThanTheDaemons has a daemon use another configuration file than commands find.
func TestAnotherFileThanTheDaemons(t *testing.T) {
	t.Parallel()
	c := lived(t)
	here, there := c.path(clinicConfig), c.path("other/ocipd.yaml")
	c.write("other/ocipd.yaml", strings.ReplaceAll(clinicYAML, "alice", "carol"), 0o600)
	c.serveApart("--config", there)
	if code, _, said := c.ocipd("status", "--wait", "20s"); code != cli.ExitDone {
		t.Fatal(said)
	}
	found, _ := c.examine()
	if !said(found, "daemon", doctor.Warn, "the running daemon uses "+there+", so ocipd looked at that file and not at "+here) || !said(found, "config", doctor.Pass, there+": valid") {
		t.Errorf("not said: %+v", found)
	}
	found, _ = c.examine("--config", here)
	if !said(found, "daemon", doctor.Warn, "the running daemon uses "+there+"; ocipd looked at "+here) || !said(found, "config", doctor.Pass, here+": valid") {
		t.Errorf("of the one that was named: %+v", found)
	}
	if found, _ = c.examine("--config", there); said(found, "daemon", doctor.Warn, "uses ") {
		t.Errorf("of the daemon's own: %+v", found)
	}
	code, out, note := c.ocipd("config", "show")
	if code != cli.ExitDone || !strings.Contains(out, "id: carol") || !strings.HasPrefix(note, "note: the running daemon uses "+there+", so ocipd looked at that file and not at "+here) {
		t.Errorf("shown is, with %d and %q, %s", code, note, out)
	}
	code, out, note = c.ocipd("--config", here, "config", "show")
	if code != cli.ExitDone || !strings.Contains(out, "id: alice") || !strings.Contains(note, "; ocipd looked at "+here) {
		t.Errorf("shown of the one that was named is, with %d and %q, %s", code, note, out)
	}
}

// TestDoctorOfAMovedDatabase moves the database away under the daemon.
func TestDoctorOfAMovedDatabase(t *testing.T) {
	t.Parallel()
	c := newClinic(t)
	c.write(clinicConfig, clinicYAML, 0o600)
	stop := c.serve()
	db := c.path(clinicState + "/ocipd.db")
	c.must(os.Rename(db, db+".away"))
	found, code := c.examine()
	at := slices.IndexFunc(found, func(f doctor.Diagnosis) bool {
		return f.Check == "files" && f.Health == doctor.Fail && strings.Contains(f.Text, "is gone under the running daemon")
	})
	if at < 0 || code != cli.ExitFailed || !strings.Contains(found[at].Advice, "put it back under its name and restart the daemon") || strings.Contains(found[at].Advice, "backup") {
		t.Errorf("exits %d: %+v", code, complaints(found))
	}
	c.must(os.Rename(db+".away", db))
	stop()
}

// TestDoctorOfAnEmptyDatabase has a new database in place of one that is gone.
func TestDoctorOfAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	c := lived(t)
	db := clinicState + "/ocipd.db"
	other := newClinic(t)
	s, err := store.Open(t.Context(), store.Options{Path: other.path("new.db"), Clock: time.Now, Log: zap.NewNop()})
	c.must(err)
	c.must(s.Close())
	c.write(db, string(other.read("new.db")), 0o600)
	if found, _ := c.examine(); !said(found, "log", doctor.Fail, "is new and empty") {
		t.Errorf("found %+v", complaints(found))
	}
}

// TestPathsAreNamedWhole starts a daemon and the doctor in the folder of their files, with
// relative names.
func TestPathsAreNamedWhole(t *testing.T) {
	c := newClinic(t)
	c.write("here/c.yaml", clinicYAML, 0o600)
	c.serveApart("--config", "c.yaml")
	code, out, said := c.ocipd("status", "--wait", "20s")
	if want := "  config     " + c.path("here/c.yaml") + "\n"; code != cli.ExitDone || !strings.Contains(out, want) {
		t.Errorf("status exits %d: %s%s", code, said, out)
	}
	t.Chdir(c.path("here"))
	found, _ := c.examine("--config", "c.yaml")
	if !slices.ContainsFunc(found, func(f doctor.Diagnosis) bool {
		return f.Check == "config" && f.Health == doctor.Pass && strings.HasPrefix(f.Text, c.path("here/c.yaml")+": valid")
	}) {
		t.Errorf("found %+v", found)
	}
}

// Finding D1 of a trial by new users: the doctor reports the rules for strangers, as a
// warning if nothing is held, and also the rights of apps and the operators.
func TestDoctorOfPeople(t *testing.T) {
	t.Parallel()
	const plain, touch = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFrO1QrhcWIcNetb06MYa+P+DaxQzUivdlvekfs4JwNH",
		"sk-ssh-ed25519@openssh.com AAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY29tAAAAIPgNfdJ/cbrGeVMjtruhCk0kYm3noa6hXk2uaPplEV8QAAAABHNzaDo="
	for _, tt := range []struct {
		name, yaml, signers string
		check               string
		how                 doctor.Health
		want                string
	}{
		{"strangers", "", "", "people", doctor.Pass, "strangers: promises wait for a person, the policy is asked, the first message goes, more than 60 messages in 1h0m0s are held"},
		{"promises to strangers", "ocip: {unknown: {commitments: record}}", "", "people", doctor.Fail, "PROMISES TO STRANGERS ARE NOT HELD"},
		{"promises to people", "ocip: {person: {commitments: record}}", "", "people", doctor.Fail, "PROMISES TO PEOPLE YOU DECLARED ARE NOT HELD"},
		{"no promises at all", "ocip: {commitment: {enforcement: monitor}}", "", "people", doctor.Fail, "nor are any others: ocip.commitment.enforcement is monitor"},
		{"no policy", "ocip: {unknown: {policy: false}}", "", "people", doctor.Warn, "the policy is not asked about messages to strangers"},
		{"look-alikes", "ocip: {look_alike: allow}", "", "people", doctor.Warn, "whose key only looks like a known one goes"},
		{"nobody declared", "", "", "people", doctor.Pass, "nobody is declared: all but the agents here are strangers"},
		{"the owner", "directory: [{kind: person, sessions: ['irc:x']}]", "", "people", doctor.Pass, "alice's own chat is not set, so it is treated as a stranger's"},
		{"nothing to declare", "", "", "access", doctor.Pass, "nothing need be declared"},
		{"two tenants without a channel", "  - {id: rival, app: '@globex/rival', instance_id: rival-1, user_id: rival, org_unit: g, tenant_id: globex}", "", "access", doctor.Pass, "no app is given a channel"},
		{"declared", "access: {apps: {'@acme/tg': {channels: [telegram]}}}", "", "access", doctor.Pass, "what 1 app may do is declared"},
		{"undeclared", "access: {apps: {'@acme/tg': {}}}\nroutes: [{session: 'telegram:*', agent: alice}]", "", "access", doctor.Fail, "no daemon starts with it"},
		{"no signatures", "", "", "who", doctor.Pass, "It does not recognize a process that detached itself"},
		{"apps decide", "ipc: {apps_may_operate: true}", "", "who", doctor.Fail, "APPS DECIDE ABOUT THEIR OWN MESSAGES"},
		{"a plain key", "", "alice " + plain, "who", doctor.Warn, "while ssh-agent has it, it signs for every process of yours, and keeps no app out"},
		{"a key that waits", "", "alice namespaces=\"approval@ocipd\" " + touch, "who", doctor.Pass, "each decision is signed by a key that waits for a touch"},
		{"a key that does not wait", "", "alice no-touch-required " + touch, "who", doctor.Warn, "signs without a touch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newClinic(t)
			yaml := clinicYAML + tt.yaml + "\n"
			if tt.signers != "" {
				c.write(".config/openclawos/signers", tt.signers+"\n", 0o600)
				yaml += "approvals: {allowed_signers: " + c.path(".config/openclawos/signers") + "}\n"
			}
			c.write(clinicConfig, yaml, 0o600)
			if found, _ := c.examine(); !said(found, tt.check, tt.how, tt.want) {
				t.Errorf("it finds %+v", found)
			}
		})
	}
}
