// Package policy answers the protocol's policy questions in Rego.
//
// Use: [Compile] a [Source] at start-up and again at each reload, keep the result in a [Holder],
// and ask the Holder. Compile finds every fault in a policy, and asks it sample questions, so a
// policy in force has answered before. A caller that first wants to know whether anything has
// changed uses the two halves, [Read] and [Text.Compile].
//
// The questions. [ocip.ActionExchange] asks data.ocip.agent_exchange.decision,
// [ocip.ActionExchangeCrossOrg] asks data.ocip.cross_org.decision. Rego sees
//
//	input = {action, exchange_type, data_classification, round,
//	         source{instance_id, user_id, org_unit, tenant_id}, target{…},
//	         counterparty{kind}}
//
// and for the second also source_org_unit and target_org_unit, under these names and as
// sourceOrgUnit and targetOrgUnit. counterparty.kind is agent, person or unknown; the target of an
// unknown one is empty, and the second question is asked only about agents. A reference to any
// other member of input does not compile. data.policy is [Source].Data. The answer is
//
//	{allow, require_approval, reason, constraints{max_classification, max_rounds, approvers}}
//
// Its four members are required, and each constraint is optional. An answer of any other shape is
// an error: with an unknown member, a missing one, or one of the wrong type.
//
// If the policy has the package ocip.task, [Policy.EvaluateTask] asks data.ocip.task.decision about
// tasks, with the members of [TaskQuestion] as input. If it has the package ocip.tool,
// [Policy.EvaluateTool] asks data.ocip.tool.decision about tool calls, with [ocip.ToolQuestion].
//
// Restrictions: http.send, net.lookup_ip_addr and opa.runtime do not compile, and schemas are not
// fetched, so that a policy cannot send its questions elsewhere or read the daemon's environment. A
// built-in function that fails ends the evaluation instead of leaving a rule undefined.
//
// The caller's duty: treat an error as a denial, as [ocip.Policy] says, and write name and revision
// of every answer, also with an error, into the record. A policy is trusted like the configuration:
// its time is bounded, but one built-in call, which may take memory, is not interrupted.
package policy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Defaults of [Source].
const (
	DefaultTimeout   = 100 * time.Millisecond
	DefaultCacheSize = 1024
)

// trialTimeout is the least time for a sample question. The machine is busiest when daemons start,
// and a refused policy keeps the daemon down, while a late answer denies one message.
const trialTimeout = time.Second

// turnTimeout bounds the wait of a question for its turn.
const turnTimeout = time.Second

// turns limits the simultaneous evaluations to the number of processors. Hundreds may begin
// together, for example after a start with an empty cache. Without the limit, the time of the
// others would count for each of them.
type turns chan struct{}

func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	default:
	}
	late := time.NewTimer(turnTimeout)
	defer late.Stop()
	select {
	case t <- struct{}{}:
		return nil
	case <-late.C:
		return fmt.Errorf("%w: no turn within %v", ErrTimeout, turnTimeout)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turns) end() { <-t }

// maxReadings bounds the readings in a row of files that keep changing.
const maxReadings = 10

// maxCachedInput bounds the text of a question whose answer is cached, in bytes. Parts of it come
// from other machines.
const maxCachedInput = 1024

var (
	// ErrTimeout reports that an evaluation was stopped at its deadline.
	ErrTimeout = errors.New("no answer in time")
	// ErrNotLoaded reports that a [Holder] holds no policy.
	ErrNotLoaded = errors.New("cannot evaluate policy: none is loaded")
)

// Source names the text and the settings of a policy.
type Source struct {
	// Path is a .rego file, or a folder of such files. Files named _test.rego and names that begin
	// with a dot are skipped. Empty is the built-in policy.
	Path string
	// Data is the configuration's policy.data, any JSON value.
	Data map[string]any
	// Timeout bounds one evaluation, from the beginning of its turn. Zero is [DefaultTimeout].
	Timeout time.Duration
	// CacheSize is the number of cached answers. Zero is [DefaultCacheSize], and a negative value
	// caches none.
	CacheSize int
}

