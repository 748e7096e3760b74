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
	"testing"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/fleet/fleetapi"
	"github.com/openclawos/ocipd/test/brokertest"
)

// Two hosts that are never there at the same time exchange 500 messages: the broker stores those of a
// window at a time, and the receipts on their way back.
func TestFleetNeverBothThere(t *testing.T) {
	t.Parallel()
	f := openBranch(t)
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

// seedsVariable is the environment variable with the number of longer runs of TestFleetChaos.
const seedsVariable = "TEST_FLEET_SEEDS"

// TestFleetChaos kills daemons, lines and the broker while both agents send, silences the broker, and removes
// its store or puts it back from a copy. In the end each acknowledged message has one decision, one receipt and one arrival, in order.
// TEST_FLEET_SEEDS is the number of runs, each with other events.
func TestFleetChaos(t *testing.T) {
	seeds, steps := 1, 8
	if n, err := strconv.Atoi(os.Getenv(seedsVariable)); err == nil {
		seeds, steps = n, 24
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { chaos(t, uint64(seed), steps) })
	}
}

func chaos(t *testing.T, seed uint64, steps int) {
	f := openBranch(t)
	hosts := []*branchHost{f.a, f.b}
	for _, h := range hosts {
		h.up()
		h.attach()
	}
	random := rand.New(rand.NewPCG(seed, 33))
	for range steps {
		var sending sync.WaitGroup
		for i, h := range hosts {
			count := 1 + random.IntN(40)
			sending.Go(func() {
				for n := range count {
					if h.send(hosts[1-i], fmt.Sprint("message ", n)) == "" {
						return
					}
				}
			})
		}
		h := hosts[random.IntN(2)]
		var again func()
		switch random.IntN(7) {
		case 0:
			kill(h.daemon)
			again = func() { h.down(); h.up() }
		case 1:
			kill(h.line)
			again = h.attach
		case 2:
			f.broker.Kill()
			again = f.broker.Again
		case 3:
			f.broker.Kill()
			if err := os.RemoveAll(f.path("broker", "store")); err != nil {
				t.Fatal(err)
			}
			again = f.broker.Again
		case 4:
			f.broker.Kill()
			f.putBack()
			again = f.broker.Again
		case 5:
			f.broker.Silence()
			again = f.broker.Speak
		default:
			kill(h.line)
			f.broker.Kill()
			again = func() { f.broker.Again(); h.attach() }
		}
		sending.Wait()
		again()
	}
	for i, h := range hosts {
		h.emptied()
		hosts[1-i].await("messages do not arrive", func() bool { return len(missing(h.sent, hosts[1-i].got)) == 0 })
	}
	f.judge()
	f.judged()
	t.Logf("seed %d: %d and %d messages", seed, len(f.a.sent), len(f.b.sent))
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

// judged shows that the judge finds a message that was lost, one taken out of order, and one without a record.
func (f *branch) judged() {
	f.t.Helper()
	sent, got := f.a.sent, f.b.got
	if len(sent) < 2 {
		return
	}
	f.a.sent = append(slices.Clone(sent), "lost:a")
	if len(f.compare(f.a, f.b)) == 0 {
		f.t.Error("the judge does not find a message that was lost")
	}
	f.a.sent = slices.Clone(sent)
	f.a.sent[0], f.a.sent[1] = sent[1], sent[0]
	if len(f.compare(f.a, f.b)) == 0 {
		f.t.Error("the judge does not find messages out of order")
	}
	f.a.sent = sent
	f.b.got = append(slices.Clone(got), "forged:a")
	if len(f.compare(f.a, f.b)) == 0 {
		f.t.Error("the judge does not find a message that is not on record")
	}
	f.b.got = got
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

// emptied waits until no message of this host lacks a receipt.
func (h *branchHost) emptied() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*patience)
	defer cancel()
	operator, err := client.Dial(ctx, config.OperatorPath(h.socket))
	if err != nil {
		h.t.Fatal(err)
	}
	defer operator.Close()
	for {
		var status fleetapi.FleetStatus
		if err := operator.Call(ctx, "fleet.status", map[string]any{}, &status); err != nil {
			h.t.Fatal(err)
		}
		waiting := 0
		for i := range status.Hosts {
			waiting += status.Hosts[i].Waiting
		}
		if waiting == 0 {
			return
		}
	}
}
