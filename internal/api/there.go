package api

import "context"

type thereKey struct{}

// WithThere returns the context of a connection's calls, of which it can be asked whether the
// other end is still there.
func WithThere(ctx context.Context, there func() bool) context.Context {
	return context.WithValue(ctx, thereKey{}, there)
}

// There reports whether who made a call is still there, as far as is known. A connection
// that is half closed can be written to, and is.
func There(ctx context.Context) bool {
	there, ok := ctx.Value(thereKey{}).(func() bool)
	return !ok || there()
}

// ErrGone is an error without a receiver: the caller left before the decision.
var ErrGone error = &Error{Code: ConnectionClosed, Message: "the connection ended before this was decided, so it is not"}
