package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/peer"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/daemon/runtimewatch"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// gatewayLook is the interval of checks. gatewayGrace is how long a process may be without
// its plugin, which OpenClaw's Gateway takes some ten seconds to load.
const (
	gatewayLook  = 5 * time.Second
	gatewayGrace = 30 * time.Second
)

// watchGateways starts to watch for runtimes that run without their gate.
func (d *Daemon) watchGateways(ctx context.Context) error {
	d.gateways = runtimewatch.New(runtimewatch.Options{
		Every: gatewayLook, Grace: gatewayGrace, Processes: peer.Processes, UID: os.Getuid(), Now: time.Now,
		Bound: func(app string) bool {
			return slices.ContainsFunc(d.config().Agents, func(a config.Agent) bool { return a.App == app })
		},
		Attached: func() map[runtimewatch.Client]bool {
			attached := make(map[runtimewatch.Client]bool)
			for _, a := range d.kernel.Apps() {
				attached[runtimewatch.Client{App: a.ID, PID: int(a.PID)}] = true
			}
			return attached
		},
		Held: func() map[string][]string {
			if d.options.Gates == nil {
				return nil
			}
			return d.options.Gates()
		},
		Alarm: func(u runtimewatch.Ungated) error {
			if err := recordGateway(d.store, d.ids.next(), "gateway_ungated", u); err != nil {
				return err
			}
			if u.Files {
				d.log.Error("agents call tools that nobody may decide about: the gate of a runtime does not hold as it was entered", zap.String("runtime", u.Title), zap.Int("pid", u.PID), zap.String("why", u.Why))
				d.notices.Alarm(gatewayNotice(u), "the gate of "+u.Title+" is loose",
					fmt.Sprintf("It runs (process %d), and what was entered into its files does not stand there any more: %s\nocipd integrate %s", u.PID, u.Why, u.App))
				return nil
			}
			d.log.Error("agents send what nobody decides about: a Gateway runs without the plugin", zap.String("runtime", u.Title), zap.Int("pid", u.PID))
			d.notices.Alarm(gatewayNotice(u), u.Title+" runs without ocipd",
				fmt.Sprintf("Nobody decides about what its agents send (process %d).\nocipd doctor", u.PID))
			return nil
		},
		Over: func(u runtimewatch.Ungated, how runtimewatch.End) error {
			d.notices.Decided(gatewayNotice(u))
			return recordGateway(d.store, d.ids.next(), "gateway_"+string(how), u)
		},
	})
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { d.gateways.Run(watching) })
	d.ends.add("the watch of gateways", func() error {
		stop()
		done.Wait()
		return nil
	})
	return nil
}

func gatewayNotice(u runtimewatch.Ungated) string { return "gateway-" + strconv.Itoa(u.PID) }

// recordGateway records an observation about a Gateway.
func recordGateway(s *store.Store, id, event string, u runtimewatch.Ungated) error {
	details := map[string]any{"pid": u.PID, "since": u.Since.UTC().Format(time.RFC3339)}
	if u.Why != "" {
		details["why"] = u.Why
	}
	_, err := s.Commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: id, ActionType: audit.ActionSecurity, Event: event, AppID: u.App, Details: details,
	}}})
	return err
}
