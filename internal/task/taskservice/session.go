package taskservice

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	peers "github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/task"
	"github.com/openclawos/ocipd/internal/task/taskapi"
)

// Session is one connection's part in tasks.
type Session struct {
	t        *Tasks
	peer     api.Peer
	operator bool
	// app names the connection's app, "" while it has none.
	app func() string

	// processes are the connection's and those that have started it, each by a name
	// that is no other process's in any boot.
	processes func() []string

	mu sync.Mutex
	// grant is the grant of the connection, and process the process that attached.
	grant *task.Grant
	// seen is the subject of each task that the connection last read, for reviews.
	seen map[string]task.Subject
}

// maxSeen is of how many tasks a connection's reading is remembered.
const maxSeen = 64

// Connect begins a connection's part. An operator's has no app.
func (t *Tasks) Connect(peer api.Peer, operator bool, app func() string) *Session {
	s := &Session{t: t, peer: peer, operator: operator, app: app, seen: make(map[string]task.Subject)}
	s.processes = sync.OnceValue(func() []string {
		line, err := peer.Ancestors()
		if err != nil {
			// The process is hidden, or gone: at most its name is known.
			if name, err := peer.Process(); err == nil && name != "" {
				line = []string{name}
			}
		}
		for i := range line {
			line[i] = t.o.Boot + "/" + line[i]
		}
		return line
	})
	return s
}

// Attached reports whether the connection has a grant, which has not expired. One that
// has ended in another way ends with its next call.
func (s *Session) Attached() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grant != nil && s.t.o.Now().Before(s.grant.ExpiresAt)
}

// principal is the principal behind a name on this connection.
func (s *Session) principal(name string, a *Actor, g *task.Grant) task.Principal {
	p := task.Principal{Name: name, Processes: s.processes()}
	if g == nil {
		return p
	}
	tied := a.Exe != "" || a.UID != nil && g.IssuedUID != nil && *a.UID != *g.IssuedUID
	if !tied {
		p.Issuers = g.Issuers
	}
	if len(p.Processes) > 0 && p.Processes[0] == g.IssuedFrom && !slices.Contains(p.Issuers, g.IssuedBy) {
		// The giver of the grant uses it.
		p.Issuers = append(slices.Clone(p.Issuers), g.IssuedBy)
	}
	return p
}

// callKey finds the caller that [Session.Admit] found, in a call's context.
type callKey struct{}

// caller is the caller of a method.
type caller struct {
	task.Actor
	peer api.Peer
	// method and authorized are those that the caller was admitted with.
	method     string
	authorized bool
}

// Admit finds out who calls and refuses whoever may not call the method at all: this
// is the permission matrix. Authorized says that the request had its app's token. The
// context that it returns is the call's.
func (s *Session) Admit(ctx context.Context, method string, authorized bool) (context.Context, error) {
	who, err := s.who(ctx, authorized)
	if err != nil {
		return ctx, err
	}
	if who.Grant != nil && who.Grant.Actor == "" {
		return ctx, s.t.refused(nil, &who.Actor, nil, &task.Refusal{Code: task.NotPermitted, Message: fmt.Sprintf("this grant is agent %s's alone and works on no task", who.Grant.Agent)})
	}
	if roles := s.t.matrix[method]; !roles.Has(who.Role) && !mutant.Off("task-role") {
		refusal := &task.Refusal{Code: task.NotPermitted, Message: fmt.Sprintf("%s is for %s, and %s is %s", method, Named(roles), who.Name, who.Role)}
		return ctx, s.t.refused(nil, &who.Actor, nil, refusal)
	}
	if g := who.Grant; g != nil && len(g.Tools) > 0 && !slices.Contains(g.Tools, tool(method)) {
		return ctx, s.t.refused(nil, &who.Actor, nil, &task.Refusal{Code: task.ToolDenied, Message: fmt.Sprintf("this grant does not have the tool %s", tool(method))})
	}
	who.method, who.authorized = method, authorized
	return context.WithValue(ctx, callKey{}, who), nil
}

