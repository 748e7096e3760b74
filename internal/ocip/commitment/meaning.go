package commitment

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

// Telling returns the name of the finding that says most about the message, empty if there are no
// names.
func Telling(names []string) (most string) {
	weight := func(name string) float64 {
		if w, family := weights[name]; family {
			return w
		}
		return keywordWeight
	}
	for _, name := range names {
		if most == "" || weight(name) > weight(most) {
			most = name
		}
	}
	return most
}
