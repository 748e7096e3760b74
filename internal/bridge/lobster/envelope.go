package lobster

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
)

// envelope is the one JSON object that Lobster's tool mode writes.
type envelope struct {
	Version int    `json:"protocolVersion"`
	OK      bool   `json:"ok"`
	Status  string `json:"status"`
	// RequiresApproval is what a workflow that is paused asks for. Its items are those of
	// `ocipd task request-approval`.
	RequiresApproval *struct {
		ResumeToken string `json:"resumeToken"`
		Items       []any  `json:"items"`
	} `json:"requiresApproval"`
	Error *fault `json:"error"`
}

type fault struct {
	Message string `json:"message"`
}

// The words of an envelope's status. A workflow that asked for input is not answered.
const (
	statusOK        = "ok"
	statusApproval  = "needs_approval"
	statusInput     = "needs_input"
	statusCancelled = "cancelled"
)

// parse reads what Lobster wrote: one envelope, and nothing beside it.
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

// approval is the approval that the workflow's gate is about, "" where it names none.
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

// text is what went wrong.
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

// argsOf are the workflow's arguments.
func argsOf(id, key string) string {
	text, err := json.Marshal(map[string]string{"task_id": id, "key": key}, json.Deterministic(true))
	if err != nil {
		panic(err) // strings are JSON
	}
	return string(text)
}
