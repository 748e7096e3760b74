// Package hangup lets a call end the connection by which it came. The caller's duty: it hangs up
// only if losing an answer is safe.
package hangup

import "context"

// Ending is a connection that can be ended at once. It is made by [With].
type Ending struct{ socket socket }

// socket is a Unix socket.
type socket interface{ CloseWrite() error }

type key struct{}

// With returns the context of a connection's calls, which can end the connection.
func With(ctx context.Context, s socket) context.Context {
	return context.WithValue(ctx, key{}, &Ending{s})
}

// Of returns the connection by which a call came, or nil.
func Of(ctx context.Context) *Ending {
	e, _ := ctx.Value(key{}).(*Ending)
	return e
}

// HangUp lets the other end see the end of the connection before it returns, and never waits. It
// shuts the connection down, which shows the end at once. Closing would show it only when nobody
// uses the socket any more. Answers that are not written by then are lost.
func (e *Ending) HangUp() { _ = e.socket.CloseWrite() }
