// Package fleetcmd has the commands about a fleet: daemons of one tenant on several machines.
package fleetcmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/durable"
	"github.com/openclawos/ocipd/internal/base/sshsig"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/carrier"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/evidence/keyring"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// New returns the commands about a fleet.
func New(p *cli.Process) *cobra.Command {
	c := cli.Group(&cobra.Command{Use: "fleet", Short: "join daemons of one tenant on several machines"})
	c.AddCommand(newInit(p), newJoin(p), newRejoin(p), newAdd(p), newLeave(p), newStatus(p), newCarry(p), newBroker(p), newRun(p), newDemo(p))
	return c
}

func newInit(s *cli.Process) *cobra.Command {
	var tenant, key string
	c := &cobra.Command{
		Use:   "init ROSTER",
		Short: "make the roster of a fleet",
		Long: `Make the roster of a fleet: a file without hosts, signed with your SSH key. You
add hosts to it, and give the file to each of them.`,
		Example: "  ocipd fleet init fleet.jsonl --tenant acme-corp --key ~/.ssh/id_ed25519",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			unlock, err := lock(cmd.Context(), filepath.Dir(args[0]))
			if err != nil {
				return err
			}
			defer unlock()
			if _, err := os.Lstat(args[0]); err == nil {
				return fmt.Errorf("cannot make the roster %s: there is such a file", args[0])
			}
			return publish(cmd.Context(), s, args[0], key, "", &roster.Roster{Tenant: tenant}, nil, nil)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "the `TENANT` of all agents of the fleet")
	cli.KeyFlag(c, &key)
	cli.Required(c, "tenant")
	return c
}

// lock takes the lock of a directory. A command holds it from before it reads what it changes there until it
// has written: of two at once the later one would otherwise undo what the first one did.
func lock(ctx context.Context, dir string) (unlock func(), err error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot lock the directory: %w", err)
	}
	// Network file systems have no locks of directories, and nothing better.
	if err := durable.Lock(ctx, d); ctx.Err() != nil {
		return nil, fmt.Errorf("another command has the lock of %s: %w", dir, ctx.Err())
	} else if err != nil && !errors.Is(err, unix.EBADF) && !errors.Is(err, unix.ENOLCK) {
		return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", dir, err), d.Close())
	}
	return func() { _ = d.Close() }, nil
}

// publish signs the version of a roster after another, and writes it. The first version has no operators
// yet; a later one that none of them has signed would be refused by every host.
func publish(ctx context.Context, s *cli.Process, file, key, operators string, after *roster.Roster, hosts []roster.Host, agents []roster.Agent) error {
	version := after.Version + 1
	lines, err := roster.Write(after.Tenant, version, hosts, agents, after.History()...)
	if err != nil {
		return err
	}
	// The operator signs nothing that no daemon could read.
	if _, err := roster.Sign(lines, "unsigned"); err != nil {
		return fmt.Errorf("cannot make the roster: %w", err)
	}
	keys, err := s.OpenKey(key)
	if err != nil {
		return err
	}
	armored, err := keys.SignAs(ctx, string(lines), roster.Namespace)
	if err != nil {
		return err
	}
	whole, err := roster.Sign(lines, armored)
	if err != nil {
		return err
	}
	if after.Version > 0 {
		if _, err := parse(s, file, whole, operators); err != nil {
			return fmt.Errorf("nothing is written, since no host would accept it: %w", err)
		}
	}
	if err := durable.Replace(file, ".part", 0o644, whole); err != nil {
		return fmt.Errorf("cannot write the roster: %w", err)
	}
	_, err = fmt.Fprintf(s.Stdout, "ok: %s is version %d of the fleet of %s, with %s and %s; give it to every host\n",
		term.Printable(file), version, term.Printable(after.Tenant), term.Count(len(hosts), "host"), term.Count(len(agents), "agent"))
	return err
}

// read reads a roster that an operator has signed. An operator signs the whole of its next version, with
// the lines that this one has. Operators is the file of allowed signers, "" for the configuration's.
func read(s *cli.Process, file, operators string) (*roster.Roster, error) {
	text, err := cli.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the roster: %w", err)
	}
	return parse(s, file, text, operators)
}

// parse is read for the text of a file.
func parse(s *cli.Process, file string, text []byte, operators string) (*roster.Roster, error) {
	r, err := roster.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("cannot use the roster %s: %w", file, err)
	}
	signers := sshsig.File{Path: operators, Key: "--operators"}
	if operators == "" {
		cfg, err := s.Load(nil)
		if err != nil {
			return nil, err
		}
		signers = sshsig.File{Path: cfg.Fleet.Operators, Key: "fleet.operators"}
	}
	if signers.Path == "" {
		return nil, cli.Usagef("name the file of those who may sign the roster: --operators FILE, or fleet.operators in the configuration")
	}
	signers.Namespace = roster.Namespace
	if err := r.Signed(cli.SignedNow(signers)); err != nil {
		return nil, fmt.Errorf("cannot use the roster %s: %w", file, err)
	}
	return r, nil
}

