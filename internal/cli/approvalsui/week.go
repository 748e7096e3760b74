package approvalsui

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/openclawos/ocipd/internal/base/term"
	"github.com/openclawos/ocipd/internal/cli/auditcmd"
	"github.com/openclawos/ocipd/internal/cli/measure"
)

// week is the time over which the live list counts a person's acts.
const week = 7 * 24 * time.Hour

// weekMsg says how many acts the last week took.
type weekMsg string

// lastWeek reads the person's acts from the log. It says nothing if the log cannot be read: the list is
// for what waits.
func (s *People) lastWeek(ctx context.Context) weekMsg {
	history := measure.NewHistory()
	if err := auditcmd.Entries(ctx, s.Process, history.Add, measure.Filters(time.Now().Add(-week))...); err != nil {
		return ""
	}
	return weekMsg(actsLine(history.Acts(os.Getuid())))
}

// actsLine says how many acts a week took, and which setting would have saved most of them.
func actsLine(acts int, most measure.Saving) string {
	if acts == 0 {
		return ""
	}
	line := fmt.Sprintf("%s of yours in 7 days", term.Count(acts, "act"))
	switch {
	case most.Saved > 0 && most.Stopped > 0:
		line += fmt.Sprintf("; %s saves %d, but sends %d that you stopped", most.Setting, most.Saved, most.Stopped)
	case most.Saved > 0:
		line += fmt.Sprintf("; %s saves %d", most.Setting, most.Saved)
	}
	return line
}