// again admits the caller of a call anew, since a grant can end and an actor can change while the call
// waits.
func again(ctx context.Context, s *Session, id string) (*task.Actor, error) {
	who := ctx.Value(callKey{}).(*caller)
	ctx, err := s.Admit(ctx, who.method, who.authorized)
	if err != nil {
		return nil, err
	}
	return s.as(ctx, id), nil
}

// Named lists the roles of a set.
func Named(roles task.Roles) string {
	var names []byte
	for _, r := range append(task.ActorRoles(), task.Operator) {
		if roles.Has(r) {
			if len(names) > 0 {
				names = append(names, ", "...)
			}
			names = append(names, r...)
		}
	}
	return string(names)
}

// tool is a method's name as tools have it.
func tool(method string) string {
	b := []byte(method)
	for i := range b {
		if b[i] == '.' {
			b[i] = '_'
		}
	}
	return string(b)
}

// who is the caller of the connection.
func (s *Session) who(ctx context.Context, authorized bool) (*caller, error) {
	if s.operator {
		peer := peers.Of(ctx, s.peer)
		name := peers.Principal(peer)
		return &caller{Actor: task.Actor{Name: name, Role: task.Operator, Person: name, By: s.principal(name, nil, nil)}, peer: peer}, nil
	}
	s.mu.Lock()
	g := s.grant
	s.mu.Unlock()
	c := s.t.config.Load()
	if g == nil {
		a := c.actorOf(s.app())
		if a == nil || !authorized {
			return nil, api.Errorf(api.AppNotRegistered, "this connection is no actor's: attach with a grant's token, or register an app that tasks.actors names")
		}
		return &caller{Actor: task.Actor{Name: a.Name, Role: a.Role, Tenant: a.Tenant, By: s.principal(a.Name, a, nil)}, peer: s.peer}, s.bound(a)
	}
	// The grant may have been revoked, and its actor may be none any more.
	now, err := s.t.grantOf(ctx, g.ID)
	if err != nil {
		return nil, err
	}
	if now.Actor == "" {
		// It works on no task. The agent's own user and program are the kernel's to check.
		return &caller{Actor: task.Actor{Name: now.Agent, Tenant: now.Tenant, Grant: now}, peer: s.peer}, nil
	}
	a := c.actor(now.Actor)
	if !a.is(now.Role, now.Tenant) {
		return nil, api.Errorf(api.Unauthorized, "the grant's actor %s is not configured as it was", now.Actor)
	}
	return &caller{Actor: task.Actor{Name: a.Name, Role: a.Role, Tenant: a.Tenant, Grant: now, By: s.principal(a.Name, a, now)}, peer: s.peer}, s.bound(a)
}

// bound refuses a process that is not the actor's.
func (s *Session) bound(a *Actor) error {
	uid, _, _ := s.peer.Credentials()
	if a.UID != nil && uint32(*a.UID) != uid {
		return api.Errorf(api.Forbidden, "actor %s is of another user", a.Name)
	}
	if a.Exe == "" {
		return nil
	}
	if err := s.peer.Present(); err != nil {
		return api.Errorf(api.Forbidden, "the process that connected is not who speaks")
	}
	if exe, err := s.peer.Executable(); err != nil || exe != a.Exe {
		return api.Errorf(api.Forbidden, "actor %s runs another program", a.Name)
	}
	return nil
}

// as is the caller of a call, with the subject that it has read of the task.
func (s *Session) as(ctx context.Context, id string) *task.Actor {
	who := ctx.Value(callKey{}).(*caller)
	actor := who.Actor
	s.mu.Lock()
	defer s.mu.Unlock()
	actor.Seen = s.seen[id]
	return &actor
}

func (s *Session) read(id string, subject task.Subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= maxSeen {
		clear(s.seen)
	}
	s.seen[id] = subject
}

// said refuses a caller that claims another role, and returns the name that the caller claims if it
// is not the caller's own.
func (s *Session) said(who *task.Actor, actor, role string) (claimed string, err error) {
	if role != "" && role != string(who.Role) && (who.Role != task.Operator || role != string(task.Orchestrator)) {
		return "", s.t.refused(nil, who, nil, &task.Refusal{Code: task.RoleMismatch, Message: fmt.Sprintf("the connection is %s, and the request says %.64q", who.Role, role)})
	}
	if actor != "" && actor != who.Name {
		claimed = actor
	}
	return claimed, nil
}

