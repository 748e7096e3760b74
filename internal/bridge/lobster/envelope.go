package lobster

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// envelope is the single JSON object that Lobster's tool mode writes.
type envelope struct {
	Version int    `json:"protocolVersion"`
	OK      bool   `json:"ok"`
	Status  string `json:"status"`
	// RequiresApproval is the request of a paused workflow. Its items come from `ocipd task
	// request-approval`.
	RequiresApproval *struct {
		ResumeToken string `json:"resumeToken"`
		Items       []any  `json:"items"`
	} `json:"requiresApproval"`
	Error *fault `json:"error"`
}

type fault struct {
	Message string `json:"message"`
}

// The statuses of an envelope. ocipd does not answer a workflow that asks for input.
const (
	statusOK        = "ok"
	statusApproval  = "needs_approval"
	statusInput     = "needs_input"
	statusCancelled = "cancelled"
)

// parse reads Lobster's output, which must be exactly one envelope.
func parse(out []byte) (*envelope, error) {
	if len(bytes.TrimSpace(out)) == 0 {
		return nil, errors.New("Lobster said nothing") //nolint:staticcheck // it is a name
	}
	e := new(envelope)
	if err := json.Unmarshal(out, e); err != nil {
		return nil, fmt.Errorf("Lobster did not write one envelope: %.200q", out) //nolint:staticcheck // it is a name
	}
	switch {
	case e.Version != 1:
		return nil, fmt.Errorf("Lobster speaks version %d of its protocol, and not 1", e.Version) //nolint:staticcheck // it is a name
	case !e.OK:
		return e, nil
	case e.Status == statusApproval && (e.RequiresApproval == nil || e.RequiresApproval.ResumeToken == ""):
		return nil, errors.New("Lobster pauses without a token") //nolint:staticcheck // it is a name
	case e.Status == statusOK || e.Status == statusApproval || e.Status == statusInput || e.Status == statusCancelled:
		return e, nil
	}
	return nil, fmt.Errorf("Lobster says %.200q", e.Status) //nolint:staticcheck // it is a name
}

func (e *envelope) ok() bool     { return e.OK && e.Status == statusOK }
func (e *envelope) paused() bool { return e.OK && e.Status == statusApproval }

// approval returns the approval that the workflow's gate names, or "".
func (e *envelope) approval() string {
	for _, item := range e.RequiresApproval.Items {
		if members, ok := item.(map[string]any); ok {
			if id, ok := members["approval_id"].(string); ok {
				return id
			}
		}
	}
	return ""
}

// text describes the failure.
func (e *envelope) text() string {
	switch {
	case e.Error != nil && e.Error.Message != "":
		return e.Error.Message
	case e.OK:
		return "it says " + e.Status
	default:
		return "it does not say why"
	}
}

// argsOf encodes the workflow's arguments.
func argsOf(id, key string) string {
	text, err := json.Marshal(map[string]string{"task_id": id, "key": key}, json.Deterministic(true))
	if err != nil {
		panic(err) // strings are JSON
	}
	return string(text)
}
