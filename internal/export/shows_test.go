package export

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/text"
)

// TestOneLineHasOnlyWhatShows walks through all of Unicode.
func TestOneLineHasOnlyWhatShows(t *testing.T) {
	for r := range rune(unicode.MaxRune + 1) {
		if r > 0x30000 && r>>12 != 0xe0 && r%997 != 0 {
			continue // nothing is there yet
		}
		want := string(r)
		if !text.Shows(r) {
			want = " "
		}
		if got := oneLine(string(r)); got != want {
			t.Errorf("U+%04X: %q, want %q", r, got, want)
		}
	}
}

// What happened to the evidence itself is a warning and an alert, though nothing was
// refused; and the usual length is one that receivers take as they come.
func TestEvidenceAlarms(t *testing.T) {
	for event, want := range map[string]bool{"digest_key_destroyed": true, "digest_key_lost": true, "unsigned_tail": true, "mirror_lost": true, "daemon_started": false} {
		line, _ := audit.Head{}.Seal(nil, time.Now(), []byte(`{"id":"x","actionType":"security","event":"`+event+`"}`))
		r := Read(line)
		if alert := strings.Contains(string((&Mapping{}).OCSF(&r)), `"is_alert":true`); alert != want || (gradeOf(&r) == gradeWarning) != want {
			t.Errorf("%s is an alert: %v, and of the grade %v", event, alert, gradeOf(&r))
		}
	}
	if DefaultMaxBytes > 8000 {
		t.Errorf("a message has up to %d bytes", DefaultMaxBytes)
	}
}
