// Package reload puts configurations and policies in force while the daemon runs.
package reload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/filewatch"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/ocip/policy"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/storeerror"
	"go.uber.org/zap"
)

// By whom a policy or a configuration was put to the daemon, in the records of
// it.
const (
	byStart    = "start"
	byOperator = "operator"
	byFile     = "file"
	bySignal   = "signal"
	// byRetention is by nobody: what is in force is on record again before the record that says
	// it is removed.
	byRetention = "retention"
)

// asker is who put something to the daemon. The peer is an operator's process,
// and nil otherwise.
type asker struct {
	by   string
	peer api.Peer
}

// details begins the details of a record.
func (a asker) details() map[string]any {
	d := map[string]any{"by": a.by}
	if a.peer != nil {
		d["uid"], _, d["pid"] = a.peer.Credentials()
	}
	return d
}

// Bounds of a refusal, as it is recorded and told. What is wrong may repeat
// what stands in the files. Sizes are in bytes.
const (
	maxFaults     = 20
	maxFaultBytes = 512
	maxRefusal    = 2048
)

// Options are what an engine is given from outside.
type Options struct {
	Log    *zap.Logger
	Now    func() time.Time
	NewID  func() string
	Commit func(*store.Change) (store.Receipt, error)
	Policy *policy.Holder
	// Prepare makes all that a configuration and a policy need to be in force,
	// and returns what puts them there.
	Prepare func(*config.Config, *policy.Policy) (adopt func(), err error)
	// Startable says why a start with a configuration would fail.
	Startable func(context.Context, *config.Config) error
	// Note puts into records which configuration is about to be in force, beginning with the one
	// given, and as a whole where that is asked for. The part goes into the commit of them, and
	// done is called once that is durable. Former is the one that was on record last, "" for
	// none, and Goes reports whether what all the others go on from is among the first records.
	Note   func(first *audit.Record, cfg *config.Config, whole bool) (records []*audit.Record, part store.Part, done func(), err error)
	Former func() string
	Goes   func(upTo uint64) bool
	// Tell is called whenever operators are told something else.
	Tell func()
}

// Engine puts configurations and policies in force, one after another.
//
// What can fail comes first: the configuration as a whole, the policy's reading,
// compiling and trial, and all that is made of both. Then the records are made
// durable, in one commit, and then everything is swapped in at once. So every
// decision is made under what a record announced before, and what fails on the
// way leaves what is in force as it was. A call that is under way keeps what it
// began with.
type Engine struct {
	o Options

	// closing ends with the daemon, and nothing else cuts a reload short.
	closing context.Context
	stop    context.CancelFunc
	// news says that a file changed since it was last taken.
	news  chan struct{}
	tasks sync.WaitGroup

	// What operators are told. It is replaced under mu.
	status atomic.Pointer[api.PolicyStatus]
	config atomic.Pointer[api.ConfigStatus]
	// file is the name of the file that was read last, empty for none.
	file atomic.Pointer[string]
	// later is in what the file differs from what is in force for want of a
	// restart.
	later atomic.Pointer[config.Delta]

	// mu makes reloads one after another. It is held over the disk, which
	// nobody waits for but those who ask for a reload.
	mu sync.Mutex
	// started is the configuration of the start, read the last one that was valid
	// as a whole, and inForce what of the two is in force.
	started, read, inForce *config.Config
	// own follows the configuration file.
	own *filewatch.Watcher
	// watcher follows the policy's path watched, where that is not empty, and
	// listing the directory file listed.
	watcher, listing *filewatch.Watcher
	watched, listed  string
	// asked counts the reloads that somebody asked for. What a watch saw last is
	// then no longer what was taken last.
	asked atomic.Uint64
	// refused identifies what was refused last and is on record as that, until
	// something is taken again.
	refused string
}

// Source is where a configuration says the policy comes from.
func Source(p *config.Policy) policy.Source {
	return policy.Source{Path: p.Path, Data: p.Data.Map(), Timeout: p.Timeout}
}

// sourceName is a policy's path, as it is shown.
func sourceName(p *config.Policy) string { return cmp.Or(Recorded(p.Path), "built-in") }

// New takes charge of a configuration and a policy that was compiled already.
func New(ctx context.Context, cfg *config.Config, o Options) *Engine {
	r := &Engine{o: o, started: cfg, read: cfg, inForce: cfg, news: make(chan struct{}, 1)}
	r.closing, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.later.Store(&config.Delta{})
	r.file.Store(&cfg.File)
	r.policyStands()
	r.configStands()
	return r
}

