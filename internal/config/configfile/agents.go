package configfile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/yamltext"
)

// AddAgent adds an agent to the configuration's file.
func AddAgent(cfg *config.Config, a *config.Agent) error {
	return Edit(cfg, func(text []byte) ([]byte, error) { return WithAgents(cfg.File, text, []string{entryOfAgent(a)}) })
}

// entryOfAgent is an agent's entry in one line. It has no app if the agent speaks by a token.
func entryOfAgent(a *config.Agent) string {
	app := ""
	if a.App != "" {
		app = "app: " + yamltext.Quote(a.App) + ", "
	}
	return fmt.Sprintf("{id: %s, %sinstance_id: %s, user_id: %s, org_unit: %s, tenant_id: %s}", yamltext.Quote(a.ID), app,
		yamltext.Quote(a.InstanceID), yamltext.Quote(a.UserID), yamltext.Quote(a.OrgUnit), yamltext.Quote(a.TenantID))
}

// WithAgents adds agents to the text of a configuration, each as an entry in one line.
func WithAgents(file string, text []byte, items []string) ([]byte, error) {
	at := keypath.Path{}.Key("agents")
	one := bytes.Clone(text)
	var err error
	for _, item := range slices.Backward(items) {
		if one, err = yamltext.Edit(one, at, item); err != nil {
			break
		}
	}
	if err == nil {
		if _, err = config.Parse(file, one); err == nil {
			return one, nil
		}
	}
	// Without a list of agents, add one.
	all, whole := yamltext.Edit(text, at, "["+strings.Join(items, ", ")+"]")
	if whole == nil {
		if _, whole = config.Parse(file, all); whole == nil {
			return all, nil
		}
	}
	return nil, fmt.Errorf("cannot put the agents into %s: %w", file, err)
}
