package members

import (
	"regexp"
	"strings"

	"github.com/openclawos/ocipd/internal/api"
)

// Form is a form that a text has.
type Form struct {
	// Name says the form in words.
	Name string
	// Pattern is a regular expression for the form, in the syntax that JSON Schema and Go share.
	Pattern string
	// fits is the pattern, as code.
	fits func(string) bool
	// problem describes a text of another form; %q stands for the text.
	problem string
}

// formOf returns a form by its name, nil if there is none.
func formOf(name string) *Form {
	switch name {
	case "session":
		return &Form{"session key", `^[^:]+:[\s\S]+$`, session, "%q is not {channelId}:{target} or agent:{agentId}:{rest}"}
	case "digest":
		return byPattern("`sha256:…`", `^sha256:[0-9a-f]{64}$`, "want sha256: and 64 digits")
	case "cursor":
		return byPattern("cursor", `^[0-9A-Za-z._-]{0,1000}[0-9A-Za-z._-]{0,1000}$`, "not the cursor of a read")
	case "process":
		return byPattern("`pid@start`", `^[1-9][0-9]{0,9}@[0-9]{1,20}$`, "%q is not the pid and the start time of a process, such as 4711@123456")
	case "app":
		return &Form{"package name", api.AppIDPattern.String(), api.AppIDPattern.MatchString, "%q is not a package name such as @acme/telegram"}
	case "version":
		return byPattern("semantic version", `^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`, "%q is not a semantic version such as 1.0.0")
	}
	return nil
}

func byPattern(name, pattern, problem string) *Form {
	return &Form{name, pattern, regexp.MustCompile(pattern).MatchString, problem}
}

// session reports whether a text is a session key. It is asked for each message.
func session(key string) bool {
	channel, rest, ok := strings.Cut(key, ":")
	return ok && channel != "" && rest != ""
}
