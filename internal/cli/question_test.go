package cli

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// The first interrupt ends an unanswered question.
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

// If a question takes most of its line, the answer gets its own line.
func TestAnswerHasRoom(t *testing.T) {
	for text, want := range map[string]string{
		"Who": "Who: ",
		"Where does it write to people, such as telegram or irc? (Enter: nowhere)":                          "Where does it write to people, such as telegram or irc? (Enter: nowhere):\n> ",
		"Which program runs your agent? Its app id or a short name, such as mybot (Enter: none yet, later)": "Which program runs your agent? Its app id or a short name, such as mybot\n(Enter: none yet, later): ",
	} {
		var said strings.Builder
		s := &Process{Stderr: &said}
		if _, err := s.Question(bufio.NewReader(strings.NewReader("\n")), text, ""); err != nil || said.String() != want {
			t.Errorf("asked %q, want %q: %v", said.String(), want, err)
		}
	}
}
