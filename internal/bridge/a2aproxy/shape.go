package a2aproxy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// leaf is the meaning of a value of the protocol.
type leaf int

const (
	// anID is an id or a word of the protocol. One of another form is a text.
	anID leaf = iota
	// aText is a text of a part.
	aText
	// bytesOf is a file in base64.
	bytesOf
	// free is any JSON value, with texts in it.
	free
	// aNumber and aFlag hold no text.
	aNumber
	aFlag
	// aHook is a webhook's address, or what authenticates there.
	aHook
)

// shape describes one object of the protocol: its members, in both versions.
type shape struct {
	name    string
	leaves  map[string]leaf
	objects map[string]*shape
	// lists are lists of objects, and words lists of ids.
	lists map[string]*shape
	words []string
	// unit is set for an object that is decided once: a message or an artifact.
	unit bool
	// loose is set for an object of which nothing is known.
	loose bool
	// extended is set if the object's metadata may have the extension's member.
	extended bool
}

var (
	anyShape  = &shape{name: "answer", loose: true}
	errShape  = &shape{name: "error", loose: true}
	fileShape = &shape{name: "file", leaves: map[string]leaf{"bytes": bytesOf, "uri": free, "name": free, "mimeType": anID}}
	partShape = &shape{
		name:    "part",
		leaves:  map[string]leaf{"text": aText, "raw": bytesOf, "url": free, "data": free, "metadata": free, "filename": free, "mediaType": anID, "kind": anID},
		objects: map[string]*shape{"file": fileShape},
	}
	messageShape = &shape{
		name: "message", unit: true, extended: true,
		leaves: map[string]leaf{"messageId": anID, "contextId": anID, "taskId": anID, "role": anID, "metadata": free, "kind": anID},
		lists:  map[string]*shape{"parts": partShape}, words: []string{"extensions", "referenceTaskIds"},
	}
	configurationShape = &shape{
		name:    "configuration",
		leaves:  map[string]leaf{"historyLength": aNumber, "returnImmediately": aFlag, "blocking": aFlag},
		words:   []string{"acceptedOutputModes"},
		objects: map[string]*shape{"taskPushNotificationConfig": configShape, "pushNotificationConfig": configShape},
	}
	sendShape = &shape{
		name: "SendMessageRequest", leaves: map[string]leaf{"tenant": anID, "metadata": free},
		objects: map[string]*shape{"message": messageShape, "configuration": configurationShape},
	}
	taskShape = &shape{name: "request", leaves: map[string]leaf{"tenant": anID, "id": anID, "historyLength": aNumber, "metadata": free}}
	listShape = &shape{name: "ListTasksRequest", leaves: map[string]leaf{
		"tenant": anID, "contextId": anID, "status": anID, "pageSize": aNumber, "pageToken": anID, "historyLength": aNumber, "statusTimestampAfter": anID, "includeArtifacts": aFlag,
	}}
	tenantShape = &shape{name: "request", leaves: map[string]leaf{"tenant": anID}}
	pushShape   = &shape{name: "request", leaves: map[string]leaf{
		"tenant": anID, "id": anID, "taskId": anID, "pageSize": aNumber, "pageToken": anID, "pushNotificationConfigId": anID, "metadata": free,
		"url": aHook, "token": aHook, "authentication": aHook,
	}, objects: map[string]*shape{"pushNotificationConfig": innerConfigShape}}
	// configShape is the configuration of a webhook. In version 0.3 it stands in a member.
	innerConfigShape = &shape{name: "configuration", leaves: map[string]leaf{"id": anID, "url": aHook, "token": aHook, "authentication": aHook}}
	configShape      = &shape{
		name: "configuration", leaves: map[string]leaf{"tenant": anID, "id": anID, "taskId": anID, "url": aHook, "token": aHook, "authentication": aHook},
		objects: map[string]*shape{"pushNotificationConfig": innerConfigShape},
	}
	configsShape = &shape{name: "answer", leaves: map[string]leaf{"nextPageToken": anID}, lists: map[string]*shape{"configs": configShape}}

	statusShape   = &shape{name: "status", leaves: map[string]leaf{"state": anID, "timestamp": anID}, objects: map[string]*shape{"message": messageShape}}
	artifactShape = &shape{
		name: "artifact", unit: true, leaves: map[string]leaf{"artifactId": anID, "name": free, "description": free, "metadata": free},
		lists: map[string]*shape{"parts": partShape}, words: []string{"extensions"},
	}
	aTaskShape = &shape{
		name: "task", extended: true, leaves: map[string]leaf{"id": anID, "contextId": anID, "metadata": free, "kind": anID},
		objects: map[string]*shape{"status": statusShape}, lists: map[string]*shape{"artifacts": artifactShape, "history": messageShape},
	}
	statusUpdateShape = &shape{
		name: "statusUpdate", extended: true, leaves: map[string]leaf{"taskId": anID, "contextId": anID, "metadata": free, "final": aFlag, "kind": anID},
		objects: map[string]*shape{"status": statusShape},
	}
	artifactUpdateShape = &shape{
		name: "artifactUpdate", extended: true,
		leaves:  map[string]leaf{"taskId": anID, "contextId": anID, "metadata": free, "append": aFlag, "lastChunk": aFlag, "kind": anID},
		objects: map[string]*shape{"artifact": artifactShape},
	}
	// answerShape is the answer to a message in version 1.0. In version 0.3 the object itself
	// stands in its place, see kinds.
	answerShape = &shape{name: "answer", objects: map[string]*shape{
		"task": aTaskShape, "message": messageShape, "statusUpdate": statusUpdateShape, "artifactUpdate": artifactUpdateShape,
	}}
	taskResultShape = aTaskShape
	tasksShape      = &shape{name: "ListTasksResponse", leaves: map[string]leaf{"nextPageToken": anID, "pageSize": aNumber, "totalSize": aNumber}, lists: map[string]*shape{"tasks": aTaskShape}}
)

