package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/store/db"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// leftOf counts the occurrences of a text in the files of a database.
func leftOf(t *testing.T, database, text string) (count int) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(database + suffix)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		count += bytes.Count(content, []byte(text))
	}
	return count
}

// TestRemovedIsGone puts a marked text into each place that keeps texts for a while, among others
// that stay, and searches the files for it after its removal.
func TestRemovedIsGone(t *testing.T) {
	t.Parallel()
	const gone, stays = "this text goes away", "this text is kept"
	o, _ := signed(t, t.TempDir())
	clock := newClock()
	o.Clock, o.Signing.Every = clock.now, time.Hour
	s := open(t, o)
	body := func(text string, i int) []byte {
		// From a few bytes to some pages.
		return fmt.Appendf(nil, `{"text":%q}`, strings.Repeat(text+". ", 1+i*i%400))
	}
	var taken []MessageID
	for i := range 400 {
		text := gone
		if i%7 == 0 {
			text = stays
		}
		c := noted(fmt.Sprint("n", i))
		c.Records[0].Details = map[string]any{"note": text}
		m := &Message{MessageID: MessageID{Queue: fmt.Sprint("q", i%5, i%7 == 0)}, DispatchID: fmt.Sprint(i), Body: body(text, i)}
		c.Add(m, &Approval{ID: fmt.Sprintf("%d-%d", i%13, i), Agent: "a", Asked: fmt.Sprint(i), State: PendingApproval, New: true, Summary: []byte("{}"), Body: body(text, i)})
		c.Add(sides(ocip.Exchange{ID: fmt.Sprint(i), ConversationID: fmt.Sprint(i), Agent: "alice", Counterparty: "bob", SessionKey: "irc:bob", Outcome: ocip.Resolved,
			OpenedAt: clock.now(), UpdatedAt: clock.now(), Transcript: []ocip.Turn{{Round: 1, Sender: "alice", Summary: text}}})...)
		commit(t, s, c)
		if text == gone {
			taken = append(taken, m.MessageID)
		}
		if i == 200 {
			clock.add(time.Hour)
		}
	}
	for i := range 400 {
		if i%7 == 0 {
			continue
		}
		c := noted("decided")
		c.Add(&Approval{ID: fmt.Sprintf("%d-%d", i%13, i), State: "denied", Summary: []byte("{}"), Body: []byte("{}")})
		if i%2 == 0 {
			c.Add(Taken(taken[:1]))
			taken = taken[1:]
		}
		commit(t, s, c)
	}
	s.Taken(taken...)
	s.Flush()
	clock.add(time.Hour)
	fill(t, s, 3)
	sign(t, s)
	before, err := os.Stat(o.Path)
	if err != nil {
		t.Fatal(err)
	}
	// Retention removes records and exchanges up to the middle.
	tomb, err := s.Retire(t.Context(), s.Head().Seq-2)
	if err != nil {
		t.Fatal(err)
	}
	if left := leftOf(t, o.Path, gone); left > 0 {
		t.Errorf("the text is in the files %d times", left)
	}
	if left := leftOf(t, o.Path, stays); left == 0 {
		t.Error("what is kept is gone too")
	}
	after, err := os.Stat(o.Path)
	if err != nil || after.Size() >= before.Size()*3/4 {
		t.Errorf("the file had %d bytes and has %d, %v", before.Size(), after.Size(), err)
	}
	if free, err := db.QueryInt(s.commits.writer.Conn, "PRAGMA freelist_count"); err != nil || free > 0 {
		t.Errorf("%d pages are free, %v", free, err)
	}
	if s.Latched() != nil {
		t.Errorf("its own shrinking closed the store: %v", s.Latched())
	}
	fill(t, s, 300)
	if s.Latched() != nil {
		t.Errorf("growing again closed the store: %v", s.Latched())
	}
	if err := os.Truncate(o.Path, after.Size()/2); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, s, "ocipd.db was cut from")
	if tomb.Head.Seq == 0 {
		t.Error("nothing was retired")
	}
}

