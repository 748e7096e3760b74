package taskservice

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
	"github.com/openclawos/ocipd/internal/task/taskstore"
)

// spec reads a task's specification from a caller's parameters. The fields win over the Markdown.
func spec(r reader, workspace, markdown string, fields *task.Fields, ref *taskapi.SpecRef) (s task.Spec, err error) {
	if ref != nil {
		if s, err = r.readSpecFile(workspace, ref); err != nil {
			return s, err
		}
	} else {
		s.Markdown = markdown
		s.Fields, _ = task.ReadMarkdown([]byte(markdown))
	}
	if fields != nil && fields.Given() {
		s.Fields = *fields
	}
	if what := s.Oversized(); what != "" {
		return s, limit(what)
	}
	return s, nil
}

// limit is the refusal of more than the limit.
func limit(what string) error {
	return &api.Error{Code: api.Conflict, Message: what, Details: taskapi.Details{Task: taskapi.Error{Code: task.Limit}}}
}

// Create answers task.create.
func (s *Session) Create(ctx context.Context, p *taskapi.CreateParams) (taskapi.Created, error) {
	t := s.t
	who := s.as(ctx, "")
	var none taskapi.Created
	c := t.config.Load()
	tenant, err := t.tenant(who, p.TenantID, p.Classification)
	if err != nil {
		return none, err
	}
	if t.counts.full(tenant) {
		return none, limit(fmt.Sprintf("the tenant has %d open tasks", maxOpen))
	}
	given, err := spec(s.reader(), p.Workspace, p.SpecMarkdown, p.Spec, p.SpecRef)
	if err != nil {
		return none, err
	}
	command := task.Create{
		Title: p.Title, Workspace: p.Workspace, Tenant: tenant, Phase: p.InitialPhase, Labels: p.Labels, DependsOn: p.DependsOn, Priority: task.DefaultPriority,
		NotBefore: p.NotBefore, Spec: given, Effects: p.Effects, Classification: cmp.Or(p.Classification, lowest(c)),
	}
	if p.Priority != nil {
		command.Priority = *p.Priority
	}
	return once(ctx, s, "task.create", p, nil, func(keep func(*store.Change, taskapi.Created) error) (taskapi.Created, error) {
		if len(p.DependsOn) > 0 {
			t.deps.Lock()
			defer t.deps.Unlock()
			if err := t.mayDepend(ctx, "", tenant, p.DependsOn); err != nil {
				return none, err
			}
		}
		done, err := t.deciding(ctx, who, nil, command)
		if err != nil {
			return none, err
		}
		defer done()
		out, change, err := t.decide(ctx, nil, command, who)
		if err != nil {
			return none, err
		}
		defer t.locks.Lock(out.Task.ID)()
		answer := func(r store.Receipt) taskapi.Created {
			return taskapi.Created{Changed: changed(out, r), Missing: out.Task.Missing()}
		}
		out, receipt, err := t.write(change, nil, out, func(change *store.Change, _ *task.Outcome) error { return keep(change, answer(store.Receipt{})) })
		if err != nil {
			return none, err
		}
		return answer(told(who, receipt)), nil
	})
}

// tenant returns the tenant of a new task, and refuses a level that does not exist.
func (t *Tasks) tenant(who *task.Actor, asked, level string) (string, error) {
	c := t.config.Load()
	if level != "" && !slices.Contains(c.Levels, level) {
		return "", api.Errorf(api.InvalidParams, "classification: %.64q is not one of %v", level, c.Levels)
	}
	switch {
	case who.Role != task.Operator && asked != "" && asked != who.Tenant:
		return "", t.refused(nil, who, nil, &task.Refusal{Code: task.NotPermitted, Message: "a task has its creator's tenant"})
	case who.Role != task.Operator:
		return who.Tenant, nil
	case asked == "" && len(c.Tenants) == 1:
		return c.Tenants[0], nil
	case !slices.Contains(c.Tenants, asked):
		return "", api.Errorf(api.InvalidParams, "tenant_id: required, one of %v", c.Tenants)
	}
	return asked, nil
}

// lowest is the level of a task without a level.
func lowest(c *Config) string {
	if len(c.Levels) == 0 {
		return ""
	}
	return c.Levels[0]
}