// kinds are the objects of version 0.3, by their member kind.
var kinds = map[string]*shape{"task": aTaskShape, "message": messageShape, "status-update": statusUpdateShape, "artifact-update": artifactUpdateShape}

// of returns the form of an answer.
func (s *shape) of(n *node) *shape {
	if kind := n.get("kind"); s == answerShape && kind != nil {
		if of, ok := kinds[kind.text]; ok {
			return of
		}
	}
	if s == configsShape && n.kind == '[' { // in version 0.3
		return anyShape
	}
	return s
}

// visitor takes the values of an object in order.
type visitor struct {
	// strict refuses members that the protocol does not have. Without it they are free.
	strict bool
	leaf   func(at string, l leaf, n *node) error
	// unit, if set, is asked about each message and artifact, and reports whether to go in.
	unit func(s *shape, n *node) bool
	// open, if set, takes each object that can have the extension's member.
	open func(at string, n *node)
}

// walk visits an object of the protocol.
func (v *visitor) walk(at string, s *shape, n *node) error {
	s = s.of(n)
	if s.loose && !v.strict {
		return v.leaf(at, free, n)
	}
	if n.kind != '{' {
		return fmt.Errorf("%s is no object", cmp.Or(at, "it"))
	}
	if s.unit && v.unit != nil && !v.unit(s, n) {
		return nil
	}
	if s.extended && v.open != nil {
		v.open(at, n)
	}
	for i, name := range n.names {
		if err := v.member(strings.TrimPrefix(at+"."+name, "."), name, s, n.kids[i]); err != nil {
			return err
		}
	}
	return nil
}

func (v *visitor) member(at, name string, s *shape, n *node) error {
	if of, ok := s.objects[name]; ok && n.kind != 'n' {
		return v.walk(at, of, n)
	}
	if of, ok := s.lists[name]; ok && n.kind != 'n' {
		if n.kind != '[' {
			return fmt.Errorf("%s is no list", at)
		}
		for i, kid := range n.kids {
			if err := v.walk(fmt.Sprintf("%s[%d]", at, i), of, kid); err != nil {
				return err
			}
		}
		return nil
	}
	for _, word := range s.words {
		if word == name && n.kind == '[' {
			for _, kid := range n.kids {
				if err := v.value(at, anID, kid); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if l, ok := s.leaves[name]; ok {
		return v.value(at, l, n)
	}
	if n.kind == 'n' && s.has(name) {
		return nil
	}
	if v.strict {
		return fmt.Errorf("the protocol has no member %.200q in a %s", at, s.name)
	}
	for _, known := range s.known() {
		if toolmap.Bare(known) == toolmap.Bare(name) {
			return fmt.Errorf("%w: %.200q is not %q", errMalformed, name, known)
		}
	}
	// The name of such a member is a text too, with any value.
	return v.leaf(at, free, &node{kind: '{', names: []string{name}, kids: []*node{n}})
}

// maxDigits bounds a number of the protocol, which is one of 32 bits.
const maxDigits = 10

// value checks the type of a value.
func (v *visitor) value(at string, l leaf, n *node) error {
	ok := true
	switch l {
	case anID, bytesOf, aText:
		ok = n.kind == '"' || n.kind == 'n'
	case aNumber:
		ok = n.kind == '0' && len(n.raw) <= maxDigits && strings.Trim(string(n.raw), "0123456789") == "" || n.kind == 'n'
	case aFlag:
		ok = n.kind == 't' || n.kind == 'f' || n.kind == 'n'
	case free, aHook:
	}
	if !ok {
		return fmt.Errorf("%s has the wrong type", at)
	}
	return v.leaf(at, l, n)
}

func (s *shape) known() (names []string) {
	for name := range s.leaves {
		names = append(names, name)
	}
	for name := range s.objects {
		names = append(names, name)
	}
	for name := range s.lists {
		names = append(names, name)
	}
	return append(names, s.words...)
}

func (s *shape) has(name string) bool {
	return slices.Contains(s.known(), name)
}

// maxPlain bounds an id or a word of the protocol.
const maxPlain = 128

// isPlain reports whether a text is an id or a word of the protocol: it has no blanks, and
// only letters, digits and a few signs.
func isPlain(s string) bool {
	return s != "" && len(s) <= maxPlain && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._~:+/*", r)
	})
}

// Bounds for the parts of an id that says nothing: hexadecimal digits, and other letters and
// digits.
const maxHex, maxRun = 32, 12

// isBare reports whether an id is made of hexadecimal digits and short words alone.
func isBare(id string) bool {
	isSign := func(r rune) bool { return strings.ContainsRune("-._~:+/*", r) }
	for run := range strings.FieldsFuncSeq(id, isSign) {
		hex := strings.Trim(run, "0123456789abcdefABCDEF") == ""
		if hex && len(run) > maxHex || !hex && len(run) > maxRun {
			return false
		}
	}
	return true
}
