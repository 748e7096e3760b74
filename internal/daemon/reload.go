package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
	"github.com/openclawos/ocipd/internal/kernel"
	"github.com/openclawos/ocipd/internal/policy"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// By whom a policy was put to the daemon, in the records of it.
const (
	byStart    = "start"
	byOperator = "operator"
	byFile     = "file"
	bySignal   = "signal"
)

// asker is who put a policy to the daemon. The peer is an operator's process,
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

// reloader puts policies in force while the daemon runs, one after another.
//
// A policy is read, compiled and tried; then its record is made durable; then
// it is swapped in, whole. So every revision that a decision names was
// announced by a record before, and what fails on the way leaves the policy in
// force as it was. A decision that is under way keeps the policy it began with.
type reloader struct {
	log      *zap.Logger
	newID    func() string
	commit   func(*store.Change) (store.Receipt, error)
	settings *settings
	holder   *policy.Holder
	// tell is called whenever operators are told something else.
	tell func()

	// closing ends with the daemon, and nothing else cuts a reload short.
	closing context.Context
	stop    context.CancelFunc
	// news says that a file changed since it was last taken.
	news  chan struct{}
	tasks sync.WaitGroup

	// status is what operators are told. It is replaced under mu.
	status atomic.Pointer[api.PolicyStatus]

	// mu makes reloads one after another. It is held over the disk, which
	// nobody waits for but those who ask for a reload.
	mu sync.Mutex
	// cfg is the last configuration that was valid as a whole, and inForce the
	// part of one that the policy in force was made from.
	cfg     *config.Config
	inForce config.Policy
	// watcher follows the path watched, where that is not empty.
	watcher *config.Watcher
	watched string
	// refused identifies what was refused last and is on record as that, until
	// a policy is taken again.
	refused string
}

func source(p *config.Policy) policy.Source {
	return policy.Source{Path: p.Path, Data: p.Data.Map(), Timeout: p.Timeout}
}

// sourceName is a policy's path, as it is shown.
func sourceName(p *config.Policy) string { return cmp.Or(p.Path, "built-in") }

// newReloader takes charge of a policy that was compiled already.
func newReloader(ctx context.Context, cfg *config.Config, holder *policy.Holder, s *settings, newID func() string, log *zap.Logger) *reloader {
	r := &reloader{
		log: log, newID: newID, settings: s, holder: holder, tell: func() {}, cfg: cfg, inForce: cfg.Policy, news: make(chan struct{}, 1),
	}
	r.closing, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.stands()
	return r
}

// start follows the policy's files, where the configuration wants that. An edit
// from here on is not missed, and one since the start is taken at once.
func (r *reloader) start() error {
	if err := r.follow(&r.cfg.Policy); err != nil {
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

// close waits for a reload that is under way and ends the watch.
func (r *reloader) close() {
	r.stop()
	r.tasks.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watcher != nil {
		r.watcher.Close()
	}
}

// poke has the files looked at, soon.
func (r *reloader) poke() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// follow watches the policy's path from here on, and nothing where the policy
// is built in or not to be watched.
func (r *reloader) follow(p *config.Policy) error {
	path := p.Path
	if !p.Watch {
		path = ""
	}
	if path == r.watched {
		return nil
	}
	var next *config.Watcher
	if path != "" {
		var err error
		next, err = config.WatchTree(r.closing, path, func() string { return contents(path) }, r.poke)
		if err != nil {
			return fmt.Errorf("cannot watch policy.path: %w", err)
		}
	}
	if r.watcher != nil {
		r.watcher.Close()
	}
	r.watcher, r.watched = next, path
	return nil
}

// contents tells apart what would be loaded from a path.
func contents(path string) string {
	text, err := policy.Read(policy.Source{Path: path})
	if err != nil {
		return err.Error()
	}
	return text.Digest()
}

// reload reads the configuration file and the policy again, and puts the policy
// in force if it is another one. The sections of the configuration that apps
// see take effect too.
//
// Where policy.watch is off, a change of files leaves the policy alone. An
// error is an [*api.Error]: CONFLICT with [api.PolicyRefusal] for what cannot
// be used, INTERNAL_ERROR for what cannot be recorded.
func (r *reloader) reload(who asker) (api.PolicyReloadResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cfg, err := r.cfg.Reload()
	if err != nil {
		r.log.Error("the configuration file is not valid: it changes nothing", zap.Error(err))
		if who.by == byFile && !r.cfg.Policy.Watch {
			return r.result(false), nil
		}
		return api.PolicyReloadResult{}, r.refuse(who, &r.cfg.Policy, "", err)
	}
	r.cfg = cfg
	r.settings.take(cfg)
	wanted := &cfg.Policy
	// Watched first: what changes after it was read is an event.
	if err := r.follow(wanted); err != nil {
		return api.PolicyReloadResult{}, r.refuse(who, wanted, "", err)
	}
	if who.by == byFile && !wanted.Watch {
		return r.result(false), nil
	}
	text, err := policy.Read(source(wanted))
	if err != nil {
		return api.PolicyReloadResult{}, r.refuse(who, wanted, "", err)
	}
	old := r.holder.Load()
	next := old
	changed := text.Digest() != old.Digest() || wanted.Path != r.inForce.Path || wanted.Timeout != r.inForce.Timeout
	switch {
	case changed:
		if next, err = r.compile(text); err != nil {
			return api.PolicyReloadResult{}, r.refuse(who, wanted, text.Digest(), err)
		}
	case r.status.Load().Refusal == "":
		return r.result(false), nil
	}
	record := r.loaded(next, wanted, who)
	record.Details["previous"] = old.Revision()
	if _, err := r.commit(&store.Change{Records: []*audit.Record{record}, Drains: true}); err != nil {
		return api.PolicyReloadResult{}, r.unrecorded(err)
	}
	r.inForce = *wanted
	r.holder.Swap(next)
	r.stands()
	r.log.Info("the policy is in force", zap.String("revision", next.Revision()), zap.String("previous", old.Revision()), zap.String("by", who.by))
	return r.result(changed), nil
}

// compile compiles and tries a policy. One that brings the compiler down is a
// bad policy, and no reason for the daemon to end.
func (r *reloader) compile(text *policy.Text) (p *policy.Policy, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			r.log.Error("a policy brought the compiler down", zap.Any("fault", fault), zap.Stack("stack"))
			err = fmt.Errorf("cannot compile the policy: %v", fault)
		}
	}()
	return text.Compile(r.closing)
}

