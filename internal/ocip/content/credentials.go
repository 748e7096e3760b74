package content

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Rules that need more than a prefix.
const (
	rulePrivateKey     = "credential.private-key"
	rulePutty          = "credential.putty-private-key"
	ruleJWT            = "credential.jwt"
	ruleAWSSecret      = "credential.aws-secret-access-key"
	ruleAzure          = "credential.azure-account-key"
	ruleAzureKey       = "credential.azure-identifiable-key"
	ruleEntra          = "credential.entra-client-secret"
	ruleOpenAI         = "credential.openai-key"
	ruleSendGrid       = "credential.sendgrid-key"
	ruleMailchimp      = "credential.mailchimp-key"
	ruleMaxMind        = "credential.maxmind-key"
	ruleTerraform      = "credential.terraform-token"
	ruleNewRelic       = "credential.new-relic-license-key"
	ruleMapbox         = "credential.mapbox-token"
	ruleFacebookApp    = "credential.facebook-app-token"
	ruleOkta           = "credential.okta-token"
	ruleSlackWebhook   = "credential.slack-webhook"
	ruleDiscordWebhook = "credential.discord-webhook"
	ruleDiscord        = "credential.discord-bot-token"
	ruleTeamsWebhook   = "credential.teams-webhook"
	ruleTelegram       = "credential.telegram-bot-token"
	ruleTwilio         = "credential.twilio-key"
	ruleKubernetes     = "credential.kubernetes-secret"
	ruleBearer         = "credential.bearer-token"
	ruleAuthorization  = "credential.authorization-header"
	ruleBasic          = "credential.basic-authorization"
	ruleURL            = "credential.url-password"
	ruleDatabase       = "credential.database-url"
	ruleRegistry       = "credential.registry-login"
	ruleAzureSAS       = "credential.azure-sas"
	ruleCurl           = "credential.curl-user"
	ruleAssignment     = "credential.assignment"
	rulePassword       = "credential.password"
	longestPrivateKey  = 64 << 10
)

func credentialAnchors() []anchor {
	all := []anchor{
		{"-----begin ", (*scan).pemBegin},
		{"---- begin ", (*scan).pemBegin}, // as long as the other anchor
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
		{"/api/webhooks/", (*scan).discordWebhook},
		{"discord", (*scan).nearDiscord},
		{"office.com/webhook", (*scan).teamsWebhook},
		{"ssws ", (*scan).okta},
		{"sk.eyj", (*scan).mapbox},
		{"kind:", (*scan).kubernetes},
		{"authorization", (*scan).authorization},
		{"curl ", func(s *scan, end int) { s.curled = end }},
		{"-u ", (*scan).curl},
		{"--user ", (*scan).curl},
		{":aa", (*scan).telegram},
		{"twilio", (*scan).nearTwilio},
		{"bearer ", (*scan).bearer},
		{"basic ", (*scan).basic},
		{`"auth"`, (*scan).registry},
		{"sig=", (*scan).azureSAS},
		{"://", (*scan).url},
	}
	for _, name := range []string{
		"secret_access_key", "secretaccesskey", "secret access key", "secret-access-key",
		"aws_secret_key", "aws secret key", "awssecretkey",
	} {
		all = append(all, anchor{name, (*scan).awsSecret})
	}
	for i := range marks {
		m := marks[i]
		check := func(s *scan, end int) { s.marked(&m, end) }
		if len(m.mark) > 1 {
			all = append(all, anchor{strings.ToLower(m.mark), check})
			continue
		}
		for _, last := range "0123456789" { // only digits come before it
			all = append(all, anchor{string(last) + m.mark, check})
		}
	}
	return all
}

// mark describes a credential with an issuer's sign in the middle or at the end. The runs before
// and behind the sign have known lengths.
type mark struct {
	rule, mark           string
	before               kind
	beforeMin, beforeMax int
	behind               kind
	behindMin, behindMax int
}

var marks = []mark{
	{ruleTerraform, ".atlasv1.", alnum, 14, 14, base64URL | equals, 60, 70},
	{ruleMailchimp, "-us", hexDigits, 32, 32, digit, 1, 2},
	{ruleMaxMind, "_mmk", word, 36, 36, under, 0, 0},
	{ruleFacebookApp, "|", digit, 15, 16, base64URL, 27, 40},
	{ruleNewRelic, "NRAL", lowerNum, 36, 36, under, 0, 0},
	{ruleAzureKey, "JQQJ99", alnum, 52, 52, alnum, 26, 26},
	{ruleAzureKey, "AZDO", alnum, 76, 76, alnum, 4, 4},
	{ruleEntra, "Q~", word | dot | dash | tilde, 4, 4, word | dot | dash | tilde, 31, 34},
}

