package a2aproxy

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// Extension is the protocol extension in which envelopes go along: the key in the metadata of
// a message, task or event, and the URI in an agent card.
const Extension = "https://github.com/openclawos/ocipd/a2a/ocip/v1"

// annotations are the members of the extension, which are the daemon's members of metadata.
var annotations = []string{"ocip", "exchange", "ocipChain", "ocipLog", "aiDisclosure"}

// between separates the texts of a message.
const between = "\n\n"

// said is a request or an answer as a message for the daemon. The texts of the parts are its
// content; metadata.a2a holds the rest.
type said struct {
	texts, blobs []*node
	// files are the contents of the blobs.
	files []*node
	// sizes are the lengths of the texts in the content, in bytes. A text of glued follows the
	// one before without a break: both are pieces of one artifact.
	sizes   []int
	glued   map[int]bool
	glue    bool
	content string
	// whole is set if there are no texts. Then the content is the rest, and is the same before
	// and after the decision.
	whole bool
	// rest is everything else, without the texts and files.
	rest *node
	// envelope is the extension's member, if there is one.
	envelope *node
	// places are the objects that can have that member, the first one first. home is the index of
	// the one that has it.
	places []*node
	home   int
	// fresh is set if anything is said at all that was not decided before.
	fresh bool
	// digests are those of the messages and artifacts in it.
	digests [][sha256.Size]byte
}

// kept is metadata.a2a.
type kept struct {
	Method string         `json:"method"`
	Params jsontext.Value `json:"params"`
	Sizes  []int          `json:"sizes,omitempty"`
	Sum    uint32         `json:"sum"`
}

// say reads a request or an answer of the form s. known reports messages and artifacts that
// were decided before; they are left out. passes reports ids that need no decision.
func say(name string, s *shape, n *node, strict bool, known func([sha256.Size]byte) bool, passes func(string) bool) (*said, error) {
	out := &said{rest: objectNode(), glued: make(map[int]bool)}
	s = s.of(n)
	copied := n.clone()
	var rest []*node // units, in copies
	var loose []*node
	collect := func(at string, l leaf, n *node) error {
		more, err := out.collect(at, l, n, strict, passes)
		if more {
			loose = append(loose, n)
		}
		return err
	}
	if err := out.unwrap(s, copied, strict); err != nil {
		return nil, err
	}
	inner := &visitor{strict: strict, leaf: collect}
	var failed error
	artifact := ""
	v := &visitor{strict: strict, leaf: collect, open: func(_ string, n *node) {
		of, more := textOf(n.get("artifact"), "artifactId"), n.get("append")
		out.glue = of != "" && of == artifact && more != nil && more.kind == 't' && len(out.texts) > 0
		artifact = of
	}, unit: func(of *shape, unit *node) bool {
		sum := unit.digest()
		out.digests = append(out.digests, sum)
		if known(sum) {
			for _, name := range belongs {
				if id := unit.get(name); id != nil && !passes(id.text) {
					out.fresh, loose = true, append(loose, id)
				}
			}
			return false
		}
		if failed == nil {
			failed = inner.walk(of.name, of, unit)
		}
		rest = append(rest, unit)
		return false
	}}
	if err := errors.Join(v.walk("", s, copied), failed); err != nil {
		return nil, err
	}
	out.finish(name, strict, copied, rest, loose)
	return out, (&visitor{strict: strict, leaf: func(string, leaf, *node) error { return nil }, open: func(at string, n *node) {
		if !isPast(at) {
			out.places = append(out.places, n)
		}
	}}).walk("", s, n)
}

// unwrap takes the extension's members out of a copy. The first one is read apart from the rest.
func (out *said) unwrap(s *shape, copied *node, strict bool) error {
	open := 0
	return (&visitor{strict: strict, leaf: func(string, leaf, *node) error { return nil }, open: func(at string, n *node) {
		e := takeEnvelope(n)
		if isPast(at) {
			return
		}
		if e != nil && out.envelope == nil {
			out.envelope, out.home = e, open
		}
		open++
	}}).walk("", s, copied)
}

// collect takes a value. more is set for a value that is part of the decision, and is no text
// or file of a part.
func (out *said) collect(at string, l leaf, n *node, strict bool, passes func(string) bool) (more bool, err error) {
	switch {
	case n.kind == 'n' && strict && (l == aText || l == bytesOf):
		return false, fmt.Errorf("%s is null", at)
	case n.kind == 'n' || l == aNumber || l == aFlag:
	case l == aHook && strict:
		return false, fmt.Errorf("%s: push notifications are not decided: %s", at, noPush)
	case l == aText:
		if out.glue {
			out.glued[len(out.texts)] = true
		}
		out.texts, out.fresh, out.glue = append(out.texts, n), true, false
	case l == bytesOf:
		out.blobs, out.fresh = append(out.blobs, n), true
	case l == anID && passes(n.text), !n.says():
	default:
		out.fresh = true
		return true, nil
	}
	return false, nil
}

