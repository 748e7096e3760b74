package kernel

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/directory"
	"github.com/openclawos/ocipd/internal/jsonline"
	"github.com/openclawos/ocipd/internal/ocip"
	"go.uber.org/zap"
)

// hookNames are the names under which an app listens to one hook: the protocol's
// own, the SDK's alias for it, or both. It is told under each.
type hookNames []string

// UnmarshalJSON also reads what was kept when an app had one name a hook.
func (n *hookNames) UnmarshalJSON(b []byte) error {
	if jsontext.Value(b).Kind() != '"' {
		return json.Unmarshal(b, (*[]string)(n))
	}
	var name string
	if err := json.Unmarshal(b, &name); err != nil {
		return err
	}
	*n = hookNames{name}
	return nil
}

// Subscribe grants the hooks that the app's manifest lists. Whoever provides a
// channel is sent its messages as message_sending, whatever else it lists.
func (c *Client) Subscribe(_ context.Context, p *api.HooksParams) (api.SubscribeResult, error) {
	a, k := c.app.Load(), c.kernel
	result := api.SubscribeResult{Subscribed: []string{}, Denied: []string{}}
	rules := k.rules()
	defer k.keep(a)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range p.Events {
		hook, known := api.ParseHook(name)
		owns := hook == api.MessageSending && len(a.manifest.Capabilities.Channels.Provides) > 0
		if !known || !owns && !a.declaresHook(hook) || !rules.mayHear(a, hook) {
			result.Denied = append(result.Denied, name)
			continue
		}
		k.listen(a, hook, name)
		result.Subscribed = append(result.Subscribed, name)
	}
	return result, nil
}

// declaresHook reports whether the app's manifest lists a hook.
func (a *app) declaresHook(hook api.Hook) bool {
	declared := &a.manifest.Capabilities.Hooks
	return listsHook(declared.Subscribes, hook) || listsHook(declared.Intercepts, hook)
}

// listen adds a name under which an app listens. One that provides channels and
// lists no hook hears of its own channels' messages, which are delivered to it, and
// so of nothing as a listener. It is called with the registry lock.
func (k *Kernel) listen(a *app, hook api.Hook, name string) {
	names, again := a.hooks[hook]
	if !again && k.apps[a.id()] == a && a.declaresHook(hook) {
		listeners := append(slices.Clone(k.hooks[hook]), a)
		slices.SortFunc(listeners, func(x, y *app) int { return cmp.Compare(x.order, y.order) })
		k.hooks[hook] = listeners
	}
	if !slices.Contains(names, name) {
		// A copy: what an earlier look has taken is read without the lock.
		a.hooks[hook] = append(slices.Clone(names), name)
	}
}

// Unsubscribe leaves hooks: a name that was subscribed to, or under any other name
// of the same hook all of it.
func (c *Client) Unsubscribe(_ context.Context, p *api.HooksParams) (api.UnsubscribeResult, error) {
	a, k := c.app.Load(), c.kernel
	result := api.UnsubscribeResult{Unsubscribed: []string{}}
	defer k.keep(a)
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range p.Events {
		hook, known := api.ParseHook(name)
		names, subscribed := a.hooks[hook]
		if !known || !subscribed {
			continue
		}
		result.Unsubscribed = append(result.Unsubscribed, name)
		left := slices.DeleteFunc(slices.Clone(names), func(other string) bool { return other == name })
		if len(left) > 0 && len(left) < len(names) {
			a.hooks[hook] = left
			continue
		}
		delete(a.hooks, hook)
		k.dropListener(hook, a)
	}
	return result, nil
}

