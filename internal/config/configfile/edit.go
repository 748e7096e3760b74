package configfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
)

// Edit changes the configuration's file completely or not at all, after checking that the
// result is a valid configuration.
func Edit(cfg *config.Config, edit func(text []byte) ([]byte, error)) error {
	path := cfg.File
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	// Two commands must not undo each other's changes.
	lock, text, err := open(path, os.O_RDONLY)
	if err != nil {
		return fmt.Errorf("cannot read the configuration: %w", err)
	}
	defer lock.Close()
	text, err = edit(text)
	if err != nil {
		return fmt.Errorf("cannot edit %s: %w", cfg.File, err)
	}
	if _, err := config.Parse(cfg.File, text); err != nil {
		return fmt.Errorf("cannot edit %s: %w", cfg.File, err)
	}
	if err := durable.Rewrite(path, ".part", text); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return nil
}

// Proposal is one proposed line for a configuration, with the reason.
type Proposal struct {
	Key      string   `json:"key"`
	Values   []string `json:"values"`
	Reason   string   `json:"reason"`
	Evidence []string `json:"evidence"`
	// Written is set after it was written.
	Written bool `json:"written"`

	// App or Agent is the subject, and Name the key below it. Unnamed is set if the log
	// does not show the app: App is then an example's name, for the operator to replace.
	App     string `json:"-"`
	Agent   string `json:"-"`
	Name    string `json:"-"`
	Unnamed bool   `json:"-"`
}

// Declare adds a missing line to a configuration's file.
func Declare(cfg *config.Config, p *Proposal) error {
	return Edit(cfg, func(text []byte) ([]byte, error) {
		now, err := config.Parse(cfg.File, text)
		if err != nil {
			return nil, err
		}
		if p.Agent != "" {
			i := slices.IndexFunc(now.Agents, func(a config.Agent) bool { return a.ID == p.Agent })
			return yamltext.Edit(text, keypath.Path{}.Key("agents").Index(i).Key(p.Name), p.Values[0])
		}
		at := keypath.Path{}.Key("access").Key("apps").Key(p.App).Key(p.Name)
		have := granted(now.Access.Apps[p.App], p.Name)
		if len(have) == 0 {
			return yamltext.Edit(text, at, yamltext.List(p.Values))
		}
		for _, value := range slices.Backward(p.Values) {
			if slices.Contains(have, value) {
				continue
			}
			if text, err = yamltext.Edit(text, at, yamltext.Quote(value)); err != nil {
				return nil, err
			}
		}
		return text, nil
	})
}

// granted is one list of a grant, by its key.
func granted(grant config.AppAccess, name string) []string {
	switch name {
	case "channels":
		return grant.Channels
	case "tenants":
		return grant.Tenants
	case "intercepts":
		return grant.Intercepts
	}
	return grant.Observes
}
