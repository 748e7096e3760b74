package task

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Missing is one thing that a spec lacks.
type Missing struct {
	Field   string `json:"field"`
	Problem string `json:"problem"`
	// Entry is which one of the field, from 1, and Reason what to mend. Both are of weak
	// entries alone.
	Entry  int    `json:"entry,omitzero"`
	Reason string `json:"reason,omitzero"`
}

// String says it in a sentence's part.
func (m Missing) String() string {
	switch m.Problem {
	case ProblemWeak:
		return fmt.Sprintf("%s %d is weak: %s", m.Field, m.Entry, m.Reason)
	default:
		return m.Field + " is " + m.Problem
	}
}

// The problems of a spec's field.
const (
	ProblemAbsent = "absent"
	ProblemEmpty  = "empty"
	ProblemWeak   = "weak"
)

// list is one of a spec's lists.
type list struct {
	name string
	of   func(*Fields) *[]string
	// bare lists may have no entries.
	bare bool
}

func lists() []list {
	return []list{
		{"scope_in", func(f *Fields) *[]string { return &f.ScopeIn }, false},
		{"scope_out", func(f *Fields) *[]string { return &f.ScopeOut }, true},
		{"inputs", func(f *Fields) *[]string { return &f.Inputs }, true},
		{"outputs", func(f *Fields) *[]string { return &f.Outputs }, false},
		{"acceptance_criteria", func(f *Fields) *[]string { return &f.AcceptanceCriteria }, false},
		{"risks", func(f *Fields) *[]string { return &f.Risks }, true},
	}
}

// Missing lists what the task's spec lacks before anybody may work on it.
func (t *Task) Missing() []Missing { return t.Spec().Missing(t.Title) }

// Missing lists what the fields lack, under the title of their task.
func (f *Fields) Missing(title string) []Missing {
	missing := []Missing{}
	switch strings.TrimSpace(f.Goal) {
	case "":
		problem := ProblemAbsent
		if f.Goal != "" {
			problem = ProblemEmpty
		}
		missing = append(missing, Missing{Field: "goal", Problem: problem})
	}
	for _, l := range lists() {
		entries := *l.of(f)
		switch {
		case entries == nil:
			missing = append(missing, Missing{Field: l.name, Problem: ProblemAbsent})
		case !slices.ContainsFunc(entries, says) && (!l.bare || len(entries) > 0):
			missing = append(missing, Missing{Field: l.name, Problem: ProblemEmpty})
		}
	}
	seen := map[string]string{folded(f.Goal): "the goal", folded(title): "the title"}
	delete(seen, "")
	for i, c := range f.AcceptanceCriteria {
		reason := weakness(c)
		if other, ok := seen[folded(c)]; ok && reason == "" {
			reason = "it says what " + other + " says"
		}
		seen[folded(c)] = fmt.Sprintf("criterion %d", i+1)
		if reason != "" && says(c) {
			missing = append(missing, Missing{Field: "acceptance_criteria", Problem: ProblemWeak, Entry: i + 1, Reason: reason})
		}
	}
	return missing
}

func says(s string) bool { return strings.TrimSpace(s) != "" }

func folded(s string) string { return strings.ToLower(strings.Join(strings.Fields(s), " ")) }

// weakness is why nobody could tell whether a criterion is met, or "". It looks at the form alone: a
// criterion can pass and be wrong.
func weakness(c string) string {
	c = canonical(strings.TrimSpace(c))
	switch vague, open := trimmed(known().vague.find(c)), trimmed(known().open.find(c)); {
	case short(c):
		return "it is too short, with fewer than 3 words or 15 letters, 8 in Chinese, Japanese or Korean: say what is checked, and how"
	case open != "":
		return fmt.Sprintf("it has %q: decide it", open)
	case vague != "" && !checkable.MatchString(c):
		return fmt.Sprintf("%q can not be checked: name a number, a command, a text or a path", vague)
	}
	return ""
}

func letterOrDigit(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// trimmed is a match without the characters around it.
func trimmed(match string) string {
	return strings.TrimFunc(match, func(r rune) bool { return unicode.IsSpace(r) || r != '?' && unicode.IsPunct(r) })
}

// Text is the content of the spec, without its author and origin.
func (s *Spec) Text() any {
	return struct {
		Fields
		Markdown string `json:"markdown,omitzero"`
	}{s.Fields, s.Markdown}
}

// Size is how many bytes the spec takes.
func (s *Spec) Size() int {
	size := len(s.Markdown) + len(s.Goal)
	for _, l := range lists() {
		for _, e := range *l.of(&s.Fields) {
			size += len(e)
		}
	}
	return size
}

// Oversized names the part of the spec over its limit, "" for none.
func (s *Spec) Oversized() string {
	if s.Size() > MaxSpecBytes {
		return fmt.Sprintf("the spec is larger than %d bytes", MaxSpecBytes)
	}
	for _, l := range lists() {
		if len(*l.of(&s.Fields)) > MaxEntries {
			return fmt.Sprintf("%s has more than %d entries", l.name, MaxEntries)
		}
	}
	return ""
}

// Given reports whether any field is there.
func (f *Fields) Given() bool {
	if f.Goal != "" {
		return true
	}
	return slices.ContainsFunc(lists(), func(l list) bool { return *l.of(f) != nil })
}
