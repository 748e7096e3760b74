package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// rosterName is the database key of the newest roster that was in force: its tenant, version and digest.
const rosterName = "fleet-roster"

// newestRoster is the name of the same in the log, see [store.Newest].
const newestRoster = "roster"

// rosters checks the rosters of a daemon's fleet.
type rosters struct{ *Daemon }

// fleet returns the daemon's place in the fleet of a configuration, nil for none. It refuses a roster
// that no operator has signed, that does not follow the one in force, or that has other keys for
// this host.
func (d rosters) fleet(cfg *config.Config) (*kernel.Fleet, error) {
	r := cfg.Fleet.Members()
	if r == nil {
		return nil, nil
	}
	fail := func(err error) (*kernel.Fleet, error) {
		return nil, fmt.Errorf("cannot use fleet.roster %s: %w", cfg.Fleet.Path(cfg.File), err)
	}
	operators := sshsig.File{Path: cfg.Fleet.Operators, Key: "fleet.operators", Namespace: roster.Namespace}
	if err := r.Signed(operators.Check(time.Now())); err != nil {
		return fail(err)
	}
	if err := d.follows(cfg, r); err != nil {
		return fail(err)
	}
	f := &kernel.Fleet{Roster: r, Name: cfg.Fleet.Host, Self: r.Host(cfg.Fleet.Host), MaxQueued: cfg.Fleet.MaxQueued, Vitals: d.vitals}
	if f.Self == nil {
		return f, nil // it has left, or not joined yet
	}
	keys, err := keyring.ReadFleet(config.KeysPath(cfg, d.places.database))
	if err != nil {
		return fail(err)
	}
	for _, pair := range keys {
		if sign, seal := pair.Public(); bytes.Equal(sign, f.Self.Sign) && bytes.Equal(seal, f.Self.Seal) {
			f.Sign, f.Open = pair.Sign, pair.Seal
			return f, nil
		}
	}
	return fail(fmt.Errorf("it has other keys for host %s than this host: is fleet.host the name of another one? `ocipd fleet join` prints the line of this host", cfg.Fleet.Host))
}

// follows reports why a roster may not follow the one in force. At the start that is the newest one that
// was in force before: the operators may have made several since.
func (d rosters) follows(cfg *config.Config, r *roster.Roster) error {
	if former := d.config().Fleet.Members(); former != nil && cfg != d.config() {
		return r.Follows(former)
	}
	tenant, version, digest, err := d.newestRoster()
	switch {
	case err != nil:
		return err
	case version > 0 && tenant != r.Tenant:
		return &roster.LineError{Line: 1, Problem: "fleet: the roster before it was of tenant " + tenant}
	case r.Version < version, r.Version == version && r.Digest() != digest:
		return &roster.LineError{Line: 1, Problem: fmt.Sprintf("version: version %d (%s) was in force already, got %d (%s)", version, digest, r.Version, r.Digest())}
	}
	return nil
}

// newestRoster reads the newest roster that was in force, version 0 for none. The log has it too.
func (d rosters) newestRoster() (tenant string, version int, digest string, err error) {
	row, err := d.store.Meta(context.Background(), rosterName)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", 0, "", err
	}
	for _, noted := range []string{string(row), store.Newest(d.store, newestRoster)} {
		var n int
		var sum, of string
		if noted == "" {
			continue
		}
		if _, err := fmt.Sscan(noted, &n, &sum, &of); err != nil {
			return "", 0, "", fmt.Errorf("cannot read which roster was in force: %w", err)
		}
		if n > version {
			tenant, version, digest = of, n, sum
		}
	}
	return tenant, version, digest, nil
}

// noteRoster keeps which roster is in force, so that no start goes back behind it.
func (d rosters) noteRoster(cfg *config.Config) {
	r := cfg.Fleet.Members()
	if r == nil {
		return
	}
	value := fmt.Sprintf("%d %s %s", r.Version, r.Digest(), r.Tenant)
	_, version, _, err := d.newestRoster()
	if err == nil && version <= r.Version {
		store.SetNewest(d.store, newestRoster, value)
	}
	if err == nil && version < r.Version {
		c := &store.Change{Parts: []store.Part{store.Meta{Key: rosterName, Value: []byte(value)}}, Drains: true}
		select {
		case <-d.witnesses.recorded:
			c.Checkpoint = true
		default: // the record of the start comes with one
		}
		_, err = d.store.Commit(c)
	}
	if err != nil {
		d.log.Error("cannot note which roster of the fleet is in force", zap.Error(err))
	}
}

// vitals returns the content of a beat to the other hosts.
func (d rosters) vitals(ctx context.Context) (b fleetapi.Beat, err error) {
	b.Version, b.Checkpoint = d.options.Version, d.store.Checkpoint().Note
	s, err := d.status(ctx, nil)
	if err != nil {
		return b, err
	}
	b.Held, b.OldestHeld = s.Held, s.OldestHeld
	for _, q := range s.Queues {
		b.Waiting += q.Waiting
	}
	b.Faults = faultsOf(&s)
	return b, nil
}

// faultsOf lists what is wrong on a daemon.
func faultsOf(s *api.Status) (faults []string) {
	add := func(what, why string) {
		if why != "" {
			faults = append(faults, what+": "+why)
		}
	}
	add("log", s.Audit.Fault)
	add("log", s.Audit.Damaged)
	if s.Store.Disk != "ok" {
		add("disk", s.Store.Disk)
	}
	add("configuration", s.Config.Refusal)
	for i := range s.Sinks {
		add("sink "+s.Sinks[i].Name, s.Sinks[i].Error)
	}
	for i := range s.Witnesses {
		w := &s.Witnesses[i]
		add("witness "+w.Name, w.Error)
		if w.Refused {
			add("witness "+w.Name, "it has signed another log")
		}
	}
	for i := range s.Ungated {
		add("runtime "+s.Ungated[i].Title, "its gate does not hold")
	}
	return faults
}
