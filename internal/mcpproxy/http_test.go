package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// stream reads a stream of events while the answers to the ids are awaited, whose texts
// must not pass.
func stream(t *testing.T, text string, ids ...string) string {
	t.Helper()
	w := &web{proxy: newProxy(t.Context(), &Options{})}
	for _, id := range ids {
		w.watch(&observer{key: key{"s", id}, in: func(*frame, []byte) []byte { return []byte("withheld\n") }, spoiled: func(string) {}})
	}
	e := &events{w: w, session: "s", r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 16)}
	got, err := io.ReadAll(e)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return string(got)
}

func TestEvents(t *testing.T) {
	const long = "data: 0123456789 0123456789 0123456789\n"
	for _, text := range []string{
		"", "\n", "data: x", "data: x\n\n", ": c\r\n\r\ndata: a\rdata: b\r\r", "\ufeffdata: x\n\n", long + long + "\n" + long, "id: 1\ndata:\n\n",
		`data: {"jsonrpc":"2.0","id":4,"result":{}}` + "\n\n",
	} {
		if got := stream(t, text); got != text {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	const answer = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"secret"}]}}`
	for _, text := range []string{
		"data: " + answer + "\n\n", "data:" + answer + "\r\n\r\n", "\ufeffdata: " + answer + "\n\n", "data: " + answer, "data: x\r\rdata: " + answer + "\r\r",
		"id: 1\ndata: " + strings.Replace(answer, ",", ",\ndata: ", 2) + "\n\n", "data: " + strings.Replace(answer, "3", "3.0", 1) + "\n\n",
		"data: " + strings.Replace(answer, "3", "0.3e1", 1) + "\n\n", "data: " + strings.Replace(answer, `"id":3`, `"id":3,"id":4`, 1) + "\n\n",
		"data: " + strings.Replace(answer, `"id"`, `"ID"`, 1) + "\n\n", "data: [" + answer + "]\n\n", "data: " + strings.Replace(answer, `"id"`, `"\u0069d"`, 1) + "\n\n",
		"event: message\nretry: 3\n" + "data: " + answer + "\n\n" + "data: " + answer + "\n\n",
	} {
		// A second answer is for nobody: clients take one.
		got := stream(t, text, "3")
		if n := strings.Count(text, "secret") - 1; strings.Count(got, "secret") > n {
			t.Errorf("%q becomes %q", text, got)
		}
	}
	if got := stream(t, "id: 1\ndata: "+answer+"\n\ndata: y\n\n", "3", "4"); got != "id: 1\nevent: message\ndata: withheld\n\n" && !strings.Contains(got, "data: withheld") {
		t.Errorf("it becomes %q", got)
	}
}

// Whoever reads a stream as browsers do finds no answer in it that is awaited, and finds all
// of it where none is.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{}}\n\n"))
	f.Add([]byte(": c\r\rdata: {\"id\":3,\rdata: \"result\":{}}\r\n\r\n"))
	f.Add([]byte("\ufeffdata:{\"id\":3e0,\"result\":1}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, watched := range []bool{false, true} {
			w := &web{proxy: newProxy(context.Background(), &Options{})}
			o := &observer{key: key{"s", "3"}, in: func(*frame, []byte) []byte { return nil }, spoiled: func(string) {}}
			if watched {
				w.watch(o)
			}
			e := &events{w: w, session: "s", r: bufio.NewReaderSize(bytes.NewReader(text), 16)}
			got, err := io.ReadAll(e)
			if err != nil {
				t.Fatal(err)
			}
			if !watched {
				if !bytes.Equal(got, text) {
					t.Fatalf("%q becomes %q", text, got)
				}
				continue
			}
			if w.awaits(o) && bytes.Contains(got, []byte(`"id":3,"result"`)) && frameIn(got) {
				t.Fatalf("%q becomes %q", text, got)
			}
		}
	})
}

// frameIn reports whether a reader of events finds the awaited answer.
func frameIn(text []byte) bool {
	all := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(text), "\ufeff"))
	for event := range strings.SplitSeq(all, "\n\n") {
		var data []string
		for line := range strings.SplitSeq(event, "\n") {
			if value, ok := strings.CutPrefix(line, "data:"); ok {
				data = append(data, strings.TrimPrefix(value, " "))
			}
		}
		f, err := parseBody([]byte(strings.Join(data, "\n")))
		if err == nil && f.method == "" && f.id != nil && f.key() == "3" {
			return true
		}
	}
	return false
}

func TestKeyOf(t *testing.T) {
	for _, same := range [][]string{{"3", "3.0", "30e-1", "0.3e1"}, {`"a"`, `"\u0061"`}, {"0", "-0", "0.0"}, {"12345678901234567890"}, {"12345678901234567891"}, {`"3"`}} {
		for _, id := range same {
			if got, want := keyOf([]byte(id)), keyOf([]byte(same[0])); got != want {
				t.Errorf("%s is %s, and %s is %s", id, got, same[0], want)
			}
		}
	}
	if keyOf([]byte("3")) == keyOf([]byte(`"3"`)) || keyOf([]byte("12345678901234567890")) == keyOf([]byte("12345678901234567891")) {
		t.Error("ids that differ are the same")
	}
}
