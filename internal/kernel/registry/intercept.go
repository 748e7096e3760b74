package registry

import (
	"context"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit/gate"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Intercepted reports whether any app may have to be asked about outgoing messages.
func (r *Registry) Intercepted(t *Terms) bool {
	return len(t.HookApps) > 0 || len(r.Listeners(api.MessageSending)) > 0
}

// Question is a question to interceptors.
type Question struct {
	Hook  api.Hook
	About api.HookContext
	// Asker is not asked: it spoke already, and could not answer while it waits. But, if set, is
	// left out too unless it is required. RequiredOnly leaves out all apps that are not required.
	Asker, But   *App
	RequiredOnly bool
	// Data returns the data for the next interceptor, and Take handles its answer: a denial ends
	// the questions.
	Data func() []byte
	Take func(*App, jsontext.Value) *ocip.Verdict
}

// Ask asks the interceptors of a hook that may intercept the agent, one after another. It asks
// nobody if a required one is missing, and denies if a required one has not answered, since it may
// connect or disconnect while another is asked.
func (r *Registry) Ask(ctx context.Context, t *Terms, q *Question) (*ocip.Verdict, error) {
	if missing := r.missingInterceptor(t, q.Hook); missing != "" {
		return denied(ocip.InterceptorBlocked, missing, "is required and not connected"), nil
	}
	var said []string
	for _, a := range r.Listeners(q.Hook) {
		if a == q.Asker || (q.RequiredOnly || a == q.But) && !t.HookApps[a.ID()].Required {
			continue
		}
		names, intercepts := r.subscription(t, a, q.Hook)
		if !intercepts || !t.intercepts(a, q.About.AgentID) {
			continue
		}
		still := func() bool {
			return r.then(t, q.About.AgentID, func(t *Terms) bool { return t.intercepts(a, q.About.AgentID) })
		}
		if !still() {
			// The configuration changed while others were asked.
			return denied(ocip.InterceptorBlocked, a.ID(), "may not look at it any more, since the configuration has changed; send it again"), nil
		}
		for _, name := range names {
			result, answered, err := r.ask(ctx, t, a, q.Hook, name, q.Data(), q.About, func() bool { return still() && runs(r, &q.About, "") })
			switch {
			case err != nil:
				return nil, err
			case answered:
				said = append(said, a.ID())
				if blocked := q.Take(a, result); blocked != nil {
					return blocked, nil
				}
			case r.requiresAnswer(t, a, q.Hook):
				return denied(ocip.InterceptorTimeout, a.ID(), "did not answer in time"), nil
			}
		}
	}
	if silent := r.unaskedInterceptor(t, q, said); silent != "" {
		return denied(ocip.InterceptorBlocked, silent, "is required and was not asked: it left or came meanwhile"), nil
	}
	return nil, nil
}

// unaskedInterceptor names a required interceptor that has not answered: it was connected at the
// start of the questions, or is now.
func (r *Registry) unaskedInterceptor(t *Terms, q *Question, said []string) string {
	if t.Directory.Agent(q.About.AgentID) == nil {
		return ""
	}
	if q.Asker != nil {
		said = append(slices.Clip(said), q.Asker.ID())
	}
	return Unasked(r, t, q.Hook, said)
}

// Unasked names a required interceptor that is not among those that answered, or "".
func Unasked(r *Registry, t *Terms, hook api.Hook, said []string) string {
	for id, times := range t.HookApps {
		if !times.Required || slices.Contains(said, id) {
			continue
		}
		r.mu.RLock()
		a := r.apps[id]
		wanted := hook == api.MessageSending || a == nil || a.listsIntercept(hook)
		r.mu.RUnlock()
		if wanted {
			return id
		}
	}
	return ""
}

// intercepts reports whether the configuration lets an app intercept an agent's acts.
func (t *Terms) intercepts(a *App, agentID string) bool {
	agent := t.Directory.Agent(agentID)
	return agent != nil && t.Directory.Intercepts(a.ID(), agent)
}

// canBeAsked reports whether an app that may intercept an agent can be asked about a hook. Only
// required interceptors may stop incoming messages, if their manifest lists that hook.
func (t *Terms) canBeAsked(a *App, hook api.Hook) bool {
	return hook.Interceptable() || hook == api.MessageReceived && t.HookApps[a.ID()].Required && a.listsIntercept(hook)
}

// listsIntercept reports whether the app's manifest lists a hook as one to intercept.
func (a *App) listsIntercept(hook api.Hook) bool {
	return listsHook(a.manifest.Capabilities.Hooks.Intercepts, hook)
}

// Requires reports whether the configuration requires an interceptor.
func (t *Terms) Requires() bool {
	for _, times := range t.HookApps {
		if times.Required {
			return true
		}
	}
	return false
}

// missingInterceptor names a required interceptor that is not connected. It must listen to outgoing
// messages, and to the other hooks that its manifest lists to intercept.
func (r *table) missingInterceptor(t *Terms, hook api.Hook) string {
	for id, times := range t.HookApps {
		if !times.Required {
			continue
		}
		r.mu.RLock()
		a := r.apps[id]
		present := a != nil && a.ready && (hook != api.MessageSending && !a.listsIntercept(hook) || slices.Contains(r.listeners[hook], a))
		r.mu.RUnlock()
		if !present {
			return id
		}
	}
	return ""
}

// requiresAnswer reports whether a message waits for the app's answer and is blocked without it.
func (r *table) requiresAnswer(t *Terms, a *App, hook api.Hook) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return a.mustAnswerLocked(hook) || t.HookApps[a.ID()].Required
}