// marked weighs the runs around such a sign, and the whole.
func (s *scan) marked(m *mark, end int) {
	at := end - len(m.mark)
	if s.text[at:end] != m.mark {
		return
	}
	start := s.back(at, m.before, at-m.beforeMax-1)
	stop := s.run(end, m.behind, end+m.behindMax+1)
	if n := at - start; n < m.beforeMin || n > m.beforeMax {
		return
	}
	for stop > end && s.is(stop-1, dot) { // dots that end a sentence
		stop--
	}
	if n := stop - end; n < m.behindMin || n > m.behindMax || s.is(stop, alnum) || s.is(start-1, alnum) && !s.fresh(start, alnum) {
		return
	}
	if m.rule == ruleEntra && !s.is(at-1, digit) {
		return
	}
	if genuine(s.text[start:at]+s.text[end:stop], m.before|m.behind) {
		s.add(m.rule, Restricted, start, stop)
	}
}

// pemBegin weighs the first line of a private key. Alone it is no secret, since sources and manuals
// quote it: key material has to follow.
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

// keyMaterial reads lines of base64, past headers and quote signs between the lines, and returns
// the end of the last one.
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
		// A header of the key, for example "DEK-Info: …".
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
	// There is no limit on the number of further lines: none of their bytes can begin another key.
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

// blanks skips the text between the lines of a quoted block.
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

// pemEnd ends the open key, including the whole end line.
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

// puttyLines weighs the private part of a PuTTY key file. The file itself states the part's length.
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

// jwt weighs a token in three parts. It counts if the first part is JSON that names an algorithm.
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
	// No place inside causes a second read: the next part begins after a dot and is read as a
	// header once more, and no further.
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

// azure weighs a key of n base64 digits after its name in a connection string.
func (s *scan) azure(at, n int) {
	end := s.run(at, base64Std, at+n+1)
	if end-at != n || !genuine(s.text[at:end], base64Std) {
		return
	}
	s.add(ruleAzure, Restricted, at, s.run(end, equals, end+2))
}

// openAI weighs a key of the older form, which has its sign in the middle.
func (s *scan) openAI(end int) {
	const half, longest = 20, 200
	mark := end - len("T3BlbkFJ")
	if s.text[mark:end] != "T3BlbkFJ" {
		return
	}
	// Text that an earlier sign has read is not read again.
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
			return // its prefix is found by another rule
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
	// In the address of every call, "bot" precedes the number.
	if !s.fresh(start, alnum) && !s.hasFold(start-3, "bot") {
		return
	}
	if genuine(s.text[colon+3:stop], base64URL) {
		s.add(ruleTelegram, Restricted, start, stop)
	}
}

// nearTwilio looks for Twilio's keys around that name alone, because their prefix is too short to
// look for it everywhere.
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

// nearDiscord looks around that name for the token of a bot: its number in base64, a time, and a
// checksum, with dots between them.
func (s *scan) nearDiscord(end int) {
	const around = 200
	at := max(end-around, s.discord)
	stop := min(end+around, len(s.text))
	s.discord = max(stop, s.discord)
	for at < stop {
		i := strings.IndexByte(s.text[at:stop], '.')
		if i < 0 {
			break
		}
		first := at + i
		at = first + 1
		start := s.back(first, alnum, first-29)
		second := s.run(first+1, base64URL, first+8)
		if n := first - start; n < 23 || n > 28 || second-first != 7 || !s.is(second, dot) || !s.fresh(start, alnum) || strings.IndexByte("MNO", s.text[start]) < 0 {
			continue
		}
		third := s.run(second+1, base64URL, second+41)
		if n := third - second - 1; n >= 27 && n <= 38 && genuine(s.text[start:third], base64URL) {
			s.add(ruleDiscord, Restricted, start, third)
		}
	}
}

// discordWebhook weighs the path of a webhook: a number and the secret.
func (s *scan) discordWebhook(end int) {
	number := s.run(end, digit, end+21)
	stop := s.run(number+1, base64URL, number+90)
	if number-end >= 17 && s.at(number) == '/' && stop-number > 60 && genuine(s.text[number+1:stop], base64URL) {
		s.add(ruleDiscordWebhook, Restricted, number+1, stop)
	}
}

