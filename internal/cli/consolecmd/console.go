// Package consolecmd has the commands of the console, the page in a browser.
package consolecmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/bridge/console"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/cli/doctor"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/supervisor"
	"github.com/spf13/cobra"
)

type command struct {
	*cli.Process
	// print has the link printed in place of a browser.
	print bool
}

// New returns the commands of the console.
func New(p *cli.Process) *cobra.Command {
	s := &command{Process: p}
	c := cli.Group(&cobra.Command{
		Use: "console",
		Example: "  ocipd console\n" +
			"  ocipd console --print\n" +
			"  ocipd console enrol",
		Short: "look at the daemon and decide in a browser",
		Long: `Open a page in your browser that shows what waits, what happens and what is wrong,
and on which you decide about requests. The page is served by this command, which
goes on until you interrupt it. If a console runs already, its page is opened.
"ocipd service install --console" has your service manager start it when it is
needed. Started with sockets of a service manager, it only serves the page.

The link works once, for 60 seconds; the page then lasts 12 hours, or as long as the
console runs. The page answers only your own processes, and among them no app and no
process that an app has started. A decision needs a passkey if decisions are signed:
"ocipd console enrol".`,
	})
	another := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return another(cmd, args)
		}
		if passed := supervisor.Files(); len(passed) > 0 {
			return s.servePassed(cmd.Context(), passed)
		}
		return s.open(cmd.Context())
	}
	c.Flags().BoolVar(&s.print, "print", false, "print the link, and open no browser")
	c.AddCommand(newEnrol(s))
	return c
}

// places are the places of a console.
type places struct {
	cfg *config.Config
	// control is its socket for commands, address the file of its address, and passkeys that of the
	// enrolled passkeys.
	control, address, passkeys string
}

func (s *command) places() (p places, err error) {
	if p.cfg, err = s.Places(cli.SocketKey, "store.url"); err != nil {
		return p, err
	}
	socket, err := s.KernelSocket()
	if err != nil {
		return p, err
	}
	database := config.DatabasePath(p.cfg, s.Getenv)
	if database == "" {
		return p, errors.New("cannot tell where the console keeps its address: set HOME or XDG_STATE_HOME")
	}
	p.control = config.ConsolePath(socket)
	p.address = filepath.Join(filepath.Dir(database), "console.json")
	p.passkeys = filepath.Join(filepath.Dir(database), "console-passkeys.json")
	return p, nil
}

// open opens the page, by a console that runs or by one of its own.
func (s *command) open(ctx context.Context) error {
	p, err := s.places()
	if err != nil {
		return err
	}
	return s.with(ctx, p, func(ctx context.Context, own bool) error {
		told, err := console.Link(ctx, p.control)
		if err != nil {
			return fmt.Errorf("cannot open the console: %w", err)
		}
		s.show(&told)
		if own {
			s.Say("The console goes on until you interrupt it (^C).")
			<-ctx.Done()
		}
		return nil
	})
}

// with does something while a console runs: the one that runs already, or one of this process.
func (s *command) with(ctx context.Context, p places, do func(ctx context.Context, own bool) error) error {
	switch _, err := console.Ask(ctx, p.control); {
	case err == nil:
		return do(ctx, false)
	case !errors.Is(err, console.ErrNone):
		return fmt.Errorf("cannot ask the console that runs: %w", err)
	}
	// The directory of the sockets is the daemon's, which has to run in any case.
	c, err := s.DialOperator(ctx)
	if err != nil {
		return err
	}
	_ = c.Close() // it was only tried
	place, err := console.OpenPlace(ctx, p.address)
	if err != nil {
		return err
	}
	pages, err := place.Listen(ctx)
	if err != nil {
		return err
	}
	control, err := console.ListenControl(ctx, p.control)
	if err != nil {
		for _, l := range pages {
			_ = l.Close() // the error says more
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var served error
	var work sync.WaitGroup
	work.Go(func() {
		defer cancel()
		served = s.serve(ctx, p, place, pages, control)
	})
	err = do(ctx, true)
	cancel()
	work.Wait()
	return errors.Join(err, served)
}

// servePassed serves the page at the sockets of a service manager.
func (s *command) servePassed(ctx context.Context, files []*os.File) error {
	// The commands that the checks run get no word of the sockets.
	s.Env = slices.DeleteFunc(slices.Clone(s.Env), func(v string) bool { return strings.HasPrefix(v, "LISTEN_") })
	p, err := s.places()
	if err != nil {
		return err
	}
	place, err := console.OpenPlace(ctx, p.address)
	if err != nil {
		return err
	}
	pages, control, err := place.TakePassed(files, p.control)
	if err != nil {
		return fmt.Errorf("cannot serve the console: %w", err)
	}
	return s.serve(ctx, p, place, pages, control)
}

// Addresses are the addresses on which the service manager listens for the page. If there is no address yet, one is
// made, or with dry none is returned.
func Addresses(ctx context.Context, process *cli.Process, dry bool) ([]string, error) {
	p, err := (&command{Process: process}).places()
	if err != nil || dry && !cli.Exists(p.address) {
		return nil, err
	}
	place, err := console.OpenPlace(ctx, p.address)
	if err != nil {
		return nil, err
	}
	return place.Addresses(), nil
}

// serve serves the page.
func (s *command) serve(ctx context.Context, p places, place console.Place, pages []console.Listener, control console.Listener) error {
	var examining sync.Mutex
	return console.New(console.Options{
		Place: place, Runtime: filepath.Dir(p.control), Passkeys: p.passkeys,
		Dial: func(ctx context.Context) (*client.Client, error) {
			path, err := s.OperatorSocket()
			if err != nil {
				return nil, err
			}
			return client.Dial(ctx, path, client.WithDropEvents())
		},
		Health: func(ctx context.Context) (any, error) {
			examining.Lock()
			defer examining.Unlock()
			return doctor.Findings(ctx, s.Process)
		},
		Clicks: func() bool {
			cfg, err := s.Places()
			return err == nil && cfg.Console.Decide == config.DecideSession
		},
		Signers: func() string {
			cfg, err := s.Places()
			if err != nil {
				return ""
			}
			return cfg.Approvals.AllowedSigners
		},
		Log: slog.New(slog.NewTextHandler(s.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})), Now: time.Now,
	}).Serve(ctx, pages, control)
}

// show leads the person to a link.
func (s *command) show(told *console.Told) {
	if !s.print {
		err := s.browse(told.File)
		if err == nil {
			s.Say("The console is at %s; your browser opens it.", told.Origin)
			return
		}
		s.Say("No browser was opened: %s.", term.OneLine(err.Error()))
	}
	s.Say("Open this link within 60 seconds; it works once: %s", told.Link)
}
