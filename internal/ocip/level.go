package ocip

import (
	"fmt"
	"strings"
)

// Level is a classification level. Levels are ordered: a higher one may be shared with fewer
// counterparties.
type Level uint8

// The four levels of the protocol, lowest first.
const (
	Public Level = iota
	Internal
	Confidential
	Restricted
)

var levelNames = [...]string{"public", "internal", "confidential", "restricted"}

// Levels lists every level, lowest first.
func Levels() []Level { return []Level{Public, Internal, Confidential, Restricted} }

// ParseLevel reads a level by its protocol name. The match is exact: a level that is nearly right
// is an error, never a guess.
func ParseLevel(s string) (Level, error) {
	for i, name := range levelNames {
		if s == name {
			return Level(i), nil
		}
	}
	return Restricted, fmt.Errorf("unknown classification %q, want one of %s", s, strings.Join(levelNames[:], ", "))
}

// String returns the protocol name of the level.
func (l Level) String() string {
	if int(l) < len(levelNames) {
		return levelNames[l]
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// UpTo lists the levels from public up to and including l, as in capabilities.can_share.
func (l Level) UpTo() []Level {
	all := Levels()
	if int(l) >= len(all) {
		return all
	}
	return all[:l+1]
}

// AppendText appends the protocol name.
func (l Level) AppendText(b []byte) ([]byte, error) {
	if int(l) >= len(levelNames) {
		return b, fmt.Errorf("cannot encode classification %d: no such level", uint8(l))
	}
	return append(b, levelNames[l]...), nil
}

// MarshalText writes the protocol name.
func (l Level) MarshalText() ([]byte, error) { return l.AppendText(nil) }

// UnmarshalText reads the protocol name, with the error of [ParseLevel].
func (l *Level) UnmarshalText(b []byte) error {
	parsed, err := ParseLevel(string(b))
	if err != nil {
		return err
	}
	*l = parsed
	return nil
}
