// Package storeerror tells callers why the store did not carry out a request. An act that cannot
// be recorded is not done; the error says so, and why, in the form of the protocol's errors.
package storeerror

import (
	"errors"
	"syscall"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/fileintegrity"
)

// NotRecorded returns the error for a caller whose request was not done because it could not be
// recorded.
func NotRecorded(message string, cause error) *api.Error {
	var lost *fileintegrity.LostError
	var altered *store.AlteredError
	code, verdict := api.InternalError, ocip.AuditWriteFailed
	switch {
	case errors.Is(cause, store.ErrCredential):
		message, code, verdict = "nothing was done: "+cause.Error()+"; name another one", api.InvalidParams, ocip.MalformedEnvelope
	case errors.Is(cause, store.ErrQuota):
		// The log is fine: the app has to wait.
		message, code, verdict = "nothing was done: "+cause.Error(), api.Forbidden, ocip.BudgetExceeded
	case errors.Is(cause, store.ErrFull), errors.Is(cause, syscall.ENOSPC):
		message += ": the disk is full"
	case errors.Is(cause, store.ErrLow), errors.Is(cause, store.ErrMirrorLost):
		message += ": " + cause.Error()
	case errors.As(cause, &lost):
		message += ": " + lost.Error() + "; nothing more is let through until the daemon is restarted"
	case errors.Is(cause, store.ErrLatched):
		message += ": the audit store failed and is closed until the daemon is restarted"
	case errors.As(cause, &altered):
		message += ": " + alteredRow
	case errors.Is(cause, store.ErrClosed):
		message += ": the daemon is stopping"
	}
	return &api.Error{Code: code, Message: message, Details: api.OCIP(verdict, message)}
}

// unreadable is the error for a caller whose decision needs something that cannot be read: the
// code, and the lost file, if there is one.
type unreadable struct{ *store.UnreadableError }

// Unreadable words the error for [store.Options].
func Unreadable(err *store.UnreadableError) error { return unreadable{err} }

// OCIP implements the interface for [api.AsError].
func (e unreadable) OCIP() (code ocip.Code, reason string) {
	why := "the audit store failed and is closed until the daemon is restarted"
	if lost, ok := errors.AsType[*fileintegrity.LostError](e.Closed); ok {
		why = lost.Error() + "; nothing more is let through until the daemon is restarted"
	}
	return ocip.AuditWriteFailed, "cannot read what was recorded, so nothing was done: " + why
}

// altered is the error for a caller whose decision needs a row that somebody other than the daemon
// changed. It reveals neither the matter nor the row.
type altered struct{ *store.AlteredError }

// AlteredRow words the error for [store.Options].
func AlteredRow(err *store.AlteredError) error { return altered{err} }

const alteredRow = "something that is kept about it was changed by somebody else than the daemon; the audit log says what"

// Unwrap shows the row to the daemon itself.
func (e altered) Unwrap() error { return e.AlteredError }

// OCIP implements the interface for [api.AsError].
func (e altered) OCIP() (code ocip.Code, reason string) {
	return ocip.AuditWriteFailed, "cannot read what was recorded, so nothing was done: " + alteredRow
}
