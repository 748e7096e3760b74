package content

import "strings"

// assignmentAnchors are names of secrets. Text before an anchor belongs to the name: DB_PASSWORD,
// clientSecret.
func assignmentAnchors() []anchor {
	names := []string{"password", "passwd", "passwort", "kennwort", "passphrase", "pwd", "pass", "secret", "token", "presharedkey"}
	for _, of := range []string{"api", "access", "secret", "private", "auth", "encryption", "signing", "master"} {
		for _, joined := range []string{"", "_", "-", " "} {
			names = append(names, of+joined+"key")
		}
	}
	all := []anchor{{"_key", otherKey}, {"-key", otherKey}}
	for _, name := range names {
		all = append(all, anchor{name, func(s *scan, end int) { s.assignment(end, len(name)) }})
	}
	return all
}

// assignment weighs "name = value" as configurations, sources and letters write it. It is the one
// rule without a prefix, so the value must look random or like an invented password, and not like
// code.
func (s *scan) assignment(end, size int) {
	if s.full(ruleAssignment) {
		return
	}
	const longest = 256
	shortest := 8
	at := s.operator(end, size)
	if at < 0 {
		if at = s.told(end); at < 0 {
			return
		}
		shortest = 16 // if it is one of several words
	}
	if at < s.weak { // if the whole value is too weak, no part of it is stronger
		return
	}

	var closing byte
	escaped := strings.HasPrefix(s.text[at:], `\"`)
	if escaped {
		at++
	}
	if s.is(at, quote) {
		closing = s.text[at]
		at++
	}
	stop := at
	for limit := min(at+longest, len(s.text)); stop < limit; stop++ {
		c := s.text[stop]
		if closing != 0 && (c == closing || escaped && c == '\\') || kindOf(c).in(newline) {
			break
		}
		if closing != 0 || kindOf(c).in(alnum) {
			continue
		}
		if kindOf(c).in(space|quote) || c == ',' || c == ';' || c == '<' || c == '\\' || c >= 0x80 {
			break
		}
		if c == '&' && s.at(s.run(stop+1, word, stop+20)) == '=' {
			break // of a query
		}
		if strings.IndexByte("()[]{}", c) >= 0 {
			s.weak = stop
			return // code
		}
	}
	if closing == 0 {
		if stop-at > len("...") && s.text[stop-3:stop] == "..." {
			return // cut off
		}
		for stop > at && (s.is(stop-1, dot) || s.text[stop-1] == '?') {
			stop--
		}
	}
	value := s.text[at:stop]
	if strings.HasPrefix(s.text[stop:], "...") || strings.HasPrefix(s.text[stop:], "\u2026") {
		return // cut off
	}
	if len(value) < shortest || strings.ContainsAny(value, " \t") || strings.Contains(value, "://") {
		return
	}
	if strings.IndexByte(`/.~\\`, value[0]) >= 0 { // a path, or an escape
		return
	}
	name := strings.ToLower(s.text[end-size : end])
	if name == "pass" && !s.abbreviated(end-size, end) {
		return // the text passes something else
	}
	if m := weigh(value); !m.strong(len(value)) && (name[0] != 'p' || !m.memorable()) {
		s.weak = stop
		return
	}
	// The name is shorter than the value, so it is checked first.
	start := end - size
	for start > 0 && end-start < 40 && s.is(start-1, word|dash) {
		start--
	}
	if s.harmless.in(s.text[start:end]) || s.standIn(value) || closing == 0 && member(value) {
		return
	}
	if name == "token" && isUUID(value) && !s.uuids.in(s.text[start:end]) {
		return // such values are more often names than keys
	}
	s.add(ruleAssignment, Restricted, at, stop)
}

