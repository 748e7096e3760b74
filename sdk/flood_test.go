package sdk

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"testing"
)

// TestManyEvents sends each SDK more messages at once than wait for a handler, the first one twice. The
// answers to its calls stand behind all of them. Each message comes once and in order.
func TestManyEvents(t *testing.T) {
	const many = 5000
	flooded(t, func(l net.Listener) { serveMany(l, many) }, func(r *trial) {
		r.take(1, &step{As: "channel", Do: "register", With: map[string]any{"id": "@sdk/channel", "channels": []any{"chat"}}})
		for n := range many {
			l := r.next("event", fmt.Sprint("message ", n), func(l *said) bool { return l.Event != 0 })
			r.holds("message", map[string]any{"content": fmt.Sprint(n)}, l.Data)
			r.say(map[string]any{"answer": l.Event, "with": nil})
		}
	})
}

// flooded runs the program of each SDK at a daemon of the test's own.
func flooded(t *testing.T, serve func(net.Listener), check func(*trial)) {
	for name, command := range runners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			needs(t, "ssh-keygen")
			if name != "go" {
				needs(t, command[0])
			}
			r := place(t)
			socket := filepath.Join(r.dir, "own.sock")
			listener, err := net.Listen("unix", socket)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { listener.Close() })
			go serve(listener)
			r.env = append(r.env, "OPENCLAWOS_KERNEL_SOCKET="+socket)
			r.apps = r.start(command)
			check(r)
		})
	}
}

// serveMany answers each request, and sends messages after app.ready.
func serveMany(listener net.Listener, many int) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	// The lines of the daemon, in order, without an end: it reads on while nobody takes them.
	lines := make(chan string, 4*many)
	defer close(lines)
	go func() {
		for line := range lines {
			if _, err := fmt.Fprintln(conn, line); err != nil {
				return
			}
		}
	}()
	for requests := bufio.NewScanner(conn); requests.Scan(); {
		var request struct{ ID, Method string }
		if json.Unmarshal(requests.Bytes(), &request) != nil {
			return
		}
		result := map[string]string{
			"app.register":        `{"appId":"@sdk/channel","token":"t","protocolVersion":"1.0"}`,
			"capability.register": `{"capabilityId":"c","granted":true}`,
		}[request.Method]
		if result == "" {
			result = `{"ok":true}`
		}
		lines <- fmt.Sprintf(`{"id":"1","type":"response","timestamp":1,"requestId":%q,"success":true,"result":%s}`, request.ID, result)
		if request.Method != "app.ready" {
			continue
		}
		for n := -1; n < many; n++ {
			at := max(n, 0)
			lines <- fmt.Sprintf(`{"id":"%d","type":"event","timestamp":1,"event":"hook:message_sending","payload":{"eventId":"e%d","hookName":"message_sending",`+
				`"data":{"channelId":"chat","target":"dave","content":"%d","dispatchId":"d%d"},"context":{"timestamp":1,"auditId":"a"}}}`, n+2, n+1, at, at)
		}
	}
}

// TestManyChunks sends each SDK more chunks of a stream than wait for the program, which makes a call at
// the first one: the answer stands behind all of them. Each chunk comes once and in order, then the end.
func TestManyChunks(t *testing.T) {
	const many = 5000
	flooded(t, func(l net.Listener) { serveChunks(l, many) }, func(r *trial) {
		r.take(1, &step{As: "bot", Do: "register", With: map[string]any{"id": "@sdk/bot"}})
		r.take(2, &step{As: "bot", Do: "stream", With: map[string]any{"method": "config.watch"}})
		r.take(3, &step{As: "bot", Do: "call", With: map[string]any{"method": "kernel.describe"}, Want: map[string]any{"ok": true}})
		for n := range many {
			l := r.next("event", fmt.Sprint("chunk ", n), func(l *said) bool { return l.What == "chunk" })
			r.holds("chunk", map[string]any{"path": fmt.Sprint(n)}, l.Data)
		}
		r.take(4, &step{As: "bot", Event: "end", Want: map[string]any{"code": ""}})
	})
}

// serveChunks answers each request, and a stream with chunks.
func serveChunks(listener net.Listener, many int) {
	conn, err := listener.Accept()
	if err != nil {
		return
	}
	defer conn.Close()
	out := bufio.NewWriter(conn)
	for requests := bufio.NewScanner(conn); requests.Scan(); {
		var request struct{ ID, Method string }
		if json.Unmarshal(requests.Bytes(), &request) != nil {
			return
		}
		if request.Method == "config.watch" {
			fmt.Fprintf(out, `{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"stream":true,"result":{"watching":true}}`+"\n", request.ID)
			for n := range many {
				fmt.Fprintf(out, `{"id":"s","type":"stream","timestamp":1,"requestId":%q,"chunk":{"path":"%d"},"done":false}`+"\n", request.ID, n)
			}
			fmt.Fprintf(out, `{"id":"s","type":"stream","timestamp":1,"requestId":%q,"chunk":null,"done":true}`+"\n", request.ID)
		} else {
			fmt.Fprintf(out, `{"id":"s","type":"response","timestamp":1,"requestId":%q,"success":true,"result":{"ok":true,"token":"t"}}`+"\n", request.ID)
		}
		if out.Flush() != nil {
			return
		}
	}
}