// Watch follows the configuration file, where there is a name of one, and the files
// that the configuration names. An edit from here on is not missed, and one since the
// start is taken at once.
func (r *Engine) Watch(file string) (err error) {
	if file != "" {
		r.own, err = filewatch.Start(r.closing, file, func() string { return r.since(filewatch.Fingerprint(file)) }, r.wakeUp)
		if err != nil {
			return err
		}
	}
	if err := r.follow(r.inForce); err != nil {
		return err
	}
	// What becomes of a change is logged, recorded and shown.
	_, _ = r.reload(asker{by: byFile})
	r.tasks.Go(func() {
		for {
			select {
			case <-r.closing.Done():
				return
			case <-r.news:
				_, _ = r.reload(asker{by: byFile})
			}
		}
	})
	return nil
}

// Close waits for a reload that is under way and ends the watch.
func (r *Engine) Close() {
	r.stop()
	r.tasks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, watcher := range []*filewatch.Watcher{r.own, r.watcher, r.listing} {
		if watcher != nil {
			watcher.Close()
		}
	}
}

// wakeUp has the files looked at, soon.
func (r *Engine) wakeUp() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// follow watches the files that a configuration names from here on: the policy's
// path, but where the policy is built in or not to be watched, and the directory
// file.
func (r *Engine) follow(cfg *config.Config) error {
	path := cfg.Policy.Path
	if !cfg.Policy.Watch {
		path = ""
	}
	if err := r.watch(&r.watcher, &r.watched, path, contents); err != nil {
		return fmt.Errorf("cannot watch policy.path: %w", err)
	}
	if err := r.watch(&r.listing, &r.listed, cfg.DirectoryPath(), filewatch.Fingerprint); err != nil {
		return fmt.Errorf("cannot watch directory_file: %w", err)
	}
	return nil
}

// watch has a watcher follow another path, none where that is empty.
func (r *Engine) watch(watcher **filewatch.Watcher, watched *string, path string, state func(path string) string) (err error) {
	if path == *watched {
		return nil
	}
	var next *filewatch.Watcher
	if path != "" {
		next, err = filewatch.Start(r.closing, path, func() string { return r.since(state(path)) }, r.wakeUp)
		if err != nil {
			return err
		}
	}
	if *watcher != nil {
		(*watcher).Close()
	}
	*watcher, *watched = next, path
	return nil
}

// since tells states of files apart that were looked at before and after somebody
// asked for a reload: an edit that was taken so and then undone is an edit.
func (r *Engine) since(state string) string { return fmt.Sprint(r.asked.Load(), " ", state) }

// contents tells apart what would be loaded from a path.
func contents(path string) string {
	text, err := policy.Read(policy.Source{Path: path})
	if err != nil {
		return err.Error()
	}
	return text.Digest()
}

// plan is what a reload would put in force, with everything done that can fail.
type plan struct {
	cfg    *config.Config
	policy *policy.Policy
	// policyChanged is set where the policy is another one, and policyAnew where
	// it goes on record: also when a refusal of it is over.
	policyChanged, policyAnew bool
	delta, pending            config.Delta
	// configAnew is set where the configuration goes on record.
	configAnew bool
	adopt      func()
}

// refusal is why a plan cannot be made: for the configuration's sake, or the
// policy's.
type refusal struct {
	cause error
	// policy is where the policy comes from that is refused, nil where the
	// configuration is; digest is of what was read of it.
	policy *config.Policy
	digest string
}

// plan reads the configuration file and the policy again and makes of them what
// can be put in force. Look only looks: the path that is watched stays the same.
//
// Where policy.watch is off, a change of files leaves the policy alone.
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
		// Watched first: what changes after it was read is an event.
		if err := r.follow(p.cfg); err != nil {
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
	if p.adopt, err = r.o.Prepare(p.cfg, p.policy); err != nil {
		return nil, &refusal{cause: err}
	}
	return &p, nil
}

// samePending reports whether two configurations wait for a restart for the same
// reasons, as far as those are shown.
func samePending(a, b config.Delta) bool {
	return a.Count == b.Count && slices.Equal(a.Keys, b.Keys) &&
		slices.EqualFunc(a.Changes, b.Changes, func(x, y keypath.Change) bool {
			return x.Path == y.Path && fmt.Sprint(x.Old, x.New) == fmt.Sprint(y.Old, y.New)
		})
}

// Reload is asked for by an operator. It does not end with its caller.
func (r *Engine) Reload(_ context.Context, who api.Peer, _ *api.Empty) (api.PolicyReloadResult, error) {
	return r.reload(asker{by: byOperator, peer: who})
}

// ReloadBySignal is asked for by a signal to the process.
func (r *Engine) ReloadBySignal() (api.PolicyReloadResult, error) {
	return r.reload(asker{by: bySignal})
}