// HookResult takes an app's answer to an event. One that counts for nothing is told
// so and is no error: the stock SDK sends whatever a handler returns, however late,
// and ends its process with an error that nobody takes.
func (c *Client) HookResult(_ context.Context, p *api.HookResultParams) (api.OK, error) {
	a, k := c.app.Load(), c.kernel
	k.mu.RLock()
	subscriptions := len(a.hooks) + len(k.queuesHeld(a))
	k.mu.RUnlock()
	if subscriptions == 0 {
		return api.OK{}, api.Errorf(api.HookNotSubscribed, "app %s is subscribed to no hook", a.id())
	}
	var said receipt
	if k.events.delivered(a, p.EventID) {
		// What is no receipt is not waited for, and does not use up the event.
		var ok bool
		if said, ok = parseReceipt(p.Result); !ok {
			return api.OK{Reason: "the event delivered a message; a receipt is {delivered, error}"}, nil
		}
	}
	e, missed := k.events.answer(a, p.EventID, p.Result.Clone())
	switch {
	case missed == answeredLate:
		k.log.Warn("an app answered a hook too late", zap.String("app", a.id()), zap.String("hook", string(e.hook)), zap.String("event", e.id))
		return api.OK{Reason: string(missed)}, nil
	case missed != "":
		k.log.Debug("an app's answer to a hook counts for nothing", zap.String("app", a.id()), zap.String("event", p.EventID), zap.String("reason", string(missed)))
		return api.OK{Reason: string(missed)}, nil
	case e.receipt != nil:
		return api.OK{OK: true}, k.outbox.acknowledge(a, e.receipt, said)
	case !e.awaited:
		return api.OK{Reason: "nobody waits for an answer to this event"}, nil
	}
	return api.OK{OK: true}, nil
}

// queuesHeld lists the channels of an app. It is called with the registry lock.
func (k *Kernel) queuesHeld(a *app) (channels []string) {
	for channel, owner := range k.channels {
		if owner == a {
			channels = append(channels, channel)
		}
	}
	return channels
}

// events remembers which events may still be answered, and for a while those
// that no longer can be, so that a late answer is told from an unknown one.
type events struct {
	now func() time.Time

	mu   sync.Mutex
	byID map[string]*event
	// ring forgets the oldest event when a new one needs its place.
	ring []*event
	next int
}

// rememberedEvents bounds the events that can be told apart.
const rememberedEvents = 8192

type event struct {
	id   string
	app  *app
	hook api.Hook
	// awaited events have somebody waiting for the answer.
	awaited bool
	// receipt is the message that was delivered by the event.
	receipt  *delivery
	answered bool
	late     bool
	answers  chan jsontext.Value
}

func newEvents(now func() time.Time) *events {
	return &events{now: now, byID: make(map[string]*event), ring: make([]*event, 0, 64)}
}

func (r *events) add(e *event) *event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < rememberedEvents {
		r.ring = append(r.ring, e)
	} else {
		delete(r.byID, r.ring[r.next].id)
		r.ring[r.next] = e
		r.next = (r.next + 1) % rememberedEvents
	}
	r.byID[e.id] = e
	return e
}

// delivered reports whether an event delivered a message to the app.
func (r *events) delivered(a *app, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.byID[id]
	return known && e.app.is(a) && e.receipt != nil
}

// missed says why an answer counts for nothing, "" where it counts.
type missed string

const (
	answerUnknown  missed = "no such event was sent to this app"
	answeredBefore missed = "the event is answered already"
	answeredLate   missed = "the event was answered too late; the kernel went on without it"
)

// answer takes an app's answer, once. An event that was another app's does not
// exist for this one, also where that had the same id.
func (r *events) answer(a *app, id string, result jsontext.Value) (*event, missed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, known := r.byID[id]
	switch {
	case !known || !e.app.is(a):
		return nil, answerUnknown
	case e.answered:
		return e, answeredBefore
	}
	e.answered = true
	if e.late {
		return e, answeredLate
	}
	if e.awaited {
		e.answers <- result
	}
	return e, ""
}

// giveUp ends the waiting for an event. It reports false where the answer came
// in the meantime.
func (r *events) giveUp(e *event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.answered {
		return false
	}
	e.late = true
	return true
}

// concerns reports whether an app that listens may be told of something: of what its
// own agents do, and of what the configuration grants it. Where nothing has to be
// declared, the app that has a channel hears of that too.
func (k *ruleset) concerns(a *app, about *api.HookContext) bool {
	agent := k.directory.Agent(about.AgentID)
	if agent == nil {
		return false
	}
	// The channel that an agent's own session is named after is the sender's word:
	// nothing goes through it.
	channel, _ := directory.Split(about.SessionKey)
	if channel == agentChannel {
		channel = ""
	}
	return k.directory.Observes(a.id(), agent, channel) ||
		!k.directory.Declared() && channel != "" && k.ownsChannel(a, channel)
}

