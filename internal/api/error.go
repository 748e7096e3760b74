package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Code is an error code of the protocol.
type Code string

// The fourteen codes of the protocol, in its order.
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

// Codes lists every code of the protocol.
func Codes() []Code {
	return []Code{
		UnknownError, InvalidRequest, MethodNotFound, InvalidParams, InternalError, Unauthorized, Forbidden,
		NotFound, Conflict, Timeout, AppNotRegistered, CapabilityDenied, HookNotSubscribed, ConnectionClosed,
	}
}

// Error is an error as the protocol answers it.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	Details any    `json:"details,omitempty"`
}

// Error is the text for a person: the sentence, and behind it the code to look up.
func (e *Error) Error() string { return e.Message + " (" + string(e.Code) + ")" }

// Errorf makes an error with a code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// coded is an error with a code of OCIP and a text for the caller.
type coded interface {
	error
	OCIP() (code ocip.Code, reason string)
}

// AsError returns err in the protocol's form. One that nobody gave a code is
// UNKNOWN_ERROR, and its text stays inside: it was not written for strangers.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[coded](err); ok {
		code, reason := e.OCIP()
		return &Error{Code: InternalError, Message: reason, Details: OCIP(code, reason)}
	}
	if fault, ok := errors.AsType[*audit.Fault](err); ok {
		reason := "cannot trust the audit log: " + fault.Error() + "; ocipd audit verify says more"
		return &Error{Code: InternalError, Message: reason, Details: OCIP(AuditDamaged, reason)}
	}
	return &Error{Code: UnknownError, Message: "the kernel could not answer; its log has the cause"}
}

// AuditDamaged is the code of an answer that would have been made of a record that is
// not what was written.
const AuditDamaged ocip.Code = "AUDIT_DAMAGED"

// OCIP is the details of an error with a code of OCIP.
func OCIP(code ocip.Code, reason string) map[string]any {
	return map[string]any{"ocip": map[string]any{"code": code, "reason": reason}}
}

// withOCIP is the details of an error with a code of OCIP.
type withOCIP[T any] struct {
	OCIP T `json:"ocip"`
}

// DetailsOf reads details.ocip of an error that came over the wire, such as
// [Obstacle]: the zero value where it has none of that form.
func DetailsOf[T any](err error) T {
	var details withOCIP[T]
	if e, ok := errors.AsType[*Error](err); ok {
		if text, err := json.Marshal(e.Details); err != nil || json.Unmarshal(text, &details) != nil {
			return *new(T)
		}
	}
	return details.OCIP
}

// FieldError names one field that is wrong, for details of INVALID_PARAMS.
type FieldError struct {
	// Path is the field's place in the parameters, such as
	// "manifest.capabilities.channels.provides[0]".
	Path    string `json:"path"`
	Message string `json:"message"`
	// Instead is the answer if every fault has one.
	Instead error `json:"-"`
}

// Invalid makes INVALID_PARAMS out of the fields that are wrong, or nil if none is.
func Invalid(fields []FieldError) error {
	if len(fields) == 0 {
		return nil
	}
	if !slices.ContainsFunc(fields, func(f FieldError) bool { return f.Instead == nil }) {
		return fields[0].Instead
	}
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.Path + ": " + f.Message
	}
	return &Error{Code: InvalidParams, Message: strings.Join(parts, "; "), Details: fields}
}
