package ipc

import (
	"context"
	"reflect"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/metrics"
	"github.com/openclawos/ocipd/internal/wire"
)

// access says who may call a method.
type access string

const (
	// accessOpen: any app, registered or not.
	accessOpen access = "open"
	// accessApp: an app with its token.
	accessApp access = "app"
	// accessOperator: whoever may use the operator socket.
	accessOperator access = "operator"
	// accessAny: open on both sockets.
	accessAny access = "any"
)

// pace says how a method is run.
type pace uint8

const (
	// quick methods are answered before the next line is read: they never wait
	// for another app, and for the disk only to record their own doing.
	quick pace = iota
	// patient methods may wait, for the disk or another app, and run beside
	// the reader. Those with the same [api] order key run one after another.
	patient
	// streaming methods are opened before the next line is read, and then
	// answer in chunks until they are cancelled.
	streaming
)

// method is one line of the table. call and open get the parameters that
// decode made.
type method struct {
	name   string
	access access
	pace   pace
	decode func(jsontext.Value) (any, error)
	call   func(context.Context, *conn, *wire.Request, any) (any, error)
	open   func(context.Context, *conn, any) (Feed, error)
	// opening, where set, is the answer that a stream begins with, before its
	// first chunk: what a client that knows no streams takes for the answer.
	opening any

	params, result reflect.Type
	// counts are the requests for it.
	counts *metrics.Requests
}

// read reads what a request gives the method.
func (m *method) read(r *wire.Request) (params any, err error) {
	if err := r.CheckNumbers(); err != nil {
		return nil, err
	}
	if params, err = m.decode(r.Params); err != nil {
		return nil, err
	}
	if noted, ok := params.(interface{ Mend(int) }); ok && r.Mended() > 0 {
		noted.Mend(r.Mended())
	}
	return params, nil
}

// answered counts an answer and returns its error.
func (m *method) answered(err error) error {
	if err == nil {
		m.counts.Answered("")
	} else {
		m.counts.Answered(string(api.AsError(err).Code))
	}
	return err
}

// methods is the table of everything that can be called. A name can stand for
// one method for apps and another for operators.
func methods() []method {
	return []method{
		registerMethod(),
		app("app.heartbeat", quick, Client.Heartbeat),
		app("app.ready", quick, Client.Ready),
		app("app.shutdown", patient, Client.Shutdown),
		app("capability.register", quick, Client.RegisterCapability),
		app("capability.unregister", quick, Client.UnregisterCapability),
		app("hook.subscribe", quick, Client.Subscribe),
		app("hook.unsubscribe", quick, Client.Unsubscribe),
		app("hook.result", quick, Client.HookResult),
		app("config.get", quick, Client.Config),
		answeredFirst(api.Watching{Watching: true}, appStream[api.ConfigChange]("config.watch", Client.WatchConfig)),
		app("session.get", patient, Client.Session),
		app("session.list", patient, Client.Sessions),
		app("message.dispatch", patient, Client.Dispatch),
		app("agent.queue", patient, Client.Queue),

		app("agent.complete", patient, Client.Complete),
		app("hook.emit", patient, Client.Emit),
		app("exchange.get", patient, Client.Exchange),
		app("exchange.list", patient, Client.Exchanges),
		app("exchange.resolve", patient, Client.ResolveExchange),
		app("approval.get", patient, Client.Approval),
		cancelMethod(),
		describeMethod(),

		operator("kernel.status", patient, Operator.Status),
		operator("audit.query", patient, Operator.AuditQuery),
		operator("audit.stats", patient, Operator.AuditStats),
		operatorStream[jsontext.Value]("audit.tail", Operator.AuditTail),
		operator("audit.verify", patient, Operator.AuditVerify),
		operator("exchange.get", patient, Operator.ExchangeGet),
		operator("exchange.list", patient, Operator.ExchangeList),
		decision("exchange.resolve", Operator.ExchangeResolve),
		operator("approval.get", patient, Operator.ApprovalGet),
		operator("approval.list", patient, Operator.ApprovalList),
		decision("approval.resolve", Operator.ApprovalResolve),
		operatorStream[api.ApprovalNews]("approval.watch", Operator.ApprovalWatch),
		decision("sending.pause", Operator.SendingPause),
		decision("sending.resume", Operator.SendingResume),
		operator("queue.list", patient, Operator.QueueList),
		decision("queue.drop", Operator.QueueDrop),
		operator("contact.list", patient, Operator.ContactList),
		decision("contact.forget", Operator.ContactForget),
		decision("policy.reload", Operator.PolicyReload),
		operator("config.diff", patient, Operator.ConfigDiff),
		decision("audit.forget", Operator.AuditForget),
		decision("audit.rotate_key", Operator.AuditRotateKey),
		decision("audit.retire", Operator.AuditRetire),
		operatorStream[api.ProfileChunk]("debug.profile", Operator.DebugProfile),
	}
}

