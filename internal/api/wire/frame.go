package wire

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// The lines below are written member by member in the order of the protocol's examples, because they
// are the hottest path of the daemon, and their members are JSON already, which the library would parse
// once more. Every string goes through the JSON library's quoting. A line is added to a
// buffer.

func appendHead(b []byte, id, kind string, now int64) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, id...)
	b = append(b, `","type":"`...)
	b = append(b, kind...)
	b = append(b, `","timestamp":`...)
	return strconv.AppendInt(b, now, 10)
}

// AppendOpening writes the answer that a stream begins with: chunks follow under
// the same request id.
func AppendOpening(b []byte, id string, now int64, requestID string, result any) []byte {
	b = AppendResponse(b, id, now, requestID, result, nil)
	b = jsonline.Bool(bytes.TrimSuffix(b, []byte("}\n")), "stream", true)
	return append(b, '}', '\n')
}

// Encode encodes what is answered. JSON inside it keeps its strings as they are
// written: the hash of a record is of its bytes, and \u007f is not the character
// that it stands for.
func Encode(value any) ([]byte, error) {
	return json.Marshal(value, jsontext.PreserveRawStrings(true))
}

// Written is a result that knows how to write itself: stored JSON is not read again.
type Written interface{ Append(b []byte) []byte }

// AppendResponse writes an answer: the failure, or else the result.
func AppendResponse(b []byte, id string, now int64, requestID string, result any, failure *api.Error) []byte {
	b = appendHead(b, id, TypeResponse, now)
	b = jsonline.Text(b, "requestId", requestID)
	if written, ok := result.(Written); ok && failure == nil {
		b = jsonline.Key(jsonline.Bool(b, "success", true), "result")
		return append(written.Append(b), '}', '\n')
	}
	if failure == nil {
		encoded, err := Encode(result)
		if err == nil {
			b = jsonline.Key(jsonline.Bool(b, "success", true), "result")
			b = append(b, encoded...)
			return append(b, '}', '\n')
		}
		failure = api.Errorf(api.InternalError, "cannot encode the result: %v", err)
	}
	// A message can name a file, and a file's name need not be UTF-8.
	encoded, err := json.Marshal(failure, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		encoded = []byte(`{"code":"INTERNAL_ERROR","message":"cannot encode the error"}`)
	}
	b = jsonline.Key(jsonline.Bool(b, "success", false), "error")
	b = append(b, encoded...)
	return append(b, '}', '\n')
}

// AppendRequest writes a request. Params are JSON, and so is the token, a string;
// without one it is nil. The signature and the process on whose behalf it is are "" if there is none.
func AppendRequest(b []byte, id uint64, now int64, method string, params, token []byte, signature, behalf string) []byte {
	b = appendHead(b, strconv.FormatUint(id, 10), TypeRequest, now)
	b = jsonline.Text(b, "method", method)
	b = append(jsonline.Key(b, "params"), params...)
	if token != nil {
		b = append(jsonline.Key(b, "token"), token...)
	}
	if signature != "" {
		b = jsonline.Text(b, "signature", signature)
	}
	if behalf != "" {
		b = jsonline.Text(b, "behalf", behalf)
	}
	return append(b, '}', '\n')
}

// headBytes is about the length of a frame without its payload.
const headBytes = 192

// AppendEvent writes an event. The payload is JSON.
func AppendEvent(b []byte, id string, now int64, event string, payload []byte) []byte {
	b = appendHead(slices.Grow(b, len(payload)+headBytes), id, TypeEvent, now)
	b = jsonline.Text(b, "event", event)
	b = append(jsonline.Key(b, "payload"), payload...)
	return append(b, '}', '\n')
}

// AppendChunk writes a chunk of a stream, which is JSON, the last one with done.
func AppendChunk(b []byte, id string, now int64, requestID string, chunk []byte, done bool) []byte {
	b = appendHead(b, id, TypeStream, now)
	b = jsonline.Text(b, "requestId", requestID)
	b = append(jsonline.Key(b, "chunk"), chunk...)
	b = jsonline.Bool(b, "done", done)
	return append(b, '}', '\n')
}
