package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
)

// A phase is when the fault may be injected.
type phase string

const (
	// phaseStart is the first start, on an empty directory.
	phaseStart phase = "start"
	// phaseServe is a daemon at work.
	phaseServe phase = "serve"
	// phaseEffect is one that people are asked about effects and tools, and that starts
	// what they approve.
	phaseEffect phase = "effect"
	// phaseCheckpoint is one whose write-ahead log is about to be brought into
	// the database.
	phaseCheckpoint phase = "checkpoint"
	// phaseRestart is a start after an orderly end, phaseRecover one after a kill.
	phaseRestart phase = "restart"
	phaseRecover phase = "recover"
	// phaseStop is the orderly end.
	phaseStop phase = "stop"
)

// job is one run: a phase and an aim, of which n counts from 1.
type job struct {
	phase phase
	aim   aim
}

func (j job) String() string { return fmt.Sprintf("%s %s", j.phase, j.aim) }

func parseJob(text string) (j job, err error) {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	j.phase = phase(first)
	j.aim, err = parseAim(rest)
	return j, err
}

// outcome is what a run came to.
type outcome struct {
	job job
	// hit is whether the fault struck, and struck the file it did.
	hit    bool
	struck string
	// counts are the calls that were counted, by file and kind of call.
	counts map[string]int
	// Messages that were acknowledged, that could not be recorded, that the
	// receiver has, and of these what came after the daemon was started again.
	acknowledged, refused, received, late int
	// latched is whether the daemon closed its store, quit whether it did not
	// start under the fault.
	latched, quit bool
	// problems are what must not be.
	problems []string
	dir      string
}

func (o *outcome) wrong(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// rig runs jobs in directories of their own.
type rig struct {
	binary string
	base   string
	keep   bool
	// full is a directory with a write-ahead log that is nearly due for a checkpoint; its
	// daemon was killed. The daemon of old was stopped.
	full, old string
}

// runLimit bounds one run; none takes that long unless something hangs.
const runLimit = 2 * time.Minute

// run injects a fault once and judges what is left.
func (r *rig) run(ctx context.Context, j job) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	dir, err := os.MkdirTemp(r.base, "r")
	if err != nil {
		return nil, err
	}
	p, o := place{dir, r.binary}, &outcome{job: j, dir: dir, counts: make(map[string]int)}
	from := map[phase]string{phaseCheckpoint: r.full, phaseRecover: r.full, phaseRestart: r.old}[j.phase]
	if from != "" {
		if err := copyTree(from, p.state()); err != nil {
			return nil, err
		}
	}
	if err := p.configure(); err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var attempts []*attempt
	var received []receipt
	var tasks []*tracked
	var story *effects
	if j.phase == phaseEffect {
		story = &effects{}
		defer story.end()
	}
	crew := &people{ctx: ctx, place: p, mu: &mu, attempts: &attempts, received: &received, tasks: &tasks, effects: story}
	if err := r.inject(ctx, j, p, crew, o); err != nil {
		return nil, err
	}
	crew = &people{ctx: ctx, place: p, mu: &mu, attempts: &attempts, received: &received, tasks: &tasks, effects: story, late: true}
	if err := r.again(ctx, p, crew, o); err != nil {
		return nil, err
	}
	o.judge(ctx, p, attempts, received)
	if story != nil {
		story.judge(ctx, p, o)
	}
	if len(o.problems) == 0 && !r.keep {
		return o, os.RemoveAll(dir)
	}
	return o, nil
}

// inject is the daemon's life with the fault.
func (r *rig) inject(ctx context.Context, j job, p place, crew *people, o *outcome) error {
	var first *aim
	if j.phase.starts() {
		first = &j.aim
	}
	d, err := p.start(ctx, true, first)
	if err != nil {
		return err
	}
	defer d.kill()
	defer crew.leave()
	ready, err := d.await(ctx)
	if err != nil {
		return err
	}
	if !ready {
		d.drain(o)
		if o.quit = o.hit && !j.aim.kills(); o.quit {
			o.clearRefusal(p, d)
		}
		if !o.hit {
			o.wrong("the daemon does not start: %s", p.lastWords())
		}
		return nil
	}
	// An error means that the daemon is gone or refuses: attempts show it.
	_ = crew.come()
	arm := func() { d.order("arm "+j.aim.String(), o) }
	disarm := func() { d.order("disarm", o) }
	switch j.phase {
	case phaseStart, phaseRestart, phaseRecover:
		disarm()
		crew.work()
	case phaseServe:
		arm()
		crew.work()
		disarm()
	case phaseEffect:
		if err := crew.ask(); err != nil {
			return err
		}
		arm()
		crew.carry(o)
		disarm()
	case phaseCheckpoint:
		arm()
		crew.untilCheckpoint()
		crew.work()
		disarm()
	case phaseStop:
		crew.work()
		arm()
	}
	if j.phase != phaseStop {
		r.afterwards(j, crew, o)
	}
	if d.stop() {
		o.wrong("the daemon does not stop")
	}
	d.drain(o)
	return nil
}

