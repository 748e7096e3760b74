package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// pacedFor is how long messages are sent at half the greatest rate. A quarter after the beginning, the
// configuration changes.
const pacedFor = 4 * time.Second

// pacedRotation is the size at which the log's copy is rotated meanwhile, so that it happens several
// times.
const pacedRotation = "8MiB"

// pacedLatency sends messages at half the greatest rate, while the configuration is reloaded, the log's
// copy is rotated and checkpoints are made, and compares the 99th percentile with the median.
func pacedLatency(b *bench) (result, error) {
	also := *b
	also.also = "audit: {rotate: {bytes: " + pacedRotation + "}}\n"
	d, err := also.start("paced", clients)
	if err != nil {
		return result{}, err
	}
	var busy, single []func() error
	for i := range clients {
		s, err := d.sender(i)
		if err != nil {
			return result{}, err
		}
		busy, single = append(busy, s.dispatchTalks), append(single, s.dispatch)
	}
	rates, err := middleRates(busy)
	if err != nil {
		return result{}, err
	}
	before, err := d.happened()
	if err != nil {
		return result{}, err
	}
	half := talks * rates[0] / 2
	changed := make(chan error, 1)
	go func() {
		<-time.After(pacedFor / 4)
		changed <- d.addContact()
	}()
	samples, err := paced(single, half)
	if err != nil {
		return result{}, err
	}
	if err := <-changed; err != nil {
		return result{}, err
	}
	after, err := d.happened()
	if err != nil {
		return result{}, err
	}
	for what, n := range after {
		if n <= before[what] {
			return result{}, fmt.Errorf("there was no %s meanwhile: %v, then %v", what, before, after)
		}
	}
	median := p50(samples)
	worst := samples[len(samples)*99/100]
	fmt.Fprintf(os.Stderr, "  %.0f/s, %d messages, %d rotations\n", half, len(samples), after["rotation"]-before["rotation"])
	return times(worst, median, 5), nil
}

// paced calls steps at a rate together, each of them in equal intervals, and returns how long every call
// took. A call that is late because the one before it took long has waited since its time.
func paced(steps []func() error, rate float64) (samples []time.Duration, err error) {
	interval := time.Duration(float64(len(steps)) * float64(time.Second) / rate)
	lists, failures := make([][]time.Duration, len(steps)), make([]error, len(steps))
	began := time.Now()
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() {
			due := began.Add(interval * time.Duration(i) / time.Duration(len(steps)))
			for ; due.Sub(began) < pacedFor; due = due.Add(interval) {
				from := due
				if early := time.Until(due); early > 0 {
					<-time.After(early)
					from = time.Now() // the clock's own delay is not the daemon's
				}
				if failures[i] = step(); failures[i] != nil {
					return
				}
				lists[i] = append(lists[i], time.Since(from))
			}
		})
	}
	wg.Wait()
	for i := range lists {
		if failures[i] != nil {
			return nil, failures[i]
		}
		samples = append(samples, lists[i]...)
	}
	return samples, nil
}

// addContact adds an entry to the directory at the end of the configuration, which the daemon takes by
// itself.
func (d *daemon) addContact() error {
	file, err := os.OpenFile(filepath.Join(d.dir, "ocipd.yaml"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString("  - {instance_id: agent-late, user_id: late, org_unit: engineering, tenant_id: acme, accepts: [public], sessions: [\"chat:late\"]}\n")
	if end := file.Close(); err == nil {
		err = end
	}
	return err
}

// seq finds the number of a record in an answer.
var seq = regexp.MustCompile(`"seq":(\d+)`)

// happened returns numbers that are larger after a reload, a rotation and a checkpoint: the newest
// records of the first and the last, and the count of segments.
func (d *daemon) happened() (map[string]int, error) {
	operator, err := dial(filepath.Join(filepath.Dir(d.socket), "operator.sock"))
	if err != nil {
		return nil, err
	}
	defer operator.socket.Close()
	counts := map[string]int{}
	for what, kind := range map[string]string{"reload": "config_change", "checkpoint": "checkpoint"} {
		line, err := operator.page(`{"limit":1,"filter":{"actionType":"` + kind + `"}}`)
		if err != nil {
			return nil, err
		}
		if newest := seq.FindSubmatch(line); newest != nil {
			counts[what], _ = strconv.Atoi(string(newest[1])) // it is digits
		}
	}
	segments, err := filepath.Glob(filepath.Join(d.dir, "openclawos", "audit*"))
	counts["rotation"] = len(segments)
	return counts, err
}

// page asks for a page of records.
func (c *conn) page(params string) ([]byte, error) {
	c.buf = c.buf[:0]
	c.ask("audit.query", params)
	if _, err := c.socket.Write(c.buf); err != nil {
		return nil, err
	}
	return c.lines.ReadBytes('\n')
}
