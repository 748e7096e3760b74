package content

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// The rules that need more than a prefix.
const (
	rulePrivateKey    = "credential.private-key"
	rulePutty         = "credential.putty-private-key"
	ruleJWT           = "credential.jwt"
	ruleAWSSecret     = "credential.aws-secret-access-key"
	ruleAzure         = "credential.azure-account-key"
	ruleOpenAI        = "credential.openai-key"
	ruleSendGrid      = "credential.sendgrid-key"
	ruleSlackWebhook  = "credential.slack-webhook"
	ruleTelegram      = "credential.telegram-bot-token"
	ruleTwilio        = "credential.twilio-key"
	ruleBearer        = "credential.bearer-token"
	ruleBasic         = "credential.basic-authorization"
	ruleURL           = "credential.url-password"
	ruleDatabase      = "credential.database-url"
	ruleAssignment    = "credential.assignment"
	longestPrivateKey = 64 << 10
)

func credentialAnchors() []anchor {
	all := []anchor{
		{"-----begin ", (*scan).pemBegin},
		{"---- begin ", (*scan).pemBegin}, // as long as the other
		{"-----end ", (*scan).pemEnd},
		{"---- end ", (*scan).pemEnd},
		{"putty-user-key-file-", (*scan).puttyBegin},
		{"private-lines:", (*scan).puttyLines},
		{"eyj", (*scan).jwt},
		{"accountkey=", func(s *scan, end int) { s.azure(end, 86) }},
		{"sharedaccesskey=", func(s *scan, end int) { s.azure(end, 43) }},
		{"t3blbkfj", (*scan).openAI},
		{"sg.", (*scan).sendGrid},
		{"hooks.slack.com/", (*scan).slackWebhook},
		{":aa", (*scan).telegram},
		{"twilio", (*scan).nearTwilio},
		{"bearer ", (*scan).bearer},
		{"basic ", (*scan).basic},
		{"://", (*scan).url},
	}
	for _, name := range []string{
		"secret_access_key", "secretaccesskey", "secret access key", "secret-access-key",
		"aws_secret_key", "aws secret key", "awssecretkey",
	} {
		all = append(all, anchor{name, (*scan).awsSecret})
	}
	return all
}

// pemBegin weighs the first line of a private key. Alone it is no secret, as
// sources and manuals quote it: key material has to follow.
func (s *scan) pemBegin(end int) {
	const longestLabel = 48
	label, _, ok := strings.Cut(s.text[end:min(end+longestLabel, len(s.text))], "----")
	if !ok {
		return
	}
	name := strings.TrimSuffix(strings.TrimSpace(label), " BLOCK")
	if !strings.HasSuffix(name, "PRIVATE KEY") {
		return
	}
	body := s.run(end+len(label), dash, end+len(label)+5)
	last, ok := s.keyMaterial(body)
	if !ok {
		return
	}
	start := end - len("-----BEGIN ")
	s.pem = s.add(rulePrivateKey, Restricted, start, last)
}

// keyMaterial reads lines of base64, past headers and whatever quoting stands
// between the lines, and says where the last of them ends.
func (s *scan) keyMaterial(at int) (int, bool) {
	const shortest, headers = 20, 8
	last, found := at, false
	for range headers {
		start := s.blanks(at)
		end := s.run(start, base64Std|equals, len(s.text))
		if end-start >= shortest {
			m := weigh(s.text[start:min(end, start+64)])
			if m.classes() >= 2 && m.distinct >= 6 {
				last, found = end, true
			}
			break
		}
		// A header of the key's own, as in "DEK-Info: …".
		colon := s.run(start, alnum|dash, start+40)
		if colon == start || !strings.HasPrefix(s.text[colon:], ": ") {
			break
		}
		line := strings.IndexByte(s.text[colon:min(colon+200, len(s.text))], '\n')
		if line < 0 {
			break
		}
		at = colon + line
	}
	// Further lines are read without a limit on their number: none of their
	// bytes can begin another key.
	for found {
		start := s.blanks(last)
		end := s.run(start, base64Std|equals, len(s.text))
		if start == last || end-start < shortest {
			break
		}
		last = end
	}
	return last, found
}

// blanks skips what stands between the lines of a quoted block.
func (s *scan) blanks(at int) int {
	const most = 64
	limit := min(at+most, len(s.text))
	for at < limit {
		switch c := s.text[at]; {
		case kindOf(c).in(space | newline | quote), strings.IndexByte(">|#*,;", c) >= 0:
			at++
		case c == '\\':
			at++
			if s.is(at, lowers) {
				at++
			}
		case c == '+' && s.is(at+1, space|quote|newline):
			at++
		default:
			return at
		}
	}
	return at
}

// pemEnd closes the key that is open, with the whole of its end line.
func (s *scan) pemEnd(end int) {
	if s.pem < 0 {
		return
	}
	f := &s.found[s.pem]
	s.pem = -1
	if end-f.Start > longestPrivateKey {
		return
	}
	at := s.run(end, alnum|space, end+48)
	if at = s.run(at, dash, at+5); at > f.End {
		f.End = at
	}
}

