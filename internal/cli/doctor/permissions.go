package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
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

// chmod is the command that sets a file's mode and keeps its further bits.
func chmod(mode fs.FileMode, stat *syscall.Stat_t, path string) string {
	return fmt.Sprintf("chmod %03o %s", uint32(mode.Perm())|stat.Mode&0o7000, shellWord(path))
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

// check compares a file with its rule. A missing file does not violate it. ours reports whether the mode of a
// directory may be changed.
func (r *rule) check(ours func(path string, info fs.FileInfo) bool) []Diagnosis {
	info, err := os.Lstat(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if found := r.checkLink(ours); found != nil {
			return found
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
	if found := r.checkOwner(stat); found != nil {
		return found
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
	if r.kind == fs.ModeDir && !ours(r.path, info) {
		return []Diagnosis{f.advise("it is not the daemon's own, so its mode stays: use a directory for this alone, named openclawos (%s)", r.key)}
	}
	did := chmod(want, stat, r.path)
	further := info.Mode() & (fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	return []Diagnosis{f.advise("%s", did).by(func() (string, error) { return did, os.Chmod(r.path, want|further) })}
}

// checkLink compares a symbolic link with the rule. It returns nil if the rule permits the link.
func (r *rule) checkLink(ours func(path string, info fs.FileInfo) bool) []Diagnosis {
	target, _ := os.Readlink(r.path) // for people to read
	switch {
	case r.plain:
		return []Diagnosis{failed("%s %s is a symbolic link to %s: the daemon refuses it", r.what, r.path, target).advise("put the thing itself there, or name where it is in the configuration")}
	case r.link != "":
		return []Diagnosis{failed("%s %s is a symbolic link to %s, and the daemon made none", r.what, r.path, target).advise("%s", r.link)}
	case r.kind == 0 && !r.free:
		link := warned("%s %s is a symbolic link to %s: that file is written", r.what, r.path, target).
			advise("where you made it, name the file itself (%s); else stop the daemon, see who made it, and: rm %s", r.key, shellWord(r.path))
		to, err := filepath.EvalSymlinks(r.path)
		if err != nil {
			return []Diagnosis{link}
		}
		there := *r
		there.path = to
		return append([]Diagnosis{link}, there.check(ours)...)
	}
	return nil
}

// checkOwner compares the owner and the number of names with the rule.
func (r *rule) checkOwner(stat *syscall.Stat_t) []Diagnosis {
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
	return nil
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
