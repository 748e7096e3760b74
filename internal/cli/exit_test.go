package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/config"
)

func TestExitCodes(t *testing.T) {
	for _, test := range []struct {
		err  error
		code int
		said string
	}{
		{errors.New("cannot do it"), ExitFailed, "ocipd: cannot do it\n"},
		{errors.Join(errors.New("two"), errors.New("lines")), ExitFailed, "ocipd: two; lines\n"},
		{fmt.Errorf("hostile \x1b[2J: %w", os.ErrNotExist), ExitFailed, "ocipd: hostile ‹U+001B›[2J: file does not exist\n"},
		{fmt.Errorf("cannot reach it: %w", client.ErrNotRunning), ExitNotRunning, "ocipd: cannot reach it: is it running? start it with: ocipd serve\n"},
		{fmt.Errorf("cannot trust it: %w", &audit.Fault{Seq: 3, Problem: "changed"}), ExitFault, "ocipd: cannot trust it: audit record 3: changed\n"},
		{config.Errors{{File: "a.yaml", Line: 1, Message: "one"}, {File: "a.yaml", Line: 2, Message: "two"}}, ExitFailed, "a.yaml:1: one\na.yaml:2: two\n"},
		{context.Canceled, ExitFailed, "ocipd: interrupted\n"},
		{ErrSaid, ExitFailed, ""},
	} {
		var out bytes.Buffer
		Complain(&out, test.err)
		if code := ExitCode(test.err); code != test.code || out.String() != test.said {
			t.Errorf("%v exits %d and says %q", test.err, code, out.String())
		}
	}
}