// mayHear reports whether there is anything that an app could be told of, or asked
// about, as a listener to a hook.
func (k *ruleset) mayHear(a *app, hook api.Hook) bool {
	for i := range k.cfg.Directory.Agents {
		agent := &k.cfg.Directory.Agents[i]
		if k.directory.Observes(a.id(), agent, "") || hook.Interceptable() && k.directory.Intercepts(a.id(), agent) {
			return true
		}
	}
	// One of a channel hears of what goes through it.
	return slices.ContainsFunc(a.manifest.Capabilities.Channels.Provides, func(channel string) bool {
		return k.directory.MayOwn(a.id(), channel) == nil
	})
}

// mayIntercept reports whether there is any agent whose messages an app may look at
// and stop.
func (k *ruleset) mayIntercept(app string) bool {
	for i := range k.cfg.Directory.Agents {
		if k.directory.Intercepts(app, &k.cfg.Directory.Agents[i]) {
			return true
		}
	}
	return false
}

// observe tells the apps that only observe a hook. Nobody waits for them.
func (k *ruleset) observe(hook api.Hook, data []byte, about api.HookContext, but *app) {
	k.mu.RLock()
	listeners := k.hooks[hook]
	k.mu.RUnlock()
	if len(listeners) == 0 {
		return
	}
	for _, a := range listeners {
		if a == but || !k.concerns(a, &about) {
			continue
		}
		names, intercepts := k.subscription(a, hook)
		if intercepts && k.intercepts(a, about.AgentID) {
			continue
		}
		for _, name := range names {
			e := k.events.add(&event{id: k.newID(), app: a, hook: hook})
			tell(a.link, "hook:"+name, appendHookEvent(nil, e.id, name, data, about))
		}
	}
}

// subscription returns the names under which an app listens to a hook, none
// where it does not or is not ready, and whether it intercepts it.
func (k *ruleset) subscription(a *app, hook api.Hook) (names hookNames, intercepts bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	names, subscribed := a.hooks[hook]
	if !subscribed || !a.ready {
		return nil, false
	}
	required := k.cfg.HookApps[a.id()].Required
	if hook == api.MessageReceived {
		// What comes in may be stopped by those that nothing goes past.
		return names, required && listsHook(a.manifest.Capabilities.Hooks.Intercepts, hook)
	}
	if !hook.Interceptable() {
		return names, false
	}
	if required {
		return names, true
	}
	if hook == api.MessageSending && len(k.queuesHeld(a)) > 0 && !a.mustAnswer(hook) {
		// Whoever owns a channel is sent its messages last, and sees no others
		// unless it asked to intercept them.
		return nil, false
	}
	return names, a.mustAnswer(hook) || listsHook(a.manifest.Capabilities.Hooks.Intercepts, hook)
}

// Interception is how the interceptors left a message.
type interception struct {
	content  string
	metadata api.Object
	// blocked is set where it must not go on.
	blocked *refusal
	// changedBy lists the interceptors that changed something.
	changedBy []string
}

// refusal says who stopped a message and why. What the interceptor itself said is for
// the record: nobody decided that its words may reach whoever asked.
type refusal struct {
	code   ocip.Code
	by     string
	reason string
	said   string
}

// verdict is a refusal as a verdict.
func (r *refusal) verdict() *ocip.Verdict {
	v := &ocip.Verdict{Result: ocip.Deny, Code: r.code, Policy: "interceptor:" + r.by, Reason: r.reason}
	if r.said != "" {
		v.Details = map[string]any{"cause": r.said}
	}
	return v
}

// intercept shows a message to the interceptors, each with the former's output.
// The owner of the message's channel is not among them, unless it is required: it
// gets the message last.
func (k *ruleset) intercept(ctx context.Context, m *outgoing, owner *app) (interception, error) {
	out := interception{content: m.content, metadata: m.metadata}
	var err error
	out.blocked, err = k.askAll(ctx, question{
		hook: api.MessageSending, about: m.about(), asker: m.app, but: owner,
		data: func() []byte {
			return api.Message{ChannelID: m.channel, Target: m.target, Content: out.content, Metadata: out.metadata, DispatchID: m.dispatchID}.Append(nil)
		},
		take: func(a *app, result jsontext.Value) *refusal { return out.take(a, m, result) },
	})
	return out, err
}