// teamsWebhook weighs the path of a webhook: two ids and the secret.
func (s *scan) teamsWebhook(end int) {
	const longest = 300
	stop := s.run(end, alnum|dash|slash|sign, end+longest)
	_, path, ok := strings.Cut(s.text[end:stop], "/IncomingWebhook/")
	if ok && run(path, 0, hexDigits, 33) == 32 {
		s.add(ruleTeamsWebhook, Restricted, end-len("office.com/webhook"), stop)
	}
}

// okta weighs the token after the name of its scheme.
func (s *scan) okta(end int) {
	stop := s.run(end, base64URL, end+43)
	if s.fresh(end-len("ssws "), alnum) && stop-end == 42 && strings.HasPrefix(s.text[end:], "00") && genuine(s.text[end+2:stop], base64URL) {
		s.add(ruleOkta, Restricted, end, stop)
	}
}

// mapbox weighs a secret token. The public form begins with pk.
func (s *scan) mapbox(end int) {
	start := end - len("sk.eyJ")
	if s.text[start:end] != "sk.eyJ" || !s.fresh(start, word) || start < s.mapboxed {
		return
	}
	payload := s.run(end, base64URL, end+512)
	s.mapboxed = payload
	key := s.run(payload+1, base64URL, payload+24)
	if payload-end >= 40 && s.is(payload, dot) && key-payload-1 == 22 && genuine(s.text[end:payload], base64URL) {
		s.add(ruleMapbox, Restricted, start, key)
	}
}

