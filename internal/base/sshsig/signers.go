package sshsig

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// maxLineBytes bounds a line of an allowed_signers file. The longest key, RSA
// of 16384 bits, takes less than 3 KiB.
const maxLineBytes = 64 << 10

// Signers is a list of keys and of the rights of each. It does not change.
type Signers struct {
	lines   []line
	origins []string // of pages on which browsers may ask for signatures
}

// line is one line of an allowed_signers file.
type line struct {
	number     int
	principals patterns
	namespaces patterns // none: any
	// after and before are the first and the last second in which the key is
	// valid; zero is no bound.
	after, before time.Time
	authority     bool // the key signs certificates, and nothing else
	noTouch       bool // FIDO: no touch needed
	verified      bool // FIDO: PIN or biometrics needed
	key           ssh.PublicKey
}

// Signer is one line of an allowed_signers file: the people, their key, and its period of validity.
type Signer struct {
	// Line is the line's number, from 1. Principals and Namespaces are the patterns of that line,
	// without quotes. An empty Namespaces allows any.
	Line       int    `json:"line"`
	Principals string `json:"principals"`
	Namespaces string `json:"namespaces,omitzero"`
	// Fingerprint is the key's, as ssh-keygen -l prints it, and Type is the key's type. For an
	// authority, they describe the key that signs certificates; the certificates have the keys of
	// principals.
	Fingerprint string `json:"fingerprint"`
	Type        string `json:"type"`
	Authority   bool   `json:"authority,omitzero"`
	// ValidAfter and ValidBefore are the first and the last second in which the key is valid,
	// in UTC; zero is no bound.
	ValidAfter  time.Time `json:"validAfter,omitzero"`
	ValidBefore time.Time `json:"validBefore,omitzero"`
}

// Each returns at most that many lines of the list, in order.
func (s *Signers) Each(most int) []Signer {
	list := make([]Signer, 0, min(len(s.lines), most))
	for _, l := range s.lines[:min(len(s.lines), most)] {
		list = append(list, Signer{
			Line: l.number, Principals: l.principals.String(), Namespaces: l.namespaces.String(), Fingerprint: ssh.FingerprintSHA256(l.key), Type: l.key.Type(),
			Authority: l.authority, ValidAfter: l.after.UTC(), ValidBefore: l.before.UTC(),
		})
	}
	return list
}

// Len returns the number of lines.
func (s *Signers) Len() int { return len(s.lines) }

// ParseAllowedSigners reads a file in the format ALLOWED SIGNERS of ssh-keygen(1). Each line is
//
//	PRINCIPALS [OPTIONS] KEYTYPE BASE64 [COMMENT]
//
// Principals and the value of namespaces are patterns with * and ?, separated by commas; a pattern
// after ! excludes names. Principals may stand in double quotes. The options are cert-authority,
// namespaces="…", valid-after="…", valid-before="…", and for FIDO keys no-touch-required and
// verify-required. A time is YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, in the zone of this machine
// or, with a trailing Z, in UTC.
//
// One line makes the whole file invalid if it cannot be read, could match nobody, or has a key that
// is too weak; the error names the line. An empty file is a list of no signers.
func ParseAllowedSigners(r io.Reader) (*Signers, error) {
	s := &Signers{}
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLineBytes)
	number := 0
	for scanner.Scan() {
		number++
		text := strings.Trim(scanner.Text(), " \t\r")
		if text == "" || text[0] == '#' {
			continue
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("cannot read allowed signers: line %d: %w", number, err)
		}
		l.number = number
		s.lines = append(s.lines, l)
	}
	switch err := scanner.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("cannot read allowed signers: line %d: longer than %d bytes", number+1, maxLineBytes)
	case err != nil:
		return nil, fmt.Errorf("cannot read allowed signers: %w", err)
	}
	return s, nil
}

// parseLine reads a line that is neither empty nor a comment.
func parseLine(text string) (line, error) {
	if _, err := parseKey(text); err == nil {
		return line{}, errors.New("no principals before the key: name the people who may sign with it")
	}
	var l line
	principals, rest, err := cutPrincipals(text)
	if err != nil {
		return line{}, err
	}
	if l.principals, err = parsePatterns(principals); err != nil {
		return line{}, fmt.Errorf("principals %q: %w", principals, err)
	}
	if rest == "" {
		return line{}, errors.New("no key: a line is PRINCIPALS [OPTIONS] KEYTYPE BASE64")
	}
	if !looksLikeKeyType(rest) {
		if rest, err = l.parseOptions(rest); err != nil {
			return line{}, err
		}
	}
	if l.key, err = parseKey(rest); err != nil {
		return line{}, err
	}
	return l, l.check()
}

// check checks the options of a line against each other and against its key.
func (l *line) check() error {
	if !l.after.IsZero() && !l.before.IsZero() && !l.after.Before(l.before) {
		return errors.New("valid-before is not later than valid-after")
	}
	if !l.authority && !isFIDO(l.key) && (l.noTouch || l.verified) {
		return fmt.Errorf("no-touch-required and verify-required are for FIDO keys, and %s is none", l.key.Type())
	}
	return nil
}