// Policy is one compiled policy with its data. It does not change and may be called from several
// goroutines. It implements [ocip.Policy].
type Policy struct {
	exchange, crossOrg query
	// tasks is nil if the policy has no package for tasks.
	tasks *query
	// tools is nil if the policy has no package for tool calls.
	tools   *query
	files   []string
	digest  string
	timeout time.Duration
	lasts   bool // answers depend on the question alone
	// cache is nil if answers do not last or are not cached. Its keys need no revision, since the
	// cache belongs to this policy.
	cache *lru.Cache[ocip.PolicyInput, ocip.PolicyAnswer]
}

// query is the entry point of one action.
type query struct {
	name     string // of the Rego package, without "data."
	turns    turns  // of the whole policy
	prepared rego.PreparedEvalQuery
}

func (q *query) ref() string { return "data." + q.name + ".decision" }

// Text is a policy before it is compiled. It does not change.
type Text struct {
	src   Source
	files []file
	data  map[string]any
	// canonical is the data as JSON.
	canonical []byte
	digest    string
}

// Read reads the files of a policy and its data. It reads them until two readings in a row agree:
// if a folder is swapped for another meanwhile, it reads one of them, and never half of each.
func Read(src Source) (*Text, error) {
	files, err := settled(src.Path)
	if err != nil {
		return nil, err
	}
	data, canonical, err := canonicalData(src.Data)
	if err != nil {
		return nil, err
	}
	return &Text{src: src, files: files, data: data, canonical: canonical, digest: digest(files, canonical)}, nil
}

// settled reads files until two readings agree, also in their error.
func settled(path string) ([]file, error) {
	if path == "" {
		return load(path, false)
	}
	last := ""
	for range maxReadings {
		files, err := load(path, false)
		now := digest(files, nil)
		if err != nil {
			now = err.Error()
		}
		if now == last {
			return files, err
		}
		last = now
	}
	return nil, fmt.Errorf("cannot read policy.path %s: it changes while it is read", path)
}

// Digest identifies the text and the data, see [Policy.Digest].
func (t *Text) Digest() string { return t.digest }

// Compile reads, compiles and tries a policy, see [Text.Compile].
func Compile(ctx context.Context, src Source) (*Policy, error) {
	text, err := Read(src)
	if err != nil {
		return nil, err
	}
	return text.Compile(ctx)
}

// Part is one of the texts that a policy's digest covers.
type Part struct {
	// Name is a file's name below the policy's folder, "" for the data.
	Name string
	Text []byte
}

// Parts returns the texts that the digest covers, in its order: the files, sorted by name, and the
// data as JSON. The digest is the SHA-256 of each name and each text, each preceded by its length
// as eight bytes with the highest first. The data has no name.
func (t *Text) Parts() []Part {
	parts := make([]Part, 0, len(t.files)+1)
	for _, f := range t.files {
		parts = append(parts, Part{f.name, f.text})
	}
	return append(parts, Part{Text: t.canonical})
}

// Compile compiles and tries a policy. It takes some milliseconds. If a sample question runs out of
// time, it takes a second, or the timeout if that is longer.
//
// Faults in the Rego text are a [CompileError]. Compile refuses a policy, and names the query, if a
// sample question gets an answer of the wrong shape or none in time, or if no sample of an action
// gets an answer.
func (t *Text) Compile(ctx context.Context) (*Policy, error) {
	compiler, err := compile(t.files)
	if err != nil {
		return nil, err
	}

	p := &Policy{
		exchange: query{name: "ocip.agent_exchange"},
		crossOrg: query{name: "ocip.cross_org"},
		digest:   t.digest,
		timeout:  t.src.Timeout,
	}
	if p.timeout <= 0 {
		p.timeout = DefaultTimeout
	}
	for _, f := range t.files {
		p.files = append(p.files, f.display)
	}
	entries := []*query{&p.exchange, &p.crossOrg}
	if hasPackage(compiler, taskPackage) {
		p.tasks = &query{name: taskPackage}
		entries = append(entries, p.tasks)
	}
	if hasPackage(compiler, toolPackage) {
		p.tools = &query{name: toolPackage}
		entries = append(entries, p.tools)
	}
	store := inmem.NewFromObjectWithOpts(map[string]any{"policy": t.data},
		inmem.OptRoundTripOnWrite(false), inmem.OptReturnASTValuesOnRead(true))
	together := make(turns, runtime.NumCPU())
	for _, q := range entries {
		q.turns = together
		q.prepared, err = rego.New(
			rego.Query(q.ref()),
			rego.Compiler(compiler),
			rego.Store(store),
			rego.StrictBuiltinErrors(true),
		).PrepareForEval(ctx)
		if err != nil {
			return nil, fmt.Errorf("cannot prepare policy query %s: %w", q.ref(), err)
		}
	}
	if err := p.try(ctx); err != nil {
		return nil, err
	}
	p.lasts = deterministic(compiler)
	if size := t.src.CacheSize; size >= 0 && p.lasts {
		if size == 0 {
			size = DefaultCacheSize
		}
		if p.cache, err = lru.New[ocip.PolicyInput, ocip.PolicyAnswer](size); err != nil {
			return nil, fmt.Errorf("cannot remember %d policy answers: %w", size, err)
		}
	}
	return p, nil
}

