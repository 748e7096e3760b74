// Package notify tells a person that something waits for them: by a desktop notification
// over D-Bus ([Desktop]), by a command that may send a mail or a chat message ([Command]),
// and through both without waiting ([Fanout]).
//
// Use: make the notifiers, pass them to [NewFanout], call [Fanout.Notify] when a request
// begins to wait and [Fanout.Withdraw] when it was decided, and [Fanout.Close] at the end.
//
// A notice's texts may come from messages, so every notifier cleans them first: they cannot
// control a terminal, imitate other text or fill a screen. It cannot know which contents
// are confidential, so callers have two duties:
//
//   - Put nothing confidential into a [Notice]. A desktop shows it on a locked screen, and
//     a command may mail it. Any process of the user that owns
//     org.freedesktop.Notifications on the session bus reads it.
//   - Treat a notice as a hint. It may be lost, late or repeated; the store has the pending requests.
//
// The log never contains any part of a notice except its ID.
package notify

import (
	"context"
	"errors"
	"maps"
	"slices"
)

// Urgencies of a notice, as desktops know them. Any other word is Normal.
const (
	Low      = "low"
	Normal   = "normal"
	Critical = "critical" // stays on the screen until the person acts
)

// Errors on which a caller may act.
var (
	// ErrNoDesktop means that there is no session bus, or no service on it that shows
	// notifications, as on a server.
	ErrNoDesktop = errors.New("no desktop to show a notification on")
	// ErrClosed means that the notifier was closed.
	ErrClosed = errors.New("notifier is closed")
)

// Notice is a message to a person. Each text is cut to its limit, in characters.
type Notice struct {
	// ID names the subject, such as an approval. A later notice with the same ID replaces
	// the earlier one; one without an ID stands alone. Limit 128.
	ID string
	// Title is one line. Limit 120.
	Title string
	// Body may have several lines. Limit 1000.
	Body string
	// Urgency is Low, Normal or Critical.
	Urgency string
	// Fields are facts for a program, one line each; a desktop does not show them. A key is
	// an ASCII letter followed by up to 31 ASCII letters, digits and underscores. Other keys
	// are dropped, and so are all after the 16th in the order of keys. Limit of a value 200.
	Fields map[string]string
}

const (
	maxID     = 128
	maxTitle  = 120
	maxBody   = 1000
	maxFields = 16
	maxKey    = 32
	maxValue  = 200
)

// Notifier notifies a person. Notify returns when the notice was sent or cannot be, at the
// latest soon after ctx ends. A Notifier logs its own failures. Its methods may be called
// from several goroutines.
type Notifier interface {
	Notify(ctx context.Context, n Notice) error
	// Close ends calls in progress and releases resources. Notify returns [ErrClosed]
	// afterwards. It may be called more than once.
	Close()
}

// Withdrawer is a [Notifier] that can withdraw a notice. An unknown notice is no error.
type Withdrawer interface {
	Notifier
	Withdraw(ctx context.Context, id string) error
}

var (
	_ Withdrawer = (*Desktop)(nil)
	_ Notifier   = (*Command)(nil)
	_ Withdrawer = (*Fanout)(nil)
)

// clean returns the notice in a safe form. Cleaning it again changes nothing.
func (n Notice) clean() Notice {
	c := Notice{
		ID:      cleanID(n.ID),
		Title:   clean(n.Title, maxTitle, false),
		Body:    clean(n.Body, maxBody, true),
		Urgency: n.Urgency,
	}
	if c.Urgency != Low && c.Urgency != Critical {
		c.Urgency = Normal
	}
	for _, key := range slices.Sorted(maps.Keys(n.Fields)) {
		if !isKey(key) {
			continue
		}
		if len(c.Fields) == maxFields {
			break
		}
		if c.Fields == nil {
			c.Fields = make(map[string]string)
		}
		c.Fields[key] = clean(n.Fields[key], maxValue, false)
	}
	return c
}

func cleanID(id string) string { return clean(id, maxID, false) }

// isKey reports whether a key can be the end of a variable's name.
func isKey(key string) bool {
	if key == "" || len(key) > maxKey {
		return false
	}
	for i, r := range []byte(key) {
		letter := 'a' <= r|0x20 && r|0x20 <= 'z'
		if !letter && (i == 0 || r != '_' && (r < '0' || r > '9')) {
			return false
		}
	}
	return true
}