// TestTidyEmptiesTheLog: the text of a decided request is in the files until the next minute's
// tidying, and not after it, however little else happens.
func TestTidyEmptiesTheLog(t *testing.T) {
	const gone = "this text goes away"
	s, o := openIn(t, t.TempDir())
	c := noted("asked")
	c.Add(&Approval{ID: "a", Agent: "a", Asked: "x", State: PendingApproval, New: true, Summary: []byte("{}"), Body: []byte(strings.Repeat(gone, 3000))})
	commit(t, s, c)
	if leftOf(t, o.Path, gone) == 0 {
		t.Fatal("it is not kept")
	}
	c = noted("decided")
	c.Add(&Approval{ID: "a", State: "denied", Summary: []byte("{}"), Body: []byte("{}")})
	commit(t, s, c)
	// A reader of the log keeps it there, and nobody waits for that.
	for _, busy := range []bool{true, false} {
		reader, err := readAlong(o.Path)
		if err != nil {
			t.Fatal(err)
		}
		if busy {
			for _, query := range []string{"BEGIN", "SELECT count(*) FROM records"} {
				if err := sqlitex.ExecuteTransient(reader, query, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		commit(t, s, noted("more"))
		if err := s.Tidy(t.Context(), time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := reader.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := leftOf(t, o.Path, gone); left > 0 {
		t.Errorf("it is in the files %d times", left)
	}
	wantSound(t, s)
}

// TestOldDatabaseIsMadeMovable: an older one is rewritten at its first start, and stays as it is if
// there is no room.
func TestOldDatabaseIsMadeMovable(t *testing.T) {
	o := options(t.TempDir())
	s := open(t, o)
	fill(t, s, 50)
	shut(t, s)
	change(t, o.Path, "PRAGMA auto_vacuum=0; VACUUM;")
	mode := func() int {
		t.Helper()
		conn, err := sqlite.OpenConn(o.Path, sqlite.OpenReadOnly)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mode, err := db.QueryInt(conn, "PRAGMA auto_vacuum")
		if err != nil {
			t.Fatal(err)
		}
		return mode
	}
	for _, free := range []int64{1 << 18, 1 << 30} {
		o.Space.Free = func() (int64, error) { return free, nil }
		if mode() != 0 {
			t.Fatal("it is so already")
		}
		s = open(t, o)
		fill(t, s, 1)
		wantSound(t, s)
		shut(t, s)
	}
	if mode() != 2 {
		t.Error("it is as it was")
	}
}

// TestStrayRecords: a start and a reader without a daemon both find a row under a number that
// nothing reads.
func TestStrayRecords(t *testing.T) {
	for _, seq := range []int{0, -7} {
		o := options(t.TempDir())
		s := open(t, o)
		fill(t, s, 3)
		shut(t, s)
		change(t, o.Path, fmt.Sprintf("DROP TRIGGER records_no_replace; INSERT INTO records (seq, line) VALUES (%d, 'x')", seq))
		var fault *audit.Fault
		r := openReader(t, o.Path)
		if err := r.EachStored(t.Context(), 0, func(uint64, []byte) error { return nil }); !errors.As(err, &fault) {
			t.Errorf("record %d: read: %v", seq, err)
		}
		if s, err := Open(t.Context(), o); !errors.As(err, &fault) {
			t.Errorf("record %d: a start: %v, %v", seq, s, err)
		}
	}
}

// TestStartMissesItsCheckpoint: a start refuses a log that was cut after a checkpoint which the
// database still names, even without evidence from outside.
func TestStartMissesItsCheckpoint(t *testing.T) {
	o, _ := signed(t, t.TempDir())
	s := open(t, o)
	fill(t, s, 20)
	sign(t, s)
	shut(t, s)
	change(t, o.Path, "DROP TRIGGER records_no_delete; DELETE FROM records WHERE seq > 10")
	var fault *audit.Fault
	if s, err := Open(t.Context(), o); !errors.As(err, &fault) || !strings.Contains(err.Error(), "it ends at record 10, and record 21 holds its newest checkpoint") {
		t.Errorf("it starts: %v, %v", s, err)
	}
}