// Revision identifies the policy's text and data: "sha256:" and the first 12 hex digits of the
// digest. Equal files and data have equal revisions in any folder.
func (p *Policy) Revision() string { return p.digest[:len("sha256:")+12] }

// Digest is the full digest, which Revision abbreviates.
func (p *Policy) Digest() string { return p.digest }

// Files lists the Rego files of the policy, sorted. Those of the built-in policy are bare names.
func (p *Policy) Files() []string { return append([]string(nil), p.files...) }

// Evaluate answers one question, see [ocip.Policy]. The timeout and ctx bound the evaluation, and a
// second bounds the wait for its turn. Name and revision are valid with an error too, except that
// the name is empty for an action without a policy.
//
// Errors are never cached. They wrap [ErrTimeout] or the error of ctx if one of those ended the
// evaluation.
func (p *Policy) Evaluate(ctx context.Context, in ocip.PolicyInput) (answer ocip.PolicyAnswer, name, revision string, err error) {
	revision = p.Revision()
	q, err := p.query(in.Action)
	if err != nil {
		return ocip.PolicyAnswer{}, "", revision, err
	}
	cached := p.cache != nil && textSize(&in) <= maxCachedInput
	if cached {
		if answer, ok := p.cache.Get(in); ok {
			return answer, q.name, revision, nil
		}
	}
	input, err := inputValue(in)
	if err == nil {
		answer, err = q.evaluate(ctx, input, p.timeout)
	}
	if err != nil {
		return ocip.PolicyAnswer{}, q.name, revision, err
	}
	if cached {
		p.cache.Add(in, answer)
	}
	return answer, q.name, revision, nil
}

// query returns the entry point of an action.
func (p *Policy) query(action string) (*query, error) {
	switch action {
	case ocip.ActionExchange:
		return &p.exchange, nil
	case ocip.ActionExchangeCrossOrg:
		return &p.crossOrg, nil
	}
	return nil, fmt.Errorf("cannot evaluate policy: no policy for action %q", action)
}

// evaluate answers one question within the timeout.
func (q *query) evaluate(ctx context.Context, input ast.Value, timeout time.Duration) (ocip.PolicyAnswer, error) {
	answer, err := q.ask(ctx, input, timeout)
	if err != nil {
		return ocip.PolicyAnswer{}, fmt.Errorf("cannot evaluate policy %s: %w", q.name, err)
	}
	return answer, nil
}

func (q *query) ask(ctx context.Context, input ast.Value, timeout time.Duration) (answer ocip.PolicyAnswer, err error) {
	if err := ctx.Err(); err != nil {
		return ocip.PolicyAnswer{}, err
	}
	defer func() {
		// A panic in the engine denies one question, and ends nothing else.
		if fault := recover(); fault != nil {
			answer, err = ocip.PolicyAnswer{}, fmt.Errorf("the evaluation panicked: %v", fault)
		}
	}()
	if err := q.turns.take(ctx); err != nil {
		return ocip.PolicyAnswer{}, err
	}
	defer q.turns.end()
	// OPA watches a context with one goroutine per evaluation. Two callbacks that almost never run
	// are cheaper.
	cancel := topdown.NewCancel()
	deadline := time.AfterFunc(timeout, cancel.Cancel)
	defer deadline.Stop()
	defer context.AfterFunc(ctx, cancel.Cancel)()

	results, err := q.prepared.Eval(ctx, rego.EvalParsedInput(input), rego.EvalExternalCancel(cancel))
	switch {
	case topdown.IsCancel(err):
		if ctx.Err() != nil {
			return ocip.PolicyAnswer{}, ctx.Err()
		}
		return ocip.PolicyAnswer{}, fmt.Errorf("%w (%v)", ErrTimeout, timeout)
	case err != nil:
		return ocip.PolicyAnswer{}, err
	case len(results) == 0:
		return ocip.PolicyAnswer{}, fmt.Errorf("cannot use %s: it is undefined", q.ref())
	case len(results) != 1 || len(results[0].Expressions) != 1:
		return ocip.PolicyAnswer{}, fmt.Errorf("cannot use %s: it has several values", q.ref())
	}
	answer, err = decodeAnswer(results[0].Expressions[0].Value)
	if err == nil && q.name == taskPackage && answer.MaxRounds > 0 {
		err = malformed("constraints.max_rounds: a task has no rounds")
	}
	if err == nil && q.name == toolPackage && (answer.MaxRounds > 0 || answer.HasMaxClassification) {
		err = malformed("constraints: a tool call can only have approvers")
	}
	if err != nil {
		return ocip.PolicyAnswer{}, fmt.Errorf("cannot use %s: %w", q.ref(), err)
	}
	return answer, nil
}