// question is what interceptors are asked about.
type question struct {
	hook  api.Hook
	about api.HookContext
	// asker has had its say, and could not answer while it waits; but is left
	// out too, where it is set and not required.
	asker, but *app
	// data is what the next interceptor is shown, take what becomes of its
	// answer: a refusal ends the asking.
	data func() []byte
	take func(*app, jsontext.Value) *refusal
}

// askAll asks the interceptors of a hook that may intercept the agent, one after
// another. Without one that is required it asks nobody.
func (k *ruleset) askAll(ctx context.Context, q question) (*refusal, error) {
	if missing := k.missingInterceptor(q.hook); missing != "" {
		return &refusal{code: ocip.InterceptorBlocked, by: missing, reason: "interceptor " + missing + " is required and not connected"}, nil
	}
	for _, a := range k.listeners(q.hook) {
		if a == q.asker || a == q.but && !k.cfg.HookApps[a.id()].Required {
			continue
		}
		names, intercepts := k.subscription(a, q.hook)
		if !intercepts || !k.intercepts(a, q.about.AgentID) {
			continue
		}
		for _, name := range names {
			result, answered, err := k.ask(ctx, a, q.hook, name, q.data(), q.about)
			switch {
			case err != nil:
				return nil, err
			case answered:
				if blocked := q.take(a, result); blocked != nil {
					return blocked, nil
				}
			case k.demands(a, q.hook):
				return &refusal{code: ocip.InterceptorTimeout, by: a.id(), reason: "interceptor " + a.id() + " did not answer in time"}, nil
			}
		}
	}
	return nil, nil
}

// intercepts reports whether the configuration lets an app intercept what an agent
// does.
func (k *ruleset) intercepts(a *app, agentID string) bool {
	agent := k.directory.Agent(agentID)
	return agent != nil && k.directory.Intercepts(a.id(), agent)
}

// missingInterceptor names a required interceptor that is not there. Of what goes
// out it must be a listener; what else it wants to be asked about is known once it
// is there.
func (k *ruleset) missingInterceptor(hook api.Hook) string {
	for id, times := range k.cfg.HookApps {
		if !times.Required {
			continue
		}
		k.mu.RLock()
		a := k.apps[id]
		present := a != nil && a.ready && (hook != api.MessageSending || slices.Contains(k.hooks[hook], a))
		k.mu.RUnlock()
		if !present {
			return id
		}
	}
	return ""
}

// demands reports whether a message waits for the app's word and is blocked
// without it.
func (k *ruleset) demands(a *app, hook api.Hook) bool {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return a.mustAnswer(hook) || k.cfg.HookApps[a.id()].Required
}

// ask sends an event and waits for its answer: briefly for an app that may
// stay silent, longer for one that must speak.
func (k *ruleset) ask(ctx context.Context, a *app, hook api.Hook, name string, data []byte, about api.HookContext) (jsontext.Value, bool, error) {
	times := k.cfg.HookApps[a.id()]
	wait := pick(times.Wait, k.cfg.HookWait)
	if k.demands(a, hook) {
		wait = pick(times.Answer, k.cfg.HookAnswer)
	}
	e := k.events.add(&event{id: k.newID(), app: a, hook: hook, awaited: true, answers: make(chan jsontext.Value, 1)})
	began := k.now()
	defer func() { k.metrics.HookWaited(k.now().Sub(began)) }()
	about.Timestamp = began.UnixMilli()
	tell(a.link, "hook:"+name, appendHookEvent(nil, e.id, name, data, about))
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case result := <-e.answers:
		return result, true, nil
	case <-limit.C:
	case <-a.gone:
	case <-ctx.Done():
		k.events.giveUp(e)
		return nil, false, api.Errorf(api.ConnectionClosed, "the connection ended before the message was decided")
	}
	if !k.events.giveUp(e) {
		return <-e.answers, true, nil
	}
	return nil, false, nil
}

func pick(own, general time.Duration) time.Duration {
	if own > 0 {
		return own
	}
	return general
}

