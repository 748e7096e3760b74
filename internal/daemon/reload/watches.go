package reload

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/openclawos/ocipd/internal/base/filewatch"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/policy"
)

// watches follow the configuration file and the files that it names.
type watches struct {
	// closing ends with the daemon.
	closing context.Context
	// news is signalled when a file has changed since it was last loaded.
	news chan struct{}
	// own follows the configuration file.
	own, policy, directory, roster watched
	// asked counts the requested reloads. After one, the last state that a watch saw is not
	// the last loaded one.
	asked atomic.Uint64
}

// watched is the watch of one path, or of none.
type watched struct {
	path    string
	watcher *filewatch.Watcher
}

// wakeUp schedules a check of the files.
func (w *watches) wakeUp() {
	select {
	case w.news <- struct{}{}:
	default:
	}
}

// follow watches the files that a configuration names: the directory file, the fleet's roster, and the
// policy's path unless the policy is built in or must not be watched.
func (w *watches) follow(cfg *config.Config) error {
	path := cfg.Policy.Path
	if !cfg.Policy.Watch {
		path = ""
	}
	if err := w.policy.follow(w, path, contents); err != nil {
		return fmt.Errorf("cannot watch policy.path: %w", err)
	}
	err := w.directory.follow(w, cfg.DirectoryPath(), filewatch.Fingerprint)
	if err = cmp.Or(err, w.roster.follow(w, cfg.Fleet.Path(cfg.File), filewatch.Fingerprint)); err != nil {
		return fmt.Errorf("cannot watch directory_file and fleet.roster: %w", err)
	}
	return nil
}

// follow watches another path, or none if the path is empty.
func (f *watched) follow(w *watches, path string, state func(path string) string) (err error) {
	if path == f.path {
		return nil
	}
	var next *filewatch.Watcher
	if path != "" {
		// An edit that a requested reload has loaded and that was then undone is another edit.
		since := func() string { return fmt.Sprint(w.asked.Load(), " ", state(path)) }
		if next, err = filewatch.Start(w.closing, path, since, w.wakeUp); err != nil {
			return err
		}
	}
	f.close()
	f.watcher, f.path = next, path
	return nil
}

func (f *watched) close() {
	if f.watcher != nil {
		f.watcher.Close()
	}
}

func (w *watches) close() {
	for _, f := range []*watched{&w.own, &w.policy, &w.directory, &w.roster} {
		f.close()
	}
}

// contents identifies the policy that would be loaded from a path.
func contents(path string) string {
	text, err := policy.Read(policy.Source{Path: path})
	if err != nil {
		return err.Error()
	}
	return text.Digest()
}
