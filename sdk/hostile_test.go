package sdk

import (
	"bufio"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostileDaemon has each SDK speak to a server that does not hold to the protocol: the call fails
// with CONNECTION_CLOSED, and the runner goes on.
func TestHostileDaemon(t *testing.T) {
	const registered = `{"id":"1","type":"response","timestamp":1,"requestId":"1","success":true,"result":`
	for name, command := range runners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, "ssh-keygen")
			if name != "go" {
				needs(t, command[0])
			}
			r := place(t)
			answer := make(chan string, 1)
			socket := filepath.Join(r.dir, "hostile.sock")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { listener.Close() })
			go func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return
					}
					_, _ = bufio.NewReader(conn).ReadString('\n')
					_, _ = conn.Write([]byte(<-answer))
					_ = conn.Close()
				}
			}()
			r.env = append(r.env, "OPENCLAWOS_KERNEL_SOCKET="+socket)
			r.apps = r.start(command)
			for what, text := range map[string]string{
				"nothing":                    "",
				"no JSON":                    "garbage\n",
				"no object":                  "[]\n",
				"null":                       "null\n",
				"half a line":                registered,
				"half of a character":        "{\"type\":\"\xff\"}\n",
				"a line that does not end":   strings.Repeat("x", 3000),
				"a line that is too long":    strings.Repeat(" ", 3000) + "\n",
				"an event without a payload": `{"id":"1","type":"event","timestamp":1,"event":"hook:message_sending"}` + "\n",
				"the answer to another call": `{"id":"1","type":"response","timestamp":1,"requestId":"77","success":true,"result":{}}` + "\n",
				"a refusal of the connection": `{"id":"1","type":"response","timestamp":1,"requestId":"","success":false,"error":{"code":"FORBIDDEN","message":"user 7 may not connect"}}` +
					"\n",
			} {
				answer <- text
				want := map[string]any{"code": "~CONNECTION_CLOSED|FORBIDDEN"}
				if strings.HasPrefix(what, "a refusal") {
					want["message"] = "~user 7 may not connect"
				}
				if strings.HasPrefix(what, "a line") {
					want["message"] = "~longer than 2000 bytes"
				}
				r.take(1, &step{As: what, Do: "register", With: map[string]any{"id": "@sdk/bot", "line": 2000}, Error: want})
			}
		})
	}
}