// namedKeys are parts of names of keys that open nothing: they find, sort and cache things.
func namedKeys() []string {
	return []string{
		"primary", "foreign", "cache", "sort", "partition", "object", "row", "storage", "lookup", "hash", "group", "dedup", "translation", "issue", "project",
		"session", "state", "query", "shard", "route", "routing", "short", "join", "event", "index", "unique", "file", "path", "blob", "image", "idempot", "public",
		"publish", "s3", "registry", "message", "dict", "config", "setting", "feature", "i18n", "label", "known",
	}
}

// otherKey weighs the value of a name that ends in "_key" or "-key" and says nothing else of
// secrets: "mapquest_key=…". The value must be longer and more random than that of a secret's name.
func otherKey(s *scan, end int) {
	const size, shortest = len("_key"), 24
	at := s.operator(end, size)
	if at < 0 || at < s.weak {
		return
	}
	if s.is(at, quote) {
		at++
	}
	stop := s.run(at, word|dash, at+2*shortest)
	if m := weigh(s.text[at:stop]); stop-at < shortest || m.lower == 0 || m.upper == 0 || m.digits < 3 || m.turns < 6 {
		return
	}
	if name := s.text[s.back(end-size, word|dash, end-40) : end-size]; name == "" || s.namedKeys.in(name) {
		return
	}
	s.assignment(end, size)
}

// operator returns the start of the value assigned to a name that ends at end, or -1 if there is
// none. It knows the forms of configurations, sources, markup, and lists of logins.
func (s *scan) operator(end, size int) int {
	at, quoted := end, false
	if s.is(at, quote) || strings.HasPrefix(s.text[at:], `\"`) {
		at, quoted = s.run(at+1, quote, at+2), true
	}
	closed := at
	at = s.run(at, space, at+4)
	switch {
	case quoted && s.at(at) == ',': // f("NAME", "value")
		if at = s.run(at+1, space, at+8); s.is(at, quote) {
			return at
		}
		return -1
	case quoted && at > closed && s.hasFold(at, "value="): // key="NAME" value="value"
		return at + len("value=")
	case at == closed && s.at(at) == '>' && !quoted: // <NAME>value</NAME>
		if s.at(s.back(end-size, word|dash, end-64)-1) != '<' {
			return -1
		}
		return s.run(at+1, space|newline, at+64)
	case at > closed && !quoted && s.is(at, quote): // NAME "value"
		return at
	case at > closed && !quoted && strings.HasPrefix(s.text[s.back(end-size, word|dash, end-64):], "--") && !s.is(at, dash): // --NAME value
		return at
	case at > closed && size == len("password") && s.is(at, alnum) && s.hasFold(end-size, "password") && s.lineHas("login ", end-size):
		return at // login NAME password value
	}
	if word := s.typeName(at); word > at {
		at = s.run(word, space, word+4)
		if s.at(at) != '=' {
			return -1
		}
	}
	compared := s.at(at) == '!'
	if strings.IndexByte("?.+|!", s.at(at)) >= 0 && at < len(s.text) {
		if at++; s.at(at) == s.text[at-1] && s.at(at) != '=' {
			at++
		}
		if s.at(at) != '=' {
			return -1
		}
	}
	operator := at
	for at < len(s.text) && at-operator < 4 && strings.IndexByte(":=>", s.text[at]) >= 0 {
		at++
	}
	if at == operator || s.text[operator] == '>' || s.text[operator:at] == "::" {
		return -1
	}
	at = s.run(at, space, at+8)
	if compared && !s.is(at, quote) {
		return -1 // the value is compared with a name
	}
	if word := s.typeName(at); word > at { // NAME: type = value
		if next := s.run(word, space, word+4); s.at(next) == '=' && s.at(next+1) != '=' {
			return s.run(next+1, space, next+8)
		}
	}
	return at
}

// told returns the start of the value in sentences like "the NAME is …", or -1.
func (s *scan) told(end int) int {
	if at, prose, _ := s.says(end); prose {
		return at
	}
	return -1
}

