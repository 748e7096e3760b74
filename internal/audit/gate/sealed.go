package gate

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// Sealed is a message that may leave. Every exit takes only this type: an event of a connection,
// and the member of an answer. The zero Sealed is no message.
type Sealed struct{ data []byte }

// IsZero reports whether there is no message.
func (s Sealed) IsZero() bool { return s.data == nil }

// MarshalJSONTo writes the message into an answer.
func (s Sealed) MarshalJSONTo(e *jsontext.Encoder) error {
	if s.data == nil {
		return e.WriteToken(jsontext.Null)
	}
	return e.WriteValue(s.data)
}

// Shown is a message that may leave, in the form of another answer of the protocol.
type Shown[T any] struct{ view T }

// Show converts a message to its view in an answer.
func Show[F, T any](s Sealed, view func(F) T) (Shown[T], error) {
	var form F
	if err := json.Unmarshal(s.data, &form); err != nil {
		return Shown[T]{}, fmt.Errorf("cannot decode a message that waits: %w", err)
	}
	return Shown[T]{view: view(form)}, nil
}

// MarshalJSONTo writes the view into an answer.
func (s Shown[T]) MarshalJSONTo(e *jsontext.Encoder) error { return json.MarshalEncode(e, s.view) }

// Fact is a statement of the daemon itself about ids that it made or that are in its configuration.
// It contains nobody's text.
func Fact(data []byte) Sealed { return Sealed{data: data} }

// Own is a caller's own text, returned to that caller.
func Own(data []byte) Sealed { return Sealed{data: data} }

// Carry hands the message to a function that seals it for the daemon of another host, and returns
// the result.
func (s Sealed) Carry(seal func(data []byte) ([]byte, error)) ([]byte, error) { return seal(s.data) }

// Event is one event for a connection.
type Event struct {
	name    string
	payload []byte
}

// Name is the event's name.
func (e Event) Name() string { return e.name }

// Payload is the JSON of its payload. Only the connection reads it.
func (e Event) Payload() []byte { return e.payload }

// Event makes the message an event without changing it.
func (s Sealed) Event(name string) Event { return Event{name: name, payload: s.data} }

// Hook makes the message the data of a hook event, which is appended to a buffer. Context appends
// the event's context.
func (s Sealed) Hook(b []byte, eventID, name string, context func([]byte) []byte) Event {
	return hook(b, eventID, name, s.data, context)
}

// Question makes the event that asks an interceptor before the decision. It is the only event with
// somebody's text that no record allows: the answer goes on record.
func Question(eventID, name string, data []byte, context func([]byte) []byte) Event {
	return hook(nil, eventID, name, data, context)
}

// Notice makes an event about the connection or the app itself, with nobody's text.
func Notice(name string, payload []byte) Event { return Event{name: name, payload: payload} }

// Fate follows somebody's text through the queue of a connection, until it is written.
type Fate interface {
	// Stays reports whether the text may still be written. It never waits, and takes no lock that a
	// caller of the queue can hold.
	Stays() bool
}

// Recallable is the fate of a message that can be taken back and put again, until the other end has
// it.
type Recallable interface {
	Fate
	// Taken is called once the other end has taken the event out of the socket, or has acknowledged it
	// if it acknowledges messages. It is never called if the connection ends before.
	Taken()
}

// hookBytes is the approximate size of a hook event besides its data.
const hookBytes = 384

// hook writes the payload of a hook event in the protocol's order.
func hook(b []byte, eventID, name string, data []byte, context func([]byte) []byte) Event {
	b = append(slices.Grow(b, len(data)+hookBytes), `{"eventId":"`...)
	b = append(b, eventID...)
	b = append(b, `","hookName":"`...)
	b = append(b, name...)
	b = append(b, `","data":`...)
	b = append(b, data...)
	b = context(jsonline.Key(b, "context"))
	return Event{name: "hook:" + name, payload: append(b, '}')}
}
