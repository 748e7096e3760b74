package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/openclawos/ocipd/internal/config"
)

// rule is what a file or directory of the daemon's should be.
type rule struct {
	what, path string
	// kind is fs.ModeDir, fs.ModeSocket, or zero for a plain file.
	kind fs.FileMode
	// need are the bits of the mode that its owner needs, and most are those
	// that it may have.
	need, most fs.FileMode
	// strict marks what the daemon does not start with if others can read it,
	// and plain what may be no symbolic link and have no second name.
	strict, plain bool
}

// configuration checks the file and what is in it.
func (d *doctor) configuration() (found []diagnosis) {
	path := d.places.config
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.configFile == "":
		found = append(found, passed("there is no file, the defaults serve").
			advise("ocipd config init writes %s, where agents are named; until then nobody can send", path))
	case err == nil:
		found = append(found, holdTo(&rule{what: "the configuration", path: path, need: 0o400, most: d.configMode(info.Mode().Perm())})...)
		found = append(found, holdTo(&rule{what: "the configuration's directory", path: filepath.Dir(path), kind: fs.ModeDir, need: 0o500, most: 0o755})...)
	case d.cfgErr == nil:
		found = append(found, failed("cannot look at the configuration: %v", err))
	}
	if problems, ok := errors.AsType[config.Errors](d.cfgErr); ok {
		for _, p := range problems {
			found = append(found, failed("%s", p.Error()))
		}
	} else if d.cfgErr != nil {
		found = append(found, failed("%v", d.cfgErr))
	}
	if d.cfgErr != nil {
		return append(found, failed("the daemon does not start with this configuration; what follows takes the defaults").
			advise("correct it and try it with: ocipd config check"))
	}
	if file := d.cfg.Approvals.AllowedSigners; file != "" {
		found = append(found, holdTo(&rule{what: "the file of who may sign decisions", path: file, need: 0o400, most: 0o755})...)
		if !exists(file) {
			found = append(found, failed("there is no %s, which approvals.allowed_signers names", file).advise("put the file there: the daemon does not start without it"))
		}
	}
	if len(found) > 0 {
		return found
	}
	return []diagnosis{passed("%s: valid, %s, %s in the directory", path, count(len(d.cfg.Agents), "agent"), count(len(d.cfg.Directory), "contact"))}
}

// configMode is the mode that a configuration may have: one with secrets in it is
// for its owner alone.
func (d *doctor) configMode(now fs.FileMode) fs.FileMode {
	secrets := len(d.cfg.Channels) > 0 || len(d.cfg.Apps) > 0
	for i := range d.cfg.Audit.Sinks {
		secrets = secrets || len(d.cfg.Audit.Sinks[i].Headers) > 0
	}
	if secrets && now&0o044 != 0 {
		return 0o600
	}
	return 0o755
}

// rules are what the daemon's own files should be.
//
// Source: protocol, section 1.
func (d *doctor) rules() []rule {
	p, c := &d.places, d.cfg
	usual, runtimeMost, socketMost := fs.FileMode(0o755), fs.FileMode(0o700), fs.FileMode(0o600)
	if c.Store.URL == "" {
		usual = 0o700
	}
	if len(c.IPC.AllowUIDs) > 0 {
		runtimeMost, socketMost = 0o711, 0o666
	}
	list := []rule{
		{what: "the directory of the sockets", path: p.runtime, kind: fs.ModeDir, need: 0o700, most: runtimeMost, plain: true},
		{what: "the socket of apps", path: p.socket, kind: fs.ModeSocket, need: 0o600, most: socketMost, plain: true},
		{what: "the socket of operators", path: p.operator, kind: fs.ModeSocket, need: 0o600, most: 0o600, plain: true},
		{what: "the lock file", path: p.socket + ".lock", need: 0o600, most: 0o600, plain: true},
		{what: "the directory of the state", path: p.state, kind: fs.ModeDir, need: 0o700, most: usual},
		{what: "the directory of keys", path: p.keys, kind: fs.ModeDir, need: 0o700, most: 0o700, strict: true, plain: true},
		{what: "the directory of the sinks' places", path: filepath.Join(p.state, "sinks"), kind: fs.ModeDir, need: 0o700, most: 0o700},
	}
	for _, suffix := range []string{"", "-wal", "-shm", ".reserve", ".latched"} {
		list = append(list, rule{what: "the database", path: p.database + suffix, need: 0o600, most: 0o600})
	}
	list = append(list,
		rule{what: "the index", path: strings.TrimSuffix(p.database, filepath.Ext(p.database)) + ".index.db", need: 0o600, most: 0o600},
		// A group may read the mirror: shippers do.
		rule{what: "the mirror", path: p.mirror, need: 0o600, most: 0o640},
		rule{what: "the file of checkpoints", path: p.checkpoints, need: 0o600, most: 0o600},
	)
	// A directory that cannot be read shows by its own rule.
	keys, _ := os.ReadDir(p.keys)
	for _, e := range keys {
		r := rule{what: "a key", path: filepath.Join(p.keys, e.Name()), need: 0o600, most: 0o600, strict: true, plain: true}
		if strings.HasPrefix(e.Name(), "checkpoint.pub") {
			r.what, r.most = "a public key", 0o644
		}
		list = append(list, r)
	}
	return list
}