// abbreviated reports whether "pass" between from and to is short for a password: it is
// the last part of a name, DB_PASS or dbPass, or a setting, pass=.
func (s *scan) abbreviated(from, to int) bool {
	if s.is(from-1, letter) {
		return s.is(from-1, lowerCase) && s.is(from, upperCase)
	}
	return s.is(from-1, under|dash) || s.at(s.run(to, space|quote, to+2)) == '='
}

// typeName returns the end of the name of a string type that begins at at, or at.
func (s *scan) typeName(at int) int {
	for _, name := range []string{"string", "str"} {
		if s.hasFold(at, name) && s.is(at+len(name), space) {
			return at + len(name)
		}
	}
	return at
}

// lineHas reports whether a word occurs shortly before at, in the same line.
func (s *scan) lineHas(word string, at int) bool {
	before := s.text[max(0, at-96):at]
	return strings.Contains(before[strings.LastIndexByte(before, '\n')+1:], word)
}

// uuids are parts of the names of services whose keys are UUIDs.
func uuids() []string {
	return []string{"heroku", "hubspot", "snyk", "sendbird", "squarespace", "messagebird", "postmark", "kucoin"}
}

// harmless are parts of names whose values are no secrets: they page through lists, or are public.
func harmless() []string {
	return []string{"page", "next", "csrf", "xsrf", "continu", "sync", "cancel", "idempot", "public", "publish", "cursor", "trial", "authenticity", "requestverif", "visitor"}
}

// strong reports whether a value of that size looks like a secret: it mixes several kinds of
// characters.
func (m *makeup) strong(size int) bool {
	if m.distinct < 6 || m.digits == 0 || m.lower+m.upper == 0 {
		return false
	}
	if m.classes() == 3 && (m.turns >= 3 || m.signs > 0) || m.classes() == 2 && m.signs > 0 && m.turns >= 2 {
		return true
	}
	return size >= 16 && m.digits >= 2 && m.turns >= 4
}

// memorable reports whether a value looks like a common password: a word with a year, or a word
// with a sign. It counts only if the name begins with p, as password does and token does not.
func (m *makeup) memorable() bool {
	return m.distinct >= 6 && m.digits > 0 && (m.classes() == 3 && m.digits >= 2 || m.classes() >= 2 && m.signs > 0)
}

// member reports whether a value consists of names joined by dots, as in code, none of which looks
// random.
func member(value string) bool {
	names := 0
	for n := range strings.SplitSeq(value, ".") {
		if n == "" || len(n) > 32 || kindOf(n[0]).in(digit) {
			return false
		}
		for i := range len(n) {
			if !kindOf(n[i]).in(word) {
				return false
			}
		}
		const drawn = 20
		if m := weigh(n); len(n) >= drawn && m.classes() == 3 && m.strong(len(n)) && m.turns >= 4 {
			return false
		}
		names++
	}
	return names > 1
}

// standIns occur in values that stand for another value.
func standIns() []string {
	return []string{
		"xxxx", "****", "...", "\u2026", "${", "$(", "{{", "your", "changeme", "change_me", "change-me", "placeholder",
		"redacted", "example", "dummy", "env:", "process.env", "os.environ",
	}
}

// standIn reports whether a value is only a placeholder.
func (s *scan) standIn(value string) bool {
	switch value[0] {
	case '[': // or the rest of a terminal's colour
		return true
	case '$', '%', '{', '<':
		// $NAME, ${NAME}, %NAME%, {{ name }}; but "$2b$…" is a hash.
		if len(value) == 1 || !kindOf(value[1]).in(digit) {
			return true
		}
	}
	return s.standIns.in(value) || weigh(value).distinct < 2
}

func isUUID(value string) bool {
	if len(value) != 36 {
		return false
	}
	for i := range len(value) {
		if dashed := i == 8 || i == 13 || i == 18 || i == 23; dashed != (value[i] == '-') {
			return false
		}
		if value[i] != '-' && !kindOf(value[i]).in(hexLower|hexUpper|digit) {
			return false
		}
	}
	return true
}
