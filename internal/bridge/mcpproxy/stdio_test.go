package mcpproxy

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// While no answer is awaited, the server's messages pass in bounded memory, at any length.
func TestLongLinesPassInBoundedMemory(t *testing.T) {
	const length = 20 << 20
	s := &stdio{proxy: newProxy(t.Context(), &Options{Out: io.Discard, Now: time.Now})}
	line := io.MultiReader(io.LimitReader(endless{}, length), strings.NewReader("\n"))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.readServer(line); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
		t.Errorf("%d bytes were allocated for a line of %d", used, length)
	}
}

// Over stdio too, an answer under decision does not pass when the server sends another one.
func TestAnswersAreSaidOnceOverStdio(t *testing.T) {
	t.Parallel()
	deciding, decide := make(chan struct{}), make(chan struct{})
	o := withDaemon(t, func(string) {
		close(deciding)
		<-decide
	})
	const answer = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"%s"}]}}`
	o.Command = []string{"/bin/sh", "-c", fmt.Sprintf(`read -r call; echo '%s'; echo '%s'; echo '%s'; read -r end`,
		fmt.Sprintf(answer, "fine"), fmt.Sprintf(answer, "secret"), `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)}
	in, says := io.Pipe()
	hears, out := io.Pipe()
	o.In, o.Out, o.Stderr = in, out, io.Discard
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), o)
		_ = out.Close()
	}()
	if _, err := io.WriteString(says, `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"history","arguments":{"channel":"x"}}}`+"\n"); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(hears)
	// A message after both answers passes before the decision.
	if !lines.Scan() || !strings.Contains(lines.Text(), "notifications/message") {
		t.Errorf("before the decision the client has %q", lines.Text())
	}
	<-deciding
	close(decide)
	if !lines.Scan() || !strings.Contains(lines.Text(), "fine") {
		t.Errorf("answered %q", lines.Text())
	}
	if err := says.Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Errorf("then the client has %q", lines.Text())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// endless is an endless stream of x.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}
