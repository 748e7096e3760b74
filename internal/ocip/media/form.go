package media

import (
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind determines how the texts of a member are read.
type kind uint8

const (
	// silent texts name nothing.
	silent kind = iota
	// other texts are files if they have the form of a local path.
	other
	// inlined texts can be the bytes of a file.
	inlined
	// loose texts can also be relative names. A single word without an ending is an id from the
	// channel.
	loose
	// strict texts are files unless they are addresses.
	strict
)

// kindOf returns the kind of a member by its name, in a member of another kind.
func kindOf(member []byte, within kind) kind {
	// The last letters are enough: no name or ending is longer.
	var room [24]byte
	name := room[len(room):]
	for i := len(member) - 1; i >= 0 && len(name) < len(room); i-- {
		if c := member[i]; c != '_' && c != '-' {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			name = room[len(room)-len(name)-1:]
			name[0] = c
		}
	}
	if n := len(name); n > 0 && name[n-1] == 's' {
		name = name[:n-1]
	}
	switch string(name) {
	case "mediaurl", "mediapath", "filepath", "localpath", "path":
		return strict
	case "image", "photo", "picture", "audio", "voice", "video", "document", "thumbnail", "thumb", "sticker", "animation", "gif", "avatar", "icon",
		"cover", "poster", "src", "href", "source":
		return loose
	case "b64json":
		return inlined
	case "profile":
		return other
	}
	if last := lastOf(name, "buffer", "base64", "b64", "data", "content", "byte", "blob", "raw", "body", "payload"); last != "" && string(name) != "metadata" {
		before := name[:len(name)-len(last)]
		if within >= inlined || last == "buffer" || last == "base64" || last == "b64" || lastOf(before, mediaWords[:]...) != "" {
			return inlined
		}
	}
	switch {
	case ends(name, "path", "url", "uri", "file", "media", "attachment"):
		return loose
	case within <= other, ends(name, "type", "kind", "id", "name", "caption", "title", "alt", "text", "description", "format", "hash", "sha256",
		"mime", "emoji", "performer", "lang", "language", "encoding", "charset", "metadata", "meta", "status", "role"):
		// The description of a medium is no medium.
		return other
	}
	return min(within, loose)
}

// mediaWords are the ends of names for media.
var mediaWords = [...]string{"file", "image", "photo", "picture", "audio", "voice", "video", "document", "media", "attachment", "thumbnail", "sticker"}

// ends reports whether a name ends in one of some words.
func ends(name []byte, words ...string) bool { return lastOf(name, words...) != "" }

// lastOf returns the word with which a name ends, or "".
func lastOf(name []byte, words ...string) string {
	for _, word := range words {
		if from := len(name) - len(word); from >= 0 && string(name[from:]) == word {
			return word
		}
	}
	return ""
}

// appendReferences adds the references in a member's text.
func appendReferences(list []Reference, member, value string, k kind) []Reference {
	if len(list) > MaxReferences {
		return list
	}
	if k == other && !suspect(value) {
		return list
	}
	if r, ok := whole(value, k); ok {
		r.Member, r.Value = member, value
		return append(list, r)
	}
	return inText(list, member, value)
}

// suspect reports whether a text can be a path or a data: URL, or contain a reference. It is a
// cheap check that excludes most texts.
func suspect(s string) bool {
	if s == "" {
		return false
	}
	switch c := s[0]; {
	case c == '/', c == '\\', c == '~', c == '.', c <= ' ', c >= utf8.RuneSelf:
		return true
	}
	return strings.IndexByte(s, ':') >= 0 || strings.Contains(s, "](")
}

// whole reads a text that is a single reference, if any.
func whole(value string, k kind) (Reference, bool) {
	s := strings.TrimFunc(value, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	// Some programs trim a path before they open it, and others do not.
	file := func(path string) (Reference, bool) {
		r := Reference{Path: path}
		if s != value {
			r.Refused = unclear
		}
		return r, true
	}
	if after, ok := cutFold(s, "media"); ok && !strings.HasPrefix(after, "://") {
		// OpenClaw removes the prefix. In a member that names media, other programs keep it.
		if after, ok = strings.CutPrefix(strings.TrimLeftFunc(after, unicode.IsSpace), ":"); ok {
			s = strings.TrimSpace(after)
			if k <= other && strings.HasSuffix(value, ":"+s) {
				value = s
			}
		}
	}
	// White space inside a URL does not count.
	address := s
	if strings.ContainsAny(s, "\t\r\n") {
		address = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(s)
	}
	scheme, rest, _ := strings.Cut(address, ":")
	switch {
	case s == "":
		return Reference{}, false
	case strings.EqualFold(scheme, "file") && rest != "" && (rest[0] == '/' || rest[0] == '\\' || !strings.ContainsFunc(rest, unicode.IsSpace)):
		r, _ := file(filePath(address))
		if r.Path == address || address != s {
			r.Refused = unclear
		}
		return r, true
	case strings.EqualFold(scheme, "data"):
		if data, ok := decodeURL(rest); ok {
			return Reference{Inline: data}, true
		}
	case strings.EqualFold(scheme, "media") && strings.HasPrefix(rest, "//"), isPath(s):
		// A file in a runtime's own store also counts as a file, and cannot be found.
		return file(s)
	}
	switch k {
	case silent, other, packed, joined:
	case inlined:
		if data, ok := decodeAll(s); ok {
			return Reference{Inline: data}, true
		}
		return Reference{Refused: undecodable}, true
	case loose, strict:
		elsewhere := strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https") || strings.EqualFold(scheme, "mxc")
		if elsewhere && rest != "" {
			return Reference{}, true
		}
		if k == strict || strings.ContainsAny(s, `/\`) || s[0] == '~' || s[0] == '.' || hasEnding(s) {
			return file(s)
		}
		// Short texts are ids, and words are weighed as they are.
		if len(s) >= shortestInline {
			if data, ok := decodeAll(s); ok {
				return Reference{Inline: data}, true
			}
			return Reference{Refused: undecodable}, !strings.ContainsFunc(s, unicode.IsSpace)
		}
	}
	return Reference{}, false
}

// cutFold is strings.CutPrefix that ignores case; the prefix is in small letters.
func cutFold(s, prefix string) (after string, found bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// isPath reports whether a text has the form of a local path. One word behind a slash is a command,
// such as /start: a file is in a folder or has an ending.
func isPath(s string) bool {
	if len(s) < 2 || strings.IndexByte(s, '\n') >= 0 {
		return false
	}
	switch c := s[0]; {
	case c == '/':
		first := strings.TrimLeft(s, "/")
		doubled := len(first) < len(s)-1
		end := strings.IndexAny(first, "/ \t\n\r\u00a0\u3000")
		if end < 0 {
			return first != "" && (doubled || strings.IndexByte(first, '.') >= 0)
		}
		return end > 0 && (doubled || first[end] == '/')
	case c == '\\':
		return s[1] == '\\' && len(s) > 2 && strings.ContainsAny(s[2:], `\/`)
	case c == '~':
		end := strings.IndexAny(s, `/\`)
		return end == 1 || end > 1 && isLetter(s[1]) && !strings.ContainsFunc(s[:end], unicode.IsSpace)
	case c == '.':
		s = strings.TrimPrefix(s, ".")
		s = strings.TrimPrefix(s, ".")
		return s != "" && (s[0] == '/' || s[0] == '\\')
	case s[1] == ':':
		return isLetter(c) && len(s) > 2 && (s[2] == '/' || s[2] == '\\')
	}
	return false
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// hasEnding reports whether a name ends like a file name.
func hasEnding(s string) bool {
	ending := s[strings.LastIndexByte(s, '.')+1:]
	if len(ending) == len(s) {
		return false
	}
	letters := false
	for i := range len(ending) {
		c := ending[i]
		letters = letters || isLetter(c)
		if !isLetter(c) && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return letters && len(ending) <= 10
}

// filePath returns the path of a file: URL. If programs read the URL differently, it returns the
// URL itself, which is no path.
func filePath(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Path == "" || u.Host != "" || strings.ContainsAny(s, `?#%\`) {
		return s
	}
	return u.Path
}
