package fleetcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/fleet/roster"
	"github.com/spf13/cobra"
)

func newAdd(s *cli.Process) *cobra.Command {
	var key, operators string
	var replace []string
	var yes bool
	c := &cobra.Command{
		Use:   "add ROSTER LINES",
		Short: "add a host to the roster, or replace its lines",
		Long: `Add the lines that "ocipd fleet join" has printed on a host to the
roster, and sign its next version. LINES is a file, or - for the standard input, and has
one host and agents of that host alone. The roster must already have an operator's
signature, because yours covers its earlier lines too.

The command shows the host, the fingerprints of its keys and its agents, and
asks. "ocipd fleet join" prints the same fingerprints on the host: compare them,
because whoever has the private keys speaks for the host's agents.

--replace HOST gives a host of the roster these keys and agents in place of its
earlier ones, and --replace agent:ID moves an agent from another host.`,
		Example: "  ocipd fleet add fleet.jsonl laptop-a.jsonl --key ~/.ssh/id_ed25519",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, with, err := readLines(cmd.Context(), s, args[1])
			if err != nil {
				return err
			}
			unlock, err := lock(cmd.Context(), filepath.Dir(args[0]))
			if err != nil {
				return err
			}
			defer unlock()
			r, err := read(s, args[0], operators)
			if err != nil {
				return err
			}
			a, err := added(r, &h, with, replace)
			if err != nil {
				return fmt.Errorf("cannot add %s: %w", h.Name, err)
			}
			if err := a.show(s.Stdout); err != nil {
				return err
			}
			if !yes {
				agreed, err := s.Ask(cmd.Context(), fmt.Sprintf("Does host %s show these fingerprints?", h.Name))
				if err != nil {
					return err
				}
				if !agreed {
					return errors.New("nothing is added")
				}
			}
			return publish(cmd.Context(), s, args[0], key, operators, r, a.hosts, a.agents)
		},
	}
	c.Flags().StringArrayVar(&replace, "replace", nil, "replace the host or the agent of this `NAME`: HOST, or agent:ID; can be repeated")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	operatorsFlag(c, &operators)
	cli.KeyFlag(c, &key)
	return c
}

// readLines reads the lines of a host from a file, or for - from the standard input.
func readLines(ctx context.Context, s *cli.Process, file string) (h roster.Host, agents []roster.Agent, err error) {
	var text []byte
	if file == "-" {
		text, err = s.ReadStdin(ctx)
	} else {
		text, err = cli.ReadFile(file)
	}
	if err != nil {
		return h, nil, fmt.Errorf("cannot read the lines: %w", err)
	}
	if h, agents, err = roster.Lines(text); err != nil {
		return h, nil, fmt.Errorf("cannot use the lines: %w", err)
	}
	return h, agents, nil
}

// addition is a roster with the lines of a host.
type addition struct {
	hosts  []roster.Host
	agents []roster.Agent

	host *roster.Host
	with []roster.Agent
	// was is the host before, nil if it is new.
	was *roster.Host
	// moved are agents that other hosts had, and gone those that the host has no more.
	moved, gone []roster.Agent
}

// added adds the lines of a host to a roster. Only a host or an agent that replace names is replaced:
// a host by its name, and an agent of another host as agent:ID.
func added(r *roster.Roster, h *roster.Host, with []roster.Agent, replace []string) (*addition, error) {
	a := &addition{hosts: slices.Clone(r.Hosts), host: h, with: with, was: r.Host(h.Name)}
	named := func(name string) bool { return slices.Contains(replace, name) }
	allowed := map[string]bool{}
	if a.was == nil {
		a.hosts = append(a.hosts, *h)
	} else {
		if !named(h.Name) {
			return nil, fmt.Errorf("the roster has a host of that name; to give it these keys and agents, add --replace %s", h.Name)
		}
		allowed[h.Name] = true
		if a.sameKeys() {
			h.Epoch = a.was.Epoch
		} else {
			// New keys take a new epoch, which begins new lanes.
			h.Epoch = max(h.Epoch, a.was.Epoch+1)
		}
		a.hosts[slices.IndexFunc(a.hosts, func(was roster.Host) bool { return was.Name == h.Name })] = *h
	}
	mine := map[string]bool{}
	for i := range with {
		mine[with[i].ID] = true
	}
	for _, was := range r.Agents {
		switch {
		case was.Host == h.Name && !mine[was.ID]:
			a.gone = append(a.gone, was)
		case was.Host == h.Name:
		case !mine[was.ID]:
			a.agents = append(a.agents, was)
		case !named("agent:" + was.ID):
			return nil, fmt.Errorf("agent %s is on host %s; to move it to %s, add --replace agent:%s", was.ID, was.Host, h.Name, was.ID)
		default:
			allowed["agent:"+was.ID] = true
			a.moved = append(a.moved, was)
		}
	}
	a.agents = append(a.agents, with...)
	for _, name := range replace {
		if !allowed[name] {
			return nil, fmt.Errorf("--replace %s: the lines replace nothing of that name", name)
		}
	}
	return a, nil
}

func (a *addition) sameKeys() bool {
	return bytes.Equal(a.was.Sign, a.host.Sign) && bytes.Equal(a.was.Seal, a.host.Seal)
}

// show prints the addition for the person who signs it.
func (a *addition) show(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "host %s, epoch %d, with the keys\n%s", a.host.Name, a.host.Epoch, a.host.Fingerprints())
	switch {
	case a.was == nil:
	case a.was.Fingerprints() == a.host.Fingerprints():
		fmt.Fprintln(&b, "the roster has the same keys")
	default:
		fmt.Fprintf(&b, "they replace the keys of epoch %d\n%s", a.was.Epoch, a.was.Fingerprints())
	}
	list := func(what string, agents []roster.Agent, from bool) {
		if len(agents) == 0 {
			return
		}
		var names []string
		for i := range agents {
			name := term.Printable(agents[i].ID)
			if from {
				name += " from " + agents[i].Host
			}
			names = append(names, name)
		}
		fmt.Fprintf(&b, "%s: %s\n", what, strings.Join(names, ", "))
	}
	list("agents", a.with, false)
	list("moved", a.moved, true)
	list("no longer in the roster", a.gone, false)
	_, err := io.WriteString(w, b.String())
	return err
}