// copyTree copies a directory with its modes, which the daemon looks at.
func copyTree(from, to string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		//nolint:gosec // both are directories of this program's own
		return os.Chmod(to+strings.TrimPrefix(path, from), info.Mode().Perm())
	})
}

func (p phase) starts() bool { return p == phaseStart || p == phaseRestart || p == phaseRecover }

func (a aim) kills() bool { return a.fault == faultKill || a.fault == faultKillTorn }

// drain reads what the tracer has said, once it has ended.
func (d *process) drain(o *outcome) {
	for line := range d.events {
		o.hear(line)
	}
}

// hear reads a line of the tracer, and reports whether it is an answer.
func (o *outcome) hear(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	if word == "hit" {
		o.hit, o.struck = true, rest
		return false
	}
	if word == "counted" {
		o.count(rest)
	}
	return true
}

func (o *outcome) count(counted string) {
	for field := range strings.FieldsSeq(counted) {
		what, n, _ := strings.Cut(field, "=")
		var count int
		if _, err := fmt.Sscan(n, &count); err == nil {
			o.counts[what] = count
		}
	}
}

// clearRefusal wants a daemon that did not start to have said why.
func (o *outcome) clearRefusal(p place, d *process) {
	if words := p.lastWords(); d.code == 0 || !strings.Contains(words, "cannot") && !strings.Contains(words, "error") {
		o.wrong("the daemon ended with code %d and says no more than: %s", d.code, words)
	}
}

// afterwards looks whether the daemon goes on, or is closed, as the fault asks.
func (r *rig) afterwards(j job, crew *people, o *outcome) {
	last := crew.dispatch("afterwards")
	status, alive := crew.status()
	o.latched = alive && status.Audit.Fault != ""
	switch {
	case !o.hit:
		if !last.acknowledged {
			o.wrong("without a fault, a message is not sent: %+v", *last)
		}
	case j.aim.kills():
		if alive {
			o.wrong("the daemon lives on after SIGKILL")
		}
	case !alive:
		o.wrong("the daemon is gone after %s", j.aim.fault)
	case j.aim.file == fileWAL && (j.aim.call == "sync" || j.aim.call == "write" && j.aim.fault != faultENOSPC) && !j.phase.starts():
		// Nobody knows the state of the disk after a failed write or fsync; an fsync
		// that found no space is no better than one that failed otherwise.
		if last.acknowledged || !last.unrecorded || !o.latched {
			o.wrong("it goes on after %s: %+v, fault %q", j.aim.fault, *last, status.Audit.Fault)
		}
	case j.aim.call != "sync" && j.aim.fault == faultENOSPC || j.aim.file == fileMirror:
		// A full disk costs the record that could not be written, and nothing after it.
		if !last.acknowledged || o.latched {
			o.wrong("it does not go on after %s: %+v, fault %q", j.aim.fault, *last, status.Audit.Fault)
		}
	case last.acknowledged == o.latched:
		o.wrong("it says fault %q, and answers %+v", status.Audit.Fault, *last)
	}
}

// again starts the daemon without a fault, lets everything that waits arrive,
// and ends it in peace.
func (r *rig) again(ctx context.Context, p place, crew *people, o *outcome) error {
	d, err := p.start(ctx, false, nil)
	if err != nil {
		return err
	}
	defer d.kill()
	defer crew.leave()
	ready, err := d.await(ctx)
	if err != nil {
		return err
	}
	if !ready {
		o.wrong("the daemon does not start again: %s", p.lastWords())
		return nil
	}
	if err := crew.come(); err != nil {
		o.wrong("nobody can connect after the start: %v", err)
		return nil
	}
	if !crew.settle(20 * time.Second) {
		o.wrong("what waits is not delivered after the start")
	}
	crew.inspect(o)
	if crew.effects != nil {
		crew.carry(o)
		crew.close(o)
	}
	if killed := d.stop(); killed || d.code != 0 {
		o.wrong("the daemon, started again, ends with code %d: %s", d.code, p.lastWords())
	}
	return nil
}

