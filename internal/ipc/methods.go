package ipc

import (
	"context"
	"reflect"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/caller"
	"github.com/openclawos/ocipd/internal/api/wire"
	"github.com/openclawos/ocipd/internal/base/metrics"
)

// Client is the server's view of an app's connection inside the kernel. The rows of apps' methods
// name its actual type.
type Client interface {
	// Authorize checks a request's token: APP_NOT_REGISTERED before registration, UNAUTHORIZED if
	// it is missing or wrong. It also counts as a sign of life.
	Authorize(token string) error
	// Registered reports whether the connection has an app. It is called with a lock held, and does
	// not wait.
	Registered() bool
	// Gone ends the connection's part in the kernel. It is called once, after all other calls.
	Gone()
}

// Feed sends the chunks of a stream until it ends or the context does. The function that opens a
// stream may leave it to the feed to free resources: the feed of every opened stream is run.
type Feed = func(context.Context, api.Stream) error

// Access is the kind of caller that a method admits.
type Access string

const (
	// AccessOpen admits any app, registered or not.
	AccessOpen Access = "open"
	// AccessApp admits an app with its token.
	AccessApp Access = "app"
	// AccessOperator admits any caller on the operator socket.
	AccessOperator Access = "operator"
	// AccessTask admits actors of tasks, on either socket: see [TaskSession].
	AccessTask Access = "task"
	// AccessAgent admits an agent that speaks by a grant, on the apps' socket.
	AccessAgent Access = "agent"
	// AccessAny admits any connection, on either socket.
	AccessAny Access = "any"
)

// Pace says how a method is run.
type Pace string

const (
	// Quick methods are answered before the next line is read. They never wait for another app, and
	// for the disk only to record their own effect.
	Quick Pace = "quick"
	// Patient methods may wait, for the disk or another app, and run beside
	// the reader. Those with the same [api.Ordered] key run one after another.
	Patient Pace = "patient"
	// Streaming methods are opened before the next line is read, and then
	// answer in chunks until they are cancelled.
	Streaming Pace = "streaming"
)

// Method is a row of the method table, with everything that the server knows of a method. One name
// can stand for a method for apps and another for operators. The functions of this file make rows,
// each from a function whose types define the parameters and the result.
type Method struct {
	Name   string
	Access Access
	Pace   Pace
	// Decode decodes and checks the parameters of a request. If strict is set, it refuses members
	// that the method does not have.
	Decode func(raw jsontext.Value, strict bool) (any, error)
	// Strict refuses members that the method does not have: a misspelled one would be taken for
	// absent. Apps' methods ignore such members, as those of the stock kernel do. On the operator
	// socket every method is strict.
	Strict bool
	// Params and Result are the types that describe makes schemas of. For a method that streams,
	// Result is a chunk's type.
	Params, Result reflect.Type
	// Signing says whether a call on the operator socket takes a person's signature, if signatures
	// are required.
	Signing api.Signing
	// Errors are the codes of the method's own refusals, besides those that any method can answer.
	Errors []api.Code

	// call and open get the parameters that Decode made.
	call func(context.Context, *conn, *wire.Request, any) (any, api.AfterReply, error)
	open func(context.Context, *conn, any) (Feed, error)
	// opening, if set, is the first answer of a stream, before its first chunk. A client that does
	// not know streams takes it for the answer.
	opening any
	// ordered and mendable describe the parameters' type.
	ordered, mendable bool
	// counts counts the method's requests.
	counts *metrics.Requests
}

// row begins a row.
func row[P, R any](name string, access Access, pace Pace) Method {
	_, ordered := any((*P)(nil)).(api.Ordered)
	_, mendable := any((*P)(nil)).(api.Mendable)
	decode := wire.DecoderOf[P]()
	return Method{
		Name: name, Access: access, Pace: pace,
		Decode: func(raw jsontext.Value, strict bool) (any, error) { return decode(raw, strict) },
		Params: reflect.TypeFor[P](), Result: reflect.TypeFor[R](),
		Strict:  access == AccessOperator || access == AccessTask || access == AccessAgent,
		ordered: ordered, mendable: mendable,
	}
}

