package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

func figures() []figure {
	return slices.Concat(decisions(), []figure{
		{"heartbeat p50, 1 connection", "JSON echo", "≤ 1.5×", heartbeatLatency},
		{"heartbeats/s, 64 connections", "JSON echo", "≥ 80 %", heartbeatRate},
		{"dispatch p50, 1 connection", "append+fsync", "≤ 1.8×", dispatchLatency},
		{"dispatch p50, over bare parts", "commit+echo", "≤ 1.4×", dispatchOverParts},
		{"dispatch, system calls, 1 connection", "—", "≤ 22", dispatchCalls},
		{"dispatch/s, 64 connections × 4", "—", "≥ 20000/s", dispatchRate},
		{"dispatch p99, half the rate, over p50", "p50", "≤ 5×", pacedLatency},
		{"dispatch p50, beside another build", "-beside", "≤ 1.05×", latencyBeside},
		{"dispatch/s, beside another build", "-beside", "≥ 0.95×", rateBeside},
		{"start to ready", "—", "≤ 60 ms", startTime},
		{"resident memory, idle", "—", "≤ 40 MB", idleMemory},
		{"resident memory, 1000 apps", "—", "≤ 100 MB", manyAppsMemory},
		{"resident memory, steady load", "—", "≤ 110 MB", loadMemory},
		{"resident memory, a minute after", "idle", "≤ 1.3×", burstMemory},
		{"dispatch p50, large store", "empty store", "≤ 1.2×", largeStore},
	}, taskFigures(), proxyFigures(), hookFigures(), fleetFigures(), evidence())
}

const (
	turns        = 8
	turnSamples  = 400
	rateFor      = 2 * time.Second
	clients      = 64
	talks        = 4 // conversations an app has going in the rate of dispatches
	manyApps     = 1000
	startSamples = 15
	besideTurns  = 7
)

func p50(samples []time.Duration) time.Duration {
	slices.Sort(samples)
	return samples[len(samples)/2]
}

func times(ours, floor time.Duration, goal float64) result {
	ratio := float64(ours) / float64(floor)
	return result{ours.Round(100 * time.Nanosecond).String(), floor.Round(100 * time.Nanosecond).String(), fmt.Sprintf("%.2f×", ratio), ratio <= goal}
}

