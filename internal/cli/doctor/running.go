package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/service"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/systemd"
	"golang.org/x/sys/unix"
)

// daemon checks whether the daemon answers, and its version.
func (d *Examiner) daemon() []Diagnosis {
	if d.live != nil {
		return d.answers()
	}
	if holder := lockHolder(d.places.socket + ".lock"); holder != "" && d.liveErr != nil {
		return []Diagnosis{failed("process %s has the lock and does not answer: %v", holder, d.liveErr).
			advise("it may still be starting, or verifying after a fault; else look at its log and end it: kill %s", holder)}
	}
	if user := databaseHolder(d.places.database); user != "" {
		return []Diagnosis{failed("nobody answers on %s, and process %s uses the database %s: a daemon with other sockets", d.places.operator, user, d.places.database).
			advise("name its socket (--socket, OPENCLAWOS_KERNEL_SOCKET), or end it; two daemons need a database each (store.url)")}
	}
	if d.liveErr == nil {
		return []Diagnosis{passed("not running: it starts when somebody connects to %s", d.places.socket)}
	}
	info, err := os.Lstat(d.places.operator)
	switch {
	case err == nil && info.Mode().Type() == fs.ModeSocket && errors.Is(d.liveErr, client.ErrNotRunning):
		return []Diagnosis{warned("not running, and its sockets in %s are still there", d.places.runtime).
			advise("rm %s %s; or start it: ocipd serve, ocipd service install", shellWord(d.places.socket), shellWord(d.places.operator)).by(d.removeSockets)}
	case errors.Is(d.liveErr, client.ErrNotRunning):
		return []Diagnosis{warned("not running: nobody answers on %s", d.places.operator).advise("start it: ocipd serve; or as a service: ocipd service install")}
	}
	return []Diagnosis{failed("cannot ask the daemon: %v", d.liveErr).advise("see whether it is the daemon that answers on %s, and what its log says", d.places.operator)}
}

// answers checks the daemon's status.
func (d *Examiner) answers() (found []Diagnosis) {
	s := d.live
	if mine := d.Version; s.Version != mine {
		found = append(found, warned("version %s runs, and this is %s", s.Version, mine).advise("restart it: systemctl --user restart ocipd.service, or stop it and ocipd serve"))
	}
	if d.other != "" {
		found = append(found, warned("%s", d.other).advise("name the file that you mean with --config; ocipd config show says what is in it"))
	}
	if s.Audit.Fault != "" {
		found = append(found, failed("nothing is recorded or let through: %s", s.Audit.Fault).
			advise("find out who did it and put it right before you restart the daemon: a file that was moved goes back under its name, one that was closed gets its mode back; the start verifies every record"))
	}
	if !fileowner.Same(cli.Absolute(s.Database), d.places.database) {
		found = append(found, warned("it keeps its state in %s, and the configuration here says %s", s.Database, d.places.database).
			advise("compare its configuration (%s) and its environment with yours", cmp.Or(s.ConfigFile, "no file")))
	}
	for i := range s.Apps {
		if a := &s.Apps[i]; a.Health != "healthy" {
			found = append(found, warned("app %s was not heard of for %s", a.ID, term.Age(d.now().Sub(a.LastSeenAt))).
				advise("see what its process %d does; started again, it registers anew and gets what waits for it", a.PID))
		}
	}
	if len(s.Agents) == 0 {
		found = append(found, warned("no agent is configured, so nobody can send").advise("ocipd config init, or add one to agents in %s", d.places.config))
	}
	return orWell(found, passed("%s answers on %s, pid %d, up %s", s.Version, s.Socket, s.PID, term.Age(d.now().Sub(s.StartedAt))))
}

