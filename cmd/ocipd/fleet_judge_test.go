package main

import (
	"bufio"
	"fmt"
	"os"
	"slices"

	"github.com/openclawos/ocipd/internal/audit"
)

// branchLog is what the judge reads in the log of a host.
type branchLog struct {
	// receipts are the results of the host's own messages, each as often as it is on record.
	receipts map[string][]string
	// decided are the messages of other hosts, in order and as often as they were decided.
	decided []string
}

// judge stops all daemons, verifies their logs, and compares them.
func (f *branch) judge() {
	f.t.Helper()
	f.stop()
	for _, fault := range f.faults() {
		f.t.Error("noticed:", fault)
	}
}

// stop stops all daemons, and verifies their logs.
func (f *branch) stop() {
	f.t.Helper()
	for _, h := range f.hosts {
		if err := h.daemon.Process.Signal(os.Interrupt); err != nil {
			f.t.Fatal(err)
		}
		if err := h.daemon.Wait(); err != nil {
			f.t.Errorf("daemon %s does not end in peace: %v", h.name, err)
		}
		<-h.ended
		f.run(h.name, "--config", f.path(h.name+".yaml"), "audit", "verify")
	}
}

// faults holds all logs against each other: each message that was acknowledged has one receipt at its
// sender, and one decision at its receiver, in the order of sending; and no agent got a message without one.
func (f *branch) faults() (list []string) {
	f.t.Helper()
	wrong := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	logs := map[*branchHost]*branchLog{}
	for _, h := range f.hosts {
		logs[h] = h.log()
	}
	for _, to := range f.hosts {
		times := map[string]int{}
		for _, id := range logs[to].decided {
			times[id]++
		}
		for _, id := range to.got {
			if times[id] == 0 {
				wrong("%s got %s, which is not on record", to.agent, id)
			}
		}
		for _, from := range f.hosts {
			sent := map[string]bool{}
			for _, id := range from.sent[to] {
				sent[id] = true
				if results := logs[from].receipts[id]; !slices.Equal(results, []string{"allow"}) || times[id] != 1 {
					wrong("message %s of %s has the receipts %q and %d decisions at %s, want allow and one", id, from.name, results, times[id], to.name)
				}
			}
			order := slices.DeleteFunc(slices.Clone(logs[to].decided), func(id string) bool { return !sent[id] })
			if !slices.Equal(order, from.sent[to]) {
				wrong("%s has not taken the messages of %s in order", to.name, from.name)
			}
		}
	}
	return list
}

// log reads the log of a host.
func (h *branchHost) log() *branchLog {
	h.t.Helper()
	file, err := os.Open(h.path("state-"+h.name, "openclawos", "audit.jsonl"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	log := &branchLog{receipts: map[string][]string{}}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		e, err := audit.Parse(lines.Bytes())
		switch {
		case err != nil:
			h.t.Fatal(err)
		case e.Event == "receipt":
			log.receipts[e.DispatchID] = append(log.receipts[e.DispatchID], e.Outcome)
		case e.ActionType == audit.ActionExchange && e.Side == audit.SideReceiver:
			log.decided = append(log.decided, e.DispatchID)
		}
	}
	if err := lines.Err(); err != nil {
		h.t.Fatal(err)
	}
	return log
}

// judged shows that the judge finds a message that was lost, one taken out of order, and one without a record.
func (f *branch) judged() {
	f.t.Helper()
	sent, got := f.a.sent[f.b], f.b.got
	defer func() { f.a.sent[f.b], f.b.got = sent, got }()
	finds := func(what string, sends, gets []string) {
		f.t.Helper()
		f.a.sent[f.b], f.b.got = sends, gets
		if len(f.faults()) == 0 {
			f.t.Error("the judge does not find", what)
		}
	}
	finds("a message that was lost", append(slices.Clone(sent), "lost:a"), got)
	finds("a message that is not on record", sent, append(slices.Clone(got), "forged:a"))
	if len(sent) > 1 {
		turned := slices.Clone(sent)
		turned[0], turned[1] = sent[1], sent[0]
		finds("messages out of order", turned, got)
	}
}
