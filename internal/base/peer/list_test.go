package peer

import (
	"os"
	"slices"
	"testing"
)

func TestParseListed(t *testing.T) {
	tests := []struct {
		text string
		want Listed
		ok   bool
	}{
		{"12 (a) b) S 3 4 5 6", Listed{PID: 12, Parent: 3, Session: 5, Name: "a) b"}, true},
		{"12 (a) Z 3 4 5 6", Listed{}, false},
		{"12 (a) S 3 4", Listed{}, false},
		{"12 a S 3 4 5", Listed{}, false},
		{"x (a) S 3 4 5", Listed{}, false},
	}
	for _, tt := range tests {
		if got, ok := parseListed(tt.text); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: %v, %v", tt.text, got, ok)
		}
	}
}

func TestDescendants(t *testing.T) {
	if !slices.Contains(Descendants(os.Getppid()), os.Getpid()) {
		t.Error("this process is not among those that its parent has started")
	}
}
