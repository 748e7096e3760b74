package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/systemd"
)

// rule describes a file or directory of the daemon.
type rule struct {
	what, path string
	// kind is fs.ModeDir, fs.ModeSocket, or zero for a plain file.
	kind fs.FileMode
	// need are the mode bits that its owner needs, and most the permitted ones.
	need, most fs.FileMode
	// strict marks files that must not be readable by others for the daemon to start, and
	// plain those that must not be links.
	strict, plain bool
	// key is the configuration key of its place.
	key string
	// link is the advice about a link in place of a file that the daemon makes itself. free
	// permits a link.
	link string
	free bool
}

// configuration checks the configuration file and its content.
func (d *Examiner) configuration() (found []Diagnosis) {
	path := d.places.config
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.ConfigFile == "":
		found = append(found, passed("no configuration file; using defaults").
			advise("ocipd config init writes %s, where agents are named; until then nobody can send", path))
	case err == nil:
		found = append(found, d.holdTo(&rule{what: "the configuration", path: path, need: 0o400, most: d.configMode(info.Mode().Perm()), free: true})...)
		dir := filepath.Dir(path)
		found = append(found, d.holdTo(&rule{what: "the configuration's directory", path: dir, kind: fs.ModeDir, need: 0o500, most: 0o755, key: "--config"})...)
		found = append(found, decides("the configuration", "--config", []string{path}, path, dir)...)
	case d.cfgErr == nil:
		found = append(found, failed("cannot look at the configuration: %v", err).advise("see that you may read the directories above it"))
	}
	if problems, ok := errors.AsType[config.Errors](d.cfgErr); ok {
		for _, p := range problems {
			found = append(found, failed("%s", p.Error()))
		}
	} else if d.cfgErr != nil {
		found = append(found, failed("%v", d.cfgErr))
	}
	if d.cfgErr != nil {
		if err := d.uncertain(); err != nil {
			found = append(found, warned("%v\nwhat follows looks at the default places, which may be another daemon's, and --fix does nothing", err))
		}
		return append(found, failed("the daemon does not start with this configuration; what follows takes what can be read of it, else the defaults").
			advise("correct it and try it with: ocipd config check"))
	}
	if file := d.cfg.Approvals.AllowedSigners; file != "" && !cli.Exists(file) {
		found = append(found, failed("there is no %s, which approvals.allowed_signers names", file).advise("put the file there: the daemon does not start without it"))
	}
	found = append(found, d.named()...)
	found = append(found, taskPrograms(d.cfg, exec.LookPath)...)
	if len(found) > 0 {
		return found
	}
	return []Diagnosis{passed("%s: valid, %s, %s in the directory", path, term.Count(len(d.cfg.Agents), "agent"), term.Count(len(d.cfg.Directory)+d.cfg.Listed.Len(), "contact"))}
}

// configMode is the permitted mode of a configuration; with secrets in it, only the owner
// may read it.
func (d *Examiner) configMode(now fs.FileMode) fs.FileMode {
	secrets := len(d.cfg.Channels) > 0 || len(d.cfg.Apps) > 0
	for i := range d.cfg.Audit.Sinks {
		secrets = secrets || len(d.cfg.Audit.Sinks[i].Headers) > 0
	}
	if secrets && now&0o044 != 0 {
		return 0o600
	}
	return 0o755
}