// App makes the row of a method of apps. The function's receiver is the caller.
func App[C Client, P, R any](name string, pace Pace, f func(C, context.Context, *P) (R, error)) Method {
	m := row[P, R](name, AccessApp, pace)
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := f(c.client.(C), ctx, p.(*P))
		return result, nil, err
	}
	return m
}

// AppThen makes the row of a method of apps that does something once its answer is
// written.
func AppThen[C Client, P, R any](name string, f func(C, context.Context, *P) (R, api.AfterReply, error)) Method {
	m := row[P, R](name, AccessApp, Patient)
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		return f(c.client.(C), ctx, p.(*P))
	}
	return m
}

// AppStream makes the row of a method that streams to an app, after a first answer.
func AppStream[Chunk any, C Client, P any](name string, opening any, f func(C, context.Context, *P) (Feed, error)) Method {
	m := row[P, Chunk](name, AccessApp, Streaming)
	m.opening = opening
	m.open = func(ctx context.Context, c *conn, p any) (Feed, error) { return f(c.client.(C), ctx, p.(*P)) }
	return m
}

// Register makes the row of the method that gives an app its token. It is separate because it takes
// the token of an earlier registration, or "", where other methods require the current one.
func Register[C Client, P, R any](name string, f func(C, context.Context, string, *P) (R, error)) Method {
	m := row[P, R](name, AccessOpen, Quick)
	m.call = func(ctx context.Context, c *conn, r *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := f(c.client.(C), ctx, r.Token, p.(*P))
		return result, nil, err
	}
	return m
}

// Operator makes the row of a method of operators.
func Operator[P, R any](name string, s api.Signing, f func(context.Context, *P) (R, error)) Method {
	return OperatorAs(name, s, func(ctx context.Context, _ api.Peer, p *P) (R, error) { return f(ctx, p) })
}

// OperatorAs makes the row of a method of operators that needs the caller's identity, for example
// to take a person's decision.
func OperatorAs[P, R any](name string, s api.Signing, f func(context.Context, api.Peer, *P) (R, error)) Method {
	m := row[P, R](name, AccessOperator, Patient)
	m.Signing = s
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := f(ctx, caller.Of(ctx, c.peer), p.(*P))
		return result, nil, err
	}
	return m
}

// OperatorStream makes the row of a method that streams to an operator. It is never signed.
func OperatorStream[Chunk, P any](name string, f func(context.Context, *P) (Feed, error)) Method {
	return OperatorStreamAs[Chunk](name, api.Reads, func(ctx context.Context, _ api.Peer, p *P) (Feed, error) { return f(ctx, p) })
}

// OperatorStreamAs makes the row of a method that streams to an operator, and needs the caller's
// identity. A stream is not signed.
func OperatorStreamAs[Chunk, P any](name string, s api.Signing, f func(context.Context, api.Peer, *P) (Feed, error)) Method {
	m := row[P, Chunk](name, AccessOperator, Streaming)
	m.Signing = s
	m.open = func(ctx context.Context, c *conn, p any) (Feed, error) { return f(ctx, c.peer, p.(*P)) }
	return m
}

// TaskSession is the server's view of a connection's part in tasks.
type TaskSession interface {
	// Admit identifies the caller of a method, and refuses a role that may not call it. Authorized
	// says that the request has its app's token. The returned context is the call's.
	Admit(ctx context.Context, method string, authorized bool) (context.Context, error)
	// Attached reports whether the connection has a valid grant. It is called with a lock held, and
	// does not wait.
	Attached() bool
}

// Task makes the row of a method of tasks, on both sockets.
func Task[S TaskSession, P, R any](name string, s api.Signing, f func(S, context.Context, *P) (R, error)) Method {
	m := row[P, R](name, AccessTask, Patient)
	m.Signing, m.Errors = s, []api.Code{api.Forbidden, api.NotFound, api.Conflict, api.CapabilityDenied}
	m.call = func(ctx context.Context, c *conn, r *wire.Request, p any) (any, api.AfterReply, error) {
		ctx, err := c.tasks.Admit(ctx, name, c.face == faceApp && r.Token != "")
		if err != nil {
			return nil, nil, err
		}
		result, err := f(c.tasks.(S), ctx, p.(*P))
		return result, nil, err
	}
	return m
}

