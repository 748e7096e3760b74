package commitment

import (
	"slices"
	"strings"
)

// languageNames are the names of the families of languages.
var languageNames = map[string]string{
	German: "German", Spanish: "Spanish", French: "French", Italian: "Italian", Japanese: "Japanese", Dutch: "Dutch", Portuguese: "Portuguese", Chinese: "Chinese",
}

// meanings complete the sentence "It …" about a message with a finding of the family.
var meanings = map[string]string{
	FirstPersonFuture: "seems to promise something",
	Acceptance:        "seems to accept something",
	Money:             "seems to spend or offer money",
	Prefixed:          "has a word that can commit somebody",
	Derived:           "has a word that can commit somebody",
	Pledge:            "seems to bind its sender",
	Done:              "seems to report a decision as done",
	NextStep:          "announces the sender's next step",
	Evidence:          "seems to commit somebody, by many weak signs",
	Unreadable:        "has a part that nobody here can read",
	RuleKeyword:       "has a word that can commit somebody",
}

// Meaning says what a message seems to do by a finding: the words after "It". Name is that of a
// family or of a keyword.
func Meaning(name string) string {
	if language, of := languageNames[name]; of {
		return "seems to promise something in " + language
	}
	if meaning, of := meanings[name]; of {
		return meaning
	}
	return meanings[RuleKeyword]
}

// InWords turns the reasons of a [Score] or a [Weighed] into words for people. A family's name becomes
// a statement about the message; a name that says no more than that a word was found is left out.
func InWords(reasons []string) (said []string) {
	for _, reason := range reasons {
		if reason == RuleKeyword || slices.Contains(Families(), reason) {
			if reason = Meaning(reason); reason == meanings[RuleKeyword] {
				continue
			}
			reason = "it " + reason
		}
		if reason = strings.TrimSpace(reason); reason != "" && !slices.Contains(said, reason) {
			said = append(said, reason)
		}
	}
	return said
}

// telling lists the families whose findings say most about a message, beginning with the first.
var telling = []string{
	Acceptance, Pledge, FirstPersonFuture, Money, Done, German, Spanish, French, Italian, Japanese, Dutch, Portuguese, Chinese, Evidence, RuleKeyword,
}

// Telling returns the name of the finding that says most about the message, empty if there are no
// names.
func Telling(names []string) (most string) {
	place := func(name string) int {
		switch name {
		case NextStep, Unreadable:
			return len(telling)
		}
		if at := slices.Index(telling, name); at >= 0 {
			return at
		}
		return len(telling) - 1
	}
	for _, name := range names {
		if most == "" || place(name) < place(most) {
			most = name
		}
	}
	return most
}
