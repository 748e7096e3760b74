package schema

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
)

// codesText has a row for each code of errors and of verdicts, with its cause and, of a verdict,
// the outcome of the exchange.
//
//go:embed codes.txt
var codesText string

const (
	errorsHead = `# Errors

<!-- Made by "make reference" from the table of codes. Do not edit. -->

` + "An error is `{code, message, details?}`. Messages are for people and may change; codes stay. `INVALID_PARAMS` has `details: [{path, message}]`" + `,
one entry for each wrong field. A refusal by the rules of messages has ` + "`details.ocip`, one by the rules of tasks `details.task`" + `.

| code | cause |
| --- | --- |
`
	taskCodes = `
## Refusals of tasks

` + "`details.task` has `{code, phase, revision, missing, guards, allowed_transitions}`; `guards` are the failed ones. `LIMIT` names the member, for\nexample `command.argv: more than 65536 bytes`. A member of the wrong form is `INVALID_PARAMS`." + `

| error | codes |
| --- | --- |
` + "| `FORBIDDEN` | `NOT_PERMITTED`, `ROLE_MISMATCH`, `SAME_ACTOR`, `SELF_APPROVAL`, `APPROVAL_NEEDS_PERSON`, `CLASSIFICATION`, `POLICY_DENIED`, `PAUSED` |\n" +
		"| `CONFLICT` | `REVISION_MISMATCH`, `PHASE_MISMATCH`, `GUARD_FAILED`, `NOT_BEFORE`, `RETRIES_EXHAUSTED`, `IDEMPOTENCY_CONFLICT`, `LIMIT`, `RUNNER_ABSENT`, `LEASE_LOST`, `CLAIMED`, `READ_FIRST`, `REQUEST_KEY_REUSED`, `EFFECT_IN_FLIGHT`, `EFFECT_UNKNOWN` |\n" +
		"| `CAPABILITY_DENIED` | a tool that the grant does not have |\n| `UNAUTHORIZED` | a wrong or ended token |\n| `APP_NOT_REGISTERED` | a connection without a caller |\n"
	verdictsHead = `
## Verdicts

` + "Outgoing messages with result `require_approval` are [held](held-and-approved.md), unless the agent's held messages are at their limit. All\nothers are refused: `FORBIDDEN` with `details.ocip`, or `TIMEOUT` for `INTERCEPTOR_TIMEOUT` and `INTERNAL_ERROR` for `AUDIT_WRITE_FAILED`." + `
Nothing was sent. ` + "`details.ocip` has" + `

` + "- `code`, `reason` and `auditId` (its record);\n- `result`: `deny`, or `require_approval` if a person would have to decide;\n- `exchangeId` and `conversationId` if there is an exchange;\n- members of the code.\n" + `
[verdicts.jsonl](verdicts.jsonl) has an answer for each code. The last column is the outcome of the exchange: *same* means that it does not change.
For incoming messages it is that of the receiving agent's side. Between two agents of this daemon the sender's side ends in the same way.

| code | cause | exchange |
| --- | --- | --- |
`
)

// Errors returns the page of error codes and verdicts as Markdown. A code without a cause is an
// error, and so is a cause without a code.
func Errors() ([]byte, error) {
	var codes, verdicts []string
	b := new(strings.Builder)
	b.WriteString(errorsHead)
	of := &codes
	for line := range strings.Lines(codesText) {
		line = strings.TrimSpace(line)
		code, _, _ := strings.Cut(line, " | ")
		if line == "" {
			of = &verdicts
			b.WriteString(taskCodes + verdictsHead)
			continue
		}
		*of = append(*of, code)
		fmt.Fprintf(b, "| `%s` |%s |\n", code, strings.TrimPrefix(line, code+" |"))
	}
	if err := same(codes, api.Codes()); err != nil {
		return nil, err
	}
	if err := same(verdicts, ocip.Codes()); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// same reports a name in one of two lists alone.
func same[T ~string](described []string, names []T) error {
	for _, name := range names {
		if !slices.Contains(described, string(name)) {
			return fmt.Errorf("cannot describe %s: it has no description", name)
		}
	}
	if len(described) != len(names) {
		return fmt.Errorf("cannot describe %d names: there are %d descriptions", len(names), len(described))
	}
	return nil
}
