package mcpproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
)

// events is a stream of the server. Every event of it is inspected.
type events struct {
	w *web
	// ctx is the context of the request in session. resumed is set if the request resumes
	// an earlier stream.
	ctx     context.Context
	session string
	resumed bool
	from    io.Closer
	r       *bufio.Reader
	// held is the room that ready takes.
	held int64
	// ready is the text to read next, and err follows it.
	ready []byte
	err   error
	// begun is set after the first line, and long within an event that is longer than is held.
	begun bool
	long  *longEvent
}

func (e *events) Close() error {
	e.leave()
	return e.from.Close()
}

// leave releases the room.
func (e *events) leave() {
	e.w.heard.Release(e.held)
	e.held = 0
}

func (e *events) Read(b []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.next()
	}
	n := copy(b, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

func isBlank(line []byte) bool { return len(bytes.TrimRight(line, "\r\n")) == 0 }

// next reads an event, or a part of a long one.
func (e *events) next() {
	e.leave()
	piece, err := e.r.ReadSlice('\n')
	whole := !errors.Is(err, bufio.ErrBufferFull)
	if whole {
		e.err = err
	}
	switch {
	case e.long != nil:
		e.pass(bytes.Clone(piece))
	case whole && e.err == nil && isComment(piece):
		// A comment keeps the connection alive, and waits for no event.
		e.ready, e.begun = bytes.Clone(piece), true
	default:
		e.hold(bytes.Clone(piece), whole)
	}
}

// isComment reports whether every program takes a line for a comment.
func isComment(line []byte) bool {
	return line[0] == ':' && !bytes.ContainsFunc(bytes.TrimRight(line, "\r\n"), func(r rune) bool { return r < ' ' || r > '~' })
}

// hold reads an event for inspection. whole is set if the first line is complete.
func (e *events) hold(event []byte, whole bool) {
	start := 0 // of the line that is read
	for {
		if whole {
			if e.err != nil || isBlank(event[start:]) {
				break
			}
			start = len(event)
		}
		if len(event) > maxBeside && e.held == 0 {
			if !e.w.calls.watches(e.resumed) {
				e.pass(event)
				return
			}
			if err := e.w.heard.Acquire(e.ctx, maxHeldLine); err != nil {
				e.err = err
				return
			}
			e.held = maxHeldLine
		}
		if len(event) > maxHeldLine {
			if lines, spoiled := e.w.calls.spoil(e.session, e.resumed, fmt.Sprintf("the server said something longer than %d bytes", maxHeldLine)); spoiled {
				// The stream ends after the notice in the event's place.
				e.ready, e.err = appendEvents(nil, lines), io.EOF
				return
			}
			e.pass(event)
			return
		}
		piece, err := e.r.ReadSlice('\n')
		event = append(event, piece...)
		if whole = !errors.Is(err, bufio.ErrBufferFull); whole {
			e.err = err
		}
	}
	rest, marked := bytes.CutPrefix(event, mark)
	if e.begun || !marked {
		rest, marked = event, false
	}
	e.begun = true
	if e.ready = e.looked(rest); marked {
		e.ready = append(bytes.Clone(mark), e.ready...)
	}
}

// mark is the byte order mark that a stream may begin with.
var mark = []byte("\ufeff")

// pass lets a part of a long event pass, or cuts the event by ending the stream within it.
func (e *events) pass(piece []byte) {
	if e.long == nil {
		e.long = &longEvent{passage: passage{p: e.w.proxy, session: e.session, resumed: e.resumed}}
	}
	e.begun = true
	ready, cut := e.long.next(piece)
	if !cut && e.err != nil {
		var rest []byte
		rest, cut = e.long.over()
		ready = append(ready, rest...)
	}
	e.ready = ready
	switch {
	case cut:
		e.err = io.EOF
	case e.long.fresh && bytes.HasSuffix(piece, []byte("\n")):
		e.long = nil
	}
}

// looked returns the client's version of an event. A program that ends lines at a single CR
// would read several lines in one.
func (e *events) looked(text []byte) (out []byte) {
	var raw, kept, data []byte
	has, odd, away := false, false, false
	flush := func() {
		if away {
			raw, has, odd = nil, false, false
		}
		if odd {
			if lines, spoiled := e.w.calls.spoil(e.session, e.resumed, "the server said a line that some programs read as several"); spoiled {
				raw, has = appendEvents(nil, lines), false
			}
		}
		// An event without a message only gives the position for resuming.
		if has && len(bytes.TrimSpace(data)) > 0 {
			instead, held := e.w.observed(e.session, e.resumed, data)
			switch {
			case instead != nil:
				switch message := instead(); {
				case len(message) == 0:
					raw = nil
				case !bytes.Equal(message, data):
					raw = appendEvents(kept, message)
				}
			case held:
				raw = nil
			}
		}
		out = append(out, raw...)
		raw, kept, data, has, odd, away = nil, nil, nil, false, false, false
	}
	for len(text) > 0 {
		n, end := endOf(text)
		line := text[:n]
		raw = append(raw, text[:end]...)
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0:
			flush()
		case string(name) == "data":
			if has {
				data = append(data, '\n')
			}
			has = true
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		default:
			odd = odd || bytes.ContainsFunc(line, ends)
			if string(name) == "id" {
				givesEvent(e.w.proxy, string(bytes.TrimPrefix(value, []byte(" "))))
			}
			if string(name) != "event" {
				kept = append(kept, text[:end]...)
			} else if isAway(value) {
				away = true
			}
		}
		text = text[end:]
	}
	flush()
	return out
}

