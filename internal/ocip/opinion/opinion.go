// Package opinion is the question to an operator's model whether a message commits somebody, and the
// form of the model's answer. The question never changes within a version; its digest is on record
// with each answer.
//
// The caller sends [Prompt] as the instruction and [Fence] of the message as the only data. It takes
// nothing from an answer that [Parse] refuses.
package opinion

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Prompt is the instruction. It contains nothing of a message.
//
//go:embed prompt.txt
var Prompt string

// Limits of an answer, in bytes.
const (
	MaxAnswer = 2048
	MaxReason = 600
)

// Schema is the form of an answer as a JSON Schema, for servers that can hold a model to one.
const Schema = `{"type":"object","properties":{"commits":{"type":"boolean"},"reason":{"type":"string","minLength":1,"maxLength":300}},"required":["commits","reason"],"additionalProperties":false}`

// PromptDigest names the instruction and the schema behind it on record. A test computes it.
const PromptDigest = "sha256:a2333397ad494a6704a3deda470297f89fdfac22e96b63c03e68a84d7c9a57e4"

// Opinion is the answer of an operator's model about a held message. Its reason is the model's text: it can
// quote the message, and nothing in it is to be trusted.
type Opinion struct {
	Commits bool   `json:"commits"`
	Reason  string `json:"reason"`
	Model   string `json:"model"`
	// PromptDigest names the question. At is when the daemon took the answer, in Unix milliseconds.
	PromptDigest string `json:"promptDigest"`
	At           int64  `json:"at"`
}

// Estimate is the guess of the rules about the words of a held message, and the model's answer.
type Estimate struct {
	// The guess, one of high, medium and low, is how likely a message that is held for its words
	// binds somebody. It is empty if no guess holds the message, and for messages from before the
	// guesses.
	ocip.Guess
	// Opinion is the answer of the operator's model, nil if there is none.
	Opinion *Opinion `json:"opinion,omitzero" doc:"The answer of the operator's model (ocip.judge) about the message. It is no person's word, and apps and agents are not told it."`
}

// Askable reports whether a model may be asked about a message: each of its grounds is open.
func Askable(grounds []ocip.Ground) bool {
	return len(grounds) > 0 && !slices.ContainsFunc(grounds, func(g ocip.Ground) bool { return !g.Open })
}

// ErrFence is the error for a message that contains its own fence.
var ErrFence = errors.New("the message contains the fence")

// Fence returns a message as data: between two lines that end in a random number. The number must be
// fresh and must not be known to the sender.
func Fence(message, random string) (string, error) {
	if random == "" || strings.Contains(message, random) {
		return "", ErrFence
	}
	return "TEXT " + random + "\n" + message + "\nEND " + random + "\n", nil
}

// Answer is a model's answer about a message.
type Answer struct {
	// Commits is set if the message commits somebody.
	Commits bool
	// Reason is one sentence of the model. Nothing in it is to be trusted, and it can quote the
	// message.
	Reason string
}

// Parse reads a model's answer. It refuses any other form than the [Schema]'s: a missing or further
// member, a text around the object, an empty or long reason.
func Parse(answer string) (a Answer, err error) {
	if len(answer) > MaxAnswer {
		return a, fmt.Errorf("it has %d bytes, and the limit is %d", len(answer), MaxAnswer)
	}
	var said struct {
		Commits *bool   `json:"commits"`
		Reason  *string `json:"reason"`
	}
	err = json.Unmarshal([]byte(answer), &said, json.RejectUnknownMembers(true), jsontext.AllowDuplicateNames(false), jsontext.AllowInvalidUTF8(false))
	switch {
	case err != nil:
		return a, errors.New(`it is no JSON object {"commits": …, "reason": "…"}`)
	case said.Commits == nil:
		return a, errors.New("commits is missing")
	case said.Reason == nil || strings.TrimSpace(*said.Reason) == "":
		return a, errors.New("reason is missing")
	case len(*said.Reason) > MaxReason:
		return a, fmt.Errorf("reason has %d characters in %d bytes, and the limit is %d bytes", utf8.RuneCountInString(*said.Reason), len(*said.Reason), MaxReason)
	}
	return Answer{Commits: *said.Commits, Reason: strings.TrimSpace(*said.Reason)}, nil
}