// mayDepend refuses dependencies that are not there, are another tenant's, or would
// make the task wait for itself. The lock of dependencies is held.
func (t *Tasks) mayDepend(ctx context.Context, id, tenant string, on []string) error {
	seen := make(map[string]bool)
	next := slices.Clone(on)
	for depth := 0; len(next) > 0; depth++ {
		var after []string
		for _, dep := range next {
			if dep == id {
				return api.Errorf(api.InvalidParams, "depends_on: the task would wait for itself")
			}
			if seen[dep] {
				continue
			}
			seen[dep] = true
			if depth == 0 {
				stored, err := t.rows.Task(ctx, dep)
				var head task.Head
				if err == nil {
					err = json.Unmarshal(stored.Head, &head)
				}
				if errors.Is(err, store.ErrNotFound) || err == nil && head.Tenant != tenant {
					return api.Errorf(api.InvalidParams, "depends_on: there is no task %s", dep)
				}
				if err != nil {
					return err
				}
			}
			// A new task is depended on by none, so that there can be no circle.
			if id == "" {
				continue
			}
			further, err := t.rows.DependenciesOf(ctx, dep)
			if err != nil {
				return err
			}
			after = append(after, further...)
		}
		next = after
	}
	return nil
}

// Update answers task.update.
func (s *Session) Update(ctx context.Context, p *taskapi.UpdateParams) (taskapi.Updated, error) {
	t := s.t
	build := func(at *task.Task) (task.Command, error) {
		c := task.Update{Expected: p.Expected, Title: p.Title, Labels: p.Labels, DependsOn: p.DependsOn, Priority: p.Priority, NotBefore: p.NotBefore}
		if p.DependsOn != nil {
			if err := t.mayDepend(ctx, at.ID, at.Tenant, *p.DependsOn); err != nil {
				return nil, err
			}
		}
		if p.Spec != nil || p.SpecMarkdown != nil {
			markdown := ""
			if p.SpecMarkdown != nil {
				markdown = *p.SpecMarkdown
			}
			given, err := spec(s.reader(), at.Workspace, markdown, p.Spec, nil)
			if err != nil {
				return nil, err
			}
			c.Spec = &given
		}
		return c, nil
	}
	return once(ctx, s, "task.update", p, nil, func(keep func(*store.Change, taskapi.Updated) error) (taskapi.Updated, error) {
		if p.DependsOn != nil {
			t.deps.Lock()
			defer t.deps.Unlock()
		}
		return acted(ctx, s, p.TaskID, build, keep, func(out *task.Outcome, c taskapi.Changed) taskapi.Updated {
			return taskapi.Updated{Changed: c, Missing: out.Task.Missing()}
		})
	})
}

// newest is how many entries of each list a task is shown with, maxView how large it may be,
// in bytes, and maxReceipts how much of that an effect's receipts and evidence may take.
const (
	newest      = 100
	maxView     = 1 << 20
	maxReceipts = 128 << 10
	usualEvents = 20
	maxEvents   = 200
)

// Get answers task.get.
func (s *Session) Get(ctx context.Context, p *taskapi.GetParams) (taskapi.View, error) {
	t := s.t
	who := s.as(ctx, p.TaskID)
	unlock := t.locks.Lock(p.TaskID)
	at, err := t.loadLocked(ctx, p.TaskID)
	unlock()
	if err != nil {
		return taskapi.View{}, err
	}
	w, err := t.world(ctx, t.config.Load(), at)
	if err != nil {
		return taskapi.View{}, err
	}
	if err := at.Reads(who, w); err != nil {
		return taskapi.View{}, t.refused(at, who, w, err)
	}
	s.read(at.ID, at.Subject())
	v := t.view(at, w)
	limit := usualEvents
	if p.Events != nil {
		limit = *p.Events
	}
	switch {
	case p.Part != "":
		err = t.onePart(ctx, &v, at, p, who.Role == task.Operator)
	case limit > 0:
		v.Events, err = t.events(ctx, at, 0, 0, limit)
	}
	if who.Role != task.Operator {
		for i := range v.Events {
			v.Events[i].Seq = 0
		}
		hideProcesses(&v)
	}
	return v, err
}