// stands makes the policy in force the one that operators are told of.
func (r *reloader) stands() {
	r.refused = ""
	r.status.Store(&api.PolicyStatus{Source: sourceName(&r.inForce), Revision: r.holder.Load().Revision()})
	r.tell()
}

// refusedFor leaves the policy in force and tells operators why.
func (r *reloader) refusedFor(reason string) {
	status := *r.status.Load()
	status.RefusedAt, status.Refusal = time.Now().UTC(), reason
	r.status.Store(&status)
	r.tell()
}

func (r *reloader) result(changed bool) api.PolicyReloadResult {
	p := r.holder.Load()
	return api.PolicyReloadResult{Revision: p.Revision(), Digest: p.Digest(), Changed: changed, Files: printed(p.Files())}
}

// loaded is the record of a policy that is about to be in force.
func (r *reloader) loaded(p *policy.Policy, from *config.Policy, who asker) *audit.Record {
	d := who.details()
	d["digest"], d["source"], d["files"], d["timeout"] = p.Digest(), sourceName(from), printed(p.Files()), from.Timeout.String()
	return &audit.Record{
		ID: r.newID(), ActionType: audit.ActionPolicyChange, Event: "loaded", PolicyRevision: p.Revision(), Details: d,
	}
}

// refuse records that what was wanted cannot be used, and returns the error
// that says so. What files say wrong is recorded once, what a person asked for
// each time. The digest is of what was refused, empty where it was not read.
func (r *reloader) refuse(who asker, wanted *config.Policy, digest string, cause error) error {
	if r.closing.Err() != nil {
		return api.Errorf(api.InternalError, "cannot load the policy: the daemon is stopping")
	}
	faults := faultsOf(cause, sourceName(wanted))
	reason := reasonOf(cause)
	stays := r.holder.Load().Revision()
	refusal := &api.Error{
		Code: api.Conflict, Message: fmt.Sprintf("%s; the policy in force stays (%s)", reason, stays),
		Details: api.PolicyRefusal{Revision: stays, FaultCount: len(faults), Faults: faults[:min(len(faults), maxFaults)]},
	}
	what := sourceName(wanted) + "\n" + cmp.Or(digest, cause.Error())
	if who.by == byFile && what == r.refused {
		return refusal
	}
	r.refused = ""
	r.refusedFor(reason)
	r.log.Error("a policy is refused, the one in force stays", zap.String("reason", reason), zap.String("revision", stays), zap.String("by", who.by))
	d := who.details()
	d["source"], d["faultCount"], d["faults"] = sourceName(wanted), len(faults), faults[:min(len(faults), maxFaults)]
	if digest != "" {
		d["digest"] = digest
	}
	if _, err := r.commit(&store.Change{Drains: true, Records: []*audit.Record{{
		ID: r.newID(), ActionType: audit.ActionPolicyChange, Event: "refused", PolicyRevision: stays, PolicyReason: reason, Details: d,
	}}}); err != nil {
		r.log.Error("cannot record the refusal of a policy", zap.Error(err))
		return refusal
	}
	r.refused = what
	return refusal
}

// unrecorded says that a policy is good and yet not in force, for want of its
// record.
func (r *reloader) unrecorded(cause error) error {
	r.log.Error("cannot record a policy: the one in force stays", zap.Error(cause))
	told := kernel.NotRecorded("cannot record the policy, so it is not in force", cause)
	r.refused = ""
	r.refusedFor(told.Message)
	return told
}

// faultsOf lists what is wrong, at least one thing. What has no place of its
// own is laid to the source.
func faultsOf(cause error, source string) []api.PolicyFault {
	var faults []api.PolicyFault
	add := func(file string, line int, message string) {
		faults = append(faults, api.PolicyFault{File: clip(file, maxFaultBytes), Line: line, Message: clip(message, maxFaultBytes)})
	}
	text, inText := errors.AsType[policy.CompileError](cause)
	problems, inConfig := errors.AsType[config.Errors](cause)
	switch {
	case inText:
		for _, f := range text {
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
	if _, ok := errors.AsType[config.Errors](cause); ok {
		reason = "cannot use the configuration: " + reason
	}
	return clip(reason, maxRefusal)
}

// clip makes text fit for records: UTF-8, and at most limit bytes of it.
func clip(text string, limit int) string {
	const mark = "…"
	if text = strings.ToValidUTF8(text, "\ufffd"); len(text) > limit {
		text = strings.ToValidUTF8(text[:limit-len(mark)], "") + mark
	}
	return text
}

// printed makes the names of files fit for records.
func printed(files []string) []string {
	for i, f := range files {
		files[i] = strings.ToValidUTF8(f, "\ufffd")
	}
	return files
}
