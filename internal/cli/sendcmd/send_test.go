package sendcmd

import (
	"bytes"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/cli"
	"github.com/openclawos/ocipd/internal/ocip"
)

// If a message was refused because its record could not be written, the answer names no record.
func TestRefusalWithoutARecord(t *testing.T) {
	for id, want := range map[string]string{
		"":      "refused: AUDIT_WRITE_FAILED: the disk is full\n",
		"01a2f": "refused: AUDIT_WRITE_FAILED: the disk is full\nto read its record: ocipd audit query --record 01a2f\n",
	} {
		var out bytes.Buffer
		p := &cli.Process{Stdout: &out}
		if err := say(p, "sending.message", &spoken{CheckResult: api.CheckResult{Result: ocip.Deny, Code: ocip.AuditWriteFailed, Reason: "the disk is full", AuditID: id}}); err != nil || out.String() != want {
			t.Errorf("it says %q, %v", out.String(), err)
		}
	}
}