// files checks owners and modes.
func (d *doctor) files() (found []diagnosis) {
	if d.places.database == "" {
		return []diagnosis{failed("cannot tell where the state is kept: HOME is not set").advise("set HOME, or store.url in the configuration")}
	}
	there := 0
	for _, r := range d.rules() {
		if _, err := os.Lstat(r.path); err == nil {
			there++
		}
		found = append(found, holdTo(&r)...)
	}
	found = append(found, d.missing()...)
	if !exists(d.places.database) && len(found) == 0 {
		return []diagnosis{passed("nothing was recorded here yet").
			advise("the first start makes %s with the database, its mirror and keys, and the sockets in %s, all for their owner alone",
				d.places.state, d.places.runtime)}
	}
	return orWell(found, passed("%d files and directories in %s and %s: their owner's alone", there, d.places.state, d.places.runtime))
}

// missing looks for directories that the daemon does not make by itself, and for
// what is lost.
func (d *doctor) missing() (found []diagnosis) {
	p := &d.places
	for i := range d.cfg.Audit.Sinks {
		if s := &d.cfg.Audit.Sinks[i]; s.Type == "ocsf" {
			found = append(found, missingDir("of the sink "+s.Name, filepath.Dir(s.Path), fail)...)
		}
	}
	if socket := d.cfg.Metrics.Socket; socket != "" {
		found = append(found, missingDir("of metrics.socket", filepath.Dir(socket), fail)...)
	}
	if d.unitInstalled() && d.cfg.Store.URL == "" && exists(filepath.Dir(p.config)) {
		// See systemd/ocipd.service, at StateDirectory=.
		found = append(found, missingDir("of the state, which systemd may replace by a link to the configuration's,", p.state, warn)...)
	}
	if exists(p.database) {
		return found
	}
	for _, left := range []string{p.mirror, p.checkpoints} {
		if exists(left) {
			return append(found, failed("the database %s is gone, and %s is still there", p.database, left).
				advise("put the database back from a backup; to begin a new log, move its mirror, checkpoints and keys aside first"))
		}
	}
	return found
}

// missingDir is about a directory that somebody has to make.
func missingDir(what, dir string, how health) []diagnosis {
	if exists(dir) {
		return nil
	}
	did := "mkdir -m 700 -p " + dir
	f := failed("the directory %s %s is not there", what, dir).advise("%s", did)
	f.Health = how
	return []diagnosis{f.by(func() (string, error) { return did, os.MkdirAll(dir, 0o700) })}
}

// holdTo compares a file with what it should be. One that is not there is no
// fault of its mode.
func holdTo(r *rule) []diagnosis {
	info, err := os.Lstat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if r.plain {
			return []diagnosis{failed("%s %s is a symbolic link: the daemon refuses it", r.what, r.path).advise("put the thing itself there, or name where it is in the configuration")}
		}
		info, err = os.Stat(r.path)
	}
	if err != nil {
		return []diagnosis{failed("cannot look at %s: %v", r.what, err)}
	}
	if info.Mode().Type() != r.kind {
		return []diagnosis{failed("%s %s is something else (%s)", r.what, r.path, info.Mode()).advise("move it away")}
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return []diagnosis{failed("cannot tell whose %s is", r.path)}
	}
	// What anybody may read may be the administrator's.
	if uid := os.Geteuid(); int(stat.Uid) != uid && (stat.Uid != 0 || r.most&0o004 == 0) {
		return []diagnosis{failed("%s %s belongs to user %d, and this is user %d", r.what, r.path, stat.Uid, uid).
			advise("chown %d %s, if what is in it is to be believed", uid, r.path)}
	}
	if r.plain && r.kind == 0 && stat.Nlink > 1 {
		return []diagnosis{failed("%s %s has %d names (hard links)", r.what, r.path, stat.Nlink).advise("copy it to a file of its own")}
	}
	mode := info.Mode().Perm()
	want := mode&r.most | r.need
	if want == mode {
		return nil
	}
	var f diagnosis
	switch open := mode &^ r.most; {
	case open&0o022 != 0:
		f = failed("others can write to %s %s (mode %04o)", r.what, r.path, mode)
	case open != 0 && r.strict:
		f = failed("others can get at %s %s (mode %04o): the daemon refuses it", r.what, r.path, mode)
	case open != 0:
		f = warned("others can get at %s %s (mode %04o)", r.what, r.path, mode)
	default:
		f = failed("its owner cannot use %s %s (mode %04o)", r.what, r.path, mode)
	}
	did := fmt.Sprintf("chmod %03o %s", want, r.path)
	return []diagnosis{f.advise("%s", did).by(func() (string, error) { return did, os.Chmod(r.path, want) })}
}