// named checks the files that the configuration names and that affect decisions. A user who
// may change one can change decisions.
func (d *Examiner) named() (found []Diagnosis) {
	c := d.cfg
	look := func(what, path, key string) {
		if path != "" {
			found = append(found, decides(what, key, []string{path})...)
		}
	}
	look("the directory file", c.DirectoryPath(), "directory_file")
	look("the file of who may sign decisions", c.Approvals.AllowedSigners, "approvals.allowed_signers")
	if command := c.Approvals.Notify.Command; len(command) > 0 {
		look("the program of approvals.notify.command", command[0], "approvals.notify.command")
		if !cli.Exists(command[0]) {
			found = append(found, failed("there is no %s, which approvals.notify.command names", command[0]).advise("install it, or name another: nobody is told that a message waits"))
		}
	}
	for i := range c.Agents {
		look("the program of agent "+c.Agents[i].ID, c.Agents[i].Exe, fmt.Sprintf("agents[%d].exe", i))
	}
	for i := range c.Audit.Sinks {
		s, key := &c.Audit.Sinks[i], fmt.Sprintf("audit.sinks[%d].tls.", i)
		look("the list of authorities of the sink "+s.Name, s.TLS.CA, key+"ca")
		look("the certificate of the sink "+s.Name, s.TLS.Cert, key+"cert")
		look("the key of the sink "+s.Name, s.TLS.Key, key+"key")
	}
	return found
}

// taskPrograms checks the programs of tasks that the configuration names. Attempts and effects of
// tasks fail without them, which otherwise shows at the first one only.
func taskPrograms(c *config.Config, find func(name string) (path string, err error)) (found []Diagnosis) {
	for i := range c.Tasks.Actors {
		a := &c.Tasks.Actors[i]
		if a.ACP == nil {
			continue
		}
		for _, of := range []struct {
			key     string
			command []string
		}{{"command", a.ACP.Command}, {"wrap", a.ACP.Wrap}} {
			key := fmt.Sprintf("tasks.actors[%d].acp.%s", i, of.key)
			if len(of.command) == 0 {
				continue
			}
			found = append(found, decides("the program of actor "+a.Name, key, of.command[:1])...)
			if _, err := find(of.command[0]); err != nil {
				found = append(found, failed("%s, which %s names, is no program that can be started: the attempts of actor %s fail", of.command[0], key, a.Name).
					advise("install it, or name another: %s", key))
			}
		}
	}
	if c.Tasks.Run.Lobster != "" {
		if _, err := find("lobster"); err != nil {
			found = append(found, warned("tasks.run.lobster is actor %s, and Lobster is not on the PATH", c.Tasks.Run.Lobster).
				advise("npm install -g @clawdbot/lobster, or name the program: ocipd task run --lobster-program PROGRAM"))
		}
	}
	return found
}

// decides reports who else can change or replace files. key is their configuration key; it
// skips known places. There is no repair: a file may have been changed already, and a
// directory is not the daemon's.
func decides(what, key string, paths []string, known ...string) (found []Diagnosis) {
	for _, path := range paths {
		// Another check reports a missing file.
		list, _ := fileowner.Exposed(path)
		for i := range list {
			e := &list[i]
			if slices.Contains(known, e.Path) {
				continue
			}
			known = append(known, e.Path)
			f := failed("others can change %s: %s %s", what, e.Path, e)
			switch info, err := os.Lstat(e.Path); {
			case err == nil && info.IsDir():
				f = f.advise("see that what is in it is what you put there, and keep it where only you or root can write: %s", key)
			case e.Owner != nil:
				f = f.advise("see that it is what it should be, and have one of your own or of root's there: %s", key)
			default:
				f = f.advise("see that it is what you wrote, then: chmod go-w %s", shellWord(e.Path))
			}
			found = append(found, f)
		}
	}
	return found
}

