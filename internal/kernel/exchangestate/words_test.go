package exchangestate

import (
	"testing"

	"github.com/openclawos/ocipd/internal/ocip"
)

// The words before a message belong to one agent and one session.
func TestWords(t *testing.T) {
	w := newWords()
	w.Heard("alice", "telegram:carol", "Is Friday fine for you?")
	w.Said("alice", "telegram:dave", "I pro")
	for _, tt := range []struct {
		agent, session string
		want           ocip.Before
	}{
		{"alice", "telegram:carol", ocip.Before{Asked: true}},
		{"alice", "telegram:dave", ocip.Before{Tail: "I pro"}},
		{"bob", "telegram:carol", ocip.Before{}},
	} {
		if got := w.Before(tt.agent, tt.session); got != tt.want {
			t.Errorf("%s in %s: %+v, want %+v", tt.agent, tt.session, got, tt.want)
		}
	}
	w.Said("alice", "telegram:carol", "Let me look.")
	if got := w.Before("alice", "telegram:carol"); got != (ocip.Before{}) {
		t.Errorf("after an answer: %+v", got)
	}
}