// endOf returns where the first line ends, without and with its line break.
func endOf(text []byte) (n, end int) {
	n = bytes.IndexAny(text, "\r\n")
	switch end = n + 1; {
	case n < 0:
		return len(text), len(text)
	case text[n] == '\r' && end < len(text) && text[end] == '\n':
		end++
	}
	return n, end
}

// isAway reports whether an event of a type gives the client another address for its messages. Only the
// transport before the present one has such an event, and the proxy does not serve it.
func isAway(kind []byte) bool { return strings.EqualFold(string(bytes.TrimSpace(kind)), "endpoint") }

// ends reports whether some programs end a line at a character at which others do not.
func ends(r rune) bool {
	switch r {
	case '\v', '\f', '\x1c', '\x1d', '\x1e', '\u0085', '\u2028', '\u2029':
		return true
	}
	return false
}

// longEvent is an event that is longer than is held and passes while it is read.
type longEvent struct {
	passage
	// name is that of the line under way, and value is set behind it: in a line of data if data is, and
	// behind its first space if spaced is.
	name                []byte
	value, data, spaced bool
	// kind is the beginning of the event's type, and away is set if it gives another address.
	kind []byte
	away bool
	// has is set once the event has data, cr after a CR, and fresh between two events.
	has, cr, fresh bool
}

// next takes a piece, and returns what passes of it. Cut is set if the rest of the event must not pass.
func (l *longEvent) next(piece []byte) (pass []byte, cut bool) {
	from, until := 0, -1 // of the event under way, and of what passes of it
	for i, c := range piece {
		ended := l.step(c)
		if l.skim.closed && until < 0 {
			until = i
		}
		if !ended {
			continue
		}
		part, cut := l.upTo(piece[from:i+1], until-from)
		pass = append(pass, part...)
		if cut {
			return pass, true
		}
		part, cut = l.over()
		if pass = append(pass, part...); cut {
			return pass, true
		}
		from, until = i+1, -1
	}
	part, cut := l.upTo(piece[from:], until-from)
	return append(pass, part...), cut
}

// upTo lets a piece pass, of which the message ends at n, or behind it if n is negative.
func (l *longEvent) upTo(piece []byte, n int) (pass []byte, cut bool) {
	if n < 0 {
		n = len(piece)
	}
	if l.away {
		return nil, true
	}
	pass, _, cut = l.passed(piece, n)
	return pass, cut
}

// over ends the event, and returns what was held back of it.
func (l *longEvent) over() (pass []byte, cut bool) {
	if l.has {
		pass, _, cut = l.end()
	} else {
		pass, l.back = l.back, nil
	}
	if cut {
		pass = nil
	}
	l.skim, l.has, l.fresh = skim{}, false, true
	return pass, cut
}

// step takes a byte, and reports whether it ends the event.
func (l *longEvent) step(c byte) (ended bool) {
	if after := l.cr; c == '\r' || c == '\n' {
		if l.cr = c == '\r'; after && c == '\n' {
			return false
		}
		ended = len(l.name) == 0 && !l.value
		if !l.value && string(l.name) == "data" {
			l.begins()
		}
		l.away = l.away || isAway(l.kind)
		l.name, l.kind, l.value, l.data, l.spaced = l.name[:0], l.kind[:0], false, false, false
		return ended
	}
	l.cr, l.fresh = false, false
	switch {
	case !l.value && c == ':':
		if l.value, l.data = true, string(l.name) == "data"; l.data {
			l.begins()
		}
	case !l.value && len(l.name) < maxField:
		l.name = append(l.name, c)
	case l.data && (l.spaced || c != ' '):
		l.spaced = true
		l.skim.step(c)
		return false
	case l.data:
		l.spaced = true
		return false
	case l.value && (c != ' ' || len(l.kind) > 0) && len(l.kind) < maxKind && string(bytes.TrimPrefix(l.name, mark)) == "event":
		l.kind = append(l.kind, c)
	}
	// A program that ends a line here would find another one.
	l.skim.wrong = l.skim.wrong || c >= 0x80 || ends(rune(c))
	return false
}

// maxField is longer than the name of any field, also behind a mark, and maxKind than the type of an event
// that gives an address.
const maxField, maxKind = 12, 64

// begins begins a line of data.
func (l *longEvent) begins() {
	if l.has {
		l.skim.step('\n')
	}
	l.has = true
}

func isStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && kind == "text/event-stream"
}

// appendEvent writes a message as an event.
func appendEvent(b, message []byte) []byte {
	b = append(b, "event: message\n"...)
	for line := range bytes.Lines(bytes.TrimSpace(message)) {
		b = append(append(append(b, "data: "...), bytes.TrimRight(line, "\r\n")...), '\n')
	}
	return append(b, '\n')
}

// appendEvents writes each line as an event.
func appendEvents(b, lines []byte) []byte {
	for line := range bytes.Lines(lines) {
		b = appendEvent(b, line)
	}
	return b
}