// reload reads the configuration file and the policy again, and puts in force
// what has changed in them. What takes a restart keeps its value, and is named.
//
// An error is an [*api.Error]: CONFLICT with [api.PolicyRefusal] for what cannot
// be used, INTERNAL_ERROR for what cannot be recorded.
func (r *Engine) reload(who asker) (api.PolicyReloadResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if who.by != byFile {
		r.asked.Add(1)
	}
	p, refused := r.plan(who, false)
	if refused != nil {
		return api.PolicyReloadResult{}, r.refuse(who, refused)
	}
	if !p.policyAnew && !p.configAnew {
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
	if _, err := r.o.Commit(change); err != nil {
		return api.PolicyReloadResult{}, r.unrecorded(p, err)
	}
	noted()
	p.adopt()
	r.inForce = p.cfg
	r.later.Store(&p.pending)
	// A refusal of the policy stands until the policy itself is looked at again.
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
		keys := p.delta.Keys
		r.o.Log.Info("the configuration is in force", zap.Strings("changed", keys), zap.Int("changes", p.delta.Count), zap.String("by", who.by))
		if len(p.pending.Keys) > 0 {
			r.o.Log.Warn("some of the configuration takes a restart and keeps its value until then", zap.Strings("keys", p.pending.Keys))
		}
	}
	return r.result(p), nil
}

// compile compiles and tries a policy. One that brings the compiler down is a
// bad policy, and no reason for the daemon to end.
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

// PolicyStatus and ConfigStatus are what operators are told.
func (r *Engine) PolicyStatus() api.PolicyStatus { return *r.status.Load() }

// ConfigStatus is as [Engine.PolicyStatus].
func (r *Engine) ConfigStatus() api.ConfigStatus { return *r.config.Load() }

// File is the name of the file that was read last, empty for none.
func (r *Engine) File() string { return *r.file.Load() }

// Waiting are the keys that take a restart.
func (r *Engine) Waiting() []string { return pendingKeys(*r.later.Load()) }

// pendingKeys are never nil, so that programs find a list.
func pendingKeys(d config.Delta) []string { return append([]string{}, d.Keys...) }

// refusedFor leaves what is in force and tells operators why.
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

// result is what a reload is answered with that has put a plan in force, or found
// nothing to do.
func (r *Engine) result(p *plan) api.PolicyReloadResult {
	now := r.o.Policy.Load()
	return api.PolicyReloadResult{
		Revision: now.Revision(), Digest: now.Digest(), Changed: p.policyChanged, Files: printed(now, &p.cfg.Policy),
		Config: api.ConfigReload{
			ChangeCount: p.delta.Count, Changes: differences(p.delta), PendingRestart: pendingKeys(p.pending),
		},
	}
}

// differences are changes as operators and records see them.
func differences(d config.Delta) []api.ConfigDifference {
	list := make([]api.ConfigDifference, len(d.Changes))
	for i, c := range d.Changes {
		list[i] = api.ConfigDifference{Key: c.Path, Was: c.Old, Now: c.New}
	}
	return list
}

// overridden are the keys whose values in the file do not count.
func overridden(cfg *config.Config) []api.ConfigOverride {
	list := []api.ConfigOverride{}
	for _, key := range cfg.Overridden() {
		list = append(list, api.ConfigOverride{Key: key, By: cfg.Source(key)})
	}
	return list
}

// Diff says what a reload would do, and does nothing of it.
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

// Start adds the records of the configuration and the policy that the daemon starts with. The
// caller commits them, and then calls done.
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

// differs is what people are shown of the difference to a configuration that is on record. Where
// this version cannot read that one, it is nothing: the records have the lines that changed.
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

// Restate puts the configuration in force on record as a whole, before records up to a number
// are removed from whose one the differences go on.
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

// loaded is the record of a policy that is about to be in force.
func (r *Engine) loaded(p *policy.Policy, from *config.Policy, who asker) *audit.Record {
	d := who.details()
	d["digest"], d["source"], d["files"], d["timeout"] = p.Digest(), sourceName(from), printed(p, from), from.Timeout.String()
	return &audit.Record{
		ID: r.o.NewID(), ActionType: audit.ActionPolicyChange, Event: "loaded", PolicyRevision: p.Revision(), Details: d,
	}
}

// changed is the record of a configuration that is about to be in force.
func (r *Engine) changed(p *plan, who asker) *audit.Record {
	d := who.details()
	d["file"], d["changeCount"], d["diff"], d["needsRestart"] = Recorded(p.cfg.File), p.delta.Count, differences(p.delta), pendingKeys(p.pending)
	return &audit.Record{
		ID: r.o.NewID(), ActionType: audit.ActionConfigChange, Event: "loaded", PolicyRevision: p.policy.Revision(), Details: d,
	}
}

// refusal is what is told of what cannot be used.
func (r *Engine) refusal(why *refusal) *api.Error {
	faults, stays := r.faults(why), r.o.Policy.Load().Revision()
	return &api.Error{
		Code: api.Conflict, Message: fmt.Sprintf("%s; what is in force stays (policy %s)", reasonOf(why.cause), stays),
		Details: api.PolicyRefusal{Revision: stays, FaultCount: len(faults), Faults: faults[:min(len(faults), maxFaults)]},
	}
}

