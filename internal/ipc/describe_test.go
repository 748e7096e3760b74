package ipc

import (
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// Any process that may connect can ask for the description again and again, and each answer is made
// of the same bytes: making it anew takes as long as many messages of others.
func TestDescribedOnce(t *testing.T) {
	s, path := serve(t, &fakeKernel{})
	p := dial(t, path)
	p.send("1", "kernel.describe", `{}`)
	first := p.next()
	var d api.Description
	if err := json.Unmarshal(first.Result, &d); err != nil || len(d.Methods) != len(fakeMethods()) {
		t.Fatalf("described are %d methods: %v", len(d.Methods), err)
	}
	m := s.table[faceApp]["kernel.describe"]
	room := make([]byte, 0, 2*len(first.Result))
	if made := testing.AllocsPerRun(10, func() {
		result, _, err := m.call(t.Context(), &conn{server: s, face: faceApp}, &wire.Request{}, &api.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		room = wire.AppendResponse(room[:0], "1", 1, "1", result, nil)
	}); made > 4 {
		t.Errorf("an answer takes %v allocations", made)
	}
	var again wire.Incoming
	if err := json.Unmarshal(room, &again); err != nil || !equalJSON(t, first.Result, again.Result) {
		t.Errorf("the second answer is %.80s, after %.80s: %v", again.Result, first.Result, err)
	}
}

func equalJSON(t *testing.T, a, b jsontext.Value) bool {
	t.Helper()
	for _, v := range []*jsontext.Value{&a, &b} {
		if err := v.Canonicalize(); err != nil {
			t.Fatal(err)
		}
	}
	return string(a) == string(b)
}
