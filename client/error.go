package client

import (
	"encoding/json"
	"errors"

	"github.com/openclawos/ocipd/internal/api"
)

// Code is an error code of the protocol.
type Code string

// The codes of the protocol.
const (
	UnknownError      Code = "UNKNOWN_ERROR"
	InvalidRequest    Code = "INVALID_REQUEST"
	MethodNotFound    Code = "METHOD_NOT_FOUND"
	InvalidParams     Code = "INVALID_PARAMS"
	InternalError     Code = "INTERNAL_ERROR"
	Unauthorized      Code = "UNAUTHORIZED"
	Forbidden         Code = "FORBIDDEN"
	NotFound          Code = "NOT_FOUND"
	Conflict          Code = "CONFLICT"
	Timeout           Code = "TIMEOUT"
	AppNotRegistered  Code = "APP_NOT_REGISTERED"
	CapabilityDenied  Code = "CAPABILITY_DENIED"
	HookNotSubscribed Code = "HOOK_NOT_SUBSCRIBED"
	ConnectionClosed  Code = "CONNECTION_CLOSED"
)

// ErrNotRunning is in the error of a first connection that no daemon takes.
var ErrNotRunning = errors.New("no daemon listens")

// ErrNotSent is for handlers: an error that wraps it says that a text certainly did not leave. After
// any other error the daemon counts the outcome as unknown, and a person decides about a repetition.
var ErrNotSent = errors.New("not sent")

// Verdict is a refusal by the rules of messages (docs/reference/protocol/errors.md).
type Verdict struct {
	// Code is such as COMMITMENT_REQUIRES_HUMAN.
	Code   string `json:"code"`
	Reason string `json:"reason"`
	// AuditID is the id of the decision's record.
	AuditID string `json:"auditId"`
}

// Error is a refusal of the daemon, or, with [ConnectionClosed], a lost connection.
type Error struct {
	Code    Code
	Message string
	// Verdict is nil unless the rules of messages refused.
	Verdict *Verdict
	// Details are those of the protocol, nil for none.
	Details json.RawMessage
}

// Error returns the code and the daemon's sentence.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Is reports whether err is an [*Error] with a code.
func Is(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// errorOf gives an error of the daemon the form of this package.
func errorOf(err error) error {
	from, ok := errors.AsType[*api.Error](err)
	if !ok {
		return err
	}
	e := &Error{Code: Code(from.Code), Message: from.Message}
	if from.Details != nil {
		e.Details, err = json.Marshal(from.Details)
		if err != nil {
			e.Details = nil // it was read from JSON
		}
	}
	if v := api.DetailsOf[Verdict](from); v.Code != "" {
		e.Verdict = &v
	}
	return e
}
