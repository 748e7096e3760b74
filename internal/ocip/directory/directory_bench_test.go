package directory

import (
	"fmt"
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// known is a configuration with that many counterparties, each with two sessions of its own and one
// beginning of a key, and a hundredth as many agents with a route each.
func known(n int) *Config {
	cfg := &Config{}
	for i := range max(2, n/100) {
		id := fmt.Sprintf("agent-%d", i)
		cfg.Agents = append(cfg.Agents, Agent{App: "@bench/" + id, Agent: ocip.Agent{
			ID: id, Identity: ocip.Identity{InstanceID: id, UserID: "owner", OrgUnit: "engineering", TenantID: "acme"}, MaxShared: ocip.Internal,
		}})
		cfg.Routes = append(cfg.Routes, Route{Session: fmt.Sprintf("mail:%d:*", i), Agent: id})
	}
	for i := range n {
		cfg.Entries = append(cfg.Entries, Entry{
			Counterparty: ocip.Counterparty{Kind: ocip.KindAgent, Accepts: ocip.Internal, Identity: ocip.Identity{
				InstanceID: fmt.Sprintf("peer-%d", i), UserID: fmt.Sprintf("user-%d", i), OrgUnit: "engineering", TenantID: "acme",
			}},
			Sessions: []string{fmt.Sprintf("telegram:%d", i), fmt.Sprintf("irc:direct:user-%d", i), fmt.Sprintf("matrix:!%d:*", i)},
		})
	}
	return cfg
}

// BenchmarkDirectory shows that a look-up takes the same time among a few counterparties and among
// a hundred thousand, apart from cache misses.
func BenchmarkDirectory(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		d, err := New(known(n))
		if err != nil {
			b.Fatal(err)
		}
		self := d.agents["agent-0"]
		run := func(name string, keys func(i int) string, look func(key string) bool) {
			var mixed [4096]string
			for i := range mixed {
				mixed[i] = keys(i * 7919 % n)
			}
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if key := mixed[i%len(mixed)]; !look(key) {
						b.Fatal(key)
					}
				}
			})
		}
		reaches := func(kind ocip.Kind) func(string) bool {
			return func(key string) bool {
				r, err := d.Recipient(key, "", nil, self)
				return err == nil && r.Counterparty.Kind == kind
			}
		}
		run("session", func(i int) string { return fmt.Sprintf("irc:direct:user-%d", i) }, reaches(ocip.KindAgent))
		run("beginning", func(i int) string { return fmt.Sprintf("matrix:!%d:room", i) }, reaches(ocip.KindAgent))
		run("stranger", func(i int) string { return fmt.Sprintf("telegram:nobody-%d", i) }, reaches(ocip.KindUnknown))
		run("local agent", func(i int) string { return fmt.Sprintf("agent:agent-%d:main", i%max(2, n/100)) }, reaches(ocip.KindAgent))
		run("sender", func(i int) string { return fmt.Sprintf("@bench/agent-%d", i%max(2, n/100)) }, func(key string) bool {
			a, err := d.Sender(key, "")
			return err == nil && a != nil
		})
		run("recipient", func(i int) string { return fmt.Sprintf("irc:direct:user-%d", i) }, func(key string) bool {
			r, err := d.Recipient(key, "", nil, self)
			if err != nil {
				return false
			}
			_, mismatch := r.Bind(nil)
			return mismatch == "" && r.Counterparty.Kind == ocip.KindAgent
		})
		run("origin", func(i int) string { return fmt.Sprintf("telegram:%d", i) }, func(key string) bool {
			o, err := d.Origin(key, nil, self)
			return err == nil && o.Listed
		})
	}
}

// BenchmarkNew is the cost at a start.
func BenchmarkNew(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			cfg := known(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(cfg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
