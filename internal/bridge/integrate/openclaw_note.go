package integrate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/durable"
)

// openClawNote is the note about an integration, which is needed to undo it.
type openClawNote struct {
	// Settings are OpenClaw's original settings. Was is set if the file existed, and After
	// is the digest of the changed settings; see settingsSum.
	Settings []byte `json:"settings"`
	Was      bool   `json:"was"`
	After    string `json:"after"`
	// Allow is set if plugins.allow was changed.
	Allow bool `json:"allow,omitzero"`
	// Tasks are the servers of tasks. Plugin is set if the plugin was entered; an earlier version has
	// entered nothing else.
	Tasks  []TaskServer `json:"tasks,omitempty"`
	Plugin bool         `json:"plugin,omitzero"`
	// Config is the note about the daemon's configuration.
	Config *ConfigNote `json:"config,omitzero"`
}

// ConfigNote describes a change to the daemon's own configuration.
type ConfigNote struct {
	File   string `json:"file"`
	Before []byte `json:"before"`
	// Was is set if the file existed.
	Was   bool   `json:"was"`
	After string `json:"after"`
	// Items are the added entries, as in the file.
	Items []string `json:"items"`
}

func (p *Place) openClawNote() (*openClawNote, error) {
	text, err := durable.ReadFile(openClaw.noteFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	n := new(openClawNote)
	if err == nil {
		err = json.Unmarshal(text, n)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read what was changed for OpenClaw: %w", err)
	}
	return n, nil
}

func (p *Place) keepOpenClaw(n *openClawNote) error {
	text, err := json.Marshal(n, json.Deterministic(true))
	if err == nil {
		err = os.MkdirAll(p.Notes, 0o700)
	}
	if err == nil {
		// OpenClaw's settings contain secrets.
		err = durable.Replace(openClaw.noteFile(p), ".part", 0o600, text)
	}
	if err != nil {
		return fmt.Errorf("cannot note what is changed for OpenClaw: %w", err)
	}
	return nil
}

// settingsSum is a digest of OpenClaw's settings without the version that OpenClaw notes
// there at every start.
func settingsSum(text []byte) string {
	var all map[string]jsontext.Value
	if err := json.Unmarshal(text, &all); err == nil {
		delete(all, "meta")
		if plain, err := json.Marshal(all, json.Deterministic(true)); err == nil {
			v := jsontext.Value(plain)
			if v.Canonicalize() == nil {
				text = v
			}
		}
	}
	return Sum(text)
}

// Note saves OpenClaw's settings and the daemon's configuration before either changes, so
// that they can be restored.
func (o *OpenClaw) Note(config *ConfigNote) error {
	note, err := o.place.openClawNote()
	if err != nil {
		return err
	}
	if note == nil {
		note = new(openClawNote)
		if note.Settings, note.Was, err = whole(o.Settings); err != nil {
			return err
		}
	}
	switch {
	case config == nil:
	case note.Config == nil:
		note.Config = config
	case note.Config.File == config.File:
		if note.Config.After == Sum(config.Before) {
			note.Config.After = config.After
		}
		note.Config.Items = append(note.Config.Items, config.Items...)
	}
	return o.place.keepOpenClaw(note)
}

// changing makes a change to OpenClaw's settings, and notes their digest after it. Settings that
// somebody else has changed since the last note are not restored byte for byte later, because that
// would take back the other change too.
func (o *OpenClaw) changing(change func(*openClawNote) error) error {
	note, err := o.place.openClawNote()
	if err != nil {
		return err
	}
	before, _, err := whole(o.Settings)
	if err != nil {
		return err
	}
	known := note.After == "" || note.After == settingsSum(before)
	if err := change(note); err != nil || !known {
		return err
	}
	after, _, err := whole(o.Settings)
	if err != nil {
		return err
	}
	note.After = settingsSum(after)
	return o.place.keepOpenClaw(note)
}