func (s *scan) puttyBegin(end int) { s.putty = end - len("PuTTY-User-Key-File-") }

// puttyLines weighs the private part of a PuTTY key file, whose length the
// file says itself.
func (s *scan) puttyLines(end int) {
	start := s.putty
	s.putty = -1
	if start < 0 || end-start > longestPrivateKey {
		return
	}
	// blanks would skip the line breaks that are counted here.
	at := s.run(end, space, end+4)
	number := s.run(at, digit, at+3)
	if number == at {
		return
	}
	lines := 0
	for _, c := range s.text[at:number] {
		lines = lines*10 + int(c-'0')
	}
	last := number
	for range lines {
		line := s.run(last, newline, last+2)
		next := s.run(line, base64Std|equals, line+80)
		if next == line {
			break
		}
		last = next
	}
	if last == number {
		return // no key in it
	}
	line := s.run(last, newline, last+2)
	const mac = "private-mac: "
	if s.hasFold(line, mac) {
		last = s.run(line+len(mac), alnum, line+len(mac)+80)
	}
	s.add(rulePutty, Restricted, start, last)
}

// jwt weighs a token in three parts, and believes it when the first part is
// JSON that names an algorithm.
func (s *scan) jwt(end int) {
	start := end - len("eyJ")
	if s.text[start:end] != "eyJ" || !s.fresh(start, base64URL) || s.full(ruleJWT) {
		return
	}
	const longestHeader = 2048
	header := s.run(end, base64URL, start+longestHeader)
	if !strings.HasPrefix(s.text[header:], ".eyJ") {
		return
	}
	// Not read again from a place inside: the next part begins behind a dot
	// and is read as a header once more, and no further.
	payload := s.run(header+1, base64URL, len(s.text))
	if !s.is(payload, dot) {
		return
	}
	signature := s.run(payload+1, base64URL, len(s.text))
	if signature-payload < 17 {
		return
	}
	raw, err := base64.RawURLEncoding.DecodeString(s.text[start:header])
	if err != nil {
		return
	}
	var h struct {
		Alg string `json:"alg"`
	}
	if json.Unmarshal(raw, &h) == nil && h.Alg != "" {
		s.add(ruleJWT, Restricted, start, signature)
	}
}

// azure weighs a key of n base64 digits behind its name in a connection
// string.
func (s *scan) azure(at, n int) {
	end := s.run(at, base64Std, at+n+1)
	if end-at != n || !genuine(s.text[at:end], base64Std) {
		return
	}
	s.add(ruleAzure, Restricted, at, s.run(end, equals, end+2))
}

// openAI weighs a key of the older form, which has its mark in the middle.
func (s *scan) openAI(end int) {
	const half, longest = 20, 200
	mark := end - len("T3BlbkFJ")
	if s.text[mark:end] != "T3BlbkFJ" {
		return
	}
	// What an earlier mark has read is not read again.
	start, read := mark, s.mark
	for start > read.end && s.is(start-1, base64URL) {
		start--
	}
	if start == read.end {
		start = read.start
	}
	s.mark = stretch{start, end}
	start = max(start, mark-longest)
	if mark-start < half || !strings.HasPrefix(s.text[start:], "sk-") {
		return
	}
	for _, newer := range []string{"sk-proj-", "sk-svcacct-", "sk-admin-"} {
		if strings.HasPrefix(s.text[start:], newer) {
			return // found by its prefix
		}
	}
	if stop := s.run(end, base64URL, end+longest); stop-end >= half {
		s.add(ruleOpenAI, Restricted, start, stop)
	}
}

func (s *scan) sendGrid(end int) {
	start := end - len("SG.")
	id := s.run(end, base64URL, end+23)
	if s.text[start:end] != "SG." || !s.fresh(start, word) || id-end != 22 || !s.is(id, dot) {
		return
	}
	key := s.run(id+1, base64URL, id+1+44)
	if key-id-1 == 43 && genuine(s.text[id+1:key], base64URL) {
		s.add(ruleSendGrid, Restricted, start, key)
	}
}

func (s *scan) slackWebhook(end int) {
	at := -1
	for _, path := range []string{"services/T", "workflows/T", "triggers/T", "triggers/E"} {
		if strings.HasPrefix(s.text[end:], path) {
			at = end + len(path)
		}
	}
	if at < 0 {
		return
	}
	stop := s.run(at, alnum|slash, at+120)
	parts := strings.Split(s.text[at:stop], "/")
	if last := parts[len(parts)-1]; len(parts) >= 3 && len(last) >= 20 && genuine(last, alnum) {
		s.add(ruleSlackWebhook, Restricted, end-len("hooks.slack.com/"), stop)
	}
}

// telegram weighs a bot token: the bot's number, a colon, 35 characters.
func (s *scan) telegram(end int) {
	colon := end - len(":AA")
	if s.text[colon:end] != ":AA" {
		return
	}
	start := colon
	for start > 0 && colon-start < 11 && s.is(start-1, digit) {
		start--
	}
	stop := s.run(colon+1, base64URL, colon+1+36)
	if n := colon - start; n < 8 || n > 10 || stop-colon-1 != 35 {
		return
	}
	// "bot" stands before it in the address of every call.
	if !s.fresh(start, alnum) && !s.hasFold(start-3, "bot") {
		return
	}
	if genuine(s.text[colon+3:stop], base64URL) {
		s.add(ruleTelegram, Restricted, start, stop)
	}
}

