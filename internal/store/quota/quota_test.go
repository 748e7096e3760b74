package quota

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Messages in progress count until they are written or given back, and waiting ones until the next
// look-up.
func TestCounts(t *testing.T) {
	now, waits := time.Unix(0, 0), []Waiting{{App: "a", Messages: 1, Bytes: 10}}
	count := func(context.Context) ([]Waiting, error) { return waits, nil }
	var q Counts
	if err := q.Begin(t.Context(), Limit{Messages: 3, Bytes: 100}, func() time.Time { return now }, count); err != nil {
		t.Fatal(err)
	}
	take := func(ends bool, want error, sizes ...int) (messages []Message) {
		t.Helper()
		for _, size := range sizes {
			messages = append(messages, Message{App: "a", Bytes: size})
		}
		if err := q.Take(t.Context(), ends, messages); !errors.Is(err, want) {
			t.Errorf("%v: %v", sizes, err)
		}
		return messages
	}
	take(false, ErrExceeded, 1, 1, 1)
	take(false, ErrExceeded, 91)
	first := take(false, nil, 40, 50)
	take(false, ErrExceeded, 1)
	q.GiveBack(first)
	q.Written(take(false, nil, 40, 50))
	take(false, ErrExceeded, 1)
	q.Written(take(true, nil, 1))
	if err := q.Take(t.Context(), false, []Message{{Bytes: 1000}}); err != nil {
		t.Errorf("of no app: %v", err)
	}
	// All of them were taken meanwhile.
	waits = nil
	take(false, ErrExceeded, 1)
	now = now.Add(RecountEvery)
	q.GiveBack(take(false, nil, 100))
	if len(q.flying) != 0 {
		t.Errorf("under way: %v", q.flying)
	}
}