// kubernetes weighs the values of a Secret manifest, which are in base64.
func (s *scan) kubernetes(end int) {
	const around, most, shortest = 1000, 32, 8 // of base64, for five characters
	name := s.run(end, space|quote, end+4)
	if !s.hasFold(name, "secret") || s.is(name+len("secret"), word|dash) {
		return
	}
	from, to := max(end-around, s.kube), min(end+around, len(s.text))
	s.kube = max(s.kube, to)
	for from < to {
		i := strings.Index(s.text[from:to], "data:")
		if i < 0 {
			return
		}
		at := from + i + len("data:")
		from = at
		for range most {
			line := s.run(at, space|newline, at+64)
			if line == at {
				break
			}
			key := s.run(line, word|dash|dot, line+64)
			if key == line || s.at(key) != ':' {
				break
			}
			value := s.run(key+1, space|quote|newline, key+16)
			if c := s.at(value); c == '|' || c == '>' { // a block on its own lines
				value = s.run(s.run(value+1, dash, value+2), space|quote|newline, value+64)
			}
			stop := s.run(value, base64Std|equals, value+4096)
			if stop-value < shortest || !s.is(stop, newline|space|quote) && stop < len(s.text) {
				at = stop
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(s.text[value:stop])
			if plain := strings.TrimSpace(string(raw)); err == nil && len(plain) >= 5 && readable(raw) && !s.standIn(plain) {
				s.add(ruleKubernetes, Restricted, value, stop)
			}
			at = s.run(stop, quote, stop+1)
		}
	}
}

// curl weighs the login of a call.
func (s *scan) curl(end int) {
	const before, longest = 400, 128
	if !s.is(end-len("-u ")-1, space|newline) && !s.hasFold(end-len("--user "), "--user ") {
		return
	}
	if s.curled == 0 || end-s.curled > before {
		return
	}
	at := s.run(end, space, end+4)
	var closing byte
	if s.is(at, quote) {
		closing = s.text[at]
		at++
	}
	stop, colon := at, -1
	for limit := min(at+longest, len(s.text)); stop < limit; stop++ {
		c := s.text[stop]
		if closing != 0 && c == closing || kindOf(c).in(newline) || closing == 0 && kindOf(c).in(space|quote) {
			break
		}
		if c == ':' && colon < 0 {
			colon = stop
		}
	}
	// The password may have its own quotes.
	if colon == stop-1 && closing == 0 && s.is(stop, quote) {
		from := stop + 1
		if stop = from + strings.IndexByte(s.text[from:min(from+longest, len(s.text))], s.text[stop]); stop >= from {
			s.curlLogin(s.text[at:colon], from, stop)
		}
		return
	}
	if colon < 0 {
		return
	}
	if m := weigh(s.text[at:colon]); colon == stop-1 && stop-at > 8 && m.classes() > 1 { // a key in place of the name
		s.curlLogin("", at, colon)
		return
	}
	s.curlLogin(s.text[at:colon], colon+1, stop)
}

func (s *scan) curlLogin(user string, from, to int) {
	const shortest = 3
	password := s.text[from:to]
	if len(password) < shortest || s.standIn(password) || user != "" && s.standIn(user) || s.text[from] == '/' {
		return
	}
	if user == password || manual(user, password) || manual(user, "password") && slices.Contains([]string{"pass", "token", "secret"}, password) {
		return // from a manual
	}
	s.add(ruleCurl, Restricted, from, to)
}

// authorization weighs the header's value under a scheme that no other rule knows, or under none.
func (s *scan) authorization(end int) {
	const shortest, longest = 16, 1024
	at := s.run(end, quote, end+2)
	at = s.run(at, space, at+2)
	if c := s.at(at); c != ':' && c != '=' {
		return
	}
	at = s.run(at+1, space|quote, at+8)
	scheme := s.run(at, letter|dash, at+16)
	if s.is(scheme, space) {
		if name := s.text[at:scheme]; strings.EqualFold(name, "bearer") || strings.EqualFold(name, "basic") {
			return
		}
		at = s.run(scheme, space, scheme+4)
	}
	stop := s.run(at, base64URL|dot|slash|equals|sign, at+longest)
	for stop > at && s.is(stop-1, dot|sign) {
		stop--
	}
	value := s.text[at:stop]
	m := weigh(value)
	if len(value) >= shortest && m.strong(len(value)) && !strings.Contains(value, "://") && !s.standIn(value) {
		s.add(ruleAuthorization, Restricted, at, stop)
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

// basic weighs that header: the value must contain a user and a password.
func (s *scan) basic(end int) {
	const head, longest = 24, 512
	before := strings.ToLower(s.text[max(0, end-len("basic ")-head) : end-len("basic ")])
	if !strings.Contains(before, "authorization") {
		return
	}
	s.login(ruleBasic, end, s.run(end, base64Std|equals, end+longest))
}

// login weighs a possible name and password in base64.
func (s *scan) login(rule string, from, to int) {
	raw, err := base64.StdEncoding.DecodeString(s.text[from:to])
	if err != nil {
		return
	}
	if _, password, ok := strings.Cut(string(raw), ":"); ok && password != "" && !s.standIn(password) {
		s.add(rule, Restricted, from, to)
	}
}

// registry weighs a login of a registry in the form of container programs.
func (s *scan) registry(end int) {
	const longest, shortest = 512, 8
	at := s.run(end, space, end+4)
	if s.at(at) != ':' {
		return
	}
	at = s.run(at+1, space, at+8)
	stop := s.run(at+1, base64Std|equals, at+1+longest)
	if s.at(at) == '"' && s.at(stop) == '"' && stop-at > shortest {
		s.login(ruleRegistry, at+1, stop)
	}
}

// azureSAS weighs the signature in an address that gives access until it expires: 32 bytes in
// base64, in the form of a query.
func (s *scan) azureSAS(end int) {
	const around, digits = 400, 43
	if s.is(end-len("sig=")-1, word) {
		return
	}
	stop, n := end, 0
	for stop < len(s.text) && n <= digits {
		if s.text[stop] == '%' {
			if r, size := escape(s.text[stop:]); size > 0 && (r == '+' || r == '/' || r == '=') {
				if stop += size; r != '=' {
					n++
				}
				continue
			}
		}
		if !s.is(stop, base64Std|equals) {
			break
		}
		if s.text[stop] != '=' {
			n++
		}
		stop++
	}
	if n != digits || !genuine(s.text[end:stop], base64Std) {
		return
	}
	from, to := end, stop
	for from > max(0, end-around) && !s.is(from-1, space|newline|quote) {
		from--
	}
	for to < min(len(s.text), stop+around) && !s.is(to, space|newline|quote) {
		to++
	}
	if query := s.text[from:to]; strings.Contains(query, "se=") && (strings.Contains(query, "sv=20") || strings.Contains(query, "sr=")) {
		s.add(ruleAzureSAS, Restricted, end, stop)
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

// manual reports whether a login comes from a manual, with a placeholder as the password.
func manual(user, password string) bool {
	return slices.Contains([]string{"user", "username", "usr", "name", "login"}, strings.ToLower(user)) &&
		slices.Contains([]string{"password", "passwd", "pwd"}, strings.ToLower(password))
}

// awsSecret weighs the 40 characters after the key's name.
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
	if m := weigh(s.text[at:stop]); m.lower > 0 && m.upper > 0 && genuine(s.text[at:stop], base64Std) && !documented(s.text[at:stop]) {
		s.add(ruleAWSSecret, Restricted, at, stop)
	}
}
