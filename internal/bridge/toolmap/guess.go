package toolmap

import (
	"slices"
	"strings"
	"unicode"
)

// Usual names of arguments that hold texts and recipients.
var (
	titleNames = []string{"subject", "title"}
	textNames  = []string{"text", "message", "body", "content", "html", "htmlBody", "msg", "comment", "messageText", "note"}
	toNames    = []string{
		"to", "cc", "bcc", "recipient", "recipients", "channel", "channelId", "channelName", "chat", "chatId", "conversation", "conversationId", "room", "roomId",
		"threadId", "userId", "user", "username", "email", "emails", "phone", "phoneNumber", "number", "target", "issueNumber", "session", "address", "jid",
		"receiver", "receivers", "recipientId", "recipientIds", "toUser", "toEmail", "pullNumber", "issueId", "issueKey", "spaceId", "groupId", "topicId", "postId", "channelIds", "chatGuid",
	}
)

func among(list []string, name string) bool {
	return slices.ContainsFunc(list, func(usual string) bool { return folded(usual) == folded(name) })
}

// Guess derives a tool from the names of its arguments. It returns nil if the tool does not
// seem to send messages.
func Guess(arguments []string) *Tool {
	var t Tool
	for _, name := range arguments {
		switch {
		case among(titleNames, name):
			t.Title = append(t.Title, name)
		case among(textNames, name):
			t.Text = append(t.Text, name)
		case among(toNames, name):
			t.To = append(t.To, "{"+name+"}")
		}
	}
	if len(t.Text) == 0 {
		t.Text, t.Title = t.Title, nil
	}
	if len(t.Text) == 0 || len(t.To) == 0 {
		return nil
	}
	t.Guessed = true
	slices.Sort(t.Title)
	slices.Sort(t.Text)
	slices.Sort(t.To)
	return &t
}

// GuessAll is [Guess] for all arguments that a tool declares.
func GuessAll(arguments []string) *Tool {
	t := Guess(arguments)
	if t == nil {
		return nil
	}
	known := t.Arguments()
	for _, name := range arguments {
		if !slices.Contains(known, name) {
			t.With = append(t.With, name)
		}
	}
	return t
}

// maxWord bounds a text that is a name or an id, in bytes. maxWords bounds the words, and maxSaid the bytes, of
// all texts of a call together: a list of words can say as much as a sentence.
const (
	maxWord  = 64
	maxWords = 32
	maxSaid  = 1 << 10
)

// SaysText reports whether arguments contain a text: a usual name for texts at any depth, a
// value that is longer than a name, or many words one by one. The names of arguments and
// members count too, because a caller can choose them to carry text.
func SaysText(arguments ...Member) bool {
	words, size := 0, 0
	for i := range arguments {
		a := &arguments[i]
		if wordy(a.Name) {
			return true
		}
		words, size = words+1, size+len(a.Name)
		for _, s := range saysOf(a) {
			switch {
			case !s.text:
				continue
			case wordy(s.value), !s.member && (among(textNames, s.name) || among(titleNames, s.name)):
				return true
			case s.member:
				words++
			default:
				words += wordsIn(s.value)
			}
			size += len(s.value)
		}
	}
	return words > maxWords || size > maxSaid
}

// wordsIn counts the words of a value. Parts with digits are ids.
func wordsIn(value string) (n int) {
	for part := range strings.FieldsFuncSeq(value, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(part) > 1 && !strings.ContainsFunc(part, unicode.IsDigit) {
			n++
		}
	}
	return n
}

// wordy reports whether a text can be more than a name or an id, which are short ASCII
// words. Many languages have no spaces between words.
func wordy(text string) bool {
	return len(text) > maxWord || strings.ContainsFunc(text, func(r rune) bool { return r > unicode.MaxASCII || unicode.IsSpace(r) })
}
