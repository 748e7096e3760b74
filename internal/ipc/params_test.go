package ipc

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/api/wire"
)

// A method gets the mended text of its request, and no number that breaks other readers.
func TestRead(t *testing.T) {
	m := row[api.DispatchParams, api.OK]("a", AccessApp, Patient)
	read := func(content string) (any, error) {
		t.Helper()
		r, err := wire.ParseRequest([]byte(`{"id":"r1","type":"request","method":"a","params":{"sessionKey":"a:b","content":` + content + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		return m.read(faceApp, &r)
	}
	if p, err := read(`"\ud83d"`); err != nil || p.(*api.DispatchParams).Halves != 1 {
		t.Errorf("got %+v, %v", p, err)
	}
	_, err := read(`"x","metadata":{"n":1e999}`)
	refusedParams(t, err)
}

// oneLine checks that a frame is exactly one line of JSON, and reads it.
func oneLine(t *testing.T, frame []byte) (in wire.Incoming) {
	t.Helper()
	if n := bytes.IndexByte(frame, '\n'); n != len(frame)-1 {
		t.Fatalf("%q has its first newline at %d, want it at its end", frame, n)
	}
	if err := json.Unmarshal(frame, &in); err != nil {
		t.Fatalf("%q: %v", frame, err)
	}
	return in
}

// refusedParams checks that an error names the fields that are wrong.
func refusedParams(t *testing.T, err error) {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.InvalidParams || e.Message == "" {
		t.Fatalf("refused with %v", err)
	}
	fields, ok := e.Details.([]api.FieldError)
	if !ok || len(fields) == 0 {
		t.Fatalf("details are %#v", e.Details)
	}
	for _, f := range fields {
		if f.Path == "" || f.Message == "" {
			t.Fatalf("details are %+v", fields)
		}
	}
}
