// Package storeerror words for a caller why the store did not do what was asked of it.
// What fails to be recorded was not done; a caller is told so, and why, in the form of
// the protocol's errors.
package storeerror

import (
	"errors"
	"syscall"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/fileintegrity"
)

// NotRecorded is what a caller is told for whom something was not done because it
// could not be recorded.
func NotRecorded(message string, cause error) *api.Error {
	var lost *fileintegrity.LostError
	var altered *store.AlteredError
	code, verdict := api.InternalError, ocip.AuditWriteFailed
	switch {
	case errors.Is(cause, store.ErrQuota):
		// Nothing is wrong with the log: it is the app that has to wait.
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
	return &api.Error{Code: code, Message: message, Details: map[string]any{"ocip": map[string]any{"code": verdict, "reason": message}}}
}

// unreadable is what a caller is told where something that a decision needs cannot be
// read: the code, and the file that is lost, where one is.
type unreadable struct{ *store.UnreadableError }

// Unreadable words what [store.Options] asks for.
func Unreadable(err *store.UnreadableError) error { return unreadable{err} }

// OCIP makes it known to [api.AsError].
func (e unreadable) OCIP() (code ocip.Code, reason string) {
	why := "the audit store failed and is closed until the daemon is restarted"
	if lost, ok := errors.AsType[*fileintegrity.LostError](e.Closed); ok {
		why = lost.Error() + "; nothing more is let through until the daemon is restarted"
	}
	return ocip.AuditWriteFailed, "cannot read what was recorded, so nothing was done: " + why
}

// altered is what a caller is told where something that a decision needs was changed in
// the database by somebody else than the daemon: neither what it is nor which row.
type altered struct{ *store.AlteredError }

// AlteredRow words what [store.Options] asks for.
func AlteredRow(err *store.AlteredError) error { return altered{err} }

const alteredRow = "something that is kept about it was changed by somebody else than the daemon; the audit log says what"

// Unwrap makes the row known to the daemon itself.
func (e altered) Unwrap() error { return e.AlteredError }

// OCIP makes it known to [api.AsError].
func (e altered) OCIP() (code ocip.Code, reason string) {
	return ocip.AuditWriteFailed, "cannot read what was recorded, so nothing was done: " + alteredRow
}
