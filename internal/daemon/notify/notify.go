// Package notify tells a person that something waits for them: by a desktop
// notification over D-Bus ([Desktop]), by a command that may send a mail or a
// chat message ([Command]), and by both without anybody waiting ([Fanout]).
//
// Use: make the notifiers, hand them to [NewFanout], call [Fanout.Notify] when
// a request begins to wait and [Fanout.Withdraw] when it was decided, and
// [Fanout.Close] at the end.
//
// What a notice says may come from messages, so every notifier cleans it first:
// nothing in it can steer a terminal, read as something else or fill a screen.
// It cannot know what may be said at all. The caller's duty:
//
//   - Put nothing into a [Notice] that may not leave the daemon. A desktop
//     shows it on a locked screen, a command may mail it; whichever process of
//     the user owns org.freedesktop.Notifications on the session bus reads it.
//   - Treat a notice as a hint. It may be lost, come late or come twice; what
//     waits is in the store.
//
// Nothing of a notice but its ID is ever logged.
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

// Errors a caller may act on.
var (
	// ErrNoDesktop says that there is no session bus, or nothing on it that
	// shows notifications, as on a server.
	ErrNoDesktop = errors.New("no desktop to show a notification on")
	// ErrClosed says that the notifier was closed.
	ErrClosed = errors.New("notifier is closed")
)

// Notice is what a person is told. Each text is cut to its limit, in characters.
type Notice struct {
	// ID names what waits, such as an approval. A later notice with the same
	// ID takes the place of the earlier one; one without an ID stands alone.
	// Limit 128.
	ID string
	// Title is one line. Limit 120.
	Title string
	// Body may have several lines. Limit 1000.
	Body string
	// Urgency is Low, Normal or Critical.
	Urgency string
	// Fields are facts for a program to read, one line each; a desktop does
	// not show them. A key is a letter followed by up to 31 letters, digits
	// and underscores, ASCII alone; others are left out, as is what comes
	// after the 16th in the order of keys. Limit of a value 200.
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

// Notifier tells a person. Notify returns when the person was told or cannot
// be, at the latest soon after ctx ends. A Notifier logs its own failures. Its
// methods may be called from several goroutines.
type Notifier interface {
	Notify(ctx context.Context, n Notice) error
	// Close ends what is under way and gives back what is held. Notify returns
	// [ErrClosed] afterwards. It may be called more than once.
	Close()
}

// Withdrawer is a [Notifier] that can take back what it said once it no longer
// holds. A notice it does not know is no error.
type Withdrawer interface {
	Notifier
	Withdraw(ctx context.Context, id string) error
}

var (
	_ Withdrawer = (*Desktop)(nil)
	_ Notifier   = (*Command)(nil)
	_ Withdrawer = (*Fanout)(nil)
)

// clean returns the notice as it may be shown. What was cleaned stays the same
// when it is cleaned again.
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
