// Package reload puts configurations and policies in force while the daemon runs.
package reload

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/filewatch"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// The origin of a policy or a configuration, in records.
const (
	byStart    = "start"
	byOperator = "operator"
	byFile     = "file"
	bySignal   = "signal"
	// byRetention: the configuration in force is recorded again before retention removes its record.
	byRetention = "retention"
)

// Bounds of a refusal in records and answers, because errors may quote the files. Sizes are in bytes.
const (
	maxFaults     = 20
	maxFaultBytes = 512
	maxRefusal    = 2048
)

// Options are the inputs of an engine.
type Options struct {
	Log    *zap.Logger
	Now    func() time.Time
	NewID  func() string
	Commit func(*store.Change) (store.Receipt, error)
	Policy *policy.Holder
	// Prepare does everything for a configuration and a policy that can fail, and returns
	// the steps that put them in force. Replacing keeps decisions from being made until the
	// returned function is called.
	Prepare   func(*config.Config, *policy.Policy) (kernel.Adoption, error)
	Replacing func() (done func())
	// Startable says why a start with a configuration would fail.
	Startable func(context.Context, *config.Config) error
	// Note makes the records of a configuration that is about to be in force. They begin
	// with first; whole asks for the configuration as a whole. The part belongs into their
	// commit, and done is called once the commit is durable. Former is the last recorded
	// configuration, or "". Goes reports whether the record that later differences build on
	// is among the first records up to a number.
	Note   func(first *audit.Record, cfg *config.Config, whole bool) (records []*audit.Record, part store.Part, done func(), err error)
	Former func() string
	Goes   func(upTo uint64) bool
	// Tell is called whenever the status for operators changes.
	Tell func()
}

// Engine puts configurations and policies in force, one after another.
//
// Everything that can fail comes first: checking the whole configuration, reading,
// compiling and trying the policy, and Prepare. Then one commit makes the records durable,
// and then everything is swapped in at once. So every decision is made under rules that are
// already on record, and a failure leaves the rules in force unchanged. A call in progress
// keeps the rules with which it began.
type Engine struct {
	o Options

	// closing ends with the daemon; nothing else interrupts a reload.
	closing context.Context
	stop    context.CancelFunc
	tasks   sync.WaitGroup

	// The status for operators, replaced under mu.
	status atomic.Pointer[api.PolicyStatus]
	config atomic.Pointer[api.ConfigStatus]
	// file is the name of the last loaded file, or "".
	file atomic.Pointer[string]
	// later is the difference between the file and the configuration in force that needs a restart.
	later atomic.Pointer[config.Delta]

	// mu serializes reloads. It is held during disk access, and only callers that ask for a
	// reload wait for it.
	mu sync.Mutex
	// started is the configuration of the start, read the last valid one, and inForce the
	// combination in force.
	started, read, inForce *config.Config
	files                  watches
	// refused identifies the last recorded refusal, until something is accepted again.
	refused string
	// last is the last change since the start.
	last api.ConfigReload
}

// Source is the policy's source in a configuration.
func Source(p *config.Policy) policy.Source {
	return policy.Source{Path: p.Path, Data: p.Data.Map(), Timeout: p.Timeout}
}

// sourceName is a policy's path for display.
func sourceName(p *config.Policy) string { return cmp.Or(Recorded(p.Path), "built-in") }

// New makes an engine for a configuration and a compiled policy.
func New(ctx context.Context, cfg *config.Config, o Options) *Engine {
	r := &Engine{o: o, started: cfg, read: cfg, inForce: cfg}
	r.closing, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.files = watches{closing: r.closing, news: make(chan struct{}, 1)}
	r.later.Store(&config.Delta{})
	r.file.Store(&cfg.File)
	r.policyStands()
	r.configStands()
	return r
}

// Watch follows the configuration file, if it has a name, and the files that the configuration
// names. It misses no edit from here on, and loads edits since the start at once.
func (r *Engine) Watch(file string) error {
	if err := r.files.own.follow(&r.files, file, filewatch.Fingerprint); err != nil {
		return err
	}
	if err := r.files.follow(r.inForce); err != nil {
		return err
	}
	// The result is logged, recorded and shown.
	_, _ = r.reload(asker{by: byFile})
	r.tasks.Go(func() {
		for {
			select {
			case <-r.closing.Done():
				return
			case <-r.files.news:
				_, _ = r.reload(asker{by: byFile})
			}
		}
	})
	return nil
}

// Close waits for a reload in progress and ends the watch.
func (r *Engine) Close() {
	r.stop()
	r.tasks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files.close()
}

