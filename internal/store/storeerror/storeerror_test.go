package storeerror

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store"
	"github.com/openclawos/ocipd/internal/store/fileintegrity"
)

// A caller that needs unreadable data is told the code and the lost file, and nothing of how the
// query failed.
func TestUnreadable(t *testing.T) {
	lost := &fileintegrity.LostError{What: "the database", Path: "ocipd.db", How: "is gone"}
	for want, closed := range map[string]error{
		"ocipd.db is gone under the running daemon; nothing more is let through until": lost,
		"the audit store failed and is closed until the daemon is restarted":           errors.New("disk I/O error"),
	} {
		err := Unreadable(&store.UnreadableError{Closed: closed, Cause: errors.New("a secret of the query")})
		told := api.AsError(err)
		if told.Code != api.InternalError || !strings.Contains(told.Message, want) || strings.Contains(told.Message, "secret") || !errors.Is(err, store.ErrLatched) {
			t.Errorf("told is %v", told)
		}
		if code, _ := err.(interface{ OCIP() (ocip.Code, string) }).OCIP(); code != ocip.AuditWriteFailed {
			t.Errorf("the code is %s", code)
		}
	}
}

// A caller that needs an altered row is told so, and neither which row it is nor its content.
func TestAlteredRow(t *testing.T) {
	row := &store.AlteredError{Table: "exchanges", Row: "0011", Key: "forged"}
	for _, told := range []*api.Error{api.AsError(AlteredRow(row)), NotRecorded("cannot record it", fmt.Errorf("cannot write: %w", row))} {
		if told.Code != api.InternalError || !strings.Contains(told.Message, "was changed by somebody else than the daemon") || strings.Contains(told.Message, "0011") || strings.Contains(told.Message, "forged") {
			t.Errorf("told is %v", told)
		}
	}
	if found, ok := errors.AsType[*store.AlteredError](AlteredRow(row)); !ok || found != row {
		t.Errorf("found is %v", found)
	}
}