// databaseHolder is the process of the daemon that writes a database, or "". The caller opens
// the file and must not be a daemon: closing it would drop SQLite's locks in that process.
func databaseHolder(path string) string {
	if holder := lockHolder(path); holder == "" {
		return ""
	}
	var stat unix.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || unix.Stat(path, &stat) != nil {
		return "unknown"
	}
	// On some file systems, the device there differs from that of stat(2).
	//
	// Source: proc_locks(5).
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for line := range strings.Lines(string(locks)) {
		if f := strings.Fields(line); len(f) >= 6 && f[1] == "FLOCK" && f[3] == "WRITE" && strings.HasSuffix(f[5], inode) {
			return f[4]
		}
	}
	return "unknown"
}

// lockHolder is the process that holds a lock, or "".
func lockHolder(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil {
		return ""
	}
	text := make([]byte, 32)
	n, _ := f.Read(text)
	if pid, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return strconv.Itoa(pid)
	}
	return "unknown"
}

// removeSockets removes the sockets of a daemon that is gone. It holds the lock that a
// daemon takes before it makes its sockets, so it cannot remove a live daemon's.
func (d *Examiner) removeSockets() (did string, err error) {
	lock, err := os.OpenFile(d.places.socket+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return "", fmt.Errorf("cannot open the lock file: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return "", fmt.Errorf("cannot lock %s: a daemon is starting or running", lock.Name())
	}
	var removed []string
	for _, path := range []string{d.places.socket, d.places.operator} {
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Type() != fs.ModeSocket {
			continue
		}
		ctx, cancel := context.WithTimeout(d.ctx, statusPatience)
		c, err := client.Dial(ctx, path)
		cancel()
		if err == nil {
			return "", errors.Join(fmt.Errorf("cannot remove %s: somebody answers there", path), c.Close())
		}
		if err := os.Remove(path); err != nil {
			return "", fmt.Errorf("cannot remove a dead socket: %w", err)
		}
		removed = append(removed, path)
	}
	return "rm " + strings.Join(removed, " "), nil
}

// units are the units of the service, which start a daemon for the sockets of this one.
type units struct {
	*cli.Process
	ctx    context.Context
	socket string
}

func (d *Examiner) units() *units { return &units{d.Process, d.ctx, d.places.socket} }

// dir is the directory of this user's units.
func (u *units) dir() string {
	return filepath.Join(u.XDG("XDG_CONFIG_HOME", ".config"), "systemd", "user")
}

// installed reports whether the service is installed for this user.
func (u *units) installed() bool {
	return cli.Exists(filepath.Join(u.dir(), systemd.ServiceName))
}

// usualSocket reports whether the sockets are in the units' default place.
func (u *units) usualSocket() bool {
	dir := u.Getenv("XDG_RUNTIME_DIR")
	return dir != "" && u.socket == filepath.Join(dir, "openclawos", "kernel.sock")
}

// show asks the service manager about a unit; nil if there is no service manager.
func (u *units) show(name string) map[string]string {
	if _, err := exec.LookPath("systemctl"); err != nil || u.Getenv("XDG_RUNTIME_DIR") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(u.ctx, statusPatience)
	defer cancel()
	properties, err := (&service.Manager{Process: u.Process}).ShowUnit(ctx, name)
	if err != nil {
		return nil
	}
	return properties
}

// idle reports whether the service manager holds the sockets and has not started the daemon.
func (u *units) idle() bool {
	if !u.usualSocket() || !u.installed() && (&service.Manager{Process: u.Process}).Packaged() == "" {
		return false
	}
	socket, unit := u.show(systemd.SocketName), u.show(systemd.ServiceName)
	return socket["ActiveState"] == "active" && unit["ActiveState"] == "inactive"
}

// service checks the units of the service, if there are any.
func (d *Examiner) service() (found []Diagnosis) {
	u := d.units()
	unit := u.show(systemd.ServiceName)
	switch {
	case unit == nil && u.installed():
		return []Diagnosis{warned("the units are installed, and no systemd user manager answers here").
			advise("log in on the machine itself, or: loginctl enable-linger %s", currentUser())}
	case unit == nil:
		return []Diagnosis{passed("there is no systemd user manager here; something else has to start the daemon")}
	case unit["LoadState"] == "not-found":
		return []Diagnosis{passed("not installed as a service").advise("to have it started at every login: ocipd service install")}
	}
	switch unit["ActiveState"] {
	case "failed":
		found = append(found, failed("%s failed (%s)", systemd.ServiceName, unit["Result"]).
			advise("journalctl --user -u ocipd -n 20; then: systemctl --user reset-failed ocipd.service ocipd.socket && systemctl --user start ocipd.socket ocipd.service"))
	case "active", "reloading":
		if d.live != nil && unit["MainPID"] != strconv.Itoa(d.live.PID) && u.usualSocket() {
			found = append(found, warned("the daemon that answers (pid %d) is not the service's (pid %s)", d.live.PID, unit["MainPID"]).advise("stop one of them"))
		}
	}
	// A text that is not a number counts as 0.
	if restarts, _ := strconv.Atoi(unit["NRestarts"]); restarts > 0 {
		found = append(found, warned("it was started again %s by itself", term.Count(restarts, "time")).advise("journalctl --user -u ocipd says why; having looked: systemctl --user reset-failed ocipd.service"))
	}
	if state := unit["UnitFileState"]; state != "enabled" && state != "" {
		found = append(found, warned("it is %s: it does not start at login", state).advise("systemctl --user enable ocipd.socket ocipd.service"))
	}
	well := passed("%s is %s (%s), %s", systemd.ServiceName, unit["ActiveState"], unit["SubState"], unit["UnitFileState"])
	// This is right for agents that end with the session, so it is not a fault.
	if name := currentUser(); !service.Lingers(name) {
		well = well.advise("%s", service.LastLogout(name))
	}
	return orWell(found, well)
}

// currentUser is the name of the user, or its number.
func currentUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// policy compiles the policy, runs its tests, and compares it with the one in
// force.
func (d *Examiner) policy() (found []Diagnosis) {
	if d.cfgErr != nil {
		return []Diagnosis{warned("not checked: the configuration says which policy it is, and cannot be used").advise("correct the configuration first")}
	}
	c := &d.cfg.Policy
	if c.Path != "" {
		found = decides("the policy", "policy.path", policyPlaces(c.Path))
	}
	compiled, err := policy.Compile(d.ctx, policy.Source{Path: c.Path, Data: c.Data.Map(), Timeout: c.Timeout})
	if err != nil {
		return append(found, failed("cannot use %s: %v", policyName(c.Path), err).
			advise("correct it and try it with: ocipd policy check; the daemon does not start with it, and keeps the one before while it runs"))
	}
	tests := ""
	if c.Path != "" {
		results, err := policy.Test(d.ctx, c.Path)
		if err != nil {
			found = append(found, failed("cannot run the tests of %s: %v", c.Path, err).advise("ocipd policy test"))
		}
		broken := 0
		for i := range results {
			if !results[i].Passed && !results[i].Skipped {
				broken++
			}
		}
		if broken > 0 {
			found = append(found, failed("%d of %s of %s fail", broken, term.Count(len(results), "test"), c.Path).advise("ocipd policy test"))
		}
		tests = ", " + term.Count(len(results), "test")
	}
	if d.live != nil {
		p := &d.live.Policy
		switch {
		case p.Refusal != "":
			found = append(found, failed("the daemon refused the policy at %s and keeps %s: %s", p.RefusedAt.Local().Format(time.DateTime), p.Revision, p.Refusal).
				advise("correct it, then: ocipd policy reload"))
		case p.Revision != compiled.Revision() && fileowner.Same(d.live.Database, d.places.database):
			found = append(found, warned("the daemon decides by %s, and the files are %s by now", p.Revision, compiled.Revision()).advise("ocipd policy reload"))
		}
	}
	return orWell(found, passed("%s compiles, %s%s", policyName(c.Path), compiled.Revision(), tests))
}

// policyPlaces are the directories and files of a policy, without its tests.
func policyPlaces(path string) []string {
	places := []string{path}
	root, err := filepath.EvalSymlinks(path)
	if err != nil {
		return places
	}
	// Compiling the policy reports files that cannot be read.
	_ = filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && (entry.IsDir() || filepath.Ext(name) == ".rego" && !strings.HasSuffix(name, "_test.rego")) {
			places = append(places, name)
		}
		return nil
	})
	return places
}