// plan is the result of everything in a reload that can fail.
type plan struct {
	cfg    *config.Config
	policy *policy.Policy
	// policyChanged is set if the policy is a different one. policyAnew is set if it must
	// be recorded, also because an earlier refusal of it is over.
	policyChanged, policyAnew bool
	delta, pending            config.Delta
	// configAnew is set if the configuration must be recorded.
	configAnew bool
	// adopt puts the plan in force, if it changes anything.
	adopt kernel.Adoption
}

// changes reports whether there is something to put in force.
func (p *plan) changes() bool { return p.policyAnew || p.configAnew }

// plan reads the configuration file and the policy again, and prepares to put them in
// force. With look, it keeps watching the same path.
//
// If policy.watch is off, a change of files does not reload the policy.
func (r *Engine) plan(who asker, look bool) (*plan, *refusal) {
	read, err := r.read.Reload()
	if err != nil {
		return nil, &refusal{cause: err}
	}
	var p plan
	p.cfg, p.pending = read.Keep(r.started)
	if p.pending.Count > 0 {
		if err := p.cfg.Validate(); err != nil {
			return nil, &refusal{cause: fmt.Errorf("cannot use the configuration without a restart, for it does not go together with what takes one (%s): %w",
				strings.Join(p.pending.Keys, ", "), err)}
		}
		if err := r.o.Startable(r.closing, read); err != nil {
			return nil, &refusal{cause: fmt.Errorf("cannot use the configuration, for the daemon could not start with it again: %w", err)}
		}
	}
	if !look {
		r.read = read
		r.file.Store(&read.File)
		// Watch first: a change after the reading is an event.
		if err := r.files.follow(p.cfg); err != nil {
			return nil, &refusal{cause: err, policy: &p.cfg.Policy}
		}
	}
	old := r.o.Policy.Load()
	p.policy = old
	if who.by == byFile && !p.cfg.Policy.Watch {
		p.cfg = p.cfg.KeepPolicy(r.inForce)
	} else {
		text, err := policy.Read(Source(&p.cfg.Policy))
		if err != nil {
			return nil, &refusal{cause: err, policy: &p.cfg.Policy}
		}
		was := &r.inForce.Policy
		p.policyChanged = text.Digest() != old.Digest() || p.cfg.Policy.Path != was.Path || p.cfg.Policy.Timeout != was.Timeout
		p.policyAnew = p.policyChanged || r.status.Load().Refusal != ""
		if p.policyChanged {
			if p.policy, err = r.compile(text); err != nil {
				return nil, &refusal{cause: err, policy: &p.cfg.Policy, digest: text.Digest()}
			}
		}
	}
	p.delta = p.cfg.Since(r.inForce)
	p.configAnew = p.delta.Count > 0 || !samePending(p.pending, *r.later.Load()) || r.config.Load().Refusal != ""
	// A person who asks hears also of a file that the rules in force name and that cannot be read.
	if p.changes() || who.by != byFile {
		if p.adopt, err = r.o.Prepare(p.cfg, p.policy); err != nil {
			return nil, &refusal{cause: err}
		}
	}
	return &p, nil
}

// samePending reports whether two configurations have the same shown reasons for a restart.
func samePending(a, b config.Delta) bool {
	return a.Count == b.Count && slices.Equal(a.Keys, b.Keys) &&
		slices.EqualFunc(a.Changes, b.Changes, func(x, y keypath.Change) bool {
			return x.Path == y.Path && fmt.Sprint(x.Old, x.New) == fmt.Sprint(y.Old, y.New)
		})
}

// Reload reloads for an operator. It continues if the caller goes away.
func (r *Engine) Reload(_ context.Context, who api.Peer, _ *api.Empty) (api.PolicyReloadResult, error) {
	return r.reload(asker{by: byOperator, peer: who})
}

// ReloadBySignal reloads for a signal to the process.
func (r *Engine) ReloadBySignal() (api.PolicyReloadResult, error) {
	return r.reload(asker{by: bySignal})
}

