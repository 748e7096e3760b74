package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/test/brokertest"
)

// Two hosts that are never there at the same time exchange 500 messages: the broker stores those of a
// window at a time, and the receipts on their way back.
func TestFleetNeverBothThere(t *testing.T) {
	t.Parallel()
	f := openBranch(t, 2)
	a, b := f.a, f.b
	a.up()
	b.up()
	const all, window = 500, 64
	for n := range all {
		a.send(b, fmt.Sprint("message ", n))
	}
	stored := brokertest.Observe(t, f.address, "m.>")
	for done := 0; done < all; {
		batch := min(window, all-done)
		a.attach()
		f.see(stored, "messages", batch, false)
		kill(a.line)
		b.attach()
		f.see(stored, "receipts", batch, true)
		kill(b.line)
		done += batch
		b.await("messages do not arrive", func() bool { return len(b.got) >= done })
	}
	a.attach()
	a.settled(b)
	f.judge()
}

// see waits until a number of messages or receipts, each once, was put into the stream.
func (f *branch) see(stored <-chan string, what string, count int, receipts bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	defer cancel()
	for seen := map[string]bool{}; len(seen) < count; {
		select {
		case subject := <-stored:
			slot := subject[strings.LastIndexByte(subject, '.')+1:]
			if slot != "b" && strings.HasPrefix(slot, "r") == receipts { // b is that of beats
				seen[subject] = true
			}
		case <-ctx.Done():
			f.t.Fatalf("%d of %d %s are stored", len(seen), count, what)
		}
	}
}

// The environment variables of longer runs of TestFleetChaos: how many, of how many hosts, how long each is,
// and how soon after it every message has its receipt.
const (
	seedsVariable = "TEST_FLEET_SEEDS"
	hostsVariable = "TEST_FLEET_HOSTS"
	timeVariable  = "TEST_FLEET_TIME"
	quietVariable = "TEST_FLEET_QUIET"
)

// chaos is one run of TestFleetChaos.
type chaos struct {
	seed  uint64
	hosts int
	// steps is how many steps there are, if length is zero. Length is how long they are repeated.
	steps  int
	length time.Duration
	// quiet is how long the last receipts may take after the last step.
	quiet time.Duration
}

