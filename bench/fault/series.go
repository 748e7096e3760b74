package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// series is all runs, in turn, and their results.
type series struct {
	rig *rig
	all bool
	// during is the one phase in which faults are injected, "" for all of them.
	during phase
	// until is when no further run is started, zero for never.
	until time.Time
	out   io.Writer

	mu       sync.Mutex
	outcomes []*outcome
	skipped  int
}

// group is the runs of one line of the table.
type group struct {
	phase phase
	file  file
	call  string
	fault fault
}

func (j job) group() group { return group{j.phase, j.aim.file, j.aim.call, j.aim.fault} }

// faultsOf are the faults worth trying at a kind of call.
func faultsOf(call string) []fault {
	if call == "write" {
		return []fault{faultEIO, faultENOSPC, faultTorn, faultKill, faultKillTorn}
	}
	return []fault{faultEIO, faultENOSPC, faultKill}
}

// run plans and runs everything, or the one run that is named.
func (s *series) run(ctx context.Context, only string) (failed bool, err error) {
	began := time.Now()
	if only != "" {
		j, err := parseJob(only)
		if err != nil {
			return false, err
		}
		if err := s.rig.prepare(ctx); err != nil {
			return false, err
		}
		o, err := s.rig.run(ctx, j)
		if err != nil {
			return false, err
		}
		s.outcomes = append(s.outcomes, o)
		s.progress(o, 1)
		fmt.Fprintf(s.out, "%s: hit %v %s, latched %v, did not start %v, in %s\n", j, o.hit, o.struck, o.latched, o.quit, o.dir)
		return s.report(began), nil
	}
	jobs, err := s.plan(ctx)
	if err != nil {
		return false, err
	}
	err = s.each(ctx, jobs)
	return s.report(began), err
}

// plan counts the calls of a run without a fault, and spreads the faults over
// them.
func (s *series) plan(ctx context.Context) ([]job, error) {
	if err := s.rig.prepare(ctx); err != nil {
		return nil, err
	}
	var groups [][]job
	for _, phase := range []phase{phaseServe, phaseEffect, phaseCheckpoint, phaseStart, phaseRestart, phaseRecover, phaseStop} {
		if s.during != "" && s.during != phase {
			continue
		}
		// Nothing has this name, so nothing is hit.
		o, err := s.rig.run(ctx, job{phase, aim{file: "nothing", call: "write", fault: faultEIO, n: 1}})
		if err != nil {
			return nil, err
		}
		if len(o.problems) > 0 {
			return nil, fmt.Errorf("without a fault, in phase %s: %s", phase, strings.Join(o.problems, "; "))
		}
		for _, what := range slices.Sorted(maps.Keys(o.counts)) {
			f, call, _ := strings.Cut(what, ":")
			for _, fault := range faultsOf(call) {
				var list []job
				for _, n := range s.spread(phase, file(f), o.counts[what]) {
					list = append(list, job{phase, aim{file(f), call, fault, n}})
				}
				groups = append(groups, list)
			}
		}
	}
	return interleave(groups), nil
}

// spread picks the calls to inject at: all of them, or as many as there is time
// for, evenly, the first and the last among them.
func (s *series) spread(p phase, f file, count int) (list []int) {
	most := count
	if !s.all {
		most = 5
		switch {
		case f == fileWAL && (p == phaseServe || p == phaseEffect):
			most = 24
		case f == fileWAL:
			most = 8
		case f == fileDatabase && p == phaseCheckpoint:
			most = 8
		}
	}
	if count <= most {
		most = count
	}
	for i := range most {
		n := 1
		if most > 1 {
			n = 1 + i*(count-1)/(most-1)
		}
		list = append(list, n)
	}
	return list
}

// interleave takes from each group in turn, so that a series that is cut short
// has something of everything.
func interleave(groups [][]job) (list []job) {
	for i := 0; ; i++ {
		before := len(list)
		for _, g := range groups {
			if i < len(g) {
				list = append(list, g[i])
			}
		}
		if len(list) == before {
			return list
		}
	}
}

