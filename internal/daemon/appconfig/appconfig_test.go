package appconfig_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/appconfig"
	"github.com/openclawos/ocipd/internal/kernel/registry"
)

// load reads a configuration of some text.
func load(t *testing.T, yaml string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ocipd.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(config.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const both = `
channels: {telegram: {botName: Alice, Nested: {Key: 1}}, irc: {server: example.org}}
apps: {"@acme/lobster": {token: mine}, "@globex/other": {token: theirs}}
log: {level: debug}
`

func lobster() registry.View {
	return registry.View{App: "@acme/lobster", Channels: []string{"telegram"}}
}

// An app sees the sections of its channels and its own, with keys as written, and nothing
// else of the configuration.
func TestGet(t *testing.T) {
	s := appconfig.New(load(t, both))
	for path, want := range map[string]string{
		"channels.telegram.botName":    "Alice",
		"channels.telegram.Nested.Key": "1",
		`apps["@acme/lobster"].token`:  "mine",
		"lobster.token":                "mine",
		"channels.irc.server":          "<nil>",
		`apps["@globex/other"].token`:  "<nil>",
		"other.token":                  "<nil>",
		"log.level":                    "<nil>",
	} {
		got, err := s.Get(lobster, path)
		if err != nil || fmt.Sprint(got) != want {
			t.Errorf("%s is %v, %v, want %s", path, got, err, want)
		}
	}
	if _, err := s.Get(lobster, `channels."`); err == nil {
		t.Error("a path that cannot be read is taken")
	}
}

// A watcher learns of changes in its paths, and of none in another app's section.
func TestWatch(t *testing.T) {
	s := appconfig.New(load(t, both))
	ctx, stop := context.WithCancel(t.Context())
	changes, err := s.Watch(ctx, lobster, []string{"channels", "lobster"})
	if err != nil {
		t.Fatal(err)
	}
	s.Take(load(t, `
channels: {telegram: {botName: Alicia, Nested: {Key: 1}}, irc: {server: elsewhere.example}}
apps: {"@acme/lobster": {token: fresh}, "@globex/other": {token: changed}}
`))
	told := map[string]api.ConfigChange{}
	for _, change := range <-changes {
		told[change.Path] = change
	}
	if len(told) != 2 || told["channels.telegram.botName"].NewValue != "Alicia" || told["lobster.token"].OldValue != "mine" || told["lobster.token"].NewValue != "fresh" {
		t.Errorf("told is %+v", told)
	}
	stop()
	if _, open := <-changes; open {
		t.Error("changes go on after the end of the watch")
	}
}
