// Package appconfig serves apps what they may see of the configuration: config.get
// and config.watch.
package appconfig

import (
	"context"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/kernel/registry"
)

// Settings serves the app-visible part of the configuration, and tells who
// watches what changed when the file did.
type Settings struct {
	mu       sync.Mutex
	tree     map[string]any
	watchers map[*watch]struct{}
}

// watch is one app's wish to hear of changes. What is not fetched yet is kept
// as the tree that was last told, so a slow reader costs one tree and gets the
// newest state.
type watch struct {
	view  func() registry.View
	paths []keypath.Path
	told  map[string]any
	wake  chan struct{}
}

// New serves a configuration.
func New(cfg *config.Config) *Settings {
	return &Settings{tree: cfg.Visible(), watchers: make(map[*watch]struct{})}
}

// visible returns what an app may see of a tree: its channels' sections and its
// own. Other apps' sections can hold their secrets.
func visible(tree map[string]any, v registry.View) map[string]any {
	pick := func(section string, names ...string) map[string]any {
		all, _ := tree[section].(map[string]any)
		mine := make(map[string]any)
		for _, name := range names {
			if value, ok := all[name]; ok {
				mine[name] = value
			}
		}
		return mine
	}
	return map[string]any{"channels": pick("channels", v.Channels...), "apps": pick("apps", v.App)}
}

// own is where an app finds its section under the last part of its id too, as
// apps do that were written for the stock kernel: "lobster" for @openclawos/lobster.
func own(v registry.View) keypath.Path {
	name := v.App[strings.LastIndexByte(v.App, '/')+1:]
	if name == "channels" || name == "apps" {
		return nil
	}
	return keypath.Path(nil).Key(name)
}

// seen is what an app may see, as the paths name it: its own section also under
// the last part of its id, where a path begins with that.
func seen(tree map[string]any, v registry.View, paths ...keypath.Path) map[string]any {
	all, short := visible(tree, v), own(v)
	if len(short) > 0 && slices.ContainsFunc(paths, func(p keypath.Path) bool { return len(p) > 0 && p.Covers(short) }) {
		apps, _ := all["apps"].(map[string]any)
		if section, ok := apps[v.App]; ok {
			all[v.App[strings.LastIndexByte(v.App, '/')+1:]] = section
		}
	}
	return all
}

// Get returns the value at a path of what an app may see, nil where there is
// none.
func (s *Settings) Get(view func() registry.View, path string) (any, error) {
	// A path that cannot be read names nothing, and Lookup says what is wrong.
	named, _ := keypath.Compile(path)
	tree := s.current()
	value, _, err := keypath.Lookup(seen(tree, view(), named), path)
	if err != nil {
		return nil, api.Invalid([]api.FieldError{{Path: "path", Message: err.Error()}})
	}
	return value, nil
}

// Watch delivers changes until the context ends.
func (s *Settings) Watch(ctx context.Context, view func() registry.View, paths []string) (<-chan []api.ConfigChange, error) {
	w := &watch{view: view, wake: make(chan struct{}, 1)}
	for _, path := range paths {
		compiled, err := keypath.Compile(path)
		if err != nil {
			return nil, api.Invalid([]api.FieldError{{Path: "paths", Message: err.Error()}})
		}
		w.paths = append(w.paths, compiled)
	}
	s.mu.Lock()
	tree := s.tree
	s.watchers[w] = struct{}{}
	s.mu.Unlock()
	w.told = seen(tree, view(), w.paths...)
	changes := make(chan []api.ConfigChange)
	go func() {
		defer close(changes)
		defer s.forget(w)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.wake:
			}
			batch := s.news(w)
			if len(batch) == 0 {
				continue
			}
			select {
			case changes <- batch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return changes, nil
}

// current is the tree in force. Whoever shows it asks afterwards what an app may see
// of it: what is decided by is put in force before the tree is.
func (s *Settings) current() map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tree
}

func (s *Settings) forget(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// news returns what changed since a watcher was last told.
func (s *Settings) news(w *watch) (batch []api.ConfigChange) {
	before, tree := w.told, s.current()
	w.told = seen(tree, w.view(), w.paths...)
	for _, change := range keypath.Diff(before, w.told) {
		if w.concerned(change.Path) {
			batch = append(batch, api.ConfigChange{Path: change.Path, OldValue: change.Old, NewValue: change.New})
		}
	}
	return batch
}

func (w *watch) concerned(changed string) bool {
	at, err := keypath.Compile(changed)
	return len(w.paths) == 0 || err != nil || slices.ContainsFunc(w.paths, func(p keypath.Path) bool { return p.Covers(at) })
}

// Take serves another configuration from here on, and tells the watchers. What
// is not visible to apps is not taken here.
func (s *Settings) Take(cfg *config.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tree = cfg.Visible()
	for w := range maps.Keys(s.watchers) {
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}