// operatorsFlag adds the flag that names the operators.
func operatorsFlag(c *cobra.Command, operators *string) {
	c.Flags().StringVar(operators, "operators", "", "`FILE` of those who may sign the roster (default: fleet.operators of the configuration)")
}

func newJoin(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "join HOST",
		Short: "make this host's keys, and print its lines for the roster",
		Long: `Make the keys of this host, unless it has some, and print its lines for the
roster: its public keys, and the agents of its configuration. An operator adds
them with "ocipd fleet add". The private keys stay in the directory of keys.

Afterwards the configuration of this host needs fleet.roster, fleet.host and
fleet.operators.`,
		Example: "  ocipd fleet join laptop-a > laptop-a.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return join(cmd.Context(), s, args[0], false)
		},
	}
}

func newRejoin(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "rejoin HOST",
		Short: "make new keys for this host, and print its lines for the roster",
		Long: `Make new keys for this host and print its lines for the roster, as "ocipd fleet
join" does. Do this after the state of the host was put back from a copy
(LANE_ROLLED_BACK), or if somebody else may have its keys. The new keys are in
force with the version of the roster that has them; until then the earlier ones
are.`,
		Example: "  ocipd fleet rejoin laptop-a > laptop-a.jsonl",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return join(cmd.Context(), s, args[0], true)
		},
	}
}

// join prints the lines of this host.
func join(ctx context.Context, s *cli.Process, name string, anew bool) error {
	cfg, err := s.Load(nil)
	if err != nil {
		return err
	}
	h, err := hostOf(ctx, s, cfg, name, anew)
	if err != nil {
		return err
	}
	lines, err := roster.Line(h)
	if err != nil {
		return err
	}
	for i := range cfg.Agents {
		a := &cfg.Agents[i]
		one, err := roster.Line(roster.Agent{ID: a.ID, Host: name, InstanceID: a.InstanceID, UserID: a.UserID, OrgUnit: a.OrgUnit, Accepts: upTo(a.MaxClassificationShared)})
		if err != nil {
			return err
		}
		lines = append(lines, one...)
	}
	if _, _, err := roster.Lines(lines); err != nil {
		return fmt.Errorf("cannot join as %s: %w", name, err)
	}
	if _, err = s.Stdout.Write(lines); err != nil {
		return err
	}
	if len(cfg.Agents) == 0 {
		fmt.Fprintf(s.Stderr, "%s has no agents; once they are in its configuration, run this command again\n", name)
	}
	// The operator compares them with those of the lines that arrived.
	_, err = fmt.Fprintf(s.Stderr, "the keys of %s, to compare at ocipd fleet add:\n%s", name, h.Fingerprints())
	return err
}

// hostOf returns the line of this host, with its keys, which it makes if there are none or if they are wanted anew.
func hostOf(ctx context.Context, s *cli.Process, cfg *config.Config, name string, anew bool) (h roster.Host, err error) {
	dir := config.KeysPath(cfg, config.DatabasePath(cfg, s.Getenv))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return h, fmt.Errorf("cannot make the directory of keys: %w", err)
	}
	unlock, err := lock(ctx, dir)
	if err != nil {
		return h, err
	}
	defer unlock()
	all, err := keyring.ReadFleet(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return h, err
	}
	var inForce ed25519.PublicKey
	if r := cfg.Fleet.Members(); r != nil && r.Host(name) != nil {
		inForce = r.Host(name).Sign
	}
	var keys *keyring.Fleet
	if len(all) > 0 && !anew {
		keys = all[len(all)-1]
	} else if keys, err = keyring.AddFleet(dir, rand.Reader, inForce); err != nil {
		return h, err
	}
	h = roster.Host{Name: name, Epoch: 1}
	h.Sign, h.Seal = keys.Public()
	line, err := keyring.OpenLine(dir, rand.Reader)
	if err != nil {
		return h, err
	}
	h.Line = line.Public().(ed25519.PublicKey)
	if r := cfg.Fleet.Members(); r != nil && r.Host(name) != nil {
		if h.Epoch = r.Host(name).Epoch; !bytes.Equal(inForce, h.Sign) {
			h.Epoch++
		}
	}
	return h, nil
}

// upTo lists the levels up to one: an agent accepts what it may share itself.
func upTo(most string) []string {
	all := []string{"public", "internal", "confidential", "restricted"}
	return all[:slices.Index(all, cmp.Or(most, "internal"))+1]
}

func newLeave(s *cli.Process) *cobra.Command {
	var key, operators string
	c := &cobra.Command{
		Use:   "leave ROSTER HOST",
		Short: "take a host and its agents out of the roster",
		Long: `Take a host and its agents out of the roster, and sign its next version.
A host that has the new version accepts nothing more from the host that left. The roster
must already have an operator's signature.`,
		Example: "  ocipd fleet leave fleet.jsonl laptop-a --key ~/.ssh/id_ed25519",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			unlock, err := lock(cmd.Context(), filepath.Dir(args[0]))
			if err != nil {
				return err
			}
			defer unlock()
			r, err := read(s, args[0], operators)
			if err != nil {
				return err
			}
			if r.Host(args[1]) == nil {
				return fmt.Errorf("cannot take out %s: the roster has no host of that name", args[1])
			}
			hosts := slices.DeleteFunc(slices.Clone(r.Hosts), func(h roster.Host) bool { return h.Name == args[1] })
			agents := slices.DeleteFunc(slices.Clone(r.Agents), func(a roster.Agent) bool { return a.Host == args[1] })
			return publish(cmd.Context(), s, args[0], key, operators, r, hosts, agents)
		},
	}
	operatorsFlag(c, &operators)
	cli.KeyFlag(c, &key)
	return c
}

