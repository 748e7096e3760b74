package mcpproxy

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/bridge/toolmap"
)

// skim reads a message of any length in pieces. It keeps the names of its members and the beginnings
// of their values, so that the message's id is known at its end.
type skim struct {
	// depth counts the open objects and lists, and closed is set behind the end of the message.
	depth  int
	closed bool
	// quoted is set within a string, and escaped behind a backslash there.
	quoted, escaped bool
	// wrong is set if the text is no message that all programs read in one way.
	wrong bool
	// list are the message's members. Value is set once the last one's name has ended, and word is
	// the name or value under way.
	list  []toolmap.Member
	value bool
	word  []byte
}

const (
	// maxWordOf bounds the part of a value that is kept, and maxMembersOf the members of a message.
	maxWordOf    = 2 << 10
	maxMembersOf = 64
)

// read takes a piece, and returns how much of it stands before the end of the message.
func (s *skim) read(piece []byte) int {
	for i := 0; i < len(piece); i++ {
		if s.quoted && s.depth > 1 && !s.escaped {
			// Most of a long message stands in such strings.
			n := bytes.IndexAny(piece[i:], "\"\\\n\r")
			if n < 0 {
				return len(piece)
			}
			i += n
		}
		if s.step(piece[i]); s.closed {
			for _, c := range piece[i+1:] {
				s.step(c)
			}
			return i
		}
	}
	return len(piece)
}

// step takes one byte.
func (s *skim) step(c byte) {
	switch {
	case s.closed:
		s.wrong = s.wrong || !isSpace(c)
	case s.quoted:
		s.quotedStep(c)
	case s.depth == 0:
		if s.wrong = s.wrong || c != '{' && !isSpace(c); c == '{' {
			s.depth++
		}
	case s.depth == 1:
		s.member(c)
	default:
		s.nest(c)
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func (s *skim) quotedStep(c byte) {
	s.wrong = s.wrong || c == '\n' || c == '\r'
	if s.depth == 1 {
		s.keep(c)
	}
	switch {
	case s.escaped:
		s.escaped = false
	case c == '\\':
		s.escaped = true
	case c == '"':
		s.quoted = false
	}
}

// keep adds a byte of a name or value of the message's own.
func (s *skim) keep(c byte) {
	if len(s.word) < maxWordOf {
		s.word = append(s.word, c)
	}
}

// member takes a byte between the names and values of the message's own.
func (s *skim) member(c byte) {
	switch {
	case c == ':' && !s.value:
		name, err := jsontext.AppendUnquote(nil, bytes.TrimSpace(s.word))
		s.wrong = s.wrong || err != nil || !utf8.Valid(name) || len(s.word) >= maxWordOf || len(s.list) >= maxMembersOf
		if !s.wrong {
			s.list = append(s.list, toolmap.Member{Name: string(name)})
		}
		s.word, s.value = s.word[:0], true
	case c == ',', c == '}':
		s.ended()
		if c == '}' {
			s.depth, s.closed = 0, true
		}
	case isSpace(c) && len(s.word) == 0:
	default:
		s.keep(c)
		s.nest(c)
	}
}

// ended takes the value of a member. Of an id or a method that is long nobody knows what it is.
func (s *skim) ended() {
	if s.value && !s.wrong {
		m := &s.list[len(s.list)-1]
		m.Value = bytes.Clone(bytes.TrimSpace(s.word))
		s.wrong = len(m.Value) == 0 || len(m.Value) >= maxWordOf && (m.Name == "id" || m.Name == "method")
	} else if len(bytes.TrimSpace(s.word)) > 0 {
		s.wrong = true
	}
	s.word, s.value = s.word[:0], false
}

// nest takes a byte that is in no string.
func (s *skim) nest(c byte) {
	switch {
	case c == '"':
		s.quoted = true
	case c == '{', c == '[':
		s.depth++
	case c == '}', c == ']':
		s.depth--
		s.wrong = s.wrong || s.depth == 0
	case c >= 'a' && c <= 'z', c == 'E', c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == ',', c == ':', isSpace(c):
	default:
		s.wrong = true // such as quotes and comments of lenient readers
	}
}

// errSkim is why a message that is not read whole is not known.
var errSkim = errors.New("it is long, and cannot be read in one way")

// frame is what is known of the message at its end.
func (s *skim) frame() (f frame, err error) {
	if s.wrong || !s.closed {
		return f, errSkim
	}
	if f, err = frameOf(s.list); err == nil && f.doubtful() {
		err = errSkim
	}
	return f, err
}

// passage is a message that is longer than is held and has begun to pass, since no answer was awaited.
// Its last byte and all behind it are held back, so that it can be cut until its end.
type passage struct {
	p       *proxy
	session string
	resumed bool
	lines   bool // it is a line of a stream of lines
	skim    skim
	back    []byte
}

// next takes a piece, and returns what passes of it. Cut is set if an answer is awaited by now that the
// message could be taken for: the rest of it does not pass, and said is what is said in its place.
func (u *passage) next(piece []byte) (pass, said []byte, cut bool) {
	n := u.skim.read(piece)
	if u.lines && bytes.IndexByte(piece[:n], '\r') >= 0 {
		u.skim.wrong = true // for some a line ends there
	}
	return u.passed(piece, n)
}

// passed lets a piece pass up to n.
func (u *passage) passed(piece []byte, n int) (pass, said []byte, cut bool) {
	u.back = append(u.back, piece[n:]...)
	u.skim.wrong = u.skim.wrong || len(u.back) > maxBeside
	if !u.skim.wrong {
		return piece[:n], nil, false
	}
	if said, cut = u.p.calls.spoil(u.session, u.resumed, errSkim.Error()); cut {
		return nil, said, true
	}
	if len(u.back) > len(piece)-n {
		// What was held back of earlier pieces stands before this one, of which nothing passed.
		pass, u.back = u.back, nil
		return pass, nil, false
	}
	u.back = nil
	return piece, nil, false
}

// end takes the end of the message, and returns what was held back of it.
func (u *passage) end() (pass, said []byte, cut bool) {
	pass, u.back = u.back, nil
	f, err := u.skim.frame()
	if err != nil {
		said, cut = u.p.calls.spoil(u.session, u.resumed, errSkim.Error())
		return pass, said, cut
	}
	if f.method != "" || f.id == nil {
		u.p.requests.note(u.session, &f)
		return pass, nil, false
	}
	at := key{u.session, f.key()}
	if _, kept := u.p.calls.insteadOf(at, u.resumed); kept {
		return nil, nil, true
	}
	o := u.p.calls.take(at)
	switch {
	case o == nil:
		return pass, nil, !u.p.requests.answersOpen(at, u.resumed)
	case o.done != nil:
		o.done(api.OutcomeUnknown, "its answer was too long to be looked into")
	case o.in != nil:
		said = o.spoiled("its answer had begun before it was asked for")
		u.p.calls.keep(at, said)
		return nil, said, true
	}
	return pass, nil, o.own
}