// judge compares the receiver's own log and the callers' answers with the record,
// after the verifier has found it whole.
func (o *outcome) judge(ctx context.Context, p place, attempts []*attempt, received []receipt) {
	if !p.exists(p.database()) {
		o.wrong("there is no database")
		return
	}
	for _, args := range [][]string{{"audit", "verify", "--database"}, {"audit", "verify"}} {
		cmd := exec.CommandContext(ctx, p.binary, append(args, "--config", p.config())...)
		cmd.Env = p.environ()
		if out, err := cmd.CombinedOutput(); err != nil {
			o.wrong("ocipd %s: %v: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
	}
	records, err := readRecords(ctx, p)
	if err != nil {
		o.wrong("%v", err)
		return
	}
	own, err := os.ReadFile(p.received())
	if err != nil && !errors.Is(err, os.ErrNotExist) || bytes.Count(own, []byte("\n")) != len(received) {
		o.wrong("the receiver's log has %d lines of %d: %v", bytes.Count(own, []byte("\n")), len(received), err)
	}
	o.compare(attempts, received, records)
}

// compare compares the received messages and the answers with the record.
func (o *outcome) compare(attempts []*attempt, received []receipt, records map[string]string) {
	arrived := make(map[string]bool)
	names := make(map[string]string)
	for _, m := range received {
		o.received++
		arrived[m.dispatchID] = true
		if m.late {
			o.late++
		}
		if r, ok := records[m.dispatchID]; !ok {
			o.wrong("OUT WITHOUT A RECORD: %q, dispatchId %s", m.content, m.dispatchID)
		} else if r != m.auditID {
			o.wrong("%q names record %s as its own, which is not", m.content, m.auditID)
		}
		if other, ok := names[m.content]; ok && other != m.dispatchID {
			o.wrong("%q arrived as %s and as %s", m.content, other, m.dispatchID)
		}
		names[m.content] = m.dispatchID
	}
	for _, a := range attempts {
		o.judgeAttempt(a, records, arrived, received)
	}
}

func (o *outcome) judgeAttempt(a *attempt, records map[string]string, arrived map[string]bool, received []receipt) {
	switch {
	case a.other != "":
		o.wrong("%q is answered with %s", a.content, a.other)
	case a.acknowledged:
		o.acknowledged++
		if records[a.dispatchID] == "" {
			o.wrong("%q was acknowledged as %s and is not on record", a.content, a.dispatchID)
		}
		if !arrived[a.dispatchID] {
			o.wrong("%q was acknowledged as %s and did not arrive", a.content, a.dispatchID)
		}
	case a.unrecorded:
		o.refused++
		for _, m := range received {
			// It may be on record, and then it leaves after the next start.
			if m.content == a.content && !m.late {
				o.wrong("%q was let through although it could not be recorded", a.content)
			}
		}
	}
}

// readRecords reads the database as it is, and returns the ids of the records that
// let messages through, by message.
func readRecords(ctx context.Context, p place) (map[string]string, error) {
	records := make(map[string]string)
	return records, eachRecord(ctx, p, func(e *audit.Entry) {
		if e.DispatchID != "" && e.Side == audit.SideSender && e.PolicyResult == "allow" {
			records[e.DispatchID] = e.ID
		}
	})
}

// eachRecord reads the database as it is.
func eachRecord(ctx context.Context, p place, do func(*audit.Entry)) error {
	r, err := store.OpenReader(ctx, p.database())
	if err != nil {
		return err
	}
	defer r.Close()
	return r.EachLine(ctx, 0, func(seq uint64, line []byte) error {
		e, err := audit.Parse(line)
		if err != nil {
			return fmt.Errorf("record %d: %w", seq, err)
		}
		do(&e)
		return nil
	})
}

// SQLite checkpoints after 4000 frames of a page and a header each.
const nearlyDue = (4000 - 400) * (4096 + 24)

// prepare makes the directories that runs begin with: one of a stopped daemon, and one of a
// killed daemon whose next few commits cause a checkpoint of the write-ahead log.
func (r *rig) prepare(ctx context.Context) (err error) {
	if r.old, err = r.fill(ctx, 0); err != nil {
		return err
	}
	r.full, err = r.fill(ctx, nearlyDue)
	return err
}

// fill sends messages until the write-ahead log is so long; the daemon is
// killed then, or stopped where there was no length to reach.
func (r *rig) fill(ctx context.Context, length int64) (state string, err error) {
	dir, err := os.MkdirTemp(r.base, "full")
	if err != nil {
		return "", err
	}
	p := place{dir, r.binary}
	if err := p.configure(); err != nil {
		return "", err
	}
	d, err := p.start(ctx, false, nil)
	if err != nil {
		return "", err
	}
	defer d.kill()
	if ready, err := d.await(ctx); err != nil || !ready {
		return "", fmt.Errorf("the daemon does not start: %w: %s", err, p.lastWords())
	}
	crew := &people{ctx: ctx, place: p, mu: new(sync.Mutex), attempts: new([]*attempt), received: new([]receipt), tasks: new([]*tracked)}
	defer crew.leave()
	if err := crew.come(); err != nil {
		return "", err
	}
	for i := 0; ; i++ {
		if a := crew.dispatch(fmt.Sprintf("before %d", i)); !a.acknowledged {
			return "", fmt.Errorf("cannot fill the write-ahead log: %+v", *a)
		}
		info, err := os.Stat(p.database() + "-wal")
		if err != nil {
			return "", err
		}
		if info.Size() > length {
			break
		}
	}
	crew.settle(10 * time.Second)
	if length > 0 {
		d.kill()
	} else if killed := d.stop(); killed || d.code != 0 {
		return "", fmt.Errorf("the daemon does not stop in peace: code %d: %s", d.code, p.lastWords())
	}
	return p.state(), nil
}
