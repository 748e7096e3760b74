package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/ocip/commitment"
	detect "github.com/openclawos/ocipd/internal/ocip/content"
	"github.com/openclawos/ocipd/internal/ocip/label"
)

// checkDisclosure checks the texts of disclosures. The entry of an agent without a text of its own
// has the common one, and then the common one is at fault.
func (c *Config) checkDisclosure(p *problems) {
	at := keypath.Path{}.Key("ocip").Key("disclosure_text")
	if err := label.Check(c.OCIP.DisclosureText); err != nil {
		p.bad(at, "%v", err)
	}
	for i := range c.Agents {
		at := keypath.Path{}.Key("agents").Index(i).Key("disclosure_text")
		if c.SourceAt(at) == SourceDefault {
			continue
		}
		if err := label.Check(c.Agents[i].DisclosureText); err != nil {
			p.bad(at, "%v", err)
		}
	}
}

// checkRules checks the rules of the detectors, by means of the detectors.
func (c *Config) checkRules(p *problems) {
	c.checkDisclosure(p)
	families := keypath.Path{}.Key("ocip").Key("commitment").Key("families")
	for _, name := range slices.Sorted(maps.Keys(c.OCIP.Commitment.Families)) {
		at := families.Key(name)
		if !slices.Contains(commitment.Families(), name) {
			p.add(at, text.Nearest(name, commitment.Families(), text.Near(name)), "%s: unknown family of cues %q, want one of %s", at, clip(name), strings.Join(commitment.Families(), ", "))
			continue
		}
		p.word(at, "mode", c.OCIP.Commitment.Families[name], string(commitment.Enforce), string(commitment.Shadow), string(commitment.Off))
	}

	personal := keypath.Path{}.Key("ocip").Key("content").Key("personal")
	for _, name := range slices.Sorted(maps.Keys(c.OCIP.Content.Personal)) {
		at := personal.Key(name)
		if !slices.Contains(detect.Personal(), name) {
			p.add(at, text.Nearest(name, detect.Personal(), text.Near(name)), "%s: unknown kind of personal data %q, want one of %s", at, clip(name), strings.Join(detect.Personal(), ", "))
			continue
		}
		p.word(at, "mode", c.OCIP.Content.Personal[name], detect.PersonalModes()...)
	}

	patterns, names := keypath.Path{}.Key("ocip").Key("content").Key("patterns"), map[string]spot{}
	if n := len(c.OCIP.Content.Patterns); n > detect.MaxPatterns {
		p.bad(patterns, "want at most %d, got %d", detect.MaxPatterns, n)
		return
	}
	for i, pattern := range c.OCIP.Content.Patterns {
		at := patterns.Index(i)
		p.required(at.Key("name"), pattern.Name)
		p.unique(at.Key("name"), pattern.Name, names, spot{"ocip.content.patterns.name", i, -1})
		p.required(at.Key("regexp"), pattern.Regexp)
		p.word(at.Key("level"), "level", pattern.Level, levels()...)
		if pattern.Name == "" || pattern.Regexp == "" || !slices.Contains(levels(), pattern.Level) {
			continue
		}
		if _, err := detect.New(detect.Options{Patterns: []detect.Pattern{{Name: pattern.Name, Regexp: pattern.Regexp, Level: pattern.Level}}}); err != nil {
			p.bad(at.Key("regexp"), "%v", expressionFault(pattern.Regexp, err))
		}
	}
}