// reload reads the configuration file and the policy again, and puts the changes in force.
// Keys that need a restart keep their values, and are named.
//
// The error is an [*api.Error]: CONFLICT with [api.PolicyRefusal] for a refusal,
// INTERNAL_ERROR if the records cannot be written.
func (r *Engine) reload(who asker) (api.PolicyReloadResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if who.by != byFile {
		r.files.asked.Add(1)
	}
	p, refused := r.plan(who, false)
	if refused != nil {
		return api.PolicyReloadResult{}, r.refuse(who, refused)
	}
	if !p.changes() {
		return r.result(p), nil
	}
	previous := r.o.Policy.Load().Revision()
	change := &store.Change{Drains: true}
	noted := func() {}
	if p.configAnew {
		records, part, done, err := r.o.Note(r.changed(p, who), p.cfg, false)
		if err != nil {
			return api.PolicyReloadResult{}, r.unrecorded(p, err)
		}
		change.Records, noted = append(change.Records, records...), done
		change.Add(part)
	}
	if p.policyAnew {
		record := r.loaded(p.policy, &p.cfg.Policy, who)
		record.Details["previous"] = previous
		change.Records = append(change.Records, record)
	}
	p.adopt.Begin()
	if err := r.replace(change, p.adopt.Swap); err != nil {
		return api.PolicyReloadResult{}, r.unrecorded(p, err)
	}
	noted()
	p.adopt.Finish()
	r.inForce = p.cfg
	r.later.Store(&p.pending)
	// A refusal of the policy stands until the policy itself is checked again.
	if p.policyAnew {
		r.policyStands()
	}
	if p.configAnew {
		r.configStands()
	}
	r.refused = ""
	r.o.Tell()
	if p.policyAnew {
		r.o.Log.Info("the policy is in force", zap.String("revision", p.policy.Revision()), zap.String("previous", previous), zap.String("by", who.by))
	}
	if p.configAnew {
		if p.delta.Count > 0 {
			r.last = api.ConfigReload{InForceSince: r.o.Now().UTC(), By: who.by, Last: differences(p.delta)}
		}
		r.o.Log.Info("the configuration is in force", zap.Strings("changed", p.delta.Keys), zap.Int("changes", p.delta.Count), zap.String("by", who.by))
		if len(p.pending.Keys) > 0 {
			r.o.Log.Warn("some of the configuration takes a restart and keeps its value until then", zap.Strings("keys", p.pending.Keys))
		}
	}
	return r.result(p), nil
}

// compile compiles and tries a policy. If the compiler panics, the policy is refused and
// the daemon continues.
func (r *Engine) compile(text *policy.Text) (p *policy.Policy, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			r.o.Log.Error("a policy brought the compiler down", zap.Any("fault", fault), zap.Stack("stack"))
			err = fmt.Errorf("cannot compile the policy: %v", fault)
		}
	}()
	return text.Compile(r.closing)
}

func (r *Engine) policyStands() {
	r.status.Store(&api.PolicyStatus{Source: sourceName(&r.inForce.Policy), Revision: r.o.Policy.Load().Revision()})
}

func (r *Engine) configStands() {
	r.config.Store(&api.ConfigStatus{})
}

// PolicyStatus and ConfigStatus are the status for operators.
func (r *Engine) PolicyStatus() api.PolicyStatus { return *r.status.Load() }

// ConfigStatus is as [Engine.PolicyStatus].
func (r *Engine) ConfigStatus() api.ConfigStatus { return *r.config.Load() }

// File is the name of the last loaded file, or "".
func (r *Engine) File() string { return *r.file.Load() }

// Waiting are the keys that need a restart.
func (r *Engine) Waiting() []string { return pendingKeys(*r.later.Load()) }

// pendingKeys are never nil, so that programs find a list.
func pendingKeys(d config.Delta) []string { return append([]string{}, d.Keys...) }

// refusedFor keeps the rules in force and tells operators why.
func (r *Engine) refusedFor(ofPolicy bool, reason string, faults []api.PolicyFault) {
	now := r.o.Now().UTC()
	if ofPolicy {
		status := *r.status.Load()
		status.RefusedAt, status.Refusal, status.Faults = now, reason, faults
		r.status.Store(&status)
	} else {
		status := *r.config.Load()
		status.RefusedAt, status.Refusal, status.Faults = now, reason, faults
		r.config.Store(&status)
	}
	r.o.Tell()
}

// result is the answer to a reload that has put a plan in force, or found nothing to do.
func (r *Engine) result(p *plan) api.PolicyReloadResult {
	now, done := r.o.Policy.Load(), r.last
	done.ChangeCount, done.Changes, done.PendingRestart = p.delta.Count, differences(p.delta), pendingKeys(p.pending)
	return api.PolicyReloadResult{Revision: now.Revision(), Digest: now.Digest(), Changed: p.policyChanged, Files: printed(now, &p.cfg.Policy), Config: done}
}

