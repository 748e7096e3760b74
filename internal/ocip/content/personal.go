package content

import (
	"fmt"
	"slices"
	"strings"
)

// Treatments of a finding of personal data, besides the levels: it is recorded and raises nothing,
// or the rule is off.
const (
	Shadow = "shadow"
	Off    = "off"
)

const personalPrefix = "personal."

// personalRules are the rules of personal data, by their names without the prefix. They are in
// shadow unless an operator configures them otherwise: people write such data to each other all
// day.
var personalRules = []Rule{
	{"email", Public, "RFC 5322, addresses"},
	{"phone", Public, "ITU-T E.164, international numbers, and a word that says what it is"},
	{"birth-date", Public, "a date behind a word that says what it is"},
	{"passport", Public, "ICAO Doc 9303, document numbers, and a word that says what it is"},
	{"au-tfn", Public, "Australian Taxation Office, tax file numbers"},
	{"be-rrn", Public, "Belgian Register, numbers of the National Register"},
	{"br-cpf", Public, "Receita Federal, CPF"},
	{"ca-sin", Public, "Government of Canada, social insurance numbers"},
	{"ch-ahv", Public, "Swiss Central Compensation Office, AHV numbers"},
	{"cn-resident-id", Public, "GB 11643, citizen identification numbers"},
	{"dk-cpr", Public, "Danish CPR Office, personal identification numbers"},
	{"fi-hetu", Public, "Finnish Digital and Population Data Services Agency, personal identity codes"},
	{"it-codice-fiscale", Public, "Agenzia delle Entrate, codice fiscale"},
	{"jp-my-number", Public, "Japanese Digital Agency, individual numbers"},
	{"kr-rrn", Public, "Korean Ministry of the Interior, resident registration numbers"},
	{"nl-bsn", Public, "Dutch government, burgerservicenummer"},
	{"no-fodselsnummer", Public, "Norwegian Tax Administration, national identity numbers"},
	{"pl-pesel", Public, "Polish government, PESEL"},
	{"pt-nif", Public, "Portuguese Tax Authority, NIF"},
	{"se-personnummer", Public, "Swedish Tax Agency, personal identity numbers"},
	{"sg-nric", Public, "Singapore ICA, NRIC and FIN"},
	{"th-id", Public, "Thai Department of Provincial Administration, identification numbers"},
	{"tr-kimlik", Public, "Turkish Directorate of Population, T.C. kimlik numbers"},
	{"uk-nhs", Public, "NHS Data Dictionary, NHS numbers"},
	{"us-itin", Public, "IRS, individual taxpayer identification numbers"},
	{"za-id", Public, "South African Department of Home Affairs, identity numbers"},
}

// Personal lists the names of the kinds of personal data.
func Personal() []string {
	names := make([]string, len(personalRules))
	for i, r := range personalRules {
		names[i] = r.ID
	}
	return names
}

// PersonalModes lists the possible treatments.
func PersonalModes() []string { return []string{Shadow, Off, Internal, Confidential, Restricted} }

// personalModes returns the treatment of each kind, by the ids of the rules.
func personalModes(said map[string]string) (map[string]string, error) {
	modes := map[string]string{}
	for _, r := range personalRules {
		modes[personalPrefix+r.ID] = Shadow
	}
	for name, mode := range said {
		if !slices.Contains(Personal(), name) {
			return nil, fmt.Errorf("unknown kind of personal data %.64q, want one of %s", name, strings.Join(Personal(), ", "))
		}
		if !slices.Contains(PersonalModes(), mode) {
			return nil, fmt.Errorf("unknown mode %.64q of %s, want one of %s", mode, name, strings.Join(PersonalModes(), ", "))
		}
		modes[personalPrefix+name] = mode
	}
	return modes, nil
}

// person notes personal data, unless the kind is off.
func (s *scan) person(name string, start, end int) {
	rule := personalPrefix + name
	if s.full(rule) {
		return
	}
	for i := range s.found { // another form of the same
		if f := &s.found[i]; f.Rule == rule && f.Start < end && start < f.End {
			return
		}
	}
	switch mode := s.d.personal[rule]; mode {
	case Off, "":
	case Shadow:
		if i := s.add(rule, Public, start, end); i >= 0 {
			s.found[i].Shadow = true
		}
	default:
		s.add(rule, mode, start, end)
	}
}

func personalAnchors() []anchor {
	var all []anchor
	for _, w := range []string{
		"born", "date of birth", "birth date", "birthdate", "birthday", "dob", "geboren", "geburtsdatum", "n\u00e9 le", "n\u00e9e le", "date de naissance",
		"fecha de nacimiento", "nacido", "nacida", "data di nascita", "nato il", "nata il", "geboortedatum", "data de nascimento",
		"\u751f\u5e74\u6708\u65e5", "\u51fa\u751f\u65e5\u671f",
	} {
		all = append(all, anchor{w, func(s *scan, end int) { s.birthDate(end, len(w)) }})
	}
	for _, w := range []string{
		"passport", "reisepass", "passnummer", "passeport", "pasaporte", "passaporto", "passaporte", "paspoort", "\u8b77\u7167", "\u62a4\u7167", "\u65c5\u5238",
	} {
		all = append(all, anchor{w, (*scan).passport})
	}
	return all
}

// people looks for e-mail addresses and for numbers that begin with a plus.
func (s *scan) people() {
	for at := find(s.text, '@', 0); at < len(s.text); at = find(s.text, '@', at+1) {
		s.email(at)
	}
	for at := find(s.text, '+', 0); at < len(s.text); at = find(s.text, '+', at+1) {
		s.phone(at)
	}
}

