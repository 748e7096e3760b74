package main

import (
	"bufio"
	"bytes"
	"fmt"

	"github.com/openclawos/ocipd/internal/config"
	"go.yaml.in/yaml/v3"
)

// longDirectory is from how many entries on the directory is written apart: as a
// tree of YAML it would take seconds.
const longDirectory = 1000

// showReport is what `ocipd config show --json` prints.
type showReport struct {
	File    string            `json:"file"`
	Config  map[string]any    `json:"config"`
	Sources map[string]string `json:"sources"`
}

// showConfig writes a configuration with who set each value.
func (s *shell) showConfig(cfg *config.Config, asJSON bool) error {
	short, long := *cfg, []config.Contact(nil)
	if len(cfg.Directory) > longDirectory {
		short.Directory, long = nil, cfg.Directory
	}
	text, err := short.Redacted()
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	sources := map[string]string{}
	annotate(&doc, config.Path{}, cfg, sources)
	if asJSON {
		return s.showJSON(cfg, &doc, sources, long)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(&doc); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	if err := enc.Close(); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	w := bufio.NewWriter(s.stdout)
	for line := range bytes.Lines(out.Bytes()) {
		if len(long) == 0 || !bytes.HasPrefix(line, []byte("directory: []")) {
			_, _ = w.Write(line) // Flush says what went wrong
			continue
		}
		_, _ = w.WriteString("directory:\n")
		var entry []byte
		for i := range long {
			entry = appendContact(entry[:0], &long[i], cfg.SourceAt(entryPath(i)))
			_, _ = w.Write(entry)
		}
	}
	return w.Flush()
}

func entryPath(i int) config.Path { return config.Path{}.Key("directory").Index(i) }

func (s *shell) showJSON(cfg *config.Config, doc *yaml.Node, sources map[string]string, long []config.Contact) error {
	values := map[string]any{}
	if err := doc.Decode(&values); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	if len(long) > 0 {
		entries := make([]shownContact, len(long))
		for i := range long {
			entries[i] = showContact(&long[i])
			at := entryPath(i)
			if source := cfg.SourceAt(at); source != config.SourceDefault {
				sources[at.String()] = source
			}
		}
		values["directory"] = entries
	}
	return s.printJSON(showReport{File: cfg.File, Config: values, Sources: sources})
}

// shownContact is an entry of a long directory as JSON, with the keys that a tree
// of YAML has, in the order that one has them.
type shownContact struct {
	Accepts    []string `json:"accepts"`
	InstanceID string   `json:"instance_id,omitzero"`
	Kind       string   `json:"kind"`
	Members    []string `json:"members,omitzero"`
	OrgUnit    string   `json:"org_unit,omitzero"`
	Sessions   []string `json:"sessions"`
	TenantID   string   `json:"tenant_id,omitzero"`
	UserID     string   `json:"user_id,omitzero"`
}

func showContact(entry *config.Contact) shownContact {
	c := entry.Shown()
	return shownContact{
		Accepts: c.Accepts, InstanceID: c.InstanceID, Kind: c.Kind, Members: c.Members, OrgUnit: c.OrgUnit,
		Sessions: c.Sessions, TenantID: c.TenantID, UserID: c.UserID,
	}
}

// appendContact appends an entry of a long directory as YAML.
func appendContact(out []byte, entry *config.Contact, source string) []byte {
	c := entry.Shown()
	out = appendQuoted(append(out, "  - kind: "...), c.Kind)
	if source != config.SourceDefault {
		out = append(append(out, " # "...), source...)
	}
	out = append(out, '\n')
	for _, f := range [...]struct{ key, text string }{
		{"instance_id", c.InstanceID}, {"user_id", c.UserID}, {"org_unit", c.OrgUnit}, {"tenant_id", c.TenantID},
	} {
		if f.text != "" {
			out = append(append(append(out, "    "...), f.key...), ": "...)
			out = append(appendQuoted(out, f.text), '\n')
		}
	}
	for _, f := range [...]struct {
		key  string
		list []string
	}{{"accepts", c.Accepts}, {"sessions", c.Sessions}, {"members", c.Members}} {
		if f.key == "members" && len(f.list) == 0 {
			continue
		}
		out = append(append(append(out, "    "...), f.key...), ": ["...)
		for i, item := range f.list {
			if i > 0 {
				out = append(out, ", "...)
			}
			out = appendQuoted(out, item)
		}
		out = append(out, "]\n"...)
	}
	return out
}

// annotate puts beside each value who set it.
func annotate(n *yaml.Node, at config.Path, cfg *config.Config, sources map[string]string) {
	switch n.Kind {
	case yaml.DocumentNode:
		for _, child := range n.Content {
			annotate(child, at, cfg, sources)
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			annotate(n.Content[i+1], at.Key(n.Content[i].Value), cfg, sources)
		}
	case yaml.SequenceNode:
		for i, child := range n.Content {
			annotate(child, at.Index(i), cfg, sources)
		}
	}
	source := cfg.SourceAt(at)
	if source == config.SourceDefault {
		return
	}
	sources[at.String()] = source
	if len(n.Content) == 0 {
		n.LineComment = source
	}
}