// cutPrincipals takes the first field off a line.
func cutPrincipals(text string) (field, rest string, err error) {
	if quoted, ok := strings.CutPrefix(text, `"`); ok {
		if field, rest, ok = strings.Cut(quoted, `"`); !ok {
			return "", "", errors.New("principals: no closing quote")
		}
		if rest != "" && !isBlank(rest[0]) {
			return "", "", errors.New("principals: no blank after the closing quote")
		}
	} else {
		field, rest = cutField(text)
		if strings.Contains(field, `"`) {
			return "", "", errors.New("principals: a quote in the middle: quote all of them or none")
		}
	}
	return field, strings.TrimLeft(rest, " \t"), nil
}

// cutField splits text at its first run of blanks.
func cutField(text string) (field, rest string) {
	if i := strings.IndexAny(text, " \t"); i >= 0 {
		return text[:i], strings.TrimLeft(text[i:], " \t")
	}
	return text, ""
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// looksLikeKeyType reports whether text begins with the name of a key type, known or not. No option
// begins like one.
func looksLikeKeyType(text string) bool {
	return strings.HasPrefix(text, "ssh-") || strings.HasPrefix(text, "ecdsa-") || strings.HasPrefix(text, "sk-")
}

// parseOptions reads the options at the start of text and returns the rest.
func (l *line) parseOptions(text string) (rest string, err error) {
	seen := map[string]bool{}
	for {
		end := strings.IndexAny(text, "=, \t")
		if end < 0 {
			end = len(text)
		}
		name, value, valued := strings.ToLower(text[:end]), "", false
		text = text[end:]
		if quoted, ok := strings.CutPrefix(text, "="); ok {
			valued = true
			if value, text, err = unquote(quoted); err != nil {
				return "", fmt.Errorf("option %s: %w", name, err)
			}
		}
		if seen[name] {
			return "", fmt.Errorf("option %s is given twice", name)
		}
		seen[name] = true
		if err := l.set(name, value, valued); err != nil {
			return "", err
		}
		switch {
		case text == "":
			return "", errors.New("no key after the options")
		case isBlank(text[0]):
			return strings.TrimLeft(text, " \t"), nil
		case text[0] != ',':
			return "", fmt.Errorf("option %s: no comma and no blank behind it", name)
		}
		text = text[1:]
	}
}

// unquote reads a value in double quotes, in which \" stands for a quote.
func unquote(text string) (value, rest string, err error) {
	text, ok := strings.CutPrefix(text, `"`)
	if !ok {
		return "", "", errors.New("no quote before the value")
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '"':
			return b.String(), text[i+1:], nil
		case strings.HasPrefix(text[i:], `\"`):
			i++
		}
		b.WriteByte(text[i])
	}
	return "", "", errors.New("no closing quote")
}

// set takes one option. Its name is in lower case.
func (l *line) set(name, value string, valued bool) (err error) {
	switch name {
	case "cert-authority", "no-touch-required", "verify-required":
		if valued {
			return fmt.Errorf("option %s takes no value", name)
		}
	case "namespaces", "valid-after", "valid-before":
		if !valued {
			return fmt.Errorf(`option %s has no value: write %[1]s="…"`, name)
		}
	}
	switch name {
	case "cert-authority":
		l.authority = true
	case "no-touch-required":
		l.noTouch = true
	case "verify-required":
		l.verified = true
	case "namespaces":
		l.namespaces, err = parsePatterns(value)
	case "valid-after":
		l.after, err = parseTime(value, time.Local)
	case "valid-before":
		l.before, err = parseTime(value, time.Local)
	default:
		return fmt.Errorf("unknown option %q", name)
	}
	if err != nil {
		return fmt.Errorf("option %s %q: %w", name, value, err)
	}
	return nil
}

// parseTime reads a time as in ssh-keygen(1), ALLOWED SIGNERS: in zone, or in UTC if the text says
// so. Unlike ssh-keygen it accepts no day that the month does not have.
func parseTime(text string, zone *time.Location) (time.Time, error) {
	digits := text
	for _, suffix := range []string{"Z", "UTC"} {
		if at := len(text) - len(suffix); at > 0 && strings.EqualFold(text[at:], suffix) {
			digits, zone = text[:at], time.UTC
		}
	}
	const layout = "20060102150405"
	switch len(digits) {
	case len("YYYYMMDD"), len("YYYYMMDDHHMM"), len("YYYYMMDDHHMMSS"):
		t, err := time.ParseInLocation(layout[:len(digits)], digits, zone)
		if err == nil && t.Unix() > 0 {
			return t, nil
		}
	}
	return time.Time{}, errors.New("no time: write YYYYMMDD, YYYYMMDDHHMM or YYYYMMDDHHMMSS, with Z behind it for UTC")
}

// parseKey reads KEYTYPE BASE64 [COMMENT].
func parseKey(text string) (ssh.PublicKey, error) {
	keyType, rest := cutField(text)
	encoded, _ := cutField(rest)
	if !looksLikeKeyType(keyType) || encoded == "" {
		return nil, errors.New("no key: a line is PRINCIPALS [OPTIONS] KEYTYPE BASE64")
	}
	blob, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	if key.Type() != keyType {
		return nil, fmt.Errorf("key: of type %s, but the line says %s", key.Type(), keyType)
	}
	if _, ok := key.(*ssh.Certificate); ok {
		return nil, errors.New("key: a certificate: list the key itself, or its authority with cert-authority")
	}
	if err := strong(key); err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	return key, nil
}
