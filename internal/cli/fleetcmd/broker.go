package fleetcmd

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/natsline"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// broker is a run of the command about the broker.
type broker struct {
	*cli.Process
	natsline.Broker
	dir     string
	rosters []string
	// operators is a file of allowed signers, "" for the configuration's.
	operators string
	url, ca   string
}

func newBroker(s *cli.Process) *cobra.Command {
	b := &broker{Process: s}
	keep := false
	c := &cobra.Command{
		Use:   "broker DIR ROSTER...",
		Short: "write the configuration of a broker for a fleet",
		Long: `Write the configuration of a NATS broker for the fleets of these rosters into DIR:
an account for each tenant, and in it a user for each host, who may speak under
the host's own name alone. Run nats-server 2.12 or newer with it:

  nats-server --config DIR/nats.conf

--keep then makes the stream in which messages wait, and the hosts' consumers,
and makes them again whenever the broker has lost them, until interrupted. Without
it messages go between hosts that are there at the same time, and nothing waits
at the broker. After a change of a roster run the command again, and then
"nats-server --signal reload".

The broker can delay messages, and sees which hosts exchange how much. It can read
no message, make none up and have none taken twice.`,
		Example: "  ocipd fleet broker /var/lib/ocipd-broker fleet.jsonl --listen 0.0.0.0:4222\n" +
			"  ocipd fleet broker /var/lib/ocipd-broker fleet.jsonl --listen 0.0.0.0:4222 --keep",
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b.rosters = args[1:]
			var err error
			if b.dir, err = filepath.Abs(args[0]); err != nil {
				return err
			}
			tenants, err := b.make(cmd.Context())
			if err != nil || !keep {
				return err
			}
			return b.keep(cmd.Context(), tenants)
		},
	}
	f := c.Flags()
	f.StringVar(&b.Listen, "listen", "127.0.0.1:4222", "where the broker listens, as `ADDRESS:PORT`")
	f.StringVar(&b.Cert, "cert", "", "the `FILE` of the broker's certificate: the connections are TLS")
	f.StringVar(&b.Key, "cert-key", "", "the `FILE` of the certificate's key")
	operatorsFlag(c, &b.operators)
	f.BoolVar(&keep, "keep", false, "make the stream and its consumers, and keep them, until interrupted")
	f.StringVar(&b.url, "url", "", "with --keep, reach the broker at this `URL` (default: where it listens, on this machine)")
	f.StringVar(&b.ca, "ca", "", "with --keep, trust the broker's certificate if one of this `FILE` has signed it")
	c.MarkFlagsRequiredTogether("cert", "cert-key")
	return c
}

// make writes the configuration, with the keys that it needs.
func (b *broker) make(ctx context.Context) ([]natsline.Tenant, error) {
	if err := os.MkdirAll(b.dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	unlock, err := lock(ctx, b.dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	tenants, err := b.tenants()
	if err != nil {
		return nil, err
	}
	return tenants, b.write(tenants)
}

// tenants reads the rosters and the administrators' keys.
func (b *broker) tenants() ([]natsline.Tenant, error) {
	var all []natsline.Tenant
	seen := map[string]string{}
	for _, file := range b.rosters {
		r, err := read(b.Process, file, b.operators)
		if err != nil {
			return nil, err
		}
		if before := seen[r.Tenant]; before != "" {
			return nil, fmt.Errorf("cannot use %s and %s together: both are of tenant %s", before, file, r.Tenant)
		}
		seen[r.Tenant] = file
		key, err := keyring.OpenLine(filepath.Join(b.dir, r.Account()), rand.Reader)
		if err != nil {
			return nil, err
		}
		all = append(all, natsline.Tenant{Roster: r, Admin: key})
	}
	return all, nil
}

// write writes the configuration.
func (b *broker) write(tenants []natsline.Tenant) error {
	b.Store = filepath.Join(b.dir, "store")
	if b.Cert != "" {
		b.Cert, b.Key = cli.Absolute(b.Cert), cli.Absolute(b.Key)
	}
	text, err := b.Configuration(tenants)
	if err != nil {
		return err
	}
	file := filepath.Join(b.dir, "nats.conf")
	if err := durable.Replace(file, ".part", 0o600, []byte(text)); err != nil {
		return fmt.Errorf("cannot write the configuration: %w", err)
	}
	with, without := 0, []string{}
	for i := range tenants {
		for j := range tenants[i].Roster.Hosts {
			if h := &tenants[i].Roster.Hosts[j]; h.Line != nil {
				with++
			} else {
				without = append(without, h.Name)
			}
		}
	}
	b.Say("ok: %s has %s; run: nats-server --config %s", term.Printable(file), term.Count(with, "host"), term.Printable(file))
	if len(without) > 0 {
		b.Say("without a key of their line, and so without access: %s; run ocipd fleet join there, and ocipd fleet add", strings.Join(without, ", "))
	}
	return nil
}

// keepEvery is how often the stream and its consumers are looked at.
const keepEvery = 5 * time.Second

// keep keeps the streams and consumers of all tenants until the context ends.
func (b *broker) keep(ctx context.Context, tenants []natsline.Tenant) error {
	url := b.url
	if url == "" {
		scheme, port := "nats", b.Listen[strings.LastIndexByte(b.Listen, ':')+1:]
		if b.Cert != "" {
			scheme = "tls"
		}
		url = scheme + "://127.0.0.1:" + port
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range tenants {
		group.Go(func() error {
			return natsline.Keep(ctx, &natsline.Keeper{
				URL: url, CA: b.ca, Key: tenants[i].Admin, Every: keepEvery, Say: said(b.Process),
				Roster: func() (*roster.Roster, error) { return read(b.Process, b.rosters[i], b.operators) },
			})
		})
	}
	return group.Wait()
}
