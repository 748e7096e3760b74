package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/client"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/config"
)

// Exit codes (protocol, Command line).
const (
	ExitDone       = 0
	ExitFailed     = 1
	ExitUsage      = 2
	ExitNotRunning = 3
	ExitFault      = 4
	ExitHeld       = 5
	ExitRefused    = 6
)

// exits has the meaning of each exit code.
var exits = [...]string{
	ExitDone:       "done",
	ExitFailed:     "failed",
	ExitUsage:      "wrong usage",
	ExitNotRunning: "the daemon is not running",
	ExitFault:      "verification found a fault",
	ExitHeld:       "a message is held",
	ExitRefused:    "a message is refused",
}

// Verdict ends a command whose message must not be sent, after the reason was printed. Code is the
// exit code.
type Verdict struct{ Code int }

func (*Verdict) Error() string { return ErrSaid.Error() }
func (*Verdict) Unwrap() error { return ErrSaid }

// ExitCode is the one place that turns errors into exit codes.
func ExitCode(err error) int {
	var (
		fault   *audit.Fault
		verdict *Verdict
	)
	switch {
	case errors.As(err, &verdict):
		return verdict.Code
	case errors.As(err, &fault), api.DetailsOf[api.Obstacle](err).Code == api.AuditDamaged:
		return ExitFault
	case errors.Is(err, client.ErrNotRunning):
		return ExitNotRunning
	}
	return ExitFailed
}

// Complain prints why the program failed: in one line, or one for each problem of a configuration.
func Complain(stderr io.Writer, err error) {
	var problems config.Errors
	switch {
	case errors.Is(err, ErrSaid):
	case errors.As(err, &problems):
		for _, p := range problems {
			_ = term.Line(stderr, term.OneLine(p.Error())) // nobody is left to be told
		}
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "ocipd: interrupted")
	default:
		_ = term.Line(stderr, "ocipd: "+term.OneLine(err.Error())) // nobody is left to be told
	}
}