// view is a task as it is shown.
func (t *Tasks) view(at *task.Task, w *task.World) taskapi.View {
	now := t.o.Now()
	v := taskapi.View{
		Head: at.Head, Spec: *at.Spec(), SpecVersions: len(at.Specs), Missing: at.Missing(), Transitions: at.Options(w, now),
		Gates:            taskapi.Gates{Spec: at.Gate(task.ReviewSpec, w.Rules.SpecReviews), Quality: at.Gate(task.ReviewQuality, w.Rules.QualityReviews)},
		OpenDependencies: w.Open, Events: []taskapi.Event{},
	}
	v.RetriesLeft, v.ReworksLeft, v.Escalate = at.Left(&w.Rules)
	if ready, ok := at.ReadyAt(w, now); ok {
		v.ReadyAt = &ready
	}
	if a := at.Running(); a != nil {
		v.LeaseExpiresAt = a.LeaseExpires
		if w.Lease.After(v.LeaseExpiresAt) {
			v.LeaseExpiresAt = w.Lease
		}
	}
	if at.Phase == task.CircuitOpen {
		var good int
		good, v.LastGood = at.LastGood(&w.Rules)
		v.LastGoodRevision, v.FailureSummary, v.Unblock = &good, at.FailureSummary(), at.Unblock()
	}
	v.More = fit(maxView-task.MaxSpecBytes*2,
		newestOf("attempts", at.Attempts, &v.Attempts), newestOf("artifacts", at.Artifacts, &v.Artifacts), newestOf("effects", shown(at.Effects), &v.Effects),
		newestOf("approvals", decided(at.Approvals, now), &v.Approvals), newestOf("reviews", reviewed(at), &v.Reviews))
	return v
}

// reviewed are a task's reviews; each one says whether its subject is the present one.
func reviewed(at *task.Task) []taskapi.Review {
	reviews := make([]taskapi.Review, len(at.Reviews))
	for i := range at.Reviews {
		reviews[i] = taskapi.Review{Review: at.Reviews[i], Stale: at.Stale(&at.Reviews[i])}
	}
	return reviews
}

// part is a list of a view: the sizes of its entries, the newest first, their sum, and the function
// that keeps the first n entries.
type part struct {
	name       string
	sizes      []int
	total, all int
	take       func(entries int)
}

// newestOf is the part of a view that a list's newest entries are.
func newestOf[T any](name string, list []T, shown *[]T) part {
	p := part{name: name, all: len(list), take: func(n int) { *shown = append([]T{}, list[len(list)-n:]...) }}
	for i := len(list) - 1; i >= max(0, len(list)-newest) && p.total <= maxView; i-- {
		text, err := json.Marshal(&list[i])
		if err != nil {
			break
		}
		p.sizes, p.total = append(p.sizes, len(text)), p.total+len(text)
	}
	return p
}

// fit shares room among lists, so that a long one takes none from a short one, and names those
// that are not whole.
func fit(room int, parts ...part) (more []string) {
	bySize := slices.SortedStableFunc(slices.Values(parts), func(a, b part) int { return cmp.Compare(a.total, b.total) })
	short := make(map[string]bool)
	for i, p := range bySize {
		share, n := room/(len(bySize)-i), 0
		for n < len(p.sizes) && p.sizes[n] <= share {
			share -= p.sizes[n]
			room -= p.sizes[n]
			n++
		}
		p.take(n)
		short[p.name] = n < p.all
	}
	for _, p := range parts {
		if short[p.name] {
			more = append(more, p.name)
		}
	}
	return more
}