// differences are changes in the form for operators and records.
func differences(d config.Delta) []api.ConfigDifference {
	list := make([]api.ConfigDifference, len(d.Changes))
	for i, c := range d.Changes {
		list[i] = api.ConfigDifference{Key: c.Path, Was: c.Old, Now: c.New}
	}
	return list
}

// overridden are the keys whose values in the file are overridden.
func overridden(cfg *config.Config) []api.ConfigOverride {
	list := []api.ConfigOverride{}
	for _, key := range cfg.Overridden() {
		list = append(list, api.ConfigOverride{Key: key, By: cfg.Source(key)})
	}
	return list
}

// Diff describes the effect of a reload, without making it.
func (r *Engine) Diff(context.Context, *api.Empty) (api.ConfigDiffResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, refused := r.plan(asker{by: byOperator}, true)
	if refused != nil {
		return api.ConfigDiffResult{}, r.refusal(refused)
	}
	return api.ConfigDiffResult{
		File: p.cfg.File, ChangeCount: p.delta.Count, Changes: differences(p.delta),
		PendingRestart: differences(p.pending), Overridden: overridden(p.cfg), PolicyChanged: p.policyChanged, PolicyRevision: p.policy.Revision(),
	}, nil
}

// Start adds the records of the configuration and the policy of the start. The caller
// commits them, and then calls done.
func (r *Engine) Start(c *store.Change) (done func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	who, p := asker{by: byStart}, &plan{cfg: r.started, policy: r.o.Policy.Load()}
	if former := r.o.Former(); former != "" {
		p.delta = differs(former, r.started)
	}
	records, part, done, err := r.o.Note(r.changed(p, who), r.started, false)
	if err != nil {
		return nil, err
	}
	c.Records = append(append(c.Records, r.loaded(p.policy, &r.started.Policy, who)), records...)
	c.Add(part)
	return done, nil
}

// differs is the shown difference from a recorded configuration. If this version cannot
// read the recorded one, it is empty: the records have the changed lines.
func differs(former string, now *config.Config) config.Delta {
	shown, err := now.Redacted()
	if err != nil {
		return config.Delta{}
	}
	was, wrong := config.Parse("on record", []byte(former))
	is, err := config.Parse("in force", shown)
	if wrong != nil || err != nil {
		return config.Delta{}
	}
	return is.Since(was)
}

// Restate records the whole configuration in force, before retention removes the record
// that later differences build on. upTo is the last record to be removed.
func (r *Engine) Restate(upTo uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.o.Goes(upTo) {
		return nil
	}
	p := &plan{cfg: r.inForce, policy: r.o.Policy.Load(), pending: *r.later.Load()}
	records, part, done, err := r.o.Note(r.changed(p, asker{by: byRetention}), r.inForce, true)
	if err != nil {
		return err
	}
	change := &store.Change{Drains: true, Records: records}
	change.Add(part)
	if _, err := r.o.Commit(change); err != nil {
		return fmt.Errorf("cannot put the configuration in force on record as a whole: %w", err)
	}
	done()
	return nil
}

// loaded makes the record of a policy that is about to be in force.
func (r *Engine) loaded(p *policy.Policy, from *config.Policy, who asker) *audit.Record {
	d := who.details()
	d["digest"], d["source"], d["files"], d["timeout"] = p.Digest(), sourceName(from), printed(p, from), from.Timeout.String()
	return &audit.Record{
		ID: r.o.NewID(), ActionType: audit.ActionPolicyChange, Event: "loaded", PolicyRevision: p.Revision(), Details: d,
	}
}

// changed makes the record of a configuration that is about to be in force.
func (r *Engine) changed(p *plan, who asker) *audit.Record {
	d := who.details()
	d["file"], d["changeCount"], d["diff"], d["needsRestart"] = Recorded(p.cfg.File), p.delta.Count, differences(p.delta), pendingKeys(p.pending)
	return &audit.Record{
		ID: r.o.NewID(), ActionType: audit.ActionConfigChange, Event: "loaded", PolicyRevision: p.policy.Revision(), Details: d,
	}
}

// Recorded is the absolute name of a file for records, because a relative one would mean
// nothing later. It is "" for none. printed is for several files.
func Recorded(file string) string {
	if file == "" {
		return ""
	}
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	return strings.ToValidUTF8(file, "\ufffd")
}

// printed are the names of a policy's files. The built-in policy's have no folder.
func printed(p *policy.Policy, from *config.Policy) []string {
	files := p.Files()
	for i, f := range files {
		if from.Path != "" {
			f = Recorded(f)
		}
		files[i] = f
	}
	return files
}