// digestOf is the SHA-256 of a token.
func digestOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

// errToken is the answer to any invalid token.
func errToken() error {
	return api.Errorf(api.Unauthorized, "the token is wrong, or what it was for has ended")
}

// Attach makes the connection an actor's by a grant's token.
func (s *Session) Attach(ctx context.Context, p *taskapi.AttachParams) (taskapi.Attached, error) {
	if s.operator {
		return taskapi.Attached{}, api.Errorf(api.Forbidden, "a token is for the kernel socket: an operator needs none")
	}
	id, err := s.t.rows.GrantByToken(ctx, digestOf(p.Token))
	if errors.Is(err, store.ErrNotFound) {
		return taskapi.Attached{}, errToken()
	}
	if err != nil {
		return taskapi.Attached{}, err
	}
	now, err := s.t.grantOf(ctx, id)
	if err != nil {
		return taskapi.Attached{}, err
	}
	a := &Actor{Name: now.Agent, Tenant: now.Tenant}
	if now.Actor != "" {
		a = s.t.config.Load().actor(now.Actor)
		if !a.is(now.Role, now.Tenant) {
			return taskapi.Attached{}, errToken()
		}
		if err := s.bound(a); err != nil {
			return taskapi.Attached{}, err
		}
	}
	if err := s.hold(ctx, a, id); err != nil {
		return taskapi.Attached{}, err
	}
	s.mu.Lock()
	s.grant = now
	s.mu.Unlock()
	return taskapi.Attached{
		GrantID: now.ID, Actor: now.Actor, Role: now.Role, Agent: now.Agent, TenantID: now.Tenant, TaskID: now.TaskID, AttemptID: now.AttemptID, Fence: now.Fence,
		Tools: toolsOf(now), ExpiresAt: now.ExpiresAt,
	}, nil
}

// hold records the process that acts by a grant, and binds the grant to the first one: from then on
// its token is of use to nobody else.
func (s *Session) hold(ctx context.Context, a *Actor, id string) error {
	t := s.t
	defer t.lockGrant(id)()
	defer t.grants.Remove(id)
	// A grant can end with another one, whose lock is not this one's.
	defer t.o.Deciding()()
	stored, err := t.rows.Grant(ctx, id)
	if err != nil {
		return err
	}
	g := new(task.Grant)
	if err := json.Unmarshal(stored.Body, g); err != nil {
		return err
	}
	if err := stands(ctx, t, g, nil); err != nil {
		return err
	}
	change := &store.Change{}
	process, written, err := t.o.Note(a.Name, s.peer, change)
	if err != nil {
		return err
	}
	uid, _, _ := s.peer.Credentials()
	exe, _ := s.peer.Executable() // what cannot be seen is nobody's
	now := task.Holder{UID: int(uid), Exe: exe}
	if g.Bind == task.BindProcess && process != "" {
		now.Process = t.o.Boot + "/" + process
	}
	switch {
	case g.Bind == task.BindNone || g.Holder != nil && *g.Holder == now:
		if written {
			return nil
		}
	case g.Holder != nil:
		t.overstepped(g.TaskID, &task.Actor{Name: a.Name, Role: a.Role, Tenant: a.Tenant}, &task.Refusal{
			Code: task.NotPermitted, Message: fmt.Sprintf("grant %s is held by another process: %s", g.ID, now),
		})
		return errToken()
	default:
		g.Holder = &now
		if stored.Body, err = json.Marshal(g); err != nil {
			return err
		}
		change.Add(stored.Rows())
	}
	record := t.grantRecord("grant.attached", g, &task.Actor{Name: a.Name, Role: a.Role})
	record.TaskID = g.TaskID
	record.Details["process"], record.Details["uid"], record.Details["exe"] = process, now.UID, exe
	if path, digest := t.o.Program(s.peer); path == exe && digest != "" {
		record.Details["program"] = digest
	}
	change.Records = append(change.Records, record)
	_, err = t.o.Commit(change)
	return err
}

// lockGrant takes the lock of a grant. It comes before a task's.
func (t *Tasks) lockGrant(id string) (unlock func()) { return t.locks.Lock("grant " + id) }

