package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/config"
)

// soak is one run.
type soak struct {
	place  place
	length time.Duration
	rate   int
	alone  bool
	out    io.Writer

	sent, denied, held, approved, disapproved, delivered, queued, visits, reloads, followed, tasks, late atomic.Int64

	mu sync.Mutex
	// tokens are those of apps that come and go, by app.
	tokens  map[string]string
	wrong   int
	first   error
	samples []sample
	// neighbours are the reports of the neighbours, and longest is the longest time of a status.
	neighbours []string
	longest    time.Duration
}

// callTimeout bounds one call. Nothing takes that long unless it hangs.
const callTimeout = 20 * time.Second

func call(ctx context.Context, c *client.Client, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if params == nil {
		params = map[string]any{}
	}
	if err := c.Call(ctx, method, params, result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

// note keeps an error that should not be. Those of the end are none.
func (s *soak) note(ctx context.Context, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong++
	if s.first == nil {
		s.first = err
	}
}

func code(err error) api.Code {
	if failure, ok := errors.AsType[*api.Error](err); ok {
		return failure.Code
	}
	return ""
}

// every does something at an interval until the context ends, which is not an
// error.
func every(ctx context.Context, interval time.Duration, do func(n int)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
			do(n)
		case <-ctx.Done():
			return
		}
	}
}

// serve puts the load on the daemon for the time given and samples meanwhile.
func (s *soak) serve(whole context.Context, d *process) error {
	ctx, cancel := context.WithTimeout(whole, s.length)
	defer cancel()
	operator, err := client.Dial(ctx, config.OperatorPath(s.place.socket()))
	if err != nil {
		return err
	}
	defer operator.Close()
	chat, err := s.channel(ctx, "chat")
	if err != nil {
		return err
	}
	defer chat.Close()
	others := map[string]string{"a1": "agent:a2:main", "a2": "chat:bob", "a3": "agent:a4:main", "a4": "chat:bob"}
	var all sync.WaitGroup
	// All end before their connections do.
	defer all.Wait()
	defer cancel()
	for id, other := range others {
		agent, err := s.app(ctx, "@soak/"+id, api.Capabilities{Hooks: api.HookDeclaration{Subscribes: []string{"message_received"}}})
		if err != nil {
			return err
		}
		all.Go(func() {
			defer agent.Close()
			every(ctx, time.Duration(len(others))*time.Second/time.Duration(s.rate), func(n int) { s.say(ctx, agent, id, other, n) })
		})
		all.Go(func() { s.receive(ctx, agent) })
		all.Go(func() {
			every(ctx, 30*time.Second, func(int) { s.note(ctx, call(ctx, agent, "app.heartbeat", nil, nil)) })
		})
	}
	team, err := s.team(ctx)
	if err != nil {
		return err
	}
	defer team.leave()
	all.Go(func() { every(ctx, time.Second, func(n int) { s.manage(ctx, team, n) }) })
	all.Go(func() { s.receive(ctx, chat) })
	all.Go(func() { every(ctx, time.Second, func(n int) { s.arrive(ctx, chat, n) }) })
	all.Go(func() { every(ctx, 2*time.Second, func(n int) { s.visit(ctx, n) }) })
	all.Go(func() { every(ctx, 7*time.Second, func(int) { s.mail(ctx, 5*time.Second) }) })
	all.Go(func() { every(ctx, 200*time.Millisecond, func(int) { s.decide(ctx, operator) }) })
	all.Go(func() {
		every(ctx, min(time.Minute, s.length/6), func(n int) { s.reload(ctx, operator, n+1) })
	})
	all.Go(func() { s.follow(ctx) })
	all.Go(func() { every(ctx, time.Second, func(int) { s.knock(ctx) }) })
	if !s.alone {
		for _, n := range neighbours() {
			all.Go(func() { s.live(ctx, n) })
		}
	}
	if err := s.watch(ctx, d, operator); err != nil {
		return err
	}
	if whole.Err() != nil {
		return errors.New("interrupted")
	}
	return nil
}