// Check asks the sample questions again that Compile asked, without the cache. It fails if the
// policy would not be accepted now.
func (p *Policy) Check(ctx context.Context) error { return p.try(ctx) }

// try asks sample questions. One answer of the wrong shape is enough to refuse the policy, since it
// is never intended, and so is one evaluation that does not end. Single questions without an
// answer, or that fail, may be intended. It is an error if all of them do.
func (p *Policy) try(ctx context.Context) error {
	for _, cross := range []bool{false, true} {
		q, action := &p.exchange, ocip.ActionExchange
		if cross {
			q, action = &p.crossOrg, ocip.ActionExchangeCrossOrg
		}
		var inputs []ast.Value
		for _, sample := range samples(cross) {
			sample.Action = action
			input, err := inputValue(sample)
			if err != nil {
				return err
			}
			inputs = append(inputs, input)
		}
		if err := q.try(ctx, inputs, p.timeout); err != nil {
			return err
		}
	}
	if p.tasks != nil {
		var inputs []ast.Value
		for _, sample := range taskSamples() {
			inputs = append(inputs, sample.value().Value)
		}
		if err := p.tasks.try(ctx, inputs, p.timeout); err != nil {
			return err
		}
	}
	if p.tools == nil {
		return nil
	}
	inputs, err := toolSamples()
	if err != nil {
		return err
	}
	return p.tools.try(ctx, inputs, p.timeout)
}

func (q *query) try(ctx context.Context, samples []ast.Value, timeout time.Duration) error {
	answered := false
	var failed error
	for _, sample := range samples {
		_, err := q.evaluate(ctx, sample, max(timeout, trialTimeout))
		var shape *shapeError
		switch {
		case err == nil:
			answered = true
		case ctx.Err() != nil, errors.Is(err, ErrTimeout), errors.As(err, &shape):
			return fmt.Errorf("cannot use policy, tried on a sample: %w", err)
		default:
			failed = err
		}
	}
	if !answered {
		hint := ""
		if q.name != taskPackage && q.name != toolPackage {
			hint = "; a policy has a decision in each of the packages ocip.agent_exchange and ocip.cross_org: ocipd policy new DIR writes one to begin with"
		}
		return fmt.Errorf("cannot use policy, tried on a sample: %w%s", failed, hint)
	}
	return nil
}

// samples are questions for trying a policy. Questions across org units are not about people.
func samples(cross bool) []ocip.PolicyInput {
	in := ocip.PolicyInput{
		ExchangeType: ocip.InformationQuery,
		Level:        ocip.Public,
		Source:       ocip.Identity{InstanceID: "sample-1", UserID: "alice", OrgUnit: "engineering", TenantID: "sample"},
		Target:       ocip.Identity{InstanceID: "sample-2", UserID: "bob", OrgUnit: "engineering", TenantID: "sample"},
		Round:        1,

		CounterpartyKind: ocip.KindAgent,
	}
	other, person, stranger := in, in, in
	other.Target.OrgUnit = "marketing"
	if cross {
		return []ocip.PolicyInput{in, other}
	}
	person.CounterpartyKind, stranger.CounterpartyKind = ocip.KindPerson, ocip.KindUnknown
	person.Target.InstanceID, stranger.Target = "", ocip.Identity{}
	return []ocip.PolicyInput{in, other, person, stranger}
}

