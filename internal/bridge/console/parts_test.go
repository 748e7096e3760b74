package console

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"time"
)

// ask makes a request on a connection and returns the status.
func ask(t *testing.T, c net.Conn, request []byte) int {
	t.Helper()
	if _, err := c.Write(request); err != nil {
		t.Fatal(err)
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}

// within waits until something holds.
func within(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for !holds() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it did not come to that")
		}
	}
}