// MethodNames lists the names of all methods, each once.
func MethodNames() (names []string) {
	for _, m := range methods() {
		if !slices.Contains(names, m.name) {
			names = append(names, m.name)
		}
	}
	return names
}

// app makes the table's line for a method of [Client].
func app[P, R any](name string, pace pace, f func(Client, context.Context, *P) (R, error)) method {
	return method{
		name: name, access: accessApp, pace: pace,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[P](raw) },
		call: func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, error) {
			return f(c.client, ctx, p.(*P))
		},
		params: reflect.TypeFor[P](), result: reflect.TypeFor[R](),
	}
}

func appStream[Chunk, P any](name string, f func(Client, context.Context, *P) (Feed, error)) method {
	return method{
		name: name, access: accessApp, pace: streaming,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[P](raw) },
		open: func(ctx context.Context, c *conn, p any) (Feed, error) {
			return f(c.client, ctx, p.(*P))
		},
		params: reflect.TypeFor[P](), result: reflect.TypeFor[Chunk](),
	}
}

// answeredFirst makes a stream begin with an answer.
func answeredFirst(opening any, m method) method {
	m.opening = opening
	return m
}

func operator[P, R any](name string, pace pace, f func(Operator, context.Context, *P) (R, error)) method {
	return method{
		name: name, access: accessOperator, pace: pace,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[P](raw) },
		call: func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, error) {
			return f(c.server.kernel, ctx, p.(*P))
		},
		params: reflect.TypeFor[P](), result: reflect.TypeFor[R](),
	}
}

// decision makes the table's line for a method of [Operator] that asks who
// calls.
func decision[P, R any](name string, f func(Operator, context.Context, api.Peer, *P) (R, error)) method {
	m := operator(name, patient, func(Operator, context.Context, *P) (r R, err error) { return r, err })
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, error) {
		return f(c.server.kernel, ctx, c.peer, p.(*P))
	}
	return m
}

func operatorStream[Chunk, P any](name string, f func(Operator, context.Context, *P) (Feed, error)) method {
	return method{
		name: name, access: accessOperator, pace: streaming,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[P](raw) },
		open: func(ctx context.Context, c *conn, p any) (Feed, error) {
			return f(c.server.kernel, ctx, p.(*P))
		},
		params: reflect.TypeFor[P](), result: reflect.TypeFor[Chunk](),
	}
}

// registerMethod stands apart because it takes the token of an earlier
// registration where others must prove the present one.
func registerMethod() method {
	return method{
		name: "app.register", access: accessOpen, pace: quick,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[api.RegisterParams](raw) },
		call: func(ctx context.Context, c *conn, r *wire.Request, p any) (any, error) {
			return c.client.Register(ctx, r.Token, p.(*api.RegisterParams))
		},
		params: reflect.TypeFor[api.RegisterParams](), result: reflect.TypeFor[api.RegisterResult](),
	}
}

// cancelMethod ends a stream of the same connection, on either socket.
func cancelMethod() method {
	return method{
		name: "stream.cancel", access: accessAny, pace: quick,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[api.CancelParams](raw) },
		call: func(_ context.Context, c *conn, _ *wire.Request, p any) (any, error) {
			return c.cancelStream(p.(*api.CancelParams).RequestID)
		},
		params: reflect.TypeFor[api.CancelParams](), result: reflect.TypeFor[api.OK](),
	}
}

func describeMethod() method {
	return method{
		name: "kernel.describe", access: accessAny, pace: patient,
		decode: func(raw jsontext.Value) (any, error) { return wire.DecodeParams[api.Empty](raw) },
		call: func(_ context.Context, c *conn, _ *wire.Request, _ any) (any, error) {
			return c.server.describe(c.face)
		},
		params: reflect.TypeFor[api.Empty](), result: reflect.TypeFor[api.Description](),
	}
}

// admit is the one place where access is checked.
func (m *method) admit(c *conn, r *wire.Request) error {
	switch {
	case m.access == accessOperator && c.face != faceOperator:
		return api.Errorf(api.Forbidden, "cannot call %s here: it is served on the operator socket alone", m.name)
	case m.access != accessOperator && m.access != accessAny && c.face == faceOperator:
		return api.Errorf(api.Forbidden, "cannot call %s here: apps are served on the kernel socket", m.name)
	case m.access == accessApp:
		return c.client.Authorize(r.Token)
	case m.access == accessOperator:
		// Who speaks now: a connection can have been handed on since it was made.
		return c.server.kernel.Admit(c.peer)
	}
	return nil
}