// storedGrant returns a grant as it is stored. It is not changed.
func (t *Tasks) storedGrant(ctx context.Context, id string) (*task.Grant, error) {
	if g, ok := t.grants.Get(id); ok {
		return g, nil
	}
	defer t.lockGrant(id)()
	g, err := readGrant(ctx, t, id)
	if err == nil {
		t.grants.Add(id, g)
	}
	return g, err
}

// readGrant reads a grant from the store.
func readGrant(ctx context.Context, t *Tasks, id string) (*task.Grant, error) {
	stored, err := t.rows.Grant(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errToken()
	}
	if err != nil {
		return nil, err
	}
	g := new(task.Grant)
	return g, json.Unmarshal(stored.Body, g)
}

// grantOf returns a grant that holds.
func (t *Tasks) grantOf(ctx context.Context, id string) (*task.Grant, error) {
	g, err := t.storedGrant(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := stands(ctx, t, g, nil); err != nil {
		return nil, err
	}
	use(t.uses, id, t.o.Now())
	if g.TaskID == "" {
		return g, nil
	}
	defer t.locks.Lock(g.TaskID)()
	at, err := t.loadLocked(ctx, g.TaskID)
	if err != nil {
		return nil, err
	}
	return g, stands(ctx, t, g, at)
}

// over reports whether a grant ended, by itself or with its task, nil for none.
func over(g *task.Grant, at *task.Task, now time.Time) bool {
	if !g.RevokedAt.IsZero() || !now.Before(g.ExpiresAt) {
		return true
	}
	if at == nil || !g.Ended(at) {
		return false
	}
	// The executor of an aborted attempt learns of that by its checkpoints.
	a := at.Attempt(g.AttemptID)
	return a == nil || a.Status != task.AttemptAborted || a != at.Last()
}

// holds refuses an actor whose grant ended since the call began. The task, nil for none, is locked, so
// that a grant of the task does not end with it between this and the commit.
func holds(ctx context.Context, t *Tasks, who *task.Actor, at *task.Task) error {
	if who.Grant == nil {
		return nil
	}
	g, err := seenGrant(ctx, t, who.Grant.ID)
	if err != nil {
		return err
	}
	return stands(ctx, t, g, at)
}

// Stands refuses a grant that was revoked or has expired, or that another one has ended with. It takes
// no lock: while no grant is revoked ([Options.Revoking]), that is so until the caller is done.
func Stands(ctx context.Context, t *Tasks, id string) error {
	g, err := seenGrant(ctx, t, id)
	if err != nil {
		return err
	}
	return stands(ctx, t, g, nil)
}

// seenGrant returns a grant as it is stored, without its lock, and so without keeping it in memory.
func seenGrant(ctx context.Context, t *Tasks, id string) (*task.Grant, error) {
	if g, ok := t.grants.Get(id); ok {
		return g, nil
	}
	return readGrant(ctx, t, id)
}

// stands refuses a grant that has ended by itself, with its task, which is nil for none, or with what
// it was given under: the grant by which its giver acted, that one's, and so on, or a giver that is no
// orchestrator of the tenant any more.
func stands(ctx context.Context, t *Tasks, g *task.Grant, at *task.Task) (err error) {
	c, now := t.config.Load(), t.o.Now()
	for {
		of := at
		if at == nil || g.TaskID != at.ID {
			of = nil
		}
		if over(g, of, now) {
			return errToken()
		}
		if len(g.Issuers) > 0 && !c.actor(g.Issuers[0]).is(task.Orchestrator, g.Tenant) {
			return errToken()
		}
		if g.Under == "" {
			return nil
		}
		if g, err = seenGrant(ctx, t, g.Under); err != nil {
			return err
		}
	}
}

// toolsOf are the tools of a grant: its own, or its role's and its agent's.
func toolsOf(g *task.Grant) []string {
	if len(g.Tools) > 0 {
		return g.Tools
	}
	tools := granted(g.Role, g.Agent)
	if g.Research {
		tools = slices.DeleteFunc(tools, func(name string) bool { return name == tool("task.plan_effect") })
	}
	return tools
}
