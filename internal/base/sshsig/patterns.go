package sshsig

import (
	"errors"
	"slices"
	"strings"
)

// patterns is a pattern-list as in ssh_config(5), PATTERNS. It works on bytes,
// and case counts.
type patterns []pattern

type pattern struct {
	text    string
	negated bool
}

// parsePatterns reads patterns separated by commas. It drops empty ones, since they match no name.
// It refuses a list that has only negations, since that matches nothing.
func parsePatterns(text string) (patterns, error) {
	var list patterns
	positive := false
	for item := range strings.SplitSeq(text, ",") {
		item, negated := strings.CutPrefix(item, "!")
		if item == "" {
			continue
		}
		list = append(list, pattern{item, negated})
		positive = positive || !negated
	}
	if !positive {
		return nil, errors.New("no pattern that could match")
	}
	return list, nil
}

// match reports whether a pattern matches name and no negated one does.
func (list patterns) match(name string) bool {
	matched := false
	for _, p := range list {
		if !glob(p.text, name) {
			continue
		}
		if p.negated {
			return false
		}
		matched = true
	}
	return matched
}

// name returns a name for the signer if the caller did not ask for one: the list's first name
// without wildcards, or else the list as text. It returns "" if neither is right, because a
// negation can only be checked against a name.
func (list patterns) name() string {
	for _, p := range list {
		if !p.negated && !strings.ContainsAny(p.text, "*?") && list.match(p.text) {
			return p.text
		}
	}
	if slices.ContainsFunc(list, func(p pattern) bool { return p.negated }) {
		return ""
	}
	return list.String()
}

// String returns the list as it is written in a file.
func (list patterns) String() string {
	items := make([]string, len(list))
	for i, p := range list {
		items[i] = p.text
		if p.negated {
			items[i] = "!" + p.text
		}
	}
	return strings.Join(items, ",")
}

// glob reports whether pattern matches all of text: * is any run of bytes, ? is
// one byte. Its time is at most the product of the two lengths.
func glob(pattern, text string) bool {
	p, t := 0, 0
	star, resume := -1, 0 // the last star, and where the text behind it begins
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			resume++
			p, t = star+1, resume
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