// nearTwilio looks around that name for its keys, which have too short a
// prefix to be looked for everywhere.
func (s *scan) nearTwilio(end int) {
	const around, size = 200, 34
	at := max(end-around, s.twilio)
	stop := min(end+around, len(s.text))
	s.twilio = max(stop, s.twilio)
	for at < stop {
		i := strings.Index(s.text[at:stop], "SK")
		if i < 0 {
			break
		}
		at += i
		if key := s.run(at+2, hexDigits, at+size+1); s.fresh(at, alnum) && key-at == size && !s.is(key, alnum) &&
			genuine(s.text[at+2:key], hexDigits) {
			s.add(ruleTwilio, Restricted, at, key)
		}
		at += 2
	}
}

func (s *scan) bearer(end int) {
	if !s.fresh(end-len("bearer "), alnum) {
		return
	}
	const shortest, longest = 20, 4096
	stop := s.run(end, base64URL|dot|slash|equals|sign, end+longest)
	for stop > end && s.is(stop-1, dot|sign) {
		stop--
	}
	value := s.text[end:stop]
	m := weigh(value)
	machine := m.distinct >= 8 && m.digits >= 2 && m.turns >= 1 && m.lower+m.upper >= 2
	if len(value) >= shortest && machine && !strings.Contains(value, "://") && !s.standIn(value) {
		s.add(ruleBearer, Restricted, end, stop)
	}
}

// basic weighs the header of that name: the value must hold a user and a
// password.
func (s *scan) basic(end int) {
	const head, longest = 24, 512
	before := strings.ToLower(s.text[max(0, end-len("basic ")-head) : end-len("basic ")])
	if !strings.Contains(before, "authorization") {
		return
	}
	stop := s.run(end, base64Std|equals, end+longest)
	raw, err := base64.StdEncoding.DecodeString(s.text[end:stop])
	if err != nil {
		return
	}
	if _, password, ok := strings.Cut(string(raw), ":"); ok && password != "" && !s.standIn(password) {
		s.add(ruleBasic, Restricted, end, stop)
	}
}

// url weighs the part of a URL before the host.
func (s *scan) url(end int) {
	const longestScheme, longestLogin = 20, 256
	slashes := end - len("://")
	start := slashes
	for start > 0 && slashes-start < longestScheme && (s.is(start-1, alnum|dash|dot) || s.text[start-1] == '+') {
		start--
	}
	if start == slashes || !s.is(start, letter) {
		return
	}
	stop := end
	for limit := min(end+longestLogin, len(s.text)); stop < limit; stop++ {
		if c := s.text[stop]; c == '/' || c == '<' || c == '>' || kindOf(c).in(space|newline|quote) {
			break
		}
	}
	login := s.text[end:stop]
	at := strings.LastIndexByte(login, '@')
	if at < 0 || end+at+1 >= len(s.text) || !s.is(end+at+1, alnum) && s.text[end+at+1] != '[' {
		return
	}
	user, password, ok := strings.Cut(login[:at], ":")
	if !ok || password == "" || s.standIn(password) {
		return
	}
	for i := range len(user) {
		if c := user[i]; !kindOf(c).in(word|dash|dot) && strings.IndexByte("%+~@", c) < 0 {
			return
		}
	}
	if manual(user, password) {
		return
	}
	rule := ruleURL
	scheme, _, _ := strings.Cut(strings.ToLower(s.text[start:slashes]), "+")
	if slices.Contains([]string{
		"postgres", "postgresql", "mysql", "mariadb", "mongodb", "redis", "rediss", "amqp", "amqps", "mssql",
		"sqlserver", "clickhouse", "cockroachdb", "cassandra", "neo4j", "nats", "couchdb",
	}, scheme) {
		rule = ruleDatabase
	}
	s.add(rule, Restricted, end+len(user)+1, end+at)
}

// manual reports whether a login is the one of every manual, where the word
// for a password stands for one.
func manual(user, password string) bool {
	return slices.Contains([]string{"user", "username", "usr", "name", "login"}, strings.ToLower(user)) &&
		slices.Contains([]string{"password", "passwd", "pwd"}, strings.ToLower(password))
}

// awsSecret weighs the 40 characters behind the key's name.
func (s *scan) awsSecret(end int) {
	const size, gap = 40, 16
	at := end
	for limit := end + gap; at < limit && at < len(s.text); at++ {
		if c := s.text[at]; !kindOf(c).in(space|newline|quote|equals) && strings.IndexByte(`:>\,(*`, c) < 0 {
			break
		}
	}
	stop := s.run(at, base64Std, at+size+1)
	if at == end || stop-at != size || s.is(stop, equals) {
		return
	}
	if m := weigh(s.text[at:stop]); m.lower > 0 && m.upper > 0 && genuine(s.text[at:stop], base64Std) {
		s.add(ruleAWSSecret, Restricted, at, stop)
	}
}