func (r *Engine) faults(why *refusal) []api.PolicyFault {
	if why.policy != nil {
		return faultsOf(why.cause, sourceName(why.policy))
	}
	return faultsOf(why.cause, r.started.File)
}

// refuse records that what was wanted cannot be used, and returns the error
// that says so. What files say wrong is recorded once, what a person asked for
// each time.
func (r *Engine) refuse(who asker, why *refusal) error {
	if r.closing.Err() != nil {
		return api.Errorf(api.InternalError, "cannot reload: the daemon is stopping")
	}
	faults, reason, ofPolicy := r.faults(why), reasonOf(why.cause), why.policy != nil
	stays := r.o.Policy.Load().Revision()
	refused := r.refusal(why)
	what := "config\n" + why.cause.Error()
	if ofPolicy {
		// With another configuration it is another refusal: that is not taken either.
		what = r.read.Sum() + sourceName(why.policy) + "\n" + cmp.Or(why.digest, why.cause.Error())
	}
	if who.by == byFile && what == r.refused {
		return refused
	}
	r.refused = ""
	r.refusedFor(ofPolicy, reason, faults[:min(len(faults), maxFaults)])
	d := who.details()
	d["faultCount"], d["faults"] = len(faults), faults[:min(len(faults), maxFaults)]
	record := &audit.Record{ID: r.o.NewID(), ActionType: audit.ActionConfigChange, Event: "refused", PolicyRevision: stays, PolicyReason: reason, Details: d}
	if ofPolicy {
		r.o.Log.Error("a policy is refused, the one in force stays", zap.String("reason", reason), zap.String("revision", stays), zap.String("by", who.by))
		record.ActionType, d["source"] = audit.ActionPolicyChange, sourceName(why.policy)
		if why.digest != "" {
			d["digest"] = why.digest
		}
	} else {
		r.o.Log.Error("the configuration is refused, what is in force stays", zap.String("reason", reason), zap.String("by", who.by))
		d["file"] = Recorded(r.started.File)
	}
	if _, err := r.o.Commit(&store.Change{Drains: true, Records: []*audit.Record{record}}); err != nil {
		r.o.Log.Error("cannot record the refusal of a policy or configuration", zap.Error(err))
		return refused
	}
	r.refused = what
	return refused
}

// unrecorded says that what is wanted is good and yet not in force, for want of
// its record.
func (r *Engine) unrecorded(p *plan, cause error) error {
	r.o.Log.Error("cannot record a reload: what is in force stays", zap.Error(cause))
	what := "the configuration"
	if p.policyAnew {
		what = "the policy"
	}
	told := storeerror.NotRecorded("cannot record "+what+", so it is not in force", cause)
	r.refused = ""
	r.refusedFor(p.policyAnew, told.Message, nil)
	return told
}

// faultsOf lists what is wrong, at least one thing. What has no place of its
// own is laid to the source.
func faultsOf(cause error, source string) []api.PolicyFault {
	var faults []api.PolicyFault
	add := func(file string, line int, message string) {
		faults = append(faults, api.PolicyFault{File: text.Clip(file, maxFaultBytes), Line: line, Message: text.Clip(message, maxFaultBytes)})
	}
	compiled, inText := errors.AsType[policy.CompileError](cause)
	problems, inConfig := errors.AsType[config.Errors](cause)
	switch {
	case inText:
		for _, f := range compiled {
			add(f.File, f.Line, f.Message)
		}
	case inConfig:
		for _, p := range problems {
			message := p.Message
			if p.Nearest != "" {
				message += fmt.Sprintf(": did you mean %q?", p.Nearest)
			}
			add(p.File, p.Line, message)
		}
	default:
		add(source, 0, cause.Error())
	}
	return faults
}

// reasonOf says in one line why something is refused.
func reasonOf(cause error) string {
	reason := strings.ReplaceAll(cause.Error(), "\n", "; ")
	if _, ok := errors.AsType[policy.CompileError](cause); ok {
		reason = "cannot compile the policy: " + reason
	}
	if _, ok := errors.AsType[config.Errors](cause); ok && !strings.HasPrefix(reason, "cannot ") {
		reason = "cannot use the configuration: " + reason
	}
	return text.Clip(reason, maxRefusal)
}

// Recorded is the name of a file as records have it, from the root on: without the folder it
// would name nothing later. It is "" for none. printed has those of many.
func Recorded(file string) string {
	if file == "" {
		return ""
	}
	if path, err := filepath.Abs(file); err == nil {
		file = path
	}
	return strings.ToValidUTF8(file, "\ufffd")
}

// printed are the names of a policy's files. Those of the built-in one are in no folder.
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
