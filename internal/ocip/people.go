package ocip

import "time"

// PeopleRules are what holds towards counterparties that are no agents. The zero
// value holds nothing back.
type PeopleRules struct {
	// Commitments holds messages that promise something.
	Commitments bool
	// Policy has the policy asked.
	Policy bool
	// FirstContact is what becomes of the first message to a counterparty.
	FirstContact FirstContact
	// MaxMessages, when above zero, is how many messages a session may take within
	// the Window; those beyond it are held.
	MaxMessages int
	Window      time.Duration
}

// FirstContact says what becomes of the first message to a counterparty.
type FirstContact string

// The three answers to a first message. None given allows it.
const (
	ContactAllow FirstContact = "allow"
	ContactHold  FirstContact = "hold"
	ContactDeny  FirstContact = "deny"
)

// LookAlike says what becomes of a message to a key that imitates a known one.
type LookAlike string

// The three answers to a look-alike. None given holds it.
const (
	LookAlikeHold  LookAlike = "hold"
	LookAlikeDeny  LookAlike = "deny"
	LookAlikeAllow LookAlike = "allow"
)
