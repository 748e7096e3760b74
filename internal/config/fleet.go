package config

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/fleet/roster"
)

// Fleet is the daemon's place among the daemons of its tenant on other machines.
type Fleet struct {
	// Roster is the file of hosts and agents, see [roster], empty for no fleet. A relative path is
	// beside the configuration file.
	Roster string `yaml:"roster"`
	// Host is the name of this host in it.
	Host string `yaml:"host"`
	// Operators is a file of allowed signers: a roster counts if one of them has signed it.
	Operators string `yaml:"operators"`
	// MaxQueued is how many messages to one host may wait for its receipt.
	MaxQueued int `yaml:"max_queued"`

	// read is the roster as it was read.
	read *rosterFile
}

// defaultFleet is no fleet.
func defaultFleet() Fleet { return Fleet{MaxQueued: 10_000} }

const (
	fleetKey = "fleet"
	// maxFleetQueued bounds fleet.max_queued.
	maxFleetQueued = 1_000_000
)

// rosterFile is a roster as it was read.
type rosterFile struct {
	file string
	sum  [sha256.Size]byte
	*roster.Roster
}

// Path is the path of the roster, or "", for a configuration in a file.
func (f *Fleet) Path(configuration string) string {
	if f.Roster == "" || filepath.IsAbs(f.Roster) {
		return f.Roster
	}
	return filepath.Join(filepath.Dir(configuration), f.Roster)
}

// Members is the roster, nil if there is none. Its signature is not checked: the daemon does that
// before it puts a configuration in force.
func (f *Fleet) Members() *roster.Roster {
	if f.read == nil {
		return nil
	}
	return f.read.Roster
}

// Line is the version and the digest of the roster, "" for none.
func (f *Fleet) Line() string {
	if f.read == nil {
		return ""
	}
	return fmt.Sprintf("version %d, %s", f.read.Version, f.read.Digest())
}

// readRoster reads the roster into c.
func readRoster(c *Config, p *problems, earlier *Config) {
	at := keypath.Path{}.Key(fleetKey).Key("roster")
	file := c.Fleet.Path(c.File)
	if file == "" {
		return
	}
	if c.File == "" && !filepath.IsAbs(c.Fleet.Roster) {
		p.bad(at, "want an absolute path, because there is no configuration file that it could be beside, got %q", c.Fleet.Roster)
		return
	}
	var err error
	if earlier != nil {
		err = stillFile(file)
	}
	var data []byte
	if err == nil {
		data, err = readUpTo(file, roster.MaxBytes)
	}
	if err != nil {
		p.bad(at, "%v", unwrapped(err))
		return
	}
	read := &rosterFile{file: file, sum: sha256.Sum256(data)}
	if earlier != nil && earlier.Fleet.read != nil && earlier.Fleet.read.sum == read.sum {
		read.Roster = earlier.Fleet.read.Roster
	} else if read.Roster, err = roster.Parse(data); err != nil {
		p.refuseRoster(file, at, err)
		return
	}
	c.Fleet.read = read
}

// refuseRoster reports why a roster is refused, at its line.
func (p *problems) refuseRoster(file string, at keypath.Path, err error) {
	if line, ok := errors.AsType[*roster.LineError](err); ok {
		p.report(origin{name: file, line: line.Line}, at, "", line.Problem)
		return
	}
	p.bad(at, "%v", err)
}

// unchanged reports whether the file is as it was read. An unreadable file counts as changed.
func (r *rosterFile) unchanged() bool {
	if r == nil {
		return true
	}
	if stillFile(r.file) != nil {
		return false
	}
	data, err := readUpTo(r.file, roster.MaxBytes)
	return err == nil && sha256.Sum256(data) == r.sum
}

// checkFleet checks that the fleet's roster and the configuration fit: one tenant, and no agent that
// both have in different places.
func checkFleet(c *Config, p *problems) {
	at := keypath.Path{}.Key(fleetKey)
	p.between(at.Key("max_queued"), c.Fleet.MaxQueued, 1, maxFleetQueued)
	if c.Fleet.Roster == "" {
		return
	}
	p.required(at.Key("host"), c.Fleet.Host)
	p.required(at.Key("operators"), c.Fleet.Operators)
	p.absolute(at.Key("operators"), c.Fleet.Operators)
	r := c.Fleet.Members()
	if r == nil {
		return // its fault is reported already
	}
	for i := range c.Agents {
		if a := &c.Agents[i]; a.TenantID != r.Tenant {
			p.bad(keypath.Path{}.Key("agents").Index(i).Key("tenant_id"), "the roster of the fleet is of tenant %s, and a daemon in a fleet has agents of that tenant alone, got %q", r.Tenant, a.TenantID)
		}
	}
	checkRosterAgents(c, p, at.Key("roster"))
}

// checkRosterAgents refuses a roster that has an agent elsewhere which this configuration has too.
func checkRosterAgents(c *Config, p *problems, at keypath.Path) {
	ids, instances := make(map[string]string), make(map[string]string)
	for i := range c.Agents {
		a := &c.Agents[i]
		ids[a.ID], instances[a.InstanceID] = "this host has agent "+a.ID+" itself", "this host has instance "+a.InstanceID+" itself"
	}
	for contact := range c.Contacts {
		if contact.InstanceID != "" {
			instances[contact.InstanceID] = "the directory has instance " + contact.InstanceID + " too; take it out there"
		}
	}
	r := c.Fleet.read
	for i := range r.Agents {
		a := &r.Agents[i]
		if a.Host == c.Fleet.Host {
			continue
		}
		problem := ids[a.ID]
		if problem == "" {
			problem = instances[a.InstanceID]
		}
		if problem != "" {
			p.report(origin{name: r.file, line: r.Line(i)}, at, "", problem)
		}
	}
}