func (s *scan) email(at int) {
	const longestName, longestHost = 64, 128
	if !s.is(at+1, alnum) {
		return
	}
	start := s.back(at, word|dash|dot|sign|slash, at-longestName-1)
	for start < at && !s.is(start, alnum) {
		start++
	}
	if start == at || at-start > longestName || s.is(at-1, dot) {
		return
	}
	if s.at(start-1) == ':' && s.at(s.back(start-1, word|dash|dot, start-longestName)-1) == '/' {
		return // a login in a URL
	}
	end := s.run(at+1, alnum|dash|dot, at+1+longestHost)
	for end > at && s.is(end-1, dash|dot) {
		end--
	}
	host := s.text[at+1 : max(end, at+1)]
	last := strings.LastIndexByte(host, '.')
	if last <= 0 || len(host)-last < 3 || run(host, last+1, letter, len(host)) < len(host) || strings.Contains(host, "..") {
		return
	}
	// Addresses that belong to nobody: those of manuals, and those for cloning a repository.
	host = strings.ToLower(host)
	for _, reserved := range []string{"example.com", "example.org", "example.net", ".example", ".test", ".invalid"} {
		if strings.HasSuffix(host, reserved) {
			return
		}
	}
	if name := strings.ToLower(s.text[start:at]); name == "git" || strings.ContainsAny(name, "/:") || strings.HasPrefix(strings.ReplaceAll(name, "-", ""), "noreply") {
		return
	}
	s.person("email", start, end)
}

// phone weighs an international number. Its digits may be grouped in any way.
func (s *scan) phone(plus int) {
	const fewest, most = 8, 15
	if s.is(plus-1, word) || !s.is(plus+1, digit) || s.at(plus+1) == '0' {
		return
	}
	digits, end := 0, plus+1
	for i := plus + 1; i < len(s.text) && digits <= most; i++ {
		c := s.text[i]
		if kindOf(c).in(digit) {
			digits++
			end = i + 1
			continue
		}
		if strings.IndexByte(" -.()/", c) < 0 || i-end >= 2 && c != '(' {
			break
		}
	}
	if digits >= fewest && digits <= most && !s.is(end, word) {
		s.person("phone", plus, end)
	}
}

// months are the first letters of the months' names, in the languages of the rules.
var months = []string{
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
	"m\u00e4r", "mai", "okt", "dez", "f\u00e9v", "avr", "juin", "juil", "ao\u00fb", "d\u00e9c", "ene", "abr", "ago", "dic", "gen", "mag", "giu", "lug", "set", "ott",
	"mrt", "mei", "fev", "out",
}

// birthDate weighs the text after a word that announces a date of birth.
func (s *scan) birthDate(end, size int) {
	const gap, longest = 24, 24
	if s.text[end-size] < 0x80 && s.is(end-size-1, alnum) || s.text[end-1] < 0x80 && s.is(end, letter) {
		return
	}
	for at := end; at < min(end+gap, len(s.text)) && !s.is(at, newline); at++ {
		if !s.is(at-1, alnum) {
			if stop := s.date(at, at+longest); stop > at {
				s.person("birth-date", at, stop)
				return
			}
		}
	}
}

// date returns the end of a date that begins at at, or at.
func (s *scan) date(at, limit int) int {
	var parts [3]int
	n, named, i := 0, false, at
	for n < 3 && i < limit && i < len(s.text) {
		if stop := s.run(i, digit, i+5); stop > i {
			if stop-i > 4 {
				return at
			}
			for _, c := range s.text[i:stop] {
				parts[n] = parts[n]*10 + int(c-'0')
			}
			i = stop
		} else {
			if named || !slices.ContainsFunc(months, func(m string) bool { return s.hasFold(i, m) }) {
				return at
			}
			for i < len(s.text) && (s.is(i, letter) || s.text[i] >= 0x80) {
				i++
			}
			parts[n], named = 1, true // any month
		}
		if n++; n == 3 {
			break
		}
		sep := i
		for i < len(s.text) && i-sep < 6 && (s.is(i, dot|dash|space) || s.at(i) == '/' || s.at(i) == ',' || s.text[i] >= 0x80) {
			i++
		}
		for _, between := range []string{"de ", "of "} { // 12 de marzo de 1980
			if s.hasFold(i, between) {
				i += len(between)
			}
		}
		if i == sep {
			return at
		}
	}
	year := func(y int) bool { return y >= 1900 && y < 2100 }
	day := func(d int) bool { return d >= 1 && d <= 31 }
	if n == 3 && !s.is(i, word) && day(parts[1]) && (year(parts[0]) && day(parts[2]) || day(parts[0]) && (year(parts[2]) || !named && parts[2] < 100)) {
		return i
	}
	return at
}

// passport weighs the text after that word.
func (s *scan) passport(end int) {
	const gap = 32
	for at := s.run(end, letter, end+12); at < min(end+gap, len(s.text)) && !s.is(at, newline); at++ {
		if s.is(at-1, alnum) || !s.is(at, upperNum) {
			continue
		}
		stop := s.run(at, upperNum, at+11)
		m := weigh(s.text[at:stop])
		if n := stop - at; n >= 7 && n <= 9 && m.digits >= 5 && !s.is(stop, word) && m.distinct > 1 {
			s.person("passport", at, stop)
			return
		}
	}
}