// sinks checks how far other systems are behind the log.
func (d *Examiner) sinks() (found []Diagnosis) {
	if len(d.cfg.Audit.Sinks) == 0 {
		return []Diagnosis{passed("none configured: the log stays on this machine")}
	}
	if d.live == nil {
		return []Diagnosis{passed("%s configured; how far they are is seen when the daemon runs", term.Count(len(d.cfg.Audit.Sinks), "sink"))}
	}
	for i := range d.live.Sinks {
		switch s := &d.live.Sinks[i]; {
		case s.Error != "":
			found = append(found, warned("%s takes nothing for %s and is %d records behind: %s", s.Name, term.Age(d.now().Sub(s.FailingSince)), s.Lag, s.Error).
				advise("see that it runs and can be reached from here; what waits is sent when it takes records again"))
		case s.Lag > ManyBehind:
			found = append(found, warned("%s is %d records behind", s.Name, s.Lag).advise("see whether it keeps up; audit.sinks[].filter hands it fewer records"))
		case s.Note != "":
			found = append(found, warned("%s: %s", s.Name, s.Note).advise("look at its log and the daemon's"))
		}
	}
	return orWell(found, passed("%s, all up to date", term.Count(len(d.live.Sinks), "sink")))
}

// witnesses checks whether the witnesses cosign the log's checkpoints.
func (d *Examiner) witnesses() (found []Diagnosis) {
	if d.live == nil {
		return []Diagnosis{passed("checked only while the daemon runs")}
	}
	for _, p := range d.live.Paused {
		name, refused := strings.CutPrefix(p.By, "witness:")
		shown := slices.ContainsFunc(d.live.Witnesses, func(w api.WitnessStatus) bool { return w.Refused && w.Name == name })
		if refused && !shown {
			// The witness was removed from the list.
			found = append(found, failed("sending is paused since %s: the witness %s refused the log, and is not listed any more", term.Age(d.now().Sub(p.Since)), term.Printable(name)).
				advise("find out which log the witness has signed (ocipd audit query --event witness_refused); then ocipd resume"))
		}
	}
	if len(d.live.Witnesses) == 0 && len(found) == 0 {
		return []Diagnosis{passed("none: nobody else remembers how far the log was; ocipd audit witness add lists one")}
	}
	for i := range d.live.Witnesses {
		switch w := &d.live.Witnesses[i]; {
		case w.Refused:
			found = append(found, failed("sending is paused: %s", term.Printable(w.Error)).
				advise("keep a copy of the state for whoever looks into it, and compare it with what the witness has signed; then ocipd resume; the daemon does not start again while the witness is listed"))
		case w.Error != "":
			found = append(found, warned("%s has signed nothing for %s: %s", term.Printable(w.Name), term.Age(d.now().Sub(w.FailingSince)), term.Printable(w.Error)).
				advise("see that it runs at %s and knows this log; no message waits for it", term.Printable(w.URL)))
		}
	}
	return orWell(found, passed("listed: %d; each signs the log", len(d.live.Witnesses)))
}

// ManyBehind is the backlog of records that shows that a follower does not keep up: more
// than arrive between two of its checks.
const ManyBehind = 5000

// index checks whether the index keeps up with the log.
func (d *Examiner) index() []Diagnosis {
	if d.live == nil {
		return []Diagnosis{passed("checked only while the daemon runs; without one the log is read")}
	}
	if behind := d.live.Audit.Seq - min(d.live.Audit.Indexed, d.live.Audit.Seq); behind > ManyBehind {
		return []Diagnosis{warned("the index is %d records behind: queries read those one by one", behind).advise("it catches up by itself; look at the daemon's log if it does not")}
	}
	return []Diagnosis{passed("up to record %d", d.live.Audit.Indexed)}
}

// policyName names the source of a policy.
func policyName(path string) string { return cmp.Or(path, "the built-in policy") }