// rate counts how often steps succeed side by side within a time.
func rate(steps []func() error) (float64, error) {
	var wg sync.WaitGroup
	counts, failures := make([]int, len(steps)), make([]error, len(steps))
	began := time.Now()
	for i, step := range steps {
		wg.Go(func() {
			for time.Since(began) < rateFor {
				if failures[i] = step(); failures[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	total := 0
	for i := range counts {
		if failures[i] != nil {
			return 0, failures[i]
		}
		total += counts[i]
	}
	return float64(total) / time.Since(began).Seconds(), nil
}

func heartbeatLatency(b *bench) (result, error) {
	d, err := b.start("heartbeat", 1)
	if err != nil {
		return result{}, err
	}
	e, err := b.echo()
	if err != nil {
		return result{}, err
	}
	ours, err := d.app(0)
	if err != nil {
		return result{}, err
	}
	floor, err := dial(e.socket)
	if err != nil {
		return result{}, err
	}
	floor.token = ours.token
	return compare(5*turns*turnSamples, ours.heartbeat, floor.heartbeat, 1.5)
}

func heartbeatRate(b *bench) (result, error) {
	d, err := b.start("heartbeats", clients)
	if err != nil {
		return result{}, err
	}
	e, err := b.echo()
	if err != nil {
		return result{}, err
	}
	var ours, floor []func() error
	for i := range clients {
		o, err := d.app(i)
		if err != nil {
			return result{}, err
		}
		f, err := dial(e.socket)
		if err != nil {
			return result{}, err
		}
		f.token = o.token
		ours, floor = append(ours, o.heartbeat), append(floor, f.heartbeat)
	}
	rates, err := middleRates(ours, floor)
	if err != nil {
		return result{}, err
	}
	o, f := rates[0], rates[1]
	return result{fmt.Sprintf("%.0f/s", o), fmt.Sprintf("%.0f/s", f), fmt.Sprintf("%.0f %%", 100*o/f), o >= 0.8*f}, nil
}

// middleRates counts how often each of some sets of steps succeeds, in turns, and returns
// the middle of its rates.
func middleRates(sides ...[]func() error) (middles []float64, err error) {
	rates := make([][]float64, len(sides))
	for turn := range 4 {
		for side, steps := range sides {
			r, err := rate(steps)
			if err != nil {
				return nil, err
			}
			// The first turn warms up.
			if turn > 0 {
				rates[side] = append(rates[side], r)
			}
		}
	}
	for _, r := range rates {
		middles = append(middles, middle(r))
	}
	return middles, nil
}

// talksRate is how many requests are answered in a second by steps of one for each talk.
func talksRate(steps []func() error, goal float64) (result, error) {
	rates, err := middleRates(steps)
	if err != nil {
		return result{}, err
	}
	r := talks * rates[0]
	return result{fmt.Sprintf("%.0f/s", r), "—", "—", r >= goal}, nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func dispatchLatency(b *bench) (result, error) {
	d, ours, err := b.sending("dispatch")
	if err != nil {
		return result{}, err
	}
	durable, err := d.durableBytes(ours)
	if err != nil {
		return result{}, err
	}
	return b.overAppend(ours.dispatch, durable)
}

// overAppend compares a step with an append and fsync of the bytes that it makes durable.
func (b *bench) overAppend(step func() error, durable []byte) (result, error) {
	f, err := os.OpenFile(filepath.Join(b.dir, "floor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	return compare(turns*turnSamples, step, func() error {
		if _, err := f.Write(durable); err != nil {
			return err
		}
		return f.Sync()
	}, 1.8)
}

// compare compares a step with its floor.
func compare(n int, ours, floor func() error, goal float64) (result, error) {
	t, err := medians(n, ours, floor)
	if err != nil {
		return result{}, err
	}
	return times(t[0], t[1], goal), nil
}

// medians measures steps one after the other again and again, so that all
// find the processor and the disk in the same state: a disk that is never left
// alone for a moment answers faster than any that serves requests.
func medians(n int, steps ...func() error) (middles []time.Duration, err error) {
	samples := make([][]time.Duration, len(steps))
	for i := range n + turnSamples {
		for side, step := range steps {
			began := time.Now()
			if err := step(); err != nil {
				return nil, err
			}
			// The first turn warms all up.
			if i >= turnSamples {
				samples[side] = append(samples[side], time.Since(began))
			}
		}
	}
	for _, s := range samples {
		middles = append(middles, p50(s))
	}
	return middles, nil
}

// dispatchOverParts compares a dispatch with its least parts: a commit of the same record
// and message, and a round trip of the same request.
func dispatchOverParts(b *bench) (result, error) {
	d, ours, err := b.sending("parts")
	if err != nil {
		return result{}, err
	}
	durable, err := d.durableBytes(ours)
	if err != nil {
		return result{}, err
	}
	parts, end, err := b.bareParts(durable, ours.token, ours.peer)
	if err != nil {
		return result{}, err
	}
	defer end()
	return compare(turns*turnSamples, ours.dispatch, parts, 1.4)
}

// bareParts returns the least parts of a decision as a step: a commit of the bytes that it
// makes durable, and a round trip of a dispatch.
func (b *bench) bareParts(durable []byte, token, peer string) (parts func() error, end func(), err error) {
	e, err := b.echo()
	if err != nil {
		return nil, nil, err
	}
	floor, err := dial(e.socket)
	if err != nil {
		return nil, nil, err
	}
	floor.token, floor.peer = token, peer
	commit, end, err := b.bareCommit(durable)
	if err != nil {
		return nil, nil, err
	}
	return func() error {
		if err := commit(); err != nil {
			return err
		}
		return floor.dispatch()
	}, end, nil
}

// sending starts a daemon with one sender.
func (b *bench) sending(name string) (*daemon, *conn, error) {
	d, err := b.start(name, 1)
	if err != nil {
		return nil, nil, err
	}
	s, err := d.sender(0)
	return d, s, err
}

// crowded starts a daemon with many senders, and returns what each does.
func (b *bench) crowded(name string) (*daemon, []func() error, error) {
	d, err := b.start(name, clients)
	if err != nil {
		return nil, nil, err
	}
	var steps []func() error
	for i := range clients {
		s, err := d.sender(i)
		if err != nil {
			return nil, nil, err
		}
		steps = append(steps, s.dispatchTalks)
	}
	return d, steps, nil
}

// dispatchCalls counts the system calls of a dispatch, with perf(1).
func dispatchCalls(b *bench) (result, error) {
	d, s, err := b.sending("calls")
	if err != nil {
		return result{}, err
	}
	// The sender is the same in each count: what the daemon does besides falls out.
	few, err := d.calls(func() error { return repeat(turnSamples, s.dispatch) })
	if errors.Is(err, errNoPerf) {
		return result{"not counted", "—", "—", true}, nil
	}
	if err != nil {
		return result{}, err
	}
	many, err := d.calls(func() error { return repeat(4*turnSamples, s.dispatch) })
	each := float64(many-few) / (3 * turnSamples)
	return result{fmt.Sprintf("%.1f", each), "—", "—", each <= 22}, err
}

func repeat(n int, step func() error) error {
	for range n {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// other is this bench with the other build.
func (b *bench) other() *bench {
	o := *b
	o.binary, o.dir = b.beside, filepath.Join(b.dir, "beside")
	return &o
}

var notAskedFor = result{"not asked for", "—", "—", true}

// latencyBeside compares a dispatch with that of another build, one after the other.
func latencyBeside(b *bench) (result, error) {
	if b.beside == "" {
		return notAskedFor, nil
	}
	_, ours, err := b.sending("beside")
	if err != nil {
		return result{}, err
	}
	_, floor, err := b.other().sending("beside")
	if err != nil {
		return result{}, err
	}
	return compare(turns*turnSamples, ours.dispatch, floor.dispatch, 1.05)
}

// rateBeside compares the rate with that of another build, in turns. A disk that others
// use is at times half as fast as before, so it is the middle of the turns' ratios that counts.
func rateBeside(b *bench) (result, error) {
	if b.beside == "" {
		return notAskedFor, nil
	}
	var rates [2][]float64
	var ratios []float64
	sides := []*bench{b, b.other()}
	for turn := range besideTurns {
		for side, which := range sides {
			d, steps, err := which.crowded(fmt.Sprintf("crowd-%d", turn))
			if err != nil {
				return result{}, err
			}
			if _, err := rate(steps); err != nil { // warms up
				return result{}, err
			}
			r, err := rate(steps)
			if err != nil {
				return result{}, err
			}
			d.stop()
			rates[side] = append(rates[side], talks*r)
		}
		ratios = append(ratios, rates[0][turn]/rates[1][turn])
	}
	ratio := middle(ratios)
	return result{fmt.Sprintf("%.0f/s", middle(rates[0])), fmt.Sprintf("%.0f/s", middle(rates[1])), fmt.Sprintf("%.2f×", ratio), ratio >= 0.95}, nil
}

// loadMemory is the most that is resident while many send.
func loadMemory(b *bench) (result, error) {
	d, steps, err := b.crowded("load")
	if err != nil {
		return result{}, err
	}
	most := 0
	for range 3 {
		if _, err := rate(steps); err != nil {
			return result{}, err
		}
		kb, err := d.resident()
		if err != nil {
			return result{}, err
		}
		most = max(most, kb)
	}
	return megabytes(most, 110), nil
}

// burstMemory measures the resident memory a minute after many apps have sent.
func burstMemory(b *bench) (result, error) {
	d, steps, err := b.crowded("burst")
	if err != nil {
		return result{}, err
	}
	idle, err := d.resting()
	if err != nil {
		return result{}, err
	}
	if _, err := rate(steps); err != nil {
		return result{}, err
	}
	select {
	case <-time.After(time.Minute):
	case <-b.ctx.Done():
		return result{}, b.ctx.Err()
	}
	after, err := d.resident()
	return result{
		fmt.Sprintf("%.1f MB", float64(after)/1000), fmt.Sprintf("%.1f MB", float64(idle)/1000), fmt.Sprintf("%.2f×", float64(after)/float64(idle)),
		float64(after) <= 1.3*float64(idle),
	}, err
}

func dispatchRate(b *bench) (result, error) {
	_, ours, err := b.crowded("dispatches")
	if err != nil {
		return result{}, err
	}
	return talksRate(ours, 20000)
}

func startTime(b *bench) (result, error) {
	var ready []time.Duration
	for range startSamples {
		d, err := b.start("start", 1)
		if err != nil {
			return result{}, err
		}
		ready = append(ready, d.ready)
		d.stop()
	}
	t := p50(ready)
	return result{t.Round(100 * time.Microsecond).String(), "—", "—", t <= 60*time.Millisecond}, nil
}

func idleMemory(b *bench) (result, error) {
	d, err := b.start("idle", 1)
	if err != nil {
		return result{}, err
	}
	return memory(d, 40)
}

func manyAppsMemory(b *bench) (result, error) {
	d, err := b.start("clients", manyApps)
	if err != nil {
		return result{}, err
	}
	for i := range manyApps {
		a, err := d.app(i)
		if err != nil {
			return result{}, err
		}
		if err := a.heartbeat(); err != nil {
			return result{}, err
		}
	}
	return memory(d, 100)
}

func memory(d *daemon, goal int) (result, error) {
	kb, err := d.resting()
	if err != nil {
		return result{}, err
	}
	return megabytes(kb, goal), nil
}

func megabytes(kb, goal int) result {
	return result{fmt.Sprintf("%.1f MB", float64(kb)/1000), "—", "—", kb <= goal*1000}
}

func largeStore(b *bench) (result, error) {
	if err := b.large(); err != nil {
		return result{}, err
	}
	_, ours, err := b.sending("large")
	if err != nil {
		return result{}, err
	}
	_, floor, err := b.sending("empty")
	if err != nil {
		return result{}, err
	}
	return compare(turns*turnSamples, ours.dispatch, floor.dispatch, 1.2)
}