// inputValue returns the question as Rego sees it.
func inputValue(in ocip.PolicyInput) (ast.Value, error) {
	level, err := in.Level.MarshalText()
	if err != nil {
		return nil, err
	}
	kind := in.CounterpartyKind
	if kind == "" {
		kind = ocip.KindAgent
	}
	members := make([][2]*ast.Term, 0, 11)
	members = append(members,
		ast.Item(ast.InternedTerm("action"), ast.StringTerm(in.Action)),
		ast.Item(ast.InternedTerm("exchange_type"), ast.StringTerm(string(in.ExchangeType))),
		ast.Item(ast.InternedTerm("data_classification"), ast.StringTerm(string(level))),
		ast.Item(ast.InternedTerm("source"), identityTerm(&in.Source)),
		ast.Item(ast.InternedTerm("target"), identityTerm(&in.Target)),
		ast.Item(ast.InternedTerm("round"), ast.InternedTerm(in.Round)),
		ast.Item(ast.InternedTerm("counterparty"), ast.ObjectTerm(ast.Item(ast.InternedTerm("kind"), ast.StringTerm(string(kind))))),
	)
	if in.Action == ocip.ActionExchangeCrossOrg {
		// The names of the reference's context, and those of the other members of input.
		members = append(members,
			ast.Item(ast.InternedTerm("sourceOrgUnit"), ast.StringTerm(in.Source.OrgUnit)),
			ast.Item(ast.InternedTerm("targetOrgUnit"), ast.StringTerm(in.Target.OrgUnit)),
			ast.Item(ast.InternedTerm("source_org_unit"), ast.StringTerm(in.Source.OrgUnit)),
			ast.Item(ast.InternedTerm("target_org_unit"), ast.StringTerm(in.Target.OrgUnit)),
		)
	}
	return ast.NewObject(members...), nil
}

func identityTerm(id *ocip.Identity) *ast.Term {
	return ast.ObjectTerm(
		ast.Item(ast.InternedTerm("instance_id"), ast.StringTerm(id.InstanceID)),
		ast.Item(ast.InternedTerm("user_id"), ast.StringTerm(id.UserID)),
		ast.Item(ast.InternedTerm("org_unit"), ast.StringTerm(id.OrgUnit)),
		ast.Item(ast.InternedTerm("tenant_id"), ast.StringTerm(id.TenantID)),
	)
}

// messageSchema describes inputValue to the compiler, which then refuses a misspelled member. At
// run time the member would be undefined, and could turn a denial off.
func messageSchema() map[string]any {
	text := map[string]any{"type": "string"}
	identity := map[string]any{"type": "object", "properties": map[string]any{
		"instance_id": text, "user_id": text, "org_unit": text, "tenant_id": text,
	}}
	return map[string]any{
		"action": text, "exchange_type": text, "data_classification": text,
		"source": identity, "target": identity, "round": map[string]any{"type": "integer"},
		"counterparty":    map[string]any{"type": "object", "properties": map[string]any{"kind": text}},
		"source_org_unit": text, "target_org_unit": text, "sourceOrgUnit": text, "targetOrgUnit": text,
	}
}

func textSize(in *ocip.PolicyInput) int {
	size := len(in.ExchangeType)
	for _, id := range []*ocip.Identity{&in.Source, &in.Target} {
		size += len(id.InstanceID) + len(id.UserID) + len(id.OrgUnit) + len(id.TenantID)
	}
	return size
}

// canonicalData returns data as JSON values and as JSON with sorted members.
func canonicalData(data map[string]any) (map[string]any, []byte, error) {
	if data == nil {
		data = map[string]any{}
	}
	canonical, err := json.Marshal(data)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot use policy.data: %w", err)
	}
	// The copy belongs to the policy: the caller may change the original.
	var own map[string]any
	dec := json.NewDecoder(bytes.NewReader(canonical))
	dec.UseNumber()
	if err := dec.Decode(&own); err != nil {
		return nil, nil, fmt.Errorf("cannot use policy.data: %w", err)
	}
	return own, canonical, nil
}

// digest covers names and texts of the files, in order, and the data. Each part is preceded by its
// length, so that no two lists of parts look alike.
func digest(files []file, data []byte) string {
	h := sha256.New()
	part := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, f := range files {
		part([]byte(f.name))
		part(f.text)
	}
	part(data)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
