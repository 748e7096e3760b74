package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/fileowner"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/checkpoints"
	"github.com/openclawos/ocipd/internal/evidence/index"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"go.uber.org/zap"
)

// places are where a daemon's files are.
type places struct {
	cfg              *config.Config
	database, mirror string
}

// keys is the directory of the log's keys, which also has the list of witnesses.
func (p places) keys() string { return config.KeysPath(p.cfg, p.database) }

// checkpoints is the file of checkpoints outside the log.
func (p places) checkpoints() string { return config.CheckpointsPath(p.cfg, p.database) }

// check checks the places of the daemon's files before any is opened, and touches
// nothing. The packages check their own places too. These are the checks that they cannot
// make, or would report as a bare system error.
func (p places) check() error {
	for _, at := range []struct{ key, dir string }{
		{"store.url", filepath.Dir(p.database)}, {"audit.keys", p.keys()},
		{"audit.mirror", filepath.Dir(p.mirror)}, {"audit.checkpoints", filepath.Dir(p.checkpoints())},
	} {
		if err := fileowner.Writable(at.dir, at.key); err != nil {
			return err
		}
	}
	// The database may be a symbolic link, and SQLite's files are beside its target.
	database := p.database
	if target, err := filepath.EvalSymlinks(database); err == nil {
		database = target
	}
	for _, file := range []struct{ what, path string }{
		{"the database", database}, {"the database's write-ahead log", database + "-wal"},
		{"the database's shared memory", database + "-shm"}, {"the database's journal", database + "-journal"},
		{"the mark of a closed store", p.database + ".latched"},
		{"the audit index", index.Path(p.database)}, {"the audit index's write-ahead log", index.Path(p.database) + "-wal"},
		{"the audit index's shared memory", index.Path(p.database) + "-shm"}, {"the audit index's journal", index.Path(p.database) + "-journal"},
		{"the file of checkpoints", p.checkpoints()},
	} {
		err := fileowner.Single(file.what, file.path)
		if info, statErr := os.Lstat(file.path); err != nil && statErr == nil && file.path == database && !info.Mode().IsRegular() {
			// The records have disappeared.
			err = &audit.Fault{Problem: err.Error()}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseMissing refuses to begin a new log in place of an earlier one: SQLite would remove
// its remains, and readers would take the new log for the whole.
func (p places) refuseMissing() error {
	missing := func(there string) error {
		return &audit.Fault{Problem: fmt.Sprintf("cannot find the database %s (there is none, or an empty one), and %s: put it back from where it was moved, or from a backup%s",
			p.database, there, audit.OrNewLog)}
	}
	if info, err := os.Lstat(p.database + "-wal"); err == nil && info.Size() > 0 {
		return missing("its write-ahead log is there without it")
	}
	path := p.checkpoints()
	notes, err := checkpoints.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var records uint64
	for _, note := range notes {
		// The signer does not matter here.
		c, err := audit.OpenCheckpoint(note)
		if !errors.Is(err, audit.ErrUnsigned) {
			return fmt.Errorf("cannot read the checkpoints in %s: %w", path, err)
		}
		records = max(records, c.Size)
	}
	if records == 0 {
		return nil
	}
	return missing(fmt.Sprintf("%s holds a signed checkpoint of %d records in it", path, records))
}

// private are the folders of the daemon's state, evidence, keys, sockets and configuration.
func (p places) private(socket string) []string {
	dirs := []string{filepath.Dir(socket), filepath.Dir(p.database), filepath.Dir(p.mirror)}
	if keys := p.cfg.Audit.Keys; keys != "" {
		dirs = append(dirs, keys)
	}
	if file := p.cfg.File; file != "" {
		dirs = append(dirs, file)
	}
	return dirs
}

// warnOfWriters logs a warning if other users can change files that determine decisions:
// the configuration and the policy's files.
func warnOfWriters(log *zap.Logger, c *config.Config, p *policy.Policy) {
	files := []string{}
	if c.File != "" {
		files = append(files, c.File)
	}
	if path := c.DirectoryPath(); path != "" {
		files = append(files, path)
	}
	if path := c.Fleet.Path(c.File); path != "" {
		files = append(files, path)
	}
	if path := c.Fleet.Operators; path != "" {
		files = append(files, path) // its signers can name another host for an agent
	}
	if path := c.Approvals.AllowedSigners; path != "" {
		files = append(files, path) // its signers can release held messages
	}
	for i := range c.Agents {
		if path := c.Agents[i].Exe; path != "" {
			files = append(files, path) // a program in its place could speak for the agent
		}
	}
	if c.Policy.Path != "" {
		files = append(files, p.Files()...)
	}
	said := map[string]bool{}
	for _, file := range files {
		list, err := fileowner.Exposed(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			log.Warn("cannot tell who can change a file that decides what is let through", zap.String("file", file), zap.Error(err))
		}
		for i := range list {
			if e := &list[i]; !said[e.Path] {
				said[e.Path] = true
				log.Warn("others can change what is let through: "+e.Path+" "+e.String(),
					zap.String("file", file), zap.String("advice", "ocipd doctor says what to do"))
			}
		}
	}
}