// each runs jobs side by side.
func (s *series) each(ctx context.Context, jobs []job) error {
	queue := make(chan job)
	var workers sync.WaitGroup
	var first error
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range runtime.NumCPU() + 1 {
		workers.Go(func() {
			for j := range queue {
				o, err := s.rig.run(ctx, j)
				s.mu.Lock()
				if err != nil && first == nil {
					first = fmt.Errorf("%s: %w", j, err)
					cancel()
				}
				if err == nil {
					s.outcomes = append(s.outcomes, o)
					s.progress(o, len(jobs))
				}
				s.mu.Unlock()
			}
		})
	}
	for i, j := range jobs {
		if ctx.Err() != nil || !s.until.IsZero() && time.Now().After(s.until) {
			s.skipped = len(jobs) - i
			break
		}
		queue <- j
	}
	close(queue)
	workers.Wait()
	return first
}

// progress says how far the series is, and at once what went wrong.
func (s *series) progress(o *outcome, of int) {
	if len(o.problems) > 0 {
		fmt.Fprintf(s.out, "FAILED %s: %s\n  its files: %s\n  the call was on: %s\n  once more: go run ./bench/fault -only %q\n", o.job, strings.Join(o.problems, "\n  "), o.dir, o.struck, o.job)
	}
	if n := len(s.outcomes); n%50 == 0 {
		fmt.Fprintf(s.out, "%d of %d runs, last: %s\n", n, of, o.job)
	}
}

// row is one line of the table.
type row struct {
	runs, hits, acknowledged, refused, received, late, latched, quit, failed int
}

// report prints the table and reports whether any run failed.
func (s *series) report(began time.Time) (failed bool) {
	rows := make(map[group]*row)
	var total row
	for _, o := range s.outcomes {
		g := o.job.group()
		if rows[g] == nil {
			rows[g] = new(row)
		}
		rows[g].add(o)
		total.add(o)
	}
	order := slices.SortedFunc(maps.Keys(rows), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.file, b.file), cmp.Compare(a.call, b.call), cmp.Compare(a.fault, b.fault))
	})
	fmt.Fprintf(s.out, "\n%-10s %-6s %-5s %-9s %4s %4s %5s %5s %5s %6s %4s\n", "phase", "file", "call", "fault",
		"runs", "hits", "sent", "unrec", "recvd", "closed", "quit")
	for _, g := range order {
		r := rows[g]
		fmt.Fprintf(s.out, "%-10s %-6s %-5s %-9s %4d %4d %5d %5d %5d %6d %4d %s\n", g.phase, g.file, g.call, g.fault,
			r.runs, r.hits, r.acknowledged, r.refused, r.received, r.latched, r.quit, r.verdict())
	}
	fmt.Fprintf(s.out, "\n%d runs in %s, %d of them hit; %d closed the store,\n%d did not start under the fault.\n"+
		"%d messages acknowledged, %d could not be recorded,\n%d received (%d after the next start), none without its record: %s\n",
		total.runs, time.Since(began).Round(time.Second), total.hits, total.latched, total.quit,
		total.acknowledged, total.refused, total.received, total.late, total.verdict())
	if s.skipped > 0 {
		fmt.Fprintf(s.out, "%d planned runs were left out for want of time; -all leaves out none\n", s.skipped)
	}
	for _, o := range s.outcomes {
		if len(o.problems) > 0 {
			fmt.Fprintf(s.out, "first failure: go run ./bench/fault -only %q\n", o.job)
			break
		}
	}
	return total.failed > 0
}

func (r *row) add(o *outcome) {
	r.runs++
	r.acknowledged += o.acknowledged
	r.refused += o.refused
	r.received += o.received
	r.late += o.late
	for _, c := range []struct {
		is bool
		n  *int
	}{{o.hit, &r.hits}, {o.latched, &r.latched}, {o.quit, &r.quit}, {len(o.problems) > 0, &r.failed}} {
		if c.is {
			*c.n++
		}
	}
}

func (r *row) verdict() string {
	if r.failed > 0 {
		return fmt.Sprintf("FAIL %d", r.failed)
	}
	return "ok"
}
