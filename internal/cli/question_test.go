package cli

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// A question that nobody answers ends with the first interrupt.
func TestQuestionIsInterrupted(t *testing.T) {
	never, _ := io.Pipe()
	interrupted := make(chan struct{})
	close(interrupted)
	s := &Process{Stderr: io.Discard, Interrupted: interrupted}
	if _, err := s.Question(bufio.NewReader(never), "Who", "me"); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("it ends with %v", err)
	}
	s.Interrupted = nil
	if got, err := s.Question(bufio.NewReader(strings.NewReader("\n")), "Who", "me"); got != "me" || err != nil {
		t.Errorf("nothing said is %q, %v", got, err)
	}
}