// app registers an app. It comes with the token that it had before: a daemon that is busy may
// not have noticed yet that the connection before has ended.
func (s *soak) app(ctx context.Context, id string, c api.Capabilities) (*client.Client, error) {
	s.mu.Lock()
	token := s.tokens[id]
	s.mu.Unlock()
	app, err := client.Dial(ctx, s.place.socket(), client.WithToken(token))
	if err != nil {
		return nil, err
	}
	registered, err := app.Register(ctx, &api.Manifest{
		ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}, Capabilities: c,
	})
	if err == nil {
		err = call(ctx, app, "app.ready", nil, nil)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("register %s: %w", id, err), app.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[id] = registered.Token
	return app, nil
}

func (s *soak) channel(ctx context.Context, name string) (*client.Client, error) {
	app, err := s.app(ctx, "@soak/"+name, api.Capabilities{
		Channels: api.Provides{Provides: []string{name}}, Hooks: api.HookDeclaration{Subscribes: []string{"message_sending"}},
	})
	if err != nil {
		return nil, err
	}
	err = call(ctx, app, "capability.register", map[string]any{"type": "channel", "config": map[string]any{"channelId": name}}, nil)
	if err == nil {
		err = call(ctx, app, "hook.subscribe", map[string]any{"events": []string{"message_sending"}}, nil)
	}
	if err != nil {
		return nil, errors.Join(err, app.Close())
	}
	return app, nil
}

// say sends one message of an agent: of ten, one is denied, one is held, two
// go to another agent, two wait for the channel that comes and goes.
func (s *soak) say(ctx context.Context, agent *client.Client, id, other string, n int) {
	session, content := "chat:bob", fmt.Sprintf("Message %d of %s", n, id)
	switch n % 10 {
	case 1:
		session = "chat:eve"
	case 3:
		content = fmt.Sprintf("I promise to do number %d of %s by Friday", n, id)
	case 5, 6:
		session = other
	case 8, 9:
		session = "mail:dan"
	}
	s.dispatch(ctx, agent, session, content)
}

func (s *soak) dispatch(ctx context.Context, agent *client.Client, session, content string) {
	var result api.DispatchResult
	err := call(ctx, agent, "message.dispatch", map[string]any{
		"sessionKey": session, "content": content, "metadata": map[string]any{"exchange": map[string]any{"new": true}},
	}, &result)
	switch {
	case code(err) == api.Forbidden && session == "chat:eve":
		s.denied.Add(1)
	case err != nil:
		s.note(ctx, err)
	case result.Held:
		s.held.Add(1)
	default:
		s.sent.Add(1)
	}
}

// receive takes what comes, and says of deliveries that they have arrived.
func (s *soak) receive(ctx context.Context, c *client.Client) {
	for {
		in, err := c.Next(ctx)
		if err != nil {
			return
		}
		if in.Event != "hook:message_sending" {
			continue
		}
		var e api.HookEvent
		if err := json.Unmarshal(in.Payload, &e); err != nil {
			s.note(ctx, fmt.Errorf("an event that cannot be read: %w", err))
			continue
		}
		err = call(ctx, c, "hook.result", map[string]any{"eventId": e.EventID, "result": map[string]any{"delivered": true}}, nil)
		if err == nil {
			s.delivered.Add(1)
		} else if code(err) != api.ConnectionClosed {
			s.note(ctx, err)
		}
	}
}

// arrive brings a message of a person in.
func (s *soak) arrive(ctx context.Context, chat *client.Client, n int) {
	err := call(ctx, chat, "agent.queue", map[string]any{"sessionKey": "chat:pat", "text": fmt.Sprintf("Are you there, %d?", n)}, nil)
	if err == nil {
		s.queued.Add(1)
	}
	s.note(ctx, err)
}

