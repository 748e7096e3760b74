package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
)

// killPoint is a step of a decision that is visible from outside: the daemon is killed right after it.
type killPoint string

const (
	// afterRequest: the decisions are on their way, and nothing is known of them.
	afterRequest killPoint = "requested"
	// afterRecord: a decision is on record, whether or not it was answered.
	afterRecord killPoint = "decided"
	// afterAnswer: a person got the answer to a decision.
	afterAnswer killPoint = "answered"
	// afterDelivery: a receiver has read an approved message.
	afterDelivery killPoint = "delivered"
	// afterOutcome: the app that asked has read the outcome of its message.
	afterOutcome killPoint = "told"
)

// presence is whether an app is there for its events.
type presence int

const (
	away presence = iota
	// deaf apps are connected and read nothing.
	deaf
	attentive
)

// Messages held in each round. One in every keptBack is never decided.
const (
	heldPerRound = 9
	keptBack     = 5
)

// TestKillWhileDeciding kills the daemon at every step between a person's decision about a held
// message and its delivery. An answered decision stands. An approved message is delivered,
// under one dispatchId; another one never is. The app that asked learns the outcome.
func TestKillWhileDeciding(t *testing.T) {
	t.Parallel()
	k := newApprovalKills(t)
	for _, p := range []struct {
		after            killPoint
		count            int
		receivers, asker presence
	}{
		{afterRequest, 1, attentive, attentive},
		{afterRequest, 6, away, away},
		{afterRecord, 1, attentive, attentive},
		{afterRecord, 4, deaf, deaf},
		{afterRecord, 9, away, attentive},
		{afterAnswer, 1, away, away},
		{afterAnswer, 8, deaf, deaf},
		{afterAnswer, 14, attentive, attentive},
		{afterDelivery, 1, attentive, deaf},
		{afterDelivery, 4, attentive, attentive},
		{afterOutcome, 1, deaf, attentive},
		{afterOutcome, 5, attentive, attentive},
	} {
		k.round(t, p.after, p.count, p.receivers, p.asker)
		if t.Failed() {
			t.Fatalf("killed when %d are %s, receivers %d, asker %d", p.count, p.after, p.receivers, p.asker)
		}
	}
	k.settle(t)
	k.judge(t)
	k.rowsAgree(t)
}

// approvalKills is apps that send and receive, and people who decide.
type approvalKills struct {
	killTest

	mu       sync.Mutex
	messages []*promise
	// arrived holds the messages of each receiver, by dispatchId, and outcomes those of the
	// asking apps, by approval. A repetition must be equal.
	arrived, outcomes map[string]string
	// again counts repetitions, and silent the decisions and requests without an answer.
	again, silent int
	// awaited is closed after a number of occurrences of a kill point.
	awaited killPoint
	missing int
	reached chan struct{}
}

// promise is one held message, and the facts about its approval.
type promise struct {
	number  int
	content string
	// by is the app that asks, and session the receiver.
	by, session string
	// id is empty until the app got an answer, and dispatch and digest until a person has seen it.
	id, dispatch, digest string
	// tried holds the possible states after unanswered decisions, and state the one that
	// somebody has learned.
	tried map[string]bool
	state string
}

const (
	killAsker   = "@kill/asker"
	killRuntime = "@kill/runtime"
	killChat    = "@kill/chat"
	killAgent   = "@kill/agent"
)

