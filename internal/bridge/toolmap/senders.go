package toolmap

import (
	"regexp"
	"slices"
	"strings"
)

// Read is a tool whose results have messages of others in them.
type Read struct {
	// From makes the sessions that they are from, of arguments, as a tool's recipients. Lines
	// are beginnings of lines of the result behind which addresses stand. Without either, the
	// results are from the server itself.
	From  []string `yaml:"from,omitempty,flow"`
	Lines []string `yaml:"lines,omitempty,flow"`
}

var addressPattern = regexp.MustCompile(`[^\s<>",;:()]+@[^\s<>",;:()]+`)

// Senders are the sessions that a result is from.
func (m *Map) Senders(r *Read, arguments []Member, content string) (keys []string, err error) {
	if len(r.From) > 0 {
		if keys, err = m.Recipients(&Tool{To: r.From}, arguments); err != nil {
			return nil, err
		}
	}
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		for _, begins := range r.Lines {
			rest, ok := strings.CutPrefix(line, strings.TrimSpace(begins))
			if rest = strings.TrimSpace(rest); !ok || rest == "" {
				continue
			}
			if keys, err = m.appendKeys(keys, rest); err != nil {
				// People write names there that no address has.
				found := addressPattern.FindAllString(rest, -1)
				if len(found) == 0 {
					return nil, err
				}
				for _, address := range found {
					keys = append(keys, m.Channel+":"+strings.ToLower(address))
				}
			}
		}
	}
	if len(keys) == 0 {
		// It names nobody: the server itself says so.
		keys = []string{m.Channel + ":" + m.Name}
	}
	slices.Sort(keys)
	return slices.Compact(keys), nil
}
