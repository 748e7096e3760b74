package integrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/integrations"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/bridge/settingsfile"
)

// pluginSettings are the relevant settings of plugins.
type pluginSettings struct {
	Enabled *bool                     `json:"enabled"`
	Allow   []string                  `json:"allow"`
	Deny    []string                  `json:"deny"`
	Entries map[string]jsontext.Value `json:"entries"`
	Load    struct {
		Paths []string `json:"paths"`
	} `json:"load"`
}

// pluginOptions are the members of the plugin's configuration that are the user's own, each with
// the values that it may have; nil for any. No message or call passes by them that would not pass
// without them.
var pluginOptions = map[string][]string{"sendTools": nil, "state": nil, "tools": {`"record"`, `"enforce"`}}

// entry returns the settings of the plugin, or nil, and those that it is to have: the entered ones
// and the user's own options.
func (o *OpenClaw) entry(socket string) (is, want map[string]any) {
	var options struct {
		Config map[string]jsontext.Value `json:"config"`
	}
	text := o.plugins.Entries[pluginID]
	_ = json.Unmarshal(text, &is) // of what cannot be read, nothing is as entered
	_ = json.Unmarshal(text, &options)
	config := map[string]any{"socket": socket}
	for name, may := range pluginOptions {
		if value := options.Config[name]; value != nil && (may == nil || slices.Contains(may, string(value))) {
			config[name] = value
		}
	}
	return is, map[string]any{"enabled": true, "hooks": map[string]any{"allowConversationAccess": true}, "config": config}
}

// Lacks reports whether the plugin's files are wrong, and how its settings differ from those that
// are entered for a daemon on a socket.
func (o *OpenClaw) Lacks(socket string) (files bool, settings []string) {
	const place = "plugins.entries." + pluginID
	is, want := o.entry(socket)
	text, err := json.Marshal(want)
	switch {
	case is == nil:
		settings = []string{place + " is missing"}
	case err != nil:
		settings = []string{err.Error()}
	default:
		settings = settingsfile.Differences(place, o.plugins.Entries[pluginID], text)
	}
	if o.allowed() != nil {
		settings = append(settings, "plugins.allow does not have "+pluginID)
	}
	return !samePlugin(o.Plugin), settings
}

// Wanted returns the settings of plugins that OpenClaw's own command is to write. A nil removes a
// member.
func (o *OpenClaw) Wanted(socket string) map[string]any {
	is, want := o.entry(socket)
	plugins := map[string]any{"entries": map[string]any{pluginID: merging(is, want)}}
	if allow := o.allowed(); allow != nil {
		plugins["allow"] = allow
	}
	return plugins
}

// merging returns the patch that makes one object of another (RFC 7396).
func merging(is, want map[string]any) map[string]any {
	patch := make(map[string]any)
	for name := range is {
		patch[name] = nil
	}
	for name, value := range want {
		patch[name] = value
		if inner, ok := value.(map[string]any); ok {
			was, _ := is[name].(map[string]any)
			patch[name] = merging(was, inner)
		}
	}
	return patch
}

// allowed is OpenClaw's list of permitted plugins with ocipd's added, or nil if the list
// needs no change.
func (o *OpenClaw) allowed() []string {
	if len(o.plugins.Allow) == 0 || slices.Contains(o.plugins.Allow, pluginID) {
		return nil
	}
	return append(slices.Clone(o.plugins.Allow), pluginID)
}

// samePlugin reports whether a folder holds this version's plugin.
func samePlugin(folder string) bool {
	same := true
	err := fs.WalkDir(integrations.OpenClaw(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		ours, err := fs.ReadFile(integrations.OpenClaw(), path)
		if err != nil {
			return err
		}
		theirs, err := durable.ReadFile(filepath.Join(folder, path))
		same = same && err == nil && bytes.Equal(ours, theirs)
		return nil
	})
	return err == nil && same
}

// openClawStrays returns everything in OpenClaw's files that keeps the gate from working as entered.
func openClawStrays(p *Place) (list []Stray, err error) {
	ctx := context.Background() // each command of OpenClaw has a limit of its own
	o, err := settingsOf(ctx, p, Version(ctx, OnPath(p.Getenv, openClawProgram)))
	if err != nil {
		return nil, err
	}
	return o.strays(ctx, p.daemon()), nil
}

func (o *OpenClaw) strays(ctx context.Context, socket string) (list []Stray) {
	if err := o.loads(ctx); err != nil {
		return []Stray{{File: o.Settings, What: err.Error()}}
	}
	files, settings := o.Lacks(socket)
	if files {
		list = append(list, Stray{File: o.Plugin, What: "the plugin is missing or not the one of this ocipd"})
	}
	for _, what := range settings {
		list = append(list, Stray{File: o.Settings, What: what})
	}
	return list
}

// OpenClawState reports whether, according to OpenClaw's files, the daemon on a socket
// decides its agents' messages, and the reason.
func OpenClawState(ctx context.Context, p *Place, version, socket string) (gated bool, why string) {
	o, err := settingsOf(ctx, p, version)
	if err != nil {
		return false, err.Error()
	}
	var wrong []string
	for _, s := range o.strays(ctx, socket) {
		wrong = append(wrong, s.String())
	}
	if len(wrong) > 0 {
		return false, strings.Join(wrong, "; ") + ": ocipd integrate openclaw"
	}
	return true, "decided by the plugin in its Gateway"
}

// Fit returns an error if the version or the settings of OpenClaw would leave a gate open.
func (o *OpenClaw) Fit(ctx context.Context) error {
	if len(o.Agents) == 0 {
		return errors.New("OpenClaw has no agent")
	}
	return o.loads(ctx)
}

// loads returns an error if OpenClaw would not load the plugin, or if not all of the
// plugin's gates would hold.
func (o *OpenClaw) loads(ctx context.Context) error {
	if err := checkOpenClaw(o.Version); err != nil {
		return err
	}
	switch {
	case o.gateway.Mode == "remote":
		return errors.New("this OpenClaw uses the Gateway of another machine (gateway.mode is remote): its agents are gated there, by an ocipd of that machine")
	case o.plugins.Enabled != nil && !*o.plugins.Enabled:
		return errors.New("OpenClaw loads no plugins (plugins.enabled is false), so nothing could be gated")
	case slices.Contains(o.plugins.Deny, pluginID):
		return fmt.Errorf("OpenClaw's plugins.deny names %s, so that nothing could be gated: take it out", pluginID)
	}
	return o.shadowed(ctx)
}

// shadowed returns an error if OpenClaw takes a plugin of the same id from a path of its settings.
func (o *OpenClaw) shadowed(ctx context.Context) error {
	if len(o.plugins.Load.Paths) == 0 {
		return nil
	}
	var list struct {
		Plugins []struct {
			ID     string `json:"id"`
			Source string `json:"source"`
		} `json:"plugins"`
	}
	if err := askJSON(ctx, o.place, &list, "plugins", "list", "--json"); err != nil {
		return err
	}
	for _, one := range list.Plugins {
		if folder := filepath.Dir(one.Source); one.ID == pluginID && !samePlace(folder, o.Plugin) {
			return fmt.Errorf("OpenClaw takes the plugin %s from %s, so that nothing could be gated: take that out of plugins.load.paths", pluginID, folder)
		}
	}
	return nil
}