func newStatus(s *cli.Process) *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "status",
		Short: "show the hosts of the fleet, and what waits for them",
		Long: `Show the hosts of the fleet: what waits for each, and what its newest beat says.
Every host sends the others a beat every 15 seconds. A host is marked as SILENT
after a minute without one, and with LOG if it has shown a checkpoint of its log
that contradicts an earlier one.`,
		Example: "  ocipd fleet status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var st fleetapi.FleetStatus
			printed, err := s.TellOperator(cmd.Context(), "fleet.status", asJSON, &st)
			if err != nil || printed {
				return err
			}
			return show(s, &st)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as JSON")
	return c
}

// show prints the status.
func show(s *cli.Process, st *fleetapi.FleetStatus) error {
	fmt.Fprintf(s.Stdout, "fleet of %s, version %d (%s)\n", term.Printable(st.Tenant), st.Version, st.Digest)
	switch {
	case !st.Member:
		fmt.Fprintf(s.Stdout, "this host, %s, is not in the roster: ocipd fleet join prints its lines\n", term.Printable(st.Host))
	case st.Lines == 0:
		fmt.Fprintf(s.Stdout, "this host is %s; no carrier is attached, so messages to other hosts wait\n", term.Printable(st.Host))
	default:
		fmt.Fprintf(s.Stdout, "this host is %s; %s attached\n", term.Printable(st.Host), term.Count(st.Lines, "carrier"))
	}
	for i := range st.Hosts {
		h := &st.Hosts[i]
		parts := []string{fmt.Sprintf("epoch %d", h.Epoch)}
		if h.Host != st.Host {
			parts = append(parts, term.Count(h.Waiting, "message")+" without a receipt")
			heard := "not heard since the start"
			if !h.Heard.IsZero() {
				heard = "last heard " + h.Heard.Local().Format(time.DateTime)
			}
			parts = append(parts, heard)
		}
		if h.Refused > 0 {
			parts = append(parts, fmt.Sprintf("%d frames dropped", h.Refused))
		}
		agents := "no agents"
		if len(h.Agents) > 0 {
			agents = strings.Join(h.Agents, ", ")
		}
		if _, err := fmt.Fprintf(s.Stdout, "%s: %s\n  %s\n", term.Printable(h.Host), term.Printable(agents), strings.Join(parts, "; ")); err != nil {
			return err
		}
		if err := showBeat(s, h); err != nil {
			return err
		}
	}
	return nil
}

// showBeat prints a host's newest beat, and its faults.
func showBeat(s *cli.Process, h *fleetapi.FleetHost) error {
	var b strings.Builder
	if said := h.Beat; said != nil {
		fmt.Fprintf(&b, "  ocipd %s, roster version %d; %s in its queues, %s for people\n",
			term.Printable(said.Version), said.Roster, term.Count(said.Waiting, "message"), term.Count(said.Held, "request"))
		for _, fault := range said.Faults {
			fmt.Fprintf(&b, "  FAULT %s\n", term.Printable(fault))
		}
	}
	if h.Silent && h.BeatAt.IsZero() {
		fmt.Fprintln(&b, "  SILENT no beat has come since the start of this daemon")
	} else if h.Silent {
		fmt.Fprintf(&b, "  SILENT the last beat came %s\n", h.BeatAt.Local().Format(time.DateTime))
	}
	if h.Shrunk != nil {
		fmt.Fprintln(&b, "  LOG its log has become smaller, or is another: no log has both of these checkpoints")
		for _, note := range []string{h.Shrunk.Before, h.Shrunk.After} {
			for line := range strings.Lines(note) {
				fmt.Fprintf(&b, "    %s\n", term.Printable(strings.TrimSuffix(line, "\n")))
			}
		}
	}
	_, err := io.WriteString(s.Stdout, b.String())
	return err
}

func newCarry(s *cli.Process) *cobra.Command {
	return &cobra.Command{
		Use:   "carry SOCKET",
		Short: "carry messages between this daemon and another one of this machine",
		Long: `Carry the messages of the fleet between this daemon and another one of this
machine whose operator socket is SOCKET, until interrupted. Do not forward the
operator socket of another machine: every program here could then decide there.
The daemons seal and sign the messages: the carrier can delay them, and nothing
else. It needs no keys.`,
		Example: "  ocipd fleet carry /tmp/host-b.sock",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return carrier.Run(cmd.Context(), carrier.Options{
				Dial: [2]func(context.Context) (*client.Client, error){
					s.DialOperator,
					func(ctx context.Context) (*client.Client, error) { return client.Dial(ctx, args[0]) },
				},
				Say: said(s),
			})
		},
	}
}