// finish makes the content and the rest. A request keeps its whole form, so that it can be
// made again.
func (out *said) finish(name string, request bool, whole *node, units, loose []*node) {
	var content strings.Builder
	for i, t := range out.texts {
		if i > 0 && !out.glued[i] {
			content.WriteString(between)
		}
		content.WriteString(t.text)
		out.sizes = append(out.sizes, len(t.text))
		*t = *nullNode()
	}
	for _, b := range out.blobs {
		file := *b
		out.files = append(out.files, &file)
		*b = *nullNode()
	}
	if request {
		out.rest = whole
	} else {
		for i, u := range units {
			out.rest.set(fmt.Sprintf("part%d", i), u)
		}
		for i, l := range loose {
			out.rest.set(fmt.Sprintf("other%d", i), l)
		}
	}
	if out.content = content.String(); out.content == "" {
		out.whole, out.sizes = true, nil
		out.content = name + " " + string(out.rest.write(nil))
	}
}

// isPast reports whether a message is a repetition in a task's history, and so its envelope is.
func isPast(at string) bool { return strings.Contains(at, "history[") }

// says reports whether a free value has a text or anything else of its own.
func (n *node) says() bool {
	switch n.kind {
	case '{', '[':
		return len(n.kids) > 0
	case '"':
		return n.text != ""
	}
	return n.kind == '0'
}

// belongs are members of a message that a server sets when it repeats it.
var belongs = []string{"contextId", "taskId"}