// TestFleetChaos kills daemons, lines and the broker while all agents send, silences them, and removes the
// broker's store or puts it back from a copy. In the end each acknowledged message has one decision, one receipt
// and one arrival, in order. The long form, 20 runs of eight hosts and a minute, each with other events, is
//
//	make fleet-chaos
func TestFleetChaos(t *testing.T) {
	seeds, c := 3, chaos{hosts: 3, steps: 6, quiet: 2 * patience}
	number := func(name string, value *int) {
		var err error
		if text := os.Getenv(name); text != "" {
			*value, err = strconv.Atoi(text)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	number(seedsVariable, &seeds)
	number(hostsVariable, &c.hosts)
	if c.hosts < 2 || c.hosts > len(branchAgents) {
		t.Fatalf("%s: want 2 to %d, got %d", hostsVariable, len(branchAgents), c.hosts)
	}
	duration := func(name string, value *time.Duration) {
		var err error
		if text := os.Getenv(name); text != "" {
			*value, err = time.ParseDuration(text)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	duration(timeVariable, &c.length)
	duration(quietVariable, &c.quiet)
	for seed := range seeds {
		c.seed = uint64(seed)
		t.Run(fmt.Sprint(seed), c.run)
	}
}

func (c chaos) run(t *testing.T) {
	f := openBranch(t, c.hosts)
	for _, h := range f.hosts {
		h.up()
		h.attach()
	}
	random := rand.New(rand.NewPCG(c.seed, 33))
	over, cancel := context.WithTimeout(t.Context(), c.length)
	defer cancel()
	events := 0
	for step := 0; c.length == 0 && step < c.steps || over.Err() == nil; step++ {
		events += f.step(random)
	}
	begin := time.Now()
	within, cancel := context.WithTimeout(t.Context(), c.quiet)
	defer cancel()
	for _, h := range f.hosts {
		h.emptied(within)
	}
	took, sent := time.Since(begin), 0
	for _, h := range f.hosts {
		for to, ids := range h.sent {
			sent += len(ids)
			to.await("messages do not arrive", func() bool { return len(missing(ids, to.got)) == 0 })
		}
	}
	f.judge()
	f.judged()
	t.Logf("seed %d, %d hosts: %d messages, %d events, the last receipt after %s", c.seed, c.hosts, sent, events, took.Round(time.Millisecond))
}

// step has every agent send to others while some hosts or the broker fail, and ends once these are back. It
// returns how many have failed.
func (f *branch) step(random *rand.Rand) (events int) {
	var sending sync.WaitGroup
	for _, h := range f.hosts {
		to := make([]*branchHost, 1+random.IntN(40))
		for n := range to {
			for to[n] == nil || to[n] == h {
				to[n] = f.hosts[random.IntN(len(f.hosts))]
			}
		}
		sending.Go(func() {
			for n := range to {
				if h.send(to[n], fmt.Sprint("message ", n)) == "" {
					return
				}
			}
		})
	}
	failing := random.Perm(len(f.hosts) + 1)[:1+random.IntN(len(f.hosts)/2)]
	var again []func()
	renewed := random.IntN(3) == 0
	if renewed { // and the host may be killed in the next moment
		f.rejoin(f.hosts[failing[0]%len(f.hosts)])
	}
	for _, n := range failing {
		if n < len(f.hosts) {
			again = append(again, f.hosts[n].fail(random.IntN(4)))
		} else {
			// Lines begin only when the broker is back.
			again = slices.Insert(again, 0, f.fail(random.IntN(4)))
		}
	}
	sending.Wait()
	if renewed {
		again = append(again, f.reload)
		events++
	}
	for _, back := range again {
		back()
	}
	return events + len(failing)
}

// rejoin gives a host new keys, and all daemons, which run, the roster with them.
func (f *branch) rejoin(h *branchHost) {
	f.t.Helper()
	lines := h.name + ".jsonl"
	f.write(lines, f.run(h.name, "--config", f.path(h.name+".yaml"), "fleet", "rejoin", "host-"+h.name))
	f.run("", "fleet", "add", f.path("fleet.jsonl"), f.path(lines), "--key", f.path("olga"), "--yes", "--replace", "host-"+h.name)
}

// reload waits until all daemons have the roster.
func (f *branch) reload() {
	f.t.Helper()
	for _, h := range f.hosts {
		operator := h.operator(f.t.Context())
		if err := operator.Call(f.t.Context(), "policy.reload", map[string]any{}, nil); err != nil {
			f.t.Errorf("%s does not take the roster: %v", h.name, err)
		}
		operator.Close()
	}
}

// fail kills or silences a host's daemon or line in one of four ways, until the returned function is called.
func (h *branchHost) fail(how int) (back func()) {
	switch how {
	case 0:
		kill(h.daemon)
		return func() { h.down(); h.up() }
	case 1:
		kill(h.line)
		return h.attach
	case 2:
		_ = h.line.Process.Signal(syscall.SIGSTOP)
		return func() { _ = h.line.Process.Signal(syscall.SIGCONT) }
	}
	kill(h.line)
	kill(h.daemon)
	return func() { h.down(); h.up(); h.attach() }
}

// fail kills or silences the broker in one of four ways, until the returned function is called.
func (f *branch) fail(how int) (back func()) {
	f.t.Helper()
	if how == 0 {
		f.broker.Silence()
		return f.broker.Speak
	}
	f.broker.Kill()
	switch how {
	case 1:
		if err := os.RemoveAll(f.path("broker", "store")); err != nil {
			f.t.Fatal(err)
		}
	case 2:
		f.putBack()
	}
	return f.broker.Again
}

// putBack puts the store of the broker back from a copy, the first time it makes the copy.
func (f *branch) putBack() {
	f.t.Helper()
	store, saved := f.path("broker", "store"), f.path("broker", "saved")
	if _, err := os.Stat(saved); err != nil {
		store, saved = saved, store
	}
	if err := errors.Join(os.RemoveAll(store), os.MkdirAll(saved, 0o700), os.CopyFS(store, os.DirFS(saved))); err != nil {
		f.t.Fatal(err)
	}
}

// missing are the members of all that are not in some.
func missing(all, some []string) (list []string) {
	there := map[string]bool{}
	for _, one := range some {
		there[one] = true
	}
	for _, one := range all {
		if !there[one] {
			list = append(list, one)
		}
	}
	return list
}

// operator connects to the operator socket.
func (h *branchHost) operator(ctx context.Context) *client.Client {
	h.t.Helper()
	operator, err := client.Dial(ctx, config.OperatorPath(h.socket))
	if err != nil {
		h.t.Fatal(err)
	}
	return operator
}

// emptied waits until no message of this host lacks a receipt. Its app is told of each.
func (h *branchHost) emptied(ctx context.Context) {
	h.t.Helper()
	operator := h.operator(ctx)
	defer operator.Close()
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		var status fleetapi.FleetStatus
		if err := operator.Call(ctx, "fleet.status", map[string]any{}, &status); err != nil {
			h.t.Fatal(err)
		}
		waiting := map[string]int{}
		for i := range status.Hosts {
			if n := status.Hosts[i].Waiting; n > 0 {
				waiting[status.Hosts[i].Host] = n
			}
		}
		if len(waiting) == 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			h.t.Fatalf("%s: messages have no receipt: %v", h.name, waiting)
		}
	}
}