func newApprovalKills(t *testing.T) *approvalKills {
	// Socket addresses are limited in length, so the directory's name must be short.
	dir, err := os.MkdirTemp("", "ocipd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg := `
ipc: {apps_may_operate: true}
approvals: {max_open: 1000, keep_content: true, notify: {desktop: false}}
agents:
  - {id: a, app: "` + killAsker + `", instance_id: agent-a, user_id: a, org_unit: eng, tenant_id: acme}
  - {id: r, app: "` + killRuntime + `", instance_id: agent-r, user_id: r, org_unit: eng, tenant_id: acme}
  - {id: b, app: "` + killAgent + `", instance_id: agent-b, user_id: b, org_unit: eng, tenant_id: acme}
directory:
  - {instance_id: agent-p, user_id: p, org_unit: eng, tenant_id: acme, accepts: [internal], sessions: ["chat:p"]}
`
	if err := os.WriteFile(filepath.Join(dir, "ocipd.yaml"), []byte(cfg), 0o600); err != nil {
		t.Fatal(err)
	}
	return &approvalKills{
		killTest: killTest{dir: dir, socket: filepath.Join(dir, "run", "kernel.sock")},
		arrived:  make(map[string]string), outcomes: make(map[string]string),
	}
}

// round holds messages, decides about pending ones, and kills the daemon after a number of
// occurrences of a kill point.
func (k *approvalKills) round(t *testing.T, after killPoint, count int, receivers, askers presence) {
	t.Helper()
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}()
	person := k.person(ctx, t)
	k.look(ctx, t, person, k.open())
	for _, id := range []string{killChat, killAgent} {
		switch receivers {
		case attentive:
			wg.Go(k.listen(ctx, t, k.connect(ctx, t, id)))
		case deaf:
			k.deafen(ctx, t, person, id, "")
		case away:
		}
	}
	asking := make(map[string]*client.Client)
	for _, id := range []string{killAsker, killRuntime} {
		// An app that is not ready can ask, and gets no events.
		app := k.connect(ctx, t, id)
		if askers == attentive {
			wg.Go(k.listen(ctx, t, app))
		}
		k.ask(ctx, t, app, person, id)
		if asking[id] = app; askers == deaf {
			app.Close()
			k.deafen(ctx, t, person, id, app.Token())
		}
	}

	reached := k.await(after, count)
	k.follow(ctx, t, &wg, person)
	waiting := k.decidable()
	for i := range 2 {
		decider := k.person(ctx, t)
		wg.Go(func() { k.decide(ctx, t, decider, waiting, i) })
	}
	for id, app := range asking {
		wg.Go(func() { k.askOn(ctx, t, app, id) })
	}
	for range count {
		// An answer takes about as long as a step of a decision.
		_ = person.Call(ctx, "kernel.status", nil, nil)
		k.happens(afterRequest)
	}
	select {
	case <-reached:
	case <-ctx.Done():
		t.Errorf("there are never %d %s", count, after)
	}
}

// await returns a channel that is closed after count more occurrences of a kill point.
func (k *approvalKills) await(m killPoint, count int) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.awaited, k.missing, k.reached = m, count, make(chan struct{})
	return k.reached
}

func (k *approvalKills) happens(m killPoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.awaited == m {
		if k.missing--; k.missing == 0 {
			close(k.reached)
		}
	}
}

// person connects to the operator socket.
func (k *approvalKills) person(ctx context.Context, t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Dial(ctx, config.OperatorPath(k.socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// follow notices decisions as they become durable.
func (k *approvalKills) follow(ctx context.Context, t *testing.T, wg *sync.WaitGroup, person *client.Client) {
	t.Helper()
	var status api.Status
	if err := person.Call(ctx, "kernel.status", nil, &status); err != nil {
		t.Fatal(err)
	}
	records, err := person.Stream(ctx, "audit.tail", api.AuditTailParams{
		Filter: audit.Filter{Like: audit.Record{ActionType: audit.ActionApproval}}, After: &status.Audit.Seq, Follow: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		for {
			line, err := records.Next(ctx)
			if err != nil {
				return
			}
			if e, err := audit.Parse(line); err != nil {
				t.Error(err)
			} else if e.Event != "asked_again" {
				k.happens(afterRecord)
			}
		}
	})
}

func killManifest(id string) *api.Manifest {
	m := &api.Manifest{ID: id, Name: id, Version: "1.0.0", Type: "app", Main: "x", Protocol: api.ManifestProtocol{Version: "1.0"}}
	if id == killChat {
		m.Capabilities.Channels.Provides = []string{"chat"}
	}
	return m
}

// ownsChat are the parameters with which the channel's app requests it.
func ownsChat() map[string]any {
	return map[string]any{"type": "channel", "config": map[string]any{"channelId": "chat"}}
}

// connect registers an app that is not ready yet.
func (k *approvalKills) connect(ctx context.Context, t *testing.T, id string) *client.Client {
	t.Helper()
	app, err := client.Dial(ctx, k.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { app.Close() })
	if _, err := app.Register(ctx, killManifest(id)); err != nil {
		t.Fatal(err)
	}
	if id == killChat {
		if err := app.Call(ctx, "capability.register", ownsChat(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return app
}

// listen makes an app ready, and returns a function that takes its events until the connection ends.
func (k *approvalKills) listen(ctx context.Context, t *testing.T, app *client.Client) func() {
	t.Helper()
	if err := app.Call(ctx, "app.ready", nil, nil); err != nil {
		t.Fatal(err)
	}
	return func() {
		for {
			in, err := app.Next(ctx)
			if err != nil {
				return
			}
			if err := k.take(in); err != nil {
				t.Error(err)
			}
		}
	}
}

// take notes an app's event. A repetition must be the same.
func (k *approvalKills) take(in wire.Incoming) error {
	switch in.Event {
	case "hook:message_sending", "hook:message_received":
		var e api.HookEvent
		var m struct {
			DispatchID string `json:"dispatchId"`
		}
		if err := errors.Join(json.Unmarshal(in.Payload, &e), json.Unmarshal(e.Data, &m)); err != nil {
			return err
		}
		defer k.happens(afterDelivery)
		return k.keep(k.arrived, m.DispatchID, e.Data)
	case api.ApprovalEvent:
		var o api.ApprovalOutcome
		if err := json.Unmarshal(in.Payload, &o); err != nil {
			return err
		}
		defer k.happens(afterOutcome)
		return k.keep(k.outcomes, o.ApprovalID, in.Payload)
	}
	return nil
}

func (k *approvalKills) keep(in map[string]string, id string, what []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	was, known := in[id]
	if known {
		k.again++
	}
	if in[id] = string(what); known && was != string(what) {
		return fmt.Errorf("%s came as %s, and again as %s", id, was, what)
	}
	return nil
}

// deafen connects an app that is ready for its events and never reads one. The token, if
// any, is from its earlier connection.
func (k *approvalKills) deafen(ctx context.Context, t *testing.T, person *client.Client, id, token string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := os.NewFile(uintptr(fd), k.socket)
	t.Cleanup(func() { conn.Close() })
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: k.socket}); err != nil {
		t.Fatal(err)
	}
	write := func(method string, params any) {
		line, err := json.Marshal(map[string]any{"id": method, "type": "request", "timestamp": 0, "method": method, "params": params, "token": token})
		if err == nil {
			_, err = conn.Write(append(line, '\n'))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("app.register", api.RegisterParams{Manifest: killManifest(id)})
	answer := firstAnswer(t, conn)
	var registered api.RegisterResult
	if !answer.Success {
		t.Fatalf("%s is not registered: %v", id, answer.Error)
	}
	if err := json.Unmarshal(answer.Result, &registered); err != nil {
		t.Fatal(err)
	}
	token = registered.Token
	if id == killChat {
		write("capability.register", ownsChat())
	}
	write("app.ready", map[string]any{})
	isReady := func(a api.AppStatus) bool { return a.ID == id && a.Ready }
	for status := (api.Status{}); !slices.ContainsFunc(status.Apps, isReady); {
		if err := person.Call(ctx, "kernel.status", nil, &status); err != nil {
			t.Fatal(err)
		}
	}
}

// firstAnswer reads the first response, byte by byte, so that it reads nothing after it.
func firstAnswer(t *testing.T, conn *os.File) (answer wire.Incoming) {
	t.Helper()
	for answer.Type != "response" {
		var line []byte
		for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b...) {
			if _, err := conn.Read(b); err != nil {
				t.Fatal(err)
			}
		}
		answer = wire.Incoming{}
		if err := json.Unmarshal(line, &answer); err != nil {
			t.Fatal(err)
		}
	}
	return answer
}

// ask has an app send its unanswered messages, a pending one again, and new ones. All of
// them are held afterwards.
func (k *approvalKills) ask(ctx context.Context, t *testing.T, app, person *client.Client, by string) {
	t.Helper()
	listed := k.list(ctx, t, person, api.ApprovalPending)
	for range heldPerRound / 2 {
		k.message(by)
	}
	again := 1
	for _, m := range k.messages {
		fresh := m.digest == ""
		if m.by != by || !fresh && (m.state != "" || again == 0) {
			continue
		}
		id, err := k.request(ctx, app, m)
		if err != nil {
			t.Fatal(err)
		}
		switch waits := listed[m.content]; {
		case waits.ApprovalID != "" && id != waits.ApprovalID:
			t.Errorf("%q is asked again as %s, and waits as %s", m.content, id, waits.ApprovalID)
		case m.id == "" && waits.ApprovalID != "":
			k.silent++
		case m.id != "" && id != m.id:
			t.Errorf("%q is asked again as %s, want %s", m.content, id, m.id)
		case !fresh:
			again--
			continue
		}
		var a api.Approval
		if err := person.Call(ctx, "approval.get", api.ApprovalParams{ApprovalID: id}, &a); err != nil {
			t.Fatal(err)
		}
		m.id, m.dispatch, m.digest = id, a.DispatchID, a.Digest
		if a.State != api.ApprovalPending || a.Content != m.content || !a.Approvable {
			t.Errorf("%q is held as %+v", m.content, a)
		}
	}
}

// message makes a message that nobody has sent yet.
func (k *approvalKills) message(by string) *promise {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := len(k.messages)
	m := &promise{number: n, content: fmt.Sprintf("I promise to do it by Friday (%d)", n), by: by, session: "chat:p", tried: make(map[string]bool)}
	if n%2 == 0 {
		m.session = "agent:b:main"
	}
	k.messages = append(k.messages, m)
	return m
}

// request sends a message, which must be held.
func (k *approvalKills) request(ctx context.Context, app *client.Client, m *promise) (id string, err error) {
	message := map[string]any{"sessionKey": m.session, "content": m.content, "metadata": map[string]any{"exchange": map[string]any{"new": true}}}
	var result struct {
		Held       bool   `json:"held"`
		ApprovalID string `json:"approvalId"`
	}
	if m.by == killRuntime {
		err = app.Call(ctx, "hook.emit", map[string]any{"hookName": "message_sending", "data": message}, &result)
	} else {
		err = app.Call(ctx, "message.dispatch", message, &result)
	}
	if err == nil && (!result.Held || result.ApprovalID == "") {
		err = fmt.Errorf("%q is not held: %+v", m.content, result)
	}
	return result.ApprovalID, err
}

// askOn has an app continue to ask while people decide. The result of its last request is unknown.
func (k *approvalKills) askOn(ctx context.Context, t *testing.T, app *client.Client, by string) {
	for range heldPerRound / 2 {
		m := k.message(by)
		id, err := k.request(ctx, app, m)
		if err != nil {
			if !connectionClosed(err) {
				t.Error(err)
			}
			return
		}
		k.mu.Lock()
		m.id = id
		k.mu.Unlock()
	}
}

func connectionClosed(err error) bool {
	failure, ok := errors.AsType[*api.Error](err)
	return ok && failure.Code == api.ConnectionClosed
}

// list returns the held messages in a state, by content.
func (k *approvalKills) list(ctx context.Context, t *testing.T, person *client.Client, state string) map[string]api.ApprovalSummary {
	t.Helper()
	limit := api.MaxApprovals
	var page api.ApprovalListResult
	if err := person.Call(ctx, "approval.list", api.ApprovalListParams{State: state, Limit: &limit}, &page); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]api.ApprovalSummary)
	for _, raw := range page.Approvals {
		var a api.ApprovalSummary
		if err := json.Unmarshal(raw, &a); err != nil {
			t.Fatal(err)
		}
		if other, twice := found[a.Summary]; twice {
			t.Errorf("%q is held twice, as %s and %s", a.Summary, other.ApprovalID, a.ApprovalID)
		}
		found[a.Summary] = a
	}
	return found
}

// open lists the messages without a known decision.
func (k *approvalKills) open() []*promise {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(k.messages), func(m *promise) bool { return m.state != "" })
}

// decidable lists those of them that are pending and not kept back.
func (k *approvalKills) decidable() []*promise {
	return slices.DeleteFunc(k.open(), func(m *promise) bool { return m.digest == "" || m.number%keptBack == 0 })
}

// approvalEnds maps a decision to its final state.
func approvalEnds(decision string) string {
	return map[string]string{
		api.DecideApprove: api.ApprovalApproved, api.DecideDeny: api.ApprovalDenied,
		api.DecideTakeover: api.ApprovalTakenOver, api.DecideResolve: api.ApprovalResolved,
	}[decision]
}

// decision is one person's opinion of a message.
func (m *promise) decision(who int) string {
	return []string{
		api.DecideApprove, api.DecideApprove, api.DecideDeny, api.DecideApprove, api.DecideTakeover, api.DecideApprove, api.DecideResolve,
	}[(m.number+2*who)%7]
}

// decide has one of several people decide about pending messages.
func (k *approvalKills) decide(ctx context.Context, t *testing.T, person *client.Client, waiting []*promise, who int) {
	for _, m := range waiting {
		if err := k.decideOne(ctx, person, m, m.decision(who)); err != nil {
			if !connectionClosed(err) {
				t.Error(err)
			}
			return
		}
	}
}

// decideOne makes a decision, or learns who was first.
func (k *approvalKills) decideOne(ctx context.Context, person *client.Client, m *promise, decision string) error {
	k.mu.Lock()
	m.tried[approvalEnds(decision)] = true
	k.mu.Unlock()
	var result api.ApprovalResolveResult
	err := person.Call(ctx, "approval.resolve", api.ApprovalResolveParams{ApprovalID: m.id, Decision: decision, Digest: m.digest}, &result)
	state := result.State
	if failure, ok := errors.AsType[*api.Error](err); ok && failure.Code == api.Conflict {
		details, _ := failure.Details.(map[string]any)
		first, _ := details["ocip"].(map[string]any)
		if first["code"] != "APPROVAL_DECIDED" {
			return err
		}
		state, _ = first["state"].(string)
	} else if err != nil {
		return err
	}
	k.mu.Lock()
	was := m.state
	m.state = state
	k.mu.Unlock()
	k.happens(afterAnswer)
	switch {
	case was != "" && was != state:
		return fmt.Errorf("approval %s is %s, and was %s", m.id, state, was)
	case err == nil && state != approvalEnds(decision):
		return fmt.Errorf("approval %s is %s after %s", m.id, state, decision)
	}
	return nil
}

// look compares approvals with the earlier facts.
func (k *approvalKills) look(ctx context.Context, t *testing.T, person *client.Client, messages []*promise) {
	t.Helper()
	for _, m := range messages {
		if m.digest == "" {
			continue
		}
		var a api.Approval
		if err := person.Call(ctx, "approval.get", api.ApprovalParams{ApprovalID: m.id}, &a); err != nil {
			t.Fatal(err)
		}
		switch {
		case a.DispatchID != m.dispatch || a.Content != m.content:
			t.Errorf("approval %s is about another message: %+v", m.id, a)
		case m.state != "" && a.State != m.state:
			t.Errorf("approval %s is %s, and was %s", m.id, a.State, m.state)
		case m.state == "" && a.State == api.ApprovalPending:
			if a.Digest != m.digest {
				t.Errorf("approval %s waits with digest %s, want %s", m.id, a.Digest, m.digest)
			}
		case !m.tried[a.State]:
			t.Errorf("approval %s is %s, which nobody decided", m.id, a.State)
		case m.state == "":
			m.state = a.State
			k.silent++
		}
	}
}

// settle decides the pending messages, has everything delivered and stops the daemon in order.
func (k *approvalKills) settle(t *testing.T) {
	t.Helper()
	cmd := k.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	person := k.person(ctx, t)
	k.look(ctx, t, person, k.messages)
	for _, id := range []string{killChat, killAgent, killAsker, killRuntime} {
		app := k.connect(ctx, t, id)
		wg.Go(k.listen(ctx, t, app))
		if id == killAsker || id == killRuntime {
			k.ask(ctx, t, app, person, id)
		}
	}
	for _, m := range k.decidable() {
		if err := k.decideOne(ctx, person, m, m.decision(0)); err != nil {
			t.Error(err)
		}
	}
	for status := (api.Status{Queues: make([]api.QueueStatus, 1)}); len(status.Queues) > 0; {
		if err := person.Call(ctx, "kernel.status", nil, &status); err != nil {
			t.Fatal(err)
		}
	}
	k.look(ctx, t, person, k.messages)
	for content, a := range k.list(ctx, t, person, "all") {
		i := slices.IndexFunc(k.messages, func(m *promise) bool { return m.content == content })
		if i < 0 || k.messages[i].id != a.ApprovalID {
			t.Errorf("nobody asked for approval %s: %s", a.ApprovalID, content)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the daemon does not end in peace: %v", err)
	}
}

// approvalEvidence is the log's evidence about one held message.
type approvalEvidence struct {
	// decisions are the states in its approval records.
	decisions []string
	// held, sent and received count the records of the exchange.
	held, sent, received int
}

// readEvidence verifies the log and returns its evidence, by approval.
func (k *approvalKills) readEvidence(t *testing.T) map[string]*approvalEvidence {
	t.Helper()
	log, err := os.Open(filepath.Join(k.dir, "openclawos", "audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var v audit.Verifier
	found := make(map[string]*approvalEvidence)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if err := v.Add(lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		e, err := audit.Parse(lines.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if e.ApprovalID == "" || e.Event == "held_text_read" {
			continue
		}
		if found[e.ApprovalID] == nil {
			found[e.ApprovalID] = new(approvalEvidence)
		}
		switch about := found[e.ApprovalID]; {
		case e.ActionType == audit.ActionApproval:
			if e.Event != "asked_again" {
				about.decisions = append(about.decisions, e.Event)
			}
		case e.Side == audit.SideSender && e.PolicyResult == audit.ResultAllow:
			about.sent++
		case e.Side == audit.SideSender:
			about.held++
		case e.Side == audit.SideReceiver && e.PolicyResult == audit.ResultAllow:
			about.received++
		default:
			t.Errorf("record %d is not expected: %s", e.Seq, lines.Bytes())
		}
	}
	return found
}

// judge compares the decisions, records, deliveries and outcomes.
func (k *approvalKills) judge(t *testing.T) {
	t.Helper()
	found := k.readEvidence(t)
	states := make(map[string]int)
	expected := make(map[string]bool)
	for _, m := range k.messages {
		want := approvalEvidence{held: 1}
		if m.state != "" {
			want.decisions = []string{m.state}
		}
		goes := m.state == api.ApprovalApproved || m.state == api.ApprovalTakenOver
		if goes {
			want.sent = 1
			if m.session != "chat:p" && m.by == killAsker {
				want.received = 1
			}
		}
		if got := found[m.id]; got == nil || fmt.Sprint(*got) != fmt.Sprint(want) {
			t.Errorf("%s approval %s has the records %+v, want %+v", m.state, m.id, got, want)
		}
		data, came := k.arrived[m.dispatch]
		expected[m.dispatch] = true
		if want := goes && m.by == killAsker; came != want || came && !strings.Contains(data, m.content) {
			t.Errorf("%s approval %s: delivered %t, want %t: %s", m.state, m.id, came, want, data)
		}
		k.judgeOutcome(t, m, goes)
		states[m.state]++
	}
	for dispatch := range k.arrived {
		if !expected[dispatch] {
			t.Errorf("%s was delivered, and nobody asked for it", dispatch)
		}
	}
	if len(found) != len(k.messages) {
		t.Errorf("the log has %d approvals, want %d", len(found), len(k.messages))
	}
	for _, want := range []string{api.ApprovalApproved, api.ApprovalDenied, api.ApprovalTakenOver, api.ApprovalResolved, ""} {
		if states[want] == 0 {
			t.Errorf("none of %d messages is %q in the end: %v", len(k.messages), want, states)
		}
	}
	t.Logf("%d held, in the end %v; %d delivered, %d outcomes told, %d of both again; %d decisions and requests were carried out and not answered", len(k.messages), states, len(k.arrived), len(k.outcomes), k.again, k.silent)
}

// judgeOutcome checks that the asking app knows the outcome of a message.
func (k *approvalKills) judgeOutcome(t *testing.T, m *promise, goes bool) {
	t.Helper()
	raw, wasTold := k.outcomes[m.id]
	if wasTold != (m.state != "") {
		t.Errorf("%s approval %s: the app was told %t", m.state, m.id, wasTold)
	}
	if !wasTold {
		return
	}
	var o api.ApprovalOutcome
	var data api.EmittedMessage
	err := json.Unmarshal([]byte(raw), &o)
	if carried := goes && m.by == killRuntime; carried && err == nil {
		if err = json.Unmarshal(o.Data, &data); err == nil && (data.DispatchID != m.dispatch || !strings.Contains(data.Content.Inspect(), m.content) || data.Metadata["ocip"] == nil) {
			err = errors.New("this is not what it may send")
		}
	} else if len(o.Data) > 0 {
		err = errors.New("it must not send anything")
	}
	if err != nil || o.DispatchID != m.dispatch || o.Resolution != m.state {
		t.Errorf("%s approval %s: the app was told %s: %v", m.state, m.id, raw, err)
	}
}
