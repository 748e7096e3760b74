// Package appconfig serves apps their part of the configuration: config.get and config.watch.
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

// Settings serves the app-visible part of the configuration, and tells watchers about changes to it.
type Settings struct {
	mu       sync.Mutex
	tree     map[string]any
	watchers map[*watch]struct{}
}

// watch is one app's subscription to changes. It keeps only the last tree that the app got,
// so a slow reader costs one tree and then gets the newest state.
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

// visible returns the part of a tree that an app may see: its channels' sections and its
// own. Other apps' sections can hold secrets.
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

// own is the app's section under the last part of its id, which apps for the stock kernel
// expect: "lobster" for @openclawos/lobster.
func own(v registry.View) keypath.Path {
	name := v.App[strings.LastIndexByte(v.App, '/')+1:]
	if name == "channels" || name == "apps" {
		return nil
	}
	return keypath.Path(nil).Key(name)
}

// seen is the part that an app may see. If a path begins with the last part of the app's
// id, it has the app's own section under that name too.
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

// Get returns the value at a path in the app's part, or nil.
func (s *Settings) Get(view func() registry.View, path string) (any, error) {
	// An invalid path selects nothing, and Lookup reports the error.
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

// current is the tree in force. Callers must determine an app's rights after this call,
// because the rules of decisions change before the tree does.
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

// news returns the changes since a watcher's last batch.
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

// Take serves another configuration from now on, and tells the watchers. It keeps only the
// part that apps may see.
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