// onePart leaves one list alone in a view, from an entry on. Events are paged by a person by
// the numbers of the log. Actors are told none, as they count the records of other tenants, and
// page by the task's own.
func (t *Tasks) onePart(ctx context.Context, v *taskapi.View, at *task.Task, p *taskapi.GetParams, person bool) error {
	v.Attempts, v.Artifacts, v.Reviews, v.Effects, v.Approvals, v.More = []task.Attempt{}, []task.Artifact{}, []taskapi.Review{}, []task.Effect{}, []task.Approval{}, nil
	size := 0
	switch p.Part {
	case "specs":
		v.Specs = page(v, p, at.Specs, func(s task.Spec) string { return strconv.Itoa(s.Version) }, &size)
	case "attempts":
		v.Attempts = page(v, p, at.Attempts, func(a task.Attempt) string { return a.ID }, &size)
	case "artifacts":
		v.Artifacts = page(v, p, at.Artifacts, func(a task.Artifact) string { return a.ID }, &size)
	case "reviews":
		v.Reviews = page(v, p, reviewed(at), func(r taskapi.Review) string { return r.ID }, &size)
	case "effects":
		v.Effects = page(v, p, shown(at.Effects), func(e task.Effect) string { return e.ID }, &size)
	case "approvals":
		v.Approvals = page(v, p, decided(at.Approvals, t.o.Now()), func(a task.Approval) string { return a.ID }, &size)
	case "checkpoints":
		from, _ := strconv.Atoi(p.After)
		found, err := t.rows.Parts(ctx, at.ID, "checkpoint", from, newest)
		for _, part := range found {
			if err == nil {
				v.Checkpoints, err = appended(v.Checkpoints, part.Body)
			}
		}
		return err
	case "events":
		before, err := strconv.ParseUint(p.After, 10, 63)
		below := 0
		if !person {
			if err == nil {
				below = max(1, int(before)) // nothing is below the first
			}
			before = 0
		}
		v.Events, err = t.events(ctx, at, before, below, maxEvents)
		return err
	}
	return nil
}

func page[T any](v *taskapi.View, p *taskapi.GetParams, list []T, id func(T) string, size *int) []T {
	if i := slices.IndexFunc(list, func(e T) bool { return id(e) == p.After }); i >= 0 {
		list = list[i+1:]
	}
	for i := range list {
		text, err := json.Marshal(&list[i])
		if *size += len(text); err != nil || *size > maxView-task.MaxSpecBytes*2 || i >= 200 {
			v.More = append(v.More, p.Part)
			return list[:i]
		}
	}
	return append([]T{}, list...)
}

// events are the newest events of a task before a number of the log, and below one of its own
// where that is not 0, oldest first. No more than a page of them is in memory at once.
func (t *Tasks) events(ctx context.Context, at *task.Task, before uint64, below, limit int) ([]taskapi.Event, error) {
	// Records of other kinds that name the task are few. The search ends with the first
	// event: all before it would be looked through for nothing.
	f := audit.Filter{Like: audit.Record{TaskID: at.ID}}
	limit = min(limit, at.Seq)
	if below > 0 {
		limit = min(limit, below-1)
	}
	list := []taskapi.Event{}
	for len(list) < limit && (len(list) == 0 || list[len(list)-1].N > 1) {
		want := limit - len(list)
		if below > 0 {
			want = maxEvents
		}
		lines, next, err := t.o.Search.Query(ctx, f, before, want)
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			if e, ok := eventOf(line); ok && (below == 0 || e.N < below) && len(list) < limit {
				list = append(list, e)
			}
		}
		if before = next; next == 0 {
			break
		}
	}
	slices.Reverse(list)
	return list, nil
}

// eventOf reads an event from a line of the log, false if it is none.
func eventOf(line []byte) (taskapi.Event, bool) {
	r, err := audit.Parse(line)
	if err != nil || r.ActionType != audit.ActionTask {
		return taskapi.Event{}, false
	}
	e := taskapi.Event{Seq: r.Seq, TaskID: r.TaskID, N: r.TaskSeq, Event: r.Event, At: r.Time, Actor: r.Actor, Role: r.Role, AttemptID: r.AttemptID}
	e.Was, _ = r.Details["was"].(map[string]any)
	e.Now, _ = r.Details["now"].(map[string]any)
	e.Reason, _ = r.Details["reason"].(string)
	if phase, ok := r.Details["phase"].(string); ok {
		e.Phase = task.Phase(phase)
	}
	if n, ok := r.Details["revision"].(float64); ok {
		e.Revision = int(n)
	}
	return e, true
}