// shellWord quotes a path for a shell.
func shellWord(path string) string {
	if cli.PlainWord(path) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// rules describe the daemon's own files.
//
// Source: protocol, section 1.
func (d *Examiner) rules() []rule {
	p, c := &d.places, d.cfg
	usual, runtimeMost, socketMost := fs.FileMode(0o755), fs.FileMode(0o700), fs.FileMode(0o600)
	if c.Store.URL == "" {
		usual = 0o700
	}
	if len(c.IPC.AllowUIDs) > 0 {
		runtimeMost, socketMost = 0o711, 0o666
	}
	list := []rule{
		{what: "the directory of the sockets", path: p.runtime, kind: fs.ModeDir, need: 0o700, most: runtimeMost, plain: true, key: "ipc.socket"},
		{what: "the socket of apps", path: p.socket, kind: fs.ModeSocket, need: 0o600, most: socketMost, plain: true},
		{what: "the socket of operators", path: p.operator, kind: fs.ModeSocket, need: 0o600, most: 0o600, plain: true},
		{what: "the lock file", path: p.socket + ".lock", need: 0o600, most: 0o600, plain: true},
		{what: "the directory of the state", path: p.state, kind: fs.ModeDir, need: 0o700, most: usual, key: "store.url"},
		{what: "the directory of keys", path: p.keys, kind: fs.ModeDir, need: 0o700, most: 0o700, strict: true, plain: true, key: "audit.keys"},
		{what: "the directory of the sinks' places", path: filepath.Join(p.state, "sinks"), kind: fs.ModeDir, need: 0o700, most: 0o700, key: "store.url"},
		{what: "the database", path: p.database, need: 0o600, most: 0o600, key: "store.url"},
	}
	// SQLite keeps its files beside the target of a link.
	beside := p.database
	if target, err := filepath.EvalSymlinks(p.database); err == nil {
		beside = target
	}
	for _, path := range []string{beside + "-wal", beside + "-shm", p.database + ".reserve", p.database + ".latched"} {
		list = append(list, rule{what: "the database", path: path, need: 0o600, most: 0o600,
			link: "see who made it; stop the daemon, and where it is still there then: rm " + shellWord(path)})
	}
	list = append(list,
		rule{what: "the index", path: strings.TrimSuffix(p.database, filepath.Ext(p.database)) + ".index.db", need: 0o600, most: 0o600, key: "store.url"},
		// A group may read the mirror, for log shippers.
		rule{what: "the mirror", path: p.mirror, need: 0o600, most: 0o640, key: "audit.mirror"},
		rule{what: "the file of checkpoints", path: p.checkpoints, need: 0o600, most: 0o600, key: "audit.checkpoints"},
	)
	// A directory that cannot be read violates its own rule.
	keys, _ := os.ReadDir(p.keys)
	for _, e := range keys {
		if !strings.HasPrefix(e.Name(), "checkpoint.") && !strings.HasPrefix(e.Name(), digestKeys) {
			continue
		}
		r := rule{what: "a key", path: filepath.Join(p.keys, e.Name()), need: 0o600, most: 0o600, strict: true, plain: true}
		switch {
		case strings.HasPrefix(e.Name(), "checkpoint.pub"):
			r.what, r.most = "a public key", 0o644
		case strings.HasPrefix(r.path, keyring.NewestPath(p.keys)): // also while it is being written
			r.what, r.most = "the newest checkpoint", 0o644
		}
		list = append(list, r)
	}
	return list
}

// files checks owners and modes.
func (d *Examiner) files() (found []Diagnosis) {
	if d.places.database == "" {
		return []Diagnosis{failed("cannot tell where the state is kept: HOME is not set").advise("set HOME, or store.url in the configuration")}
	}
	there := 0
	for _, r := range d.rules() {
		if _, err := os.Lstat(r.path); err == nil {
			there++
		}
		found = append(found, d.holdTo(&r)...)
	}
	found = append(found, d.programs()...)
	found = append(found, d.missing()...)
	if !cli.Exists(d.places.database) && len(found) == 0 {
		return []Diagnosis{passed("nothing was recorded here yet").
			advise("the first start makes %s with the database, its mirror and keys, and the sockets in %s, all for their owner alone",
				d.places.state, d.places.runtime)}
	}
	return orWell(found, passed("%d files and directories in %s and %s: their owner's alone", there, d.places.state, d.places.runtime))
}

// missing reports directories that the daemon does not make itself, and lost files.
func (d *Examiner) missing() (found []Diagnosis) {
	p := &d.places
	for i := range d.cfg.Audit.Sinks {
		if s := &d.cfg.Audit.Sinks[i]; s.Type == "ocsf" {
			found = append(found, missingDir("of the sink "+s.Name, filepath.Dir(s.Path), Fail)...)
		}
	}
	if socket := d.cfg.Metrics.Socket; socket != "" {
		found = append(found, missingDir("of metrics.socket", filepath.Dir(socket), Fail)...)
	}
	if d.unitInstalled() && d.cfg.Store.URL == "" && cli.Exists(filepath.Dir(p.config)) {
		// See systemd/ocipd.service, at StateDirectory=.
		found = append(found, missingDir("of the state, which systemd may replace by a link to the configuration's,", p.state, Warn)...)
	}
	return append(found, d.lost()...)
}

// lost reports a database that has disappeared.
func (d *Examiner) lost() []Diagnosis {
	p := &d.places
	if cli.Exists(p.database) {
		return nil
	}
	if d.live != nil && fileowner.Same(cli.Absolute(d.live.Database), p.database) {
		return []Diagnosis{failed("the database %s is gone under the running daemon", p.database).
			advise("find out who did it, and do not stop the daemon before: where the file was moved, put it back under its name and restart the daemon, "+
				"which verifies every record first. Where it was removed, it is gone with the daemon; the mirror %s has its records", p.mirror)}
	}
	for _, left := range []string{p.mirror, p.checkpoints} {
		if cli.Exists(left) {
			return []Diagnosis{failed("the database %s is gone, and %s is still there", p.database, left).
				advise("where it was moved, put the file back under its name, and else from a backup" + audit.OrNewLog)}
		}
	}
	return nil
}

// programs reports who can change the programs that run as the daemon.
func (d *Examiner) programs() (found []Diagnosis) {
	if program, err := os.Executable(); err == nil {
		found = append(found, decides("this program", "install it there", []string{program})...)
	}
	units := filepath.Join(d.XDG("XDG_CONFIG_HOME", ".config"), "systemd", "user")
	for _, name := range []string{systemd.ServiceName, systemd.SocketName, systemd.ConsoleName, systemd.ConsoleSocketName} {
		if path := filepath.Join(units, name); cli.Exists(path) {
			found = append(found, decides("the service's unit", "XDG_CONFIG_HOME", []string{path})...)
		}
	}
	return found
}

// missingDir reports a directory that somebody has to create.
func missingDir(what, dir string, how Health) []Diagnosis {
	if cli.Exists(dir) {
		return nil
	}
	did := "mkdir -m 700 -p " + shellWord(dir)
	f := failed("the directory %s %s is not there", what, dir).advise("%s", did)
	f.Health = how
	return []Diagnosis{f.by(func() (string, error) { return did, os.MkdirAll(dir, 0o700) })}
}

// ours reports whether a directory is the daemon's, so that its mode may be changed: it is
// named openclawos, contains the daemon's keys, or is openclawos's folder of sinks. Shared
// directories (sticky, or setgid and writable by the group) and the user's home never are.
func (d *Examiner) ours(path string, info fs.FileInfo) bool {
	home, err := os.Stat(d.Getenv("HOME"))
	shared := info.Mode()&fs.ModeSticky != 0 || info.Mode()&fs.ModeSetgid != 0 && info.Mode().Perm()&0o020 != 0
	if shared || err == nil && os.SameFile(home, info) {
		return false
	}
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Base(target) == "openclawos" {
		return true
	}
	p := &d.places
	switch path {
	case p.keys:
		return cli.Exists(filepath.Join(path, "checkpoint.pub")) || cli.Exists(filepath.Join(path, digestKeys))
	case filepath.Join(p.state, "sinks"):
		return filepath.Base(p.state) == "openclawos"
	}
	return false
}

// chmod is the command that sets a file's mode and keeps its further bits.
func chmod(mode fs.FileMode, stat *syscall.Stat_t, path string) string {
	return fmt.Sprintf("chmod %03o %s", uint32(mode.Perm())|stat.Mode&0o7000, shellWord(path))
}

// holdTo compares a file with its rule. A missing file does not violate it.
func (d *Examiner) holdTo(r *rule) []Diagnosis {
	info, err := os.Lstat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		target, _ := os.Readlink(r.path) // for people to read
		switch {
		case r.plain:
			return []Diagnosis{failed("%s %s is a symbolic link to %s: the daemon refuses it", r.what, r.path, target).advise("put the thing itself there, or name where it is in the configuration")}
		case r.link != "":
			return []Diagnosis{failed("%s %s is a symbolic link to %s, and the daemon made none", r.what, r.path, target).advise("%s", r.link)}
		case r.kind == 0 && !r.free:
			link := warned("%s %s is a symbolic link to %s: that file is written", r.what, r.path, target).
				advise("where you made it, name the file itself (%s); else stop the daemon, see who made it, and: rm %s", r.key, shellWord(r.path))
			there := *r
			if there.path, err = filepath.EvalSymlinks(r.path); err != nil {
				return []Diagnosis{link}
			}
			return append([]Diagnosis{link}, d.holdTo(&there)...)
		}
		info, err = os.Stat(r.path)
	}
	if err != nil {
		return []Diagnosis{failed("cannot look at %s: %v", r.what, err).advise("see that you may read the directories above it")}
	}
	if info.Mode().Type() != r.kind {
		return []Diagnosis{failed("%s %s is something else (%s)", r.what, r.path, info.Mode()).advise("move it away")}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return []Diagnosis{failed("cannot tell whose %s is", r.path).advise("put it on a file system with owners")}
	}
	// A file that everybody may read may belong to the administrator.
	if uid := os.Geteuid(); int(stat.Uid) != uid && (stat.Uid != 0 || r.most&0o004 == 0) {
		f := failed("%s %s belongs to user %d, and this is user %d", r.what, r.path, stat.Uid, uid)
		if r.kind == fs.ModeDir {
			return []Diagnosis{f.advise("keep it in a directory of yours, named openclawos (%s)", r.key)}
		}
		return []Diagnosis{f.advise("if what is in it is to be believed: chown %d %s", uid, shellWord(r.path))}
	}
	if r.kind == 0 && stat.Nlink > 1 && !r.free {
		f := failed("%s %s has %d names (hard links)", r.what, r.path, stat.Nlink)
		if r.link != "" {
			return []Diagnosis{f.advise("%s", r.link)}
		}
		return []Diagnosis{f.advise("see what the other one is for; stop the daemon and give this one a file of its own: cp -p %[1]s %[1]s.new && mv %[1]s.new %[1]s", shellWord(r.path))}
	}
	mode := info.Mode().Perm()
	want := mode&r.most | r.need
	if want == mode {
		return nil
	}
	var f Diagnosis
	switch open := mode &^ r.most; {
	case open&0o022 != 0:
		f = failed("others can write to %s %s (mode %04o)", r.what, r.path, stat.Mode&0o7777)
	case open != 0 && r.strict:
		f = failed("others can get at %s %s (mode %04o): the daemon refuses it", r.what, r.path, stat.Mode&0o7777)
	case open != 0:
		f = warned("others can get at %s %s (mode %04o)", r.what, r.path, stat.Mode&0o7777)
	default:
		f = failed("its owner cannot use %s %s (mode %04o)", r.what, r.path, stat.Mode&0o7777)
	}
	if r.kind == fs.ModeDir && !d.ours(r.path, info) {
		return []Diagnosis{f.advise("it is not the daemon's own, so its mode stays: use a directory for this alone, named openclawos (%s)", r.key)}
	}
	did := chmod(want, stat, r.path)
	further := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return []Diagnosis{f.advise("%s", did).by(func() (string, error) { return did, os.Chmod(r.path, want|further) })}
}