// TaskAttach makes the row of the method that makes a connection an actor's.
func TaskAttach[S TaskSession, P, R any](name string, f func(S, context.Context, *P) (R, error)) Method {
	m := row[P, R](name, AccessOpen, Patient)
	m.Strict = true
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := f(c.tasks.(S), ctx, p.(*P))
		return result, nil, err
	}
	return m
}

// Agent makes the row of a method of agents that speak by grants. The function gets the grant from
// the connection.
func Agent[S TaskSession, P, R any](name string, f func(S, context.Context, *P) (R, api.AfterReply, error)) Method {
	m := row[P, R](name, AccessAgent, Patient)
	m.call = func(ctx context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		return f(c.tasks.(S), ctx, p.(*P))
	}
	return m
}

// AgentStream makes the row of a method that streams to such an agent, after a first answer.
func AgentStream[Chunk any, S TaskSession, P any](name string, opening any, f func(S, context.Context, *P) (Feed, error)) Method {
	m := row[P, Chunk](name, AccessAgent, Streaming)
	m.opening = opening
	m.open = func(ctx context.Context, c *conn, p any) (Feed, error) { return f(c.tasks.(S), ctx, p.(*P)) }
	return m
}

// Cancel makes the row of the method that ends a stream of the same connection, on
// either socket.
func Cancel(name string) Method {
	m := row[api.CancelParams, api.OK](name, AccessAny, Quick)
	m.Signing = api.Unsigned
	m.call = func(_ context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := c.cancelStream(p.(*api.CancelParams).RequestID)
		return result, nil, err
	}
	return m
}

// Describe makes the row of the method that describes the methods of the caller's socket.
func Describe(name string) Method {
	m := row[api.Empty, api.Description](name, AccessAny, Patient)
	m.Signing = api.Reads
	m.call = func(_ context.Context, c *conn, _ *wire.Request, _ any) (any, api.AfterReply, error) {
		result, err := c.server.described[c.face]()
		return result, nil, err
	}
	return m
}

// Challenge makes the row of the method that begins a signed call.
func Challenge(name string) Method {
	m := row[api.ChallengeParams, api.Challenge](name, AccessOperator, Quick)
	m.Signing = api.Reads
	m.call = func(_ context.Context, c *conn, _ *wire.Request, p any) (any, api.AfterReply, error) {
		result, err := c.challenge(p.(*api.ChallengeParams).Method)
		return result, nil, err
	}
	return m
}

// strict reports whether the method refuses members that it does not have.
func (m *Method) strict(f face) bool { return m.Strict || f == faceOperator }

// read decodes a request's parameters.
func (m *Method) read(f face, r *wire.Request) (params any, err error) {
	if err := r.CheckNumbers(); err != nil {
		return nil, err
	}
	if params, err = m.Decode(r.Params, m.strict(f)); err != nil {
		return nil, err
	}
	if m.mendable && r.Mended() > 0 {
		params.(api.Mendable).Mend(r.Mended())
	}
	return params, nil
}

// Fails returns the row with the codes of the method's own refusals.
func (m Method) Fails(codes ...api.Code) Method {
	m.Errors = codes
	return m
}

// answered counts an answer and returns its error.
func (m *Method) answered(err error) error {
	if err == nil {
		m.counts.Answered("")
	} else {
		m.counts.Answered(string(api.AsError(err).Code))
	}
	return err
}

// admit is the one place where access is checked.
func (m *Method) admit(c *conn, r *wire.Request) error {
	switch {
	case m.Access == AccessOperator && c.face != faceOperator:
		return api.Errorf(api.Forbidden, "cannot call %s here: it is served on the operator socket alone", m.Name)
	case m.Access != AccessOperator && m.Access != AccessAny && m.Access != AccessTask && c.face == faceOperator:
		return api.Errorf(api.Forbidden, "cannot call %s here: apps are served on the kernel socket", m.Name)
	case m.Access == AccessApp, m.Access == AccessTask && c.face == faceApp && r.Token != "":
		return c.client.Authorize(r.Token)
	case c.face == faceOperator:
		// Check the current caller: a connection can have been handed to another process.
		return c.server.callers.admit(c.peer)
	}
	return nil
}
