package kernelconfig

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/directory"
)

// Declaration is one line that a configuration lacks.
type Declaration = directory.Declaration

// Lines formats declarations as YAML, to be added to a configuration.
func Lines(lacks []Declaration) string { return directory.Lines(lacks) }

// Undeclared lists the mandatory lines about apps that a configuration lacks. owners names
// the recent app of each channel, as far as it is known.
func Undeclared(cfg *config.Config, owners map[string]string) ([]Declaration, error) {
	d, err := rightsOf(cfg)
	if err != nil {
		return nil, err
	}
	d.Entries = []directory.Entry{{Sessions: sessionsOf(cfg)}}
	return directory.Missing(&d, owners), nil
}

// sessionsOf returns one listed session of each channel.
func sessionsOf(cfg *config.Config) (sessions []string) {
	known := map[string]bool{}
	for contact := range cfg.Contacts {
		for _, key := range contact.Sessions {
			if channel, rest := directory.Split(key); rest != "" && !known[channel] {
				known[channel] = true
				sessions = append(sessions, key)
			}
		}
	}
	return sessions
}

// Declared reports whether a configuration limits apps to its grants.
func Declared(cfg *config.Config) (bool, error) {
	d, err := rightsOf(cfg)
	if err != nil {
		return false, err
	}
	made, err := directory.New(&d)
	if err != nil {
		return false, err
	}
	return made.Declared(), nil
}

// CheckDeclared returns an error for each mandatory line about apps that a configuration
// lacks, with that line in it.
func CheckDeclared(cfg *config.Config) (found config.Errors) {
	lacks, err := Undeclared(cfg, nil)
	if err != nil {
		return config.Errors{cfg.Fault("", err)}
	}
	for i := range lacks {
		l := &lacks[i]
		key, line := "access.apps", "access: {apps: {"+strconv.Quote(l.App)+": {"+l.Name+": "+listOf(l.Values)+"}}}"
		if l.App == "" {
			key, line = l.Key, l.Name+": "+l.Values[0]+" in the entry of agent "+l.Agent
		}
		fault := cfg.Fault(key, fmt.Errorf("%s; add %s (ocipd config migrate proposes all such lines)", l.Reason, line))
		fault.Key = l.Key
		found = append(found, fault)
	}
	return found
}

// listOf formats a list as YAML on one line.
func listOf(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
