package configcmd

import (
	"bytes"
	"fmt"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"go.yaml.in/yaml/v3"
)

// showReport is the output of `ocipd config show --json`.
type showReport struct {
	File    string            `json:"file"`
	Config  map[string]any    `json:"config"`
	Sources map[string]string `json:"sources"`
	// Listed is the number of entries in the directory file.
	Listed int `json:"listed"`
}

// showConfig prints a configuration with the source of each value.
func (s *command) showConfig(cfg *config.Config, asJSON bool) error {
	text, err := cfg.Redacted()
	if err != nil {
		return err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("cannot show the configuration: %w", err)
	}
	sources := map[string]string{}
	annotate(&doc, keypath.Path{}, cfg, sources)
	if asJSON {
		values := map[string]any{}
		if err := doc.Decode(&values); err != nil {
			return fmt.Errorf("cannot show the configuration: %w", err)
		}
		return s.PrintJSON(showReport{File: cfg.File, Config: values, Sources: sources, Listed: cfg.Listed.Len()})
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
	_, err = s.Stdout.Write(out.Bytes())
	return err
}

// annotate adds the source of each value.
func annotate(n *yaml.Node, at keypath.Path, cfg *config.Config, sources map[string]string) {
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
	if len(n.Content) > 0 {
		return
	}
	n.LineComment = source
	if at.String() == "directory_file" && cfg.DirectoryFile != "" {
		n.LineComment += ", " + term.Count(cfg.Listed.Len(), "contact")
	}
}