// ask sends an event and waits for its answer: briefly for an app that may stay silent, longer for
// one that must answer.
func (r *Registry) ask(ctx context.Context, t *Terms, a *App, hook api.Hook, name string, data []byte, about api.HookContext, still may) (jsontext.Value, bool, error) {
	times := t.HookApps[a.ID()]
	wait := pick(times.Wait, t.HookWait)
	if r.requiresAnswer(t, a, hook) {
		wait = pick(times.Answer, t.HookAnswer)
	}
	e := a.events.add(&event{id: r.newID(), hook: hook, awaited: true, answers: make(chan jsontext.Value, 1)})
	began := r.now()
	defer func() { r.metrics.HookWaited(r.now().Sub(began)) }()
	about.Timestamp = began.UnixMilli()
	put(a.link, gate.Question(e.id, name, data, about.Append), still)
	limit := time.NewTimer(wait)
	defer limit.Stop()
	select {
	case result := <-e.answers:
		return result, true, nil
	case <-limit.C:
	case <-a.gone:
	case <-ctx.Done():
		a.events.expire(e)
		return nil, false, api.Errorf(api.ConnectionClosed, "the connection ended before the message was decided")
	}
	if !a.events.expire(e) {
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

// mayIntercept reports whether there is any agent whose messages an app may intercept.
func (t *Terms) mayIntercept(app string) bool {
	for i := range t.Agents {
		if t.Directory.Intercepts(app, &t.Agents[i]) {
			return true
		}
	}
	return false
}

// denied returns the verdict for a denial by an interceptor.
func denied(code ocip.Code, app, how string) *ocip.Verdict {
	return &ocip.Verdict{Result: ocip.Deny, Code: code, Policy: "interceptor:" + app, Reason: "interceptor " + app + " " + how}
}

// Deny returns the verdict for a denial by an interceptor. The reason continues a sentence that
// begins with the app's name.
func (a *App) Deny(how string) *ocip.Verdict { return denied(ocip.InterceptorBlocked, a.ID(), how) }

// Denies returns the denial in an interceptor's answer, nil if the answer is an object that
// replaces the data. The interceptor's own words go only into the record: nobody decided that the
// caller may see them.
func (a *App) Denies(result jsontext.Value) *ocip.Verdict {
	var answer struct {
		Block  bool   `json:"block"`
		Reason string `json:"reason"`
	}
	switch {
	case len(result) == 0 || result.Kind() == 'n':
		return a.Deny("blocked it")
	case result.Kind() != '{' || json.Unmarshal(result, &answer) != nil:
		return a.Deny("gave an answer that is no object")
	case !answer.Block, mutant.Off("interceptor-block"):
		return nil
	}
	v := a.Deny("blocked it")
	if said := ocip.Summarize(answer.Reason); said != "" {
		v.Details = map[string]any{"cause": said}
	}
	return v
}

// Interception is a message after the interceptors.
type Interception struct {
	Message api.Message
	// Blocked is set if the message must not go on.
	Blocked *ocip.Verdict
	// Refused is set if an interceptor's answer blocked it, and not its absence or silence.
	Refused bool
	// ChangedBy lists the interceptors that changed something.
	ChangedBy []string
}

// Intercept shows a message to the interceptors, each with the previous one's output. It leaves out
// but, the owner of the message's channel, which gets the message last, unless that app is
// required.
func (r *Registry) Intercept(ctx context.Context, t *Terms, m api.Message, about api.HookContext, asker, but *App) (Interception, error) {
	return r.show(ctx, t, m, &Question{About: about, Asker: asker, But: but})
}

// InterceptAgain shows the required interceptors a held message before its release.
func (r *Registry) InterceptAgain(ctx context.Context, t *Terms, m api.Message, about api.HookContext, asker *App) (Interception, error) {
	return r.show(ctx, t, m, &Question{About: about, Asker: asker, RequiredOnly: true})
}

func (r *Registry) show(ctx context.Context, t *Terms, m api.Message, q *Question) (out Interception, err error) {
	out.Message, q.Hook = m, api.MessageSending
	q.Data = func() []byte { return out.Message.Append(nil) }
	q.Take = func(a *App, result jsontext.Value) *ocip.Verdict {
		v := out.take(a, result)
		out.Refused = v != nil
		return v
	}
	out.Blocked, err = r.Ask(ctx, t, q)
	return out, err
}

// take applies an interceptor's answer. An object replaces content and metadata; null or a block
// stops the message; anything else is no valid answer, and stops it too.
func (i *Interception) take(a *App, result jsontext.Value) *ocip.Verdict {
	if blocked := a.Denies(result); blocked != nil {
		return blocked
	}
	var answer struct {
		ChannelID *string        `json:"channelId"`
		Target    *string        `json:"target"`
		Content   *gate.Text     `json:"content"`
		Metadata  jsontext.Value `json:"metadata"`
	}
	switch {
	case json.Unmarshal(result, &answer) != nil:
		return a.Deny("gave an answer that is no message")
	case answer.ChannelID != nil && *answer.ChannelID != i.Message.ChannelID, answer.Target != nil && *answer.Target != i.Message.Target:
		return a.Deny("changed the recipient, which no interceptor may")
	}
	changed := false
	if answer.Content != nil && *answer.Content != i.Message.Content {
		i.Message.Content, changed = *answer.Content, true
	}
	if len(answer.Metadata) > 0 && answer.Metadata.Kind() != 'n' {
		var metadata api.Object
		if err := json.Unmarshal(answer.Metadata, &metadata); err != nil {
			return a.Deny("gave metadata that is no object")
		}
		if !metadata.Equal(i.Message.Metadata) {
			i.Message.Metadata, changed = metadata, true
		}
	}
	if changed {
		i.ChangedBy = append(i.ChangedBy, a.ID())
	}
	return nil
}
