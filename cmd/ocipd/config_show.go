package main

import (
	"bufio"
	"bytes"
	"fmt"
	"strings"

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
		fmt.Fprintln(w, "directory:")
		for i := range long {
			writeContact(w, &long[i], cfg.Source(entryPath(i)))
		}
	}
	return w.Flush()
}

func entryPath(i int) string { return config.Path{}.Key("directory").Index(i).String() }

func (s *shell) showJSON(cfg *config.Config, doc *yaml.Node, sources map[string]string, long []config.Contact) error {
	values := map[string]any{}
	if err := doc.Decode(&values); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	if len(long) > 0 {
		entries := make([]map[string]any, len(long))
		for i := range long {
			entries[i] = make(map[string]any)
			for _, f := range contactFields(&long[i]) {
				entries[i][f.key] = f.value()
			}
			if source := cfg.Source(entryPath(i)); source != config.SourceDefault {
				sources[entryPath(i)] = source
			}
		}
		values["directory"] = entries
	}
	return s.printJSON(showReport{File: cfg.File, Config: values, Sources: sources})
}

// contactField is one key of an entry: a text, or a list of texts.
type contactField struct {
	key, text string
	list      []string
}

// contactFields are the keys of an entry in their order, those that are left out
// where they are empty left out.
func contactFields(c *config.Contact) []contactField {
	fields := append(make([]contactField, 0, 7), contactField{key: "kind", text: c.Kind})
	for _, f := range [...]contactField{
		{key: "instance_id", text: c.InstanceID}, {key: "user_id", text: c.UserID}, {key: "org_unit", text: c.OrgUnit}, {key: "tenant_id", text: c.TenantID},
	} {
		if f.text != "" {
			fields = append(fields, f)
		}
	}
	// A list is none where it is empty, never nil.
	return append(fields, contactField{key: "accepts", list: append([]string{}, c.Accepts...)}, contactField{key: "sessions", list: append([]string{}, c.Sessions...)})
}

func (f *contactField) value() any {
	if f.list != nil {
		return f.list
	}
	return f.text
}

// writeContact writes an entry as YAML.
func writeContact(w *bufio.Writer, c *config.Contact, source string) {
	for i, f := range contactFields(c) {
		indent := "    "
		if i == 0 {
			indent = "  - "
		}
		var value, comment string
		if f.list == nil {
			value = quoted(f.text)
		} else {
			for j, item := range f.list {
				f.list[j] = quoted(item)
			}
			value = "[" + strings.Join(f.list, ", ") + "]"
		}
		if i == 0 && source != config.SourceDefault {
			comment = " # " + source
		}
		fmt.Fprintf(w, "%s%s: %s%s\n", indent, f.key, value, comment)
	}
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
	source := cfg.Source(at.String())
	if source == config.SourceDefault {
		return
	}
	sources[at.String()] = source
	if len(n.Content) == 0 {
		n.LineComment = source
	}
}