// visit is an app that comes, sends, and goes, every other time without a word.
func (s *soak) visit(ctx context.Context, n int) {
	app, err := s.app(ctx, "@soak/visitor", api.Capabilities{})
	if err != nil {
		s.note(ctx, err)
		return
	}
	for i := range 3 {
		s.dispatch(ctx, app, "chat:bob", fmt.Sprintf("Visit %d, %d", n, i))
	}
	if n%2 == 0 {
		s.note(ctx, call(ctx, app, "app.shutdown", nil, nil))
	}
	s.note(ctx, app.Close())
	s.visits.Add(1)
}

// mail is a channel that is there for a while; messages that are sent before wait for it.
func (s *soak) mail(ctx context.Context, stay time.Duration) {
	mail, err := s.channel(ctx, "mail")
	if err != nil {
		s.note(ctx, err)
		return
	}
	there, cancel := context.WithTimeout(ctx, stay)
	defer cancel()
	s.receive(there, mail)
	s.note(ctx, mail.Close())
	s.visits.Add(1)
}

// decide looks at what is held, approves one and denies the next.
func (s *soak) decide(ctx context.Context, operator *client.Client) {
	var open api.ApprovalListResult
	if err := call(ctx, operator, "approval.list", nil, &open); err != nil {
		s.note(ctx, err)
		return
	}
	for i, text := range open.Approvals {
		var summary api.ApprovalSummary
		if err := json.Unmarshal(text, &summary); err != nil {
			s.note(ctx, fmt.Errorf("an approval that cannot be read: %w", err))
			return
		}
		var held api.Approval
		if err := call(ctx, operator, "approval.get", map[string]any{"approvalId": summary.ApprovalID}, &held); err != nil {
			s.note(ctx, err)
			return
		}
		decision, count := api.DecideApprove, &s.approved
		if (int(s.approved.Load()+s.disapproved.Load())+i)%2 == 1 {
			decision, count = api.DecideDeny, &s.disapproved
		}
		err := call(ctx, operator, "approval.resolve", map[string]any{"approvalId": held.ApprovalID, "decision": decision, "digest": held.Digest}, nil)
		switch code(err) {
		case "":
			count.Add(1)
		case api.Conflict:
			// The configuration changed since it was held: it is asked anew.
		default:
			s.note(ctx, err)
		}
	}
}

// reload changes the file and asks for it, while the daemon may have seen it.
func (s *soak) reload(ctx context.Context, operator *client.Client, n int) {
	err := s.place.configure(n)
	if err == nil {
		err = call(ctx, operator, "policy.reload", nil, nil)
	}
	if code(err) == api.Conflict {
		err = nil // one that the file's change began is under way
	}
	if err == nil {
		s.reloads.Add(1)
	}
	s.note(ctx, err)
}

// follow reads the log as it grows; each follower begins at the last record of the one before.
func (s *soak) follow(ctx context.Context) {
	var last uint64
	for ctx.Err() == nil {
		if err := s.followFor(ctx, max(20*time.Second, s.length/10), &last); err != nil {
			s.note(ctx, err)
			return
		}
	}
}

func (s *soak) followFor(ctx context.Context, length time.Duration, last *uint64) (err error) {
	operator, err := client.Dial(ctx, config.OperatorPath(s.place.socket()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, operator.Close()) }()
	stream, err := operator.Stream(ctx, "audit.tail", api.AuditTailParams{After: last, Follow: true})
	if err != nil {
		return err
	}
	there, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	for {
		text, err := stream.Next(there)
		if there.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("audit.tail: %w", err)
		}
		var record struct {
			Seq uint64 `json:"seq"`
		}
		if err := json.Unmarshal(text, &record); err != nil {
			return fmt.Errorf("a record that cannot be read: %w", err)
		}
		if record.Seq != *last+1 {
			return fmt.Errorf("audit.tail leaves out records: %d came after %d", record.Seq, *last)
		}
		*last = record.Seq
		s.followed.Add(1)
	}
}
