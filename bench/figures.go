package main

import (
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
		{"dispatch/s, 64 connections × 4", "—", "≥ 20000/s", dispatchRate},
		{"start to ready", "—", "≤ 60 ms", startTime},
		{"resident memory, idle", "—", "≤ 40 MB", idleMemory},
		{"resident memory, 1000 apps", "—", "≤ 100 MB", crowdMemory},
		{"dispatch p50, large store", "empty store", "≤ 1.2×", largeStore},
	}, evidence())
}

const (
	turns        = 8
	turnSamples  = 400
	rateFor      = 2 * time.Second
	crowd        = 64
	talks        = 4 // conversations an app has going in the rate of dispatches
	manyApps     = 1000
	startSamples = 15
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
	defer d.stop()
	e, err := b.echo()
	if err != nil {
		return result{}, err
	}
	defer e.stop()
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
	d, err := b.start("heartbeats", crowd)
	if err != nil {
		return result{}, err
	}
	defer d.stop()
	e, err := b.echo()
	if err != nil {
		return result{}, err
	}
	defer e.stop()
	var ours, floor []func() error
	for i := range crowd {
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
	var oursRates, floorRates []float64
	for turn := range 4 {
		o, err := rate(ours)
		if err != nil {
			return result{}, err
		}
		f, err := rate(floor)
		if err != nil {
			return result{}, err
		}
		if turn > 0 {
			oursRates, floorRates = append(oursRates, o), append(floorRates, f)
		}
	}
	o, f := middle(oursRates), middle(floorRates)
	return result{fmt.Sprintf("%.0f/s", o), fmt.Sprintf("%.0f/s", f), fmt.Sprintf("%.0f %%", 100*o/f), o >= 0.8*f}, nil
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func dispatchLatency(b *bench) (result, error) {
	d, err := b.start("dispatch", 1)
	if err != nil {
		return result{}, err
	}
	defer d.stop()
	ours, err := d.sender(0)
	if err != nil {
		return result{}, err
	}
	durable, err := d.durableBytes(ours)
	if err != nil {
		return result{}, err
	}
	f, err := os.OpenFile(filepath.Join(b.dir, "floor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	return compare(turns*turnSamples, ours.dispatch, func() error {
		if _, err := f.Write(durable); err != nil {
			return err
		}
		return f.Sync()
	}, 1.8)
}

// compare measures two steps one after the other again and again, so that both
// find the processor and the disk in the same state: a disk that is never left
// alone for a moment answers faster than any that serves requests.
func compare(n int, ours, floor func() error, goal float64) (result, error) {
	var samples [2][]time.Duration
	for i := range n + turnSamples {
		for side, step := range []func() error{ours, floor} {
			began := time.Now()
			if err := step(); err != nil {
				return result{}, err
			}
			// The first turn warms both up.
			if i >= turnSamples {
				samples[side] = append(samples[side], time.Since(began))
			}
		}
	}
	return times(p50(samples[0]), p50(samples[1]), goal), nil
}

func dispatchRate(b *bench) (result, error) {
	d, err := b.start("dispatches", crowd)
	if err != nil {
		return result{}, err
	}
	defer d.stop()
	var ours []func() error
	for i := range crowd {
		s, err := d.sender(i)
		if err != nil {
			return result{}, err
		}
		ours = append(ours, s.dispatchTalks)
	}
	var rates []float64
	for turn := range 4 {
		r, err := rate(ours)
		if err != nil {
			return result{}, err
		}
		if turn > 0 {
			rates = append(rates, talks*r)
		}
	}
	r := middle(rates)
	return result{fmt.Sprintf("%.0f/s", r), "—", "—", r >= 20000}, nil
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
	defer d.stop()
	return memory(d, 40)
}

func crowdMemory(b *bench) (result, error) {
	d, err := b.start("crowd", manyApps)
	if err != nil {
		return result{}, err
	}
	defer d.stop()
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
	kb, err := d.resident()
	if err != nil {
		return result{}, err
	}
	return result{fmt.Sprintf("%.1f MB", float64(kb)/1000), "—", "—", kb <= goal*1000}, nil
}

func largeStore(b *bench) (result, error) {
	if err := b.large(); err != nil {
		return result{}, err
	}
	large, err := b.start("large", 1)
	if err != nil {
		return result{}, err
	}
	defer large.stop()
	empty, err := b.start("empty", 1)
	if err != nil {
		return result{}, err
	}
	defer empty.stop()
	ours, err := large.sender(0)
	if err != nil {
		return result{}, err
	}
	floor, err := empty.sender(0)
	if err != nil {
		return result{}, err
	}
	return compare(turns*turnSamples, ours.dispatch, floor.dispatch, 1.2)
}
