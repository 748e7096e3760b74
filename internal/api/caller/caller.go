// Package caller names the caller of a method of operators: the process with the connection, the signer
// of the call ([Vouched]), and the process for which the caller asks ([Deputy]). A server finds them
// out and passes them on in the call's context; records name all of them.
package caller

import (
	"context"
	"fmt"

	"github.com/openclawos/ocipd/internal/api"
)

// key finds the caller in the context of a call.
type key struct{}

// With returns the context of a call whose caller is more than its connection's process.
func With(ctx context.Context, who api.Peer) context.Context {
	return context.WithValue(ctx, key{}, who)
}

// Of returns the caller of a call on the connection of a peer.
func Of(ctx context.Context, peer api.Peer) api.Peer {
	if who, ok := ctx.Value(key{}).(api.Peer); ok {
		return who
	}
	return peer
}

// Vouched is a process with a connection on which a person has signed a call.
type Vouched struct {
	api.Peer
	// By is the signer, and Record the id of the record with the signature.
	By, Record string
}

// Deputy is a process that asks for another one, which has passed the rule of the operator socket.
type Deputy struct {
	api.Peer
	api.Asking
}

// AskingOf returns for whom a caller asks. It is zero if the caller asks for itself.
func AskingOf(who api.Peer) api.Asking {
	switch who := who.(type) {
	case Vouched:
		return AskingOf(who.Peer)
	case Deputy:
		return who.Asking
	}
	return api.Asking{}
}

// Details returns the details of a record about a caller.
func Details(who api.Peer) map[string]any {
	uid, _, pid := who.Credentials()
	details := map[string]any{"uid": uid, "pid": pid}
	asking := AskingOf(who)
	asking.AddTo(details)
	if vouched, ok := who.(Vouched); ok {
		details["by"], details["signed"] = vouched.By, vouched.Record
	}
	return details
}

// Principal names who operates: the signer of the call, or else the user, as the operating system
// does.
func Principal(who api.Peer) string {
	if vouched, ok := who.(Vouched); ok {
		return vouched.By
	}
	uid, _, _ := who.Credentials()
	return fmt.Sprintf("uid:%d", uid)
}

// PersonDetails returns the details of a record about a person's decision on the operator socket,
// with the note if there is one.
func PersonDetails(who api.Peer, note string) map[string]any {
	details := Details(who)
	details["by"] = Principal(who)
	if note != "" {
		details["note"] = note
	}
	return details
}