// ListReady answers task.list_ready.
func (s *Session) ListReady(ctx context.Context, p *taskapi.ListReadyParams) (taskapi.List, error) {
	t := s.t
	who := s.as(ctx, "")
	want := 50
	if p.Limit != nil {
		want = *p.Limit
	}
	list := taskapi.List{Tasks: []taskapi.Line{}}
	c := t.config.Load()
	tenants := []string{who.Tenant}
	if who.Role == task.Operator {
		tenants = c.Tenants
	}
	now := t.o.Now()
	var fault error
	size := 0
	for priority := range task.MaxPriority + 1 {
		for _, tenant := range tenants {
			err := t.rows.Ready(ctx, tenant, priority, now, func(r taskstore.Ready) bool {
				var line taskapi.Line
				if line, fault = t.line(r); fault != nil {
					return false
				}
				for _, l := range p.Labels {
					if !slices.Contains(line.Labels, l) {
						return true
					}
				}
				list.Tasks = append(list.Tasks, line)
				size += len(r.Head)
				return len(list.Tasks) < want && size < maxList
			})
			if err = errors.Join(err, fault); err != nil || len(list.Tasks) >= want || size >= maxList {
				return list, err
			}
		}
	}
	return list, nil
}

// maxList is about how large a list of tasks is at most that is sent: a client reads no line
// that is twice as long.
const maxList = 8 << 20

// List answers task.list.
func (s *Session) List(ctx context.Context, p *taskapi.ListParams) (taskapi.List, error) {
	want := api.MaxPage
	if p.Limit != nil {
		want = *p.Limit
	}
	found, err := s.t.rows.List(ctx, taskstore.Filter{Tenant: p.TenantID, Phase: string(p.Phase), Open: p.Open, After: p.After, Newest: p.Newest}, want)
	if err != nil {
		return taskapi.List{}, err
	}
	questions, err := s.t.questions(ctx)
	if err != nil {
		return taskapi.List{}, err
	}
	list := taskapi.List{Tasks: []taskapi.Line{}}
	size := 0
	for _, r := range found {
		line, err := s.t.line(r)
		if err != nil {
			return list, err
		}
		if err := questions.put(ctx, s.t, &line); err != nil {
			return list, err
		}
		list.Tasks = append(list.Tasks, line)
		size += len(r.Head)
		for i := range line.Questions {
			size += line.Questions[i].Size()
		}
		if len(list.Tasks) == want || size >= maxList {
			list.Next = line.ID
			return list, nil
		}
	}
	if !p.Open {
		return list, nil
	}
	return list, s.t.asking(ctx, questions, p, &list)
}

// line is a task of a list.
func (t *Tasks) line(r taskstore.Ready) (taskapi.Line, error) {
	var line taskapi.Line
	if err := json.Unmarshal(r.Head, &line.Head); err != nil {
		return line, fmt.Errorf("cannot decode a task of the list: %w", err)
	}
	if !r.ReadyAt.IsZero() {
		line.ReadyAt = &r.ReadyAt
	}
	line.Since = line.UpdatedAt
	line.Waits, line.Person = waits(line.Phase, line.ReadyAt != nil)
	return line, nil
}

// Watch answers task.watch: all events after a number, then a mark, then what comes.
func (t *Tasks) Watch(_ context.Context, p *taskapi.WatchParams) (func(context.Context, api.Stream) error, error) {
	after := t.o.Store.Head().Seq
	if p.After != nil {
		after = min(*p.After, after)
	}
	return func(ctx context.Context, out api.Stream) error {
		caught := false
		for {
			lines, upTo, err := t.o.Store.LinesAfter(ctx, after)
			if err != nil {
				return err
			}
			for _, line := range lines {
				e, ok := eventOf(line)
				if !ok || p.TaskID != "" && e.TaskID != p.TaskID {
					continue
				}
				if err := out.Send(ctx, taskapi.News{Event: &e}); err != nil {
					return err
				}
			}
			if after = upTo; len(lines) > 0 {
				continue
			}
			if !caught {
				caught = true
				if err := out.Send(ctx, taskapi.News{Caught: true}); err != nil {
					return err
				}
			}
			if err := t.o.Store.WaitAfter(ctx, after); err != nil {
				return err
			}
		}
	}, nil
}