// take applies an interceptor's answer. An object replaces content and
// metadata; null or a block stops the message; anything else is not an answer
// that a message may depend on, and stops it too.
func (i *interception) take(a *app, m *outgoing, result jsontext.Value) *refusal {
	if blocked := a.blocks(result); blocked != nil {
		return blocked
	}
	var answer struct {
		ChannelID *string        `json:"channelId"`
		Target    *string        `json:"target"`
		Content   *string        `json:"content"`
		Metadata  jsontext.Value `json:"metadata"`
	}
	switch {
	case json.Unmarshal(result, &answer) != nil:
		return a.block("gave an answer that is no message")
	case answer.ChannelID != nil && *answer.ChannelID != m.channel, answer.Target != nil && *answer.Target != m.target:
		return a.block("changed the recipient, which no interceptor may")
	}
	changed := false
	if answer.Content != nil && *answer.Content != i.content {
		i.content, changed = *answer.Content, true
	}
	if len(answer.Metadata) > 0 && answer.Metadata.Kind() != 'n' {
		var metadata api.Object
		if err := json.Unmarshal(answer.Metadata, &metadata); err != nil {
			return a.block("gave metadata that is no object")
		}
		if !sameObject(metadata, i.metadata) {
			i.metadata, changed = metadata, true
		}
	}
	if changed {
		i.changedBy = append(i.changedBy, a.id())
	}
	return nil
}

// block is the refusal of an interceptor.
func (a *app) block(how string) *refusal {
	return &refusal{code: ocip.InterceptorBlocked, by: a.id(), reason: "interceptor " + a.id() + " " + how}
}

// passInbound asks those that nothing goes past about a message that an app brings
// in. They see it as it came and may stop it, which is on record; they change
// nothing. One of another tenant is not shown to them: it goes no further anyway.
func (k *ruleset) passInbound(ctx context.Context, in *incoming) error {
	if len(k.directory.Required()) == 0 {
		return nil
	}
	if _, walled := ocip.Wall(in.agent.Identity, in.from); walled {
		return nil
	}
	if e, err := ocip.ParseEnvelope(in.metadata["ocip"]); err == nil {
		claimed := ocip.Counterparty{Kind: ocip.KindAgent, Identity: e.SourceAgent}
		if _, walled := ocip.Wall(in.agent.Identity, claimed); walled {
			return nil
		}
	}
	k.mu.RLock()
	receiver := k.apps[in.agent.App]
	k.mu.RUnlock()
	blocked, err := k.askAll(ctx, question{
		hook: api.MessageReceived, about: in.about(), asker: in.app, but: receiver,
		data: in.data,
		take: func(a *app, result jsontext.Value) *refusal { return a.blocks(result) },
	})
	if err != nil || blocked == nil {
		return err
	}
	v := blocked.verdict()
	r, err := k.receivedRecord(in.agent, in.from, v, in.key, in.content)
	if err != nil {
		return err
	}
	in.describe(r)
	r.Classification = ""
	if err := k.stopped(in, r); err != nil {
		return err
	}
	failure := refused(v, r)
	if v.Code == ocip.InterceptorTimeout {
		failure.Code = api.Timeout
	}
	return failure
}

// blocks returns the refusal that an interceptor's answer is, nil where it is an
// object that replaces what was asked about.
func (a *app) blocks(result jsontext.Value) *refusal {
	var answer struct {
		Block  bool   `json:"block"`
		Reason string `json:"reason"`
	}
	switch {
	case len(result) == 0 || result.Kind() == 'n':
		return a.block("blocked it")
	case result.Kind() != '{' || json.Unmarshal(result, &answer) != nil:
		return a.block("gave an answer that is no object")
	case !answer.Block:
		return nil
	}
	blocked := a.block("blocked it")
	blocked.said = ocip.Summarize(answer.Reason)
	return blocked
}

func sameObject(x, y api.Object) bool {
	if len(x) != len(y) {
		return false
	}
	for key, value := range x {
		if other, ok := y[key]; !ok || !bytes.Equal(value, other) {
			return false
		}
	}
	return true
}

// eventBytes is about what a hook event takes besides its data.
const eventBytes = 384

// appendHookEvent writes the payload of a hook event in the protocol's order.
// Data must be JSON already.
func appendHookEvent(b []byte, eventID, name string, data []byte, about api.HookContext) []byte {
	b = append(slices.Grow(b, len(data)+eventBytes), `{"eventId":"`...)
	b = append(b, eventID...)
	b = append(b, `","hookName":"`...)
	b = append(b, name...)
	b = append(b, `","data":`...)
	b = append(b, data...)
	b = about.Append(jsonline.Key(b, "context"))
	return append(b, '}')
}