// digest identifies a message or an artifact, without the order of its members and without
// its task and conversation.
func (n *node) digest() [sha256.Size]byte {
	c := n.clone()
	for _, name := range belongs {
		if id := c.get(name); id != nil && id.kind == '"' {
			c.remove(name)
		}
	}
	c.prune(isUnits)
	text := jsontext.Value(c.write(nil))
	_ = text.Canonicalize(jsontext.AllowInvalidUTF8(true), jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // it was parsed
	return sha256.Sum256(text)
}

// isUnits reports whether a name is one of the protocol in messages and artifacts. Any other name
// can be a text, also of a member without a content.
func isUnits(name string) bool {
	return slices.ContainsFunc([]*shape{messageShape, artifactShape, partShape, fileShape}, func(s *shape) bool { return s.has(name) })
}

// prune removes members without a content, which programs add or leave out, if may allows their names.
func (n *node) prune(may func(name string) bool) (empty bool) {
	for i, kid := range slices.Backward(n.kids) {
		if kid.prune(may) && n.kind == '{' && may(n.names[i]) {
			n.remove(n.names[i])
		}
	}
	return n.kind == 'n' || n.kind == '"' && n.text == "" || (n.kind == '{' || n.kind == '[') && len(n.kids) == 0
}

// takeEnvelope removes the extension's member from an object's metadata, and returns it.
func takeEnvelope(n *node) *node {
	metadata := n.get("metadata")
	e := metadata.get(Extension)
	if e != nil {
		if metadata.remove(Extension); len(metadata.names) == 0 {
			n.remove("metadata")
		}
	}
	if list := n.get("extensions"); list != nil && list.kind == '[' {
		if list.kids = slices.DeleteFunc(list.kids, func(k *node) bool { return k.text == Extension }); len(list.kids) == 0 {
			n.remove("extensions")
		}
	}
	return e
}

// settle puts the decided envelope in the place of the given one. Everything else in members of the
// extension, those of earlier messages included, was not decided and is removed.
func (out *said) settle(s *shape, n *node, decided api.Object) error {
	strip := &visitor{leaf: func(string, leaf, *node) error { return nil }, open: func(_ string, n *node) { takeEnvelope(n) }}
	if err := strip.walk("", s, n); err != nil || out.envelope == nil || decided["ocip"] == nil {
		return err
	}
	place := out.places[out.home]
	return annotate(place, decided, place.get("messageId") != nil)
}

// annotate puts the daemon's annotations into an object's metadata.
func annotate(n *node, metadata api.Object, listed bool) error {
	e := objectNode()
	for _, name := range annotations {
		if raw, ok := metadata[name]; ok {
			one, err := rawNode(raw)
			if err != nil {
				return err
			}
			e.set(name, one)
		}
	}
	if len(e.names) == 0 {
		return nil
	}
	if m := n.get("metadata"); m == nil || m.kind != '{' {
		n.set("metadata", objectNode())
	}
	n.get("metadata").set(Extension, e)
	if !listed {
		return nil
	}
	list := n.get("extensions")
	if list == nil || list.kind != '[' {
		list = &node{kind: '['}
		n.set("extensions", list)
	}
	list.kids = append(list.kids, textNode(Extension))
	return nil
}

// metadata is the daemon's metadata for the message.
func (out *said) metadata(name, origin string) (api.Object, error) {
	k := kept{Method: name, Params: out.rest.write(nil), Sizes: out.sizes, Sum: crc32.ChecksumIEEE([]byte(out.content))}
	call, err := json.Marshal(&k, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	m := api.Object{"a2a": call, "origin": api.String(origin)}
	if len(out.files) > 0 {
		list := []byte{'['}
		for i, f := range out.files {
			if i > 0 {
				list = append(list, ',')
			}
			list = append(append(append(list, `{"data":`...), f.raw...), '}')
		}
		m["file"] = append(list, ']')
	}
	return m, nil
}

// around finds the text that was asked about in the content that the daemon returned. The
// rest of the content is the disclosure.
func around(content, label string, length int, sum uint32) (before, as, after string, ok bool) {
	for _, from := range [...]int{0, len(content) - length} {
		if from < 0 || from+length > len(content) || crc32.ChecksumIEEE([]byte(content[from:from+length])) != sum {
			continue
		}
		before, as, after = content[:from], content[from:from+length], content[from+length:]
		if rest := strings.TrimSpace(before + after); rest == "" || rest == label {
			return before, as, after, true
		}
	}
	return "", "", "", false
}

// spread divides a decided content among the texts again. A text that a person or an
// interceptor has rewritten can only be that of a single part.
func spread(content, label string, sizes []int, glued map[int]bool, sum uint32) ([]string, error) {
	length := -len(between)
	for i, n := range sizes {
		if n < 0 {
			return nil, toolmap.Unclear("the texts were rewritten")
		}
		if length += n; !glued[i] {
			length += len(between)
		}
	}
	before, as, after, ok := around(content, label, length, sum)
	switch {
	case !ok && len(sizes) == 1:
		return []string{content}, nil
	case !ok:
		return nil, toolmap.Unclear("the text was rewritten, and the message has several")
	}
	texts := make([]string, len(sizes))
	for i, n := range sizes {
		if n > len(as) {
			return nil, toolmap.Unclear("the texts were rewritten")
		}
		texts[i], as = as[:n], as[n:]
		if !glued[i+1] {
			as = strings.TrimPrefix(as, between)
		}
	}
	texts[0] = before + texts[0]
	texts[len(texts)-1] += after
	return texts, nil
}

// decided is a message that the daemon allowed.
type decided struct {
	api.EmittedMessage
	call  kept
	files []*node
	// key is the request key of the question, and claim that of an approved message.
	key, claim string
}

func readDecided(data jsontext.Value) (*decided, error) {
	d := new(decided)
	if err := json.Unmarshal(data, &d.EmittedMessage, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(d.Metadata["a2a"], &d.call); err != nil {
		return nil, err
	}
	if raw, ok := d.Metadata["file"]; ok {
		list, err := parse(raw)
		if err != nil {
			return nil, err
		}
		for _, f := range list.kids {
			data := f.get("data")
			if data == nil || data.kind != '"' {
				return nil, toolmap.Unclear("a file was rewritten")
			}
			d.files = append(d.files, data)
		}
	}
	return d, nil
}

// label is the disclosure.
func (d *decided) label() string {
	label, _ := api.Text(d.Metadata["aiDisclosure"])
	return label
}

// request makes the request of a decided message: its texts as allowed, its files, and the
// envelope. Everything without the form of a request is refused, since any holder of the
// agent's token can ask the daemon about another.
func (d *decided) request() (*method, *node, error) {
	m := named(d.call.Method)
	if m == nil {
		return nil, nil, toolmap.Unclear("it is no request that is decided")
	}
	n, err := parse(d.call.Params)
	if err != nil {
		return nil, nil, err
	}
	content := d.Content.Inspect()
	if len(d.call.Sizes) == 0 {
		before, after, ok := strings.Cut(content, m.name+" "+string(d.call.Params))
		if rest := strings.TrimSpace(before + after); !ok || rest != "" && rest != d.label() {
			return nil, nil, toolmap.Unclear("the text was rewritten, and the message has none")
		}
	}
	var texts []string
	if len(d.call.Sizes) > 0 {
		if texts, err = spread(content, d.label(), d.call.Sizes, nil, d.call.Sum); err != nil {
			return nil, nil, err
		}
	}
	files := d.files
	err = (&visitor{strict: true, leaf: func(at string, l leaf, n *node) error {
		switch l {
		case aText:
			if n.kind == 'n' && len(d.call.Sizes) == 0 {
				*n = *textNode("") // no part has a text
				return nil
			}
			if n.kind != 'n' || len(texts) == 0 {
				return toolmap.Unclear("%s is not among the texts that were decided", at)
			}
			*n, texts = *textNode(texts[0]), texts[1:]
		case bytesOf:
			if n.kind != 'n' || len(files) == 0 {
				return toolmap.Unclear("%s is not among the files that were decided", at)
			}
			*n, files = *files[0], files[1:]
		case aHook:
			return toolmap.Unclear("%s is not decided", at)
		case anID, free, aNumber, aFlag:
		}
		return nil
	}}).walk("", m.params, n)
	if err == nil && len(texts)+len(files) > 0 {
		err = toolmap.Unclear("a text or a file has no place in the message")
	}
	if message := n.get("message"); err == nil && message != nil {
		err = annotate(message, d.Metadata, true)
	}
	return m, n, err
}
