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

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/systemd"
)

// configuration checks the configuration file and its content.
func (d *Examiner) configuration() (found []Diagnosis) {
	path := d.places.config
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && d.ConfigFile == "":
		found = append(found, passed("no configuration file; using defaults").
			advise("ocipd config init writes %s, where agents are named; until then nobody can send", path))
	case err == nil:
		found = append(found, (&rule{what: "the configuration", path: path, need: 0o400, most: configMode(d.cfg, info.Mode().Perm()), free: true}).check(d.ours)...)
		dir := filepath.Dir(path)
		found = append(found, (&rule{what: "the configuration's directory", path: dir, kind: fs.ModeDir, need: 0o500, most: 0o755, key: "--config"}).check(d.ours)...)
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
	found = append(found, named(d.cfg)...)
	found = append(found, taskPrograms(d.cfg, exec.LookPath)...)
	if len(found) > 0 {
		return found
	}
	return []Diagnosis{passed("%s: valid, %s, %s in the directory", path, term.Count(len(d.cfg.Agents), "agent"), term.Count(len(d.cfg.Directory)+d.cfg.Listed.Len(), "contact"))}
}

// configMode is the permitted mode of a configuration; with secrets in it, only the owner
// may read it.
func configMode(c *config.Config, now fs.FileMode) fs.FileMode {
	secrets := len(c.Channels) > 0 || len(c.Apps) > 0
	for i := range c.Audit.Sinks {
		secrets = secrets || len(c.Audit.Sinks[i].Headers) > 0
	}
	if secrets && now&0o044 != 0 {
		return 0o600
	}
	return 0o755
}

// named checks the files that the configuration names and that affect decisions. A user who
// may change one can change decisions.
func named(c *config.Config) (found []Diagnosis) {
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
		found = append(found, r.check(d.ours)...)
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
	if d.units().installed() && d.cfg.Store.URL == "" && cli.Exists(filepath.Dir(p.config)) {
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
	for _, name := range []string{systemd.ServiceName, systemd.SocketName, systemd.ConsoleName, systemd.ConsoleSocketName} {
		if path := filepath.Join(d.units().dir(), name); cli.Exists(path) {
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
