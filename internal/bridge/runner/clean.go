package runner

import (
	"bytes"
	"cmp"
	"io"
	"slices"
	"strings"
)

// leastSecret is the minimum length of a variable's value that is removed from outputs.
const leastSecret = 4

// cleaner is a writer that replaces the values of the runner's variables that the command
// gets. The name of the variable takes the place of each value.
type cleaner struct {
	to io.Writer
	// secrets are the values, the longest first.
	secrets []secret
	// rest may be the beginning of a value. Its first covered bytes belong to a value that
	// was already found.
	rest    []byte
	covered int
}

type secret struct {
	value []byte
	shown string
}

func newCleaner(o *shimOrder, to io.Writer) *cleaner {
	c := &cleaner{to: to}
	for _, name := range o.Action.EnvFrom {
		// A shell drops the blanks around a value.
		if value := strings.TrimSpace(o.Env[name]); len(value) >= leastSecret {
			c.secrets = append(c.secrets, secret{[]byte(value), "[" + name + "]"})
		}
	}
	slices.SortStableFunc(c.secrets, func(a, b secret) int { return cmp.Compare(len(b.value), len(a.value)) })
	return c
}

func (c *cleaner) Write(b []byte) (int, error) {
	if len(c.secrets) == 0 {
		return c.to.Write(b)
	}
	c.rest = append(c.rest, b...)
	return len(b), c.pass(false)
}

// Close writes the rest.
func (c *cleaner) Close() error { return c.pass(true) }

// pass writes the bytes that cannot belong to a value.
func (c *cleaner) pass(all bool) error {
	var out []byte
	i := 0
	for ; i < len(c.rest); i++ {
		found, wait := c.at(c.rest[i:])
		if wait && !all {
			break
		}
		switch {
		case found != nil:
			if c.covered == 0 {
				out = append(out, found.shown...)
			}
			c.covered = max(c.covered, len(found.value))
		case c.covered == 0:
			out = append(out, c.rest[i])
		}
		c.covered = max(0, c.covered-1)
	}
	c.rest = c.rest[:copy(c.rest, c.rest[i:])]
	_, err := c.to.Write(out)
	return err
}

// at returns the longest value at the beginning of a text. wait is set if the text may be
// the beginning of a longer value.
func (c *cleaner) at(text []byte) (found *secret, wait bool) {
	for i := range c.secrets {
		switch s := &c.secrets[i]; {
		case bytes.HasPrefix(text, s.value):
			return s, wait
		case bytes.HasPrefix(s.value, text):
			wait = true
		}
	}
	return nil, wait
}
