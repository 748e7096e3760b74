package content

import "strings"

const (
	ruleCard       = "financial.card-number"
	ruleIBAN       = "financial.iban"
	ruleSSN        = "identity.us-ssn"
	ruleSteuerID   = "identity.de-steuer-id"
	ruleAadhaar    = "identity.in-aadhaar"
	ruleNINO       = "identity.uk-nino"
	ruleDNI        = "identity.es-dni"
	ruleINSEE      = "identity.fr-insee"
	longestNumber  = 19
	longestContext = 80
)

// mostGroups bounds the groups of a number that are checked together.
const mostGroups = 64

// group is a run of digits. A sequence is several groups with one separator between each two.
type group struct{ start, end int }

func (g group) size() int { return g.end - g.start }

// numbers weighs all digits of the text. In a sequence of any length it keeps only the groups that
// one number could span.
func (s *scan) numbers() {
	const most, reach = mostGroups, longestNumber + 1
	buf := &s.groups
	for i := nextDigit(s.text, 0); i < len(s.text); i = nextDigit(s.text, i+1) {
		if end := s.iban(i); end > 0 {
			i = end - 1 // its digits are no numbers of their own
			continue
		}
		glued := s.is(i-1, word)
		groups, first, total := buf[:0], 0, 0
		for {
			end := s.run(i, digit, len(s.text))
			if len(groups) == most {
				s.sequence(groups, first, most-reach, glued)
				groups = groups[:copy(buf[:], groups[most-reach-1:])]
				first = 1
			}
			groups = append(groups, group{i, end})
			total += end - i
			i = end
			if s.at(end) == '\t' || !s.is(end, space|dash|dot) || !s.is(end+1, digit) {
				break
			}
			i++
		}
		switch {
		case total >= 6: // no rule has fewer digits
			s.sequence(groups, first, len(groups), glued)
		case glued && total == 2 && s.is(groups[0].end, letter):
			s.codice(groups[0].start)
		}
	}
}

// sequence weighs every possible number that begins with one of groups[first:last]. Glued is set if
// a letter precedes the first digit.
func (s *scan) sequence(groups []group, first, last int, glued bool) {
	for i := first; i < last; i++ {
		whole := i > 0 || !glued
		if whole && groups[i].size() <= longestNumber && !s.card(groups, i, glued) {
			s.identity(groups[i:])
		}
		s.lettered(groups[i:])
		s.abroad(groups[i:])
	}
}

// layout reports whether groups begin with the given sizes, with the same separator between all of
// them, and nothing glued to their end.
func (s *scan) layout(groups []group, sizes ...int) bool {
	if !fits(groups, sizes) {
		return false
	}
	for i := range sizes {
		if i > 1 && s.text[groups[i].start-1] != s.text[groups[1].start-1] {
			return false
		}
	}
	return !s.is(groups[len(sizes)-1].end, word)
}

// digits returns the digits of groups in a buffer that the next call reuses. The caller ensures
// that there are not too many.
func (s *scan) digits(groups []group) []byte {
	n := 0
	for _, g := range groups {
		n += copy(s.number[n:], s.text[g.start:g.end])
	}
	return s.number[:n]
}

// card weighs the possible card numbers that begin with groups[i].
func (s *scan) card(groups []group, i int, glued bool) bool {
	rest := groups[i:]
	whole, digits := 0, 0
	for whole < len(rest) && digits+rest[whole].size() <= longestNumber {
		digits += rest[whole].size()
		whole++
		if whole > 1 && s.text[rest[whole-1].start-1] != s.text[rest[0].end] {
			whole = 0
			break
		}
	}
	for _, sizes := range [][]int{{4, 4, 4, 4, 3}, {4, 4, 4, 4}, {4, 6, 5}, {4, 6, 4}, {6, 13}, {rest[0].size()}} {
		n := len(sizes)
		if len(sizes) == 1 && sizes[0] < 13 || !s.layout(rest, sizes...) {
			continue
		}
		// It is part of something longer: a float, a table, a number of another kind.
		decimal := n == 1 && (i > 0 && s.text[rest[0].start-1] == '.' || len(rest) > 1 && s.text[rest[0].end] == '.')
		more := i > 0 && n > 1 && groups[i-1].size() == sizes[0] || len(rest) > n && n > 1 && rest[n].size() == sizes[n-1]
		if s.cardNumber(rest[:n], glued || decimal || more) {
			return true
		}
	}
	// Any other form needs a word nearby that names it.
	return i == 0 && !glued && whole == len(rest) && whole > 1 && digits >= 13 && !s.is(rest[whole-1].end, word) &&
		s.cardNumber(rest, true)
}

func (s *scan) cardNumber(groups []group, doubtful bool) bool {
	number := s.digits(groups)
	start, end := groups[0].start, groups[len(groups)-1].end
	if !scheme(number) || !luhn(number) || weigh(string(number)).distinct < 2 {
		return false
	}
	// The short numbers are obsolete, and look like bar codes.
	doubtful = doubtful || len(number) == 13 || s.is(start-1, dot) && s.is(start-2, digit)
	// It is part of a name, or of a fraction.
	doubtful = doubtful || s.is(start-1, dash) && s.is(start-2, word) || s.at(start-1) == '/' || s.at(end) == '/'
	if doubtful && !s.near(start, end, "card", "cards", "visa", "mastercard", "amex", "maestro", "cvv", "cvc",
		"kreditkarte", "karte", "kartennummer", "tarjeta", "carte", "cc", "pan") {
		return false
	}
	s.add(ruleCard, Confidential, start, end)
	return true
}

// scheme reports whether a card scheme issues numbers with this beginning and length.
func scheme(number []byte) bool {
	n := len(number)
	prefix := func(size int) int {
		v := 0
		for i := range size {
			v = v*10 + int(number[i]-'0')
		}
		return v
	}
	between := func(v, from, to int) bool { return from <= v && v <= to }
	if n < 13 || n > longestNumber {
		return false
	}
	p1, p2, p3, p4, p6 := prefix(1), prefix(2), prefix(3), prefix(4), prefix(6)
	switch {
	case p1 == 4: // Visa
		return n == 13 || n == 16 || n == 19
	case between(p2, 51, 55), between(p4, 2221, 2720): // Mastercard
		return n == 16
	case p2 == 34, p2 == 37: // American Express
		return n == 15
	case between(p3, 300, 305), p3 == 309, p2 == 36, p2 == 38, p2 == 39: // Diners Club
		return n == 14 || n == 16
	case p4 == 6011, between(p3, 644, 649), p2 == 65, p2 == 62, p2 == 81, p2 == 82, p2 == 60, p3 == 508: // Discover, UnionPay, RuPay
		return n >= 16
	case between(p4, 3528, 3589): // JCB
		return n >= 16
	case between(p4, 2200, 2204): // Mir
		return n >= 16
	case p4 == 5018, p4 == 5020, p4 == 5038, p4 == 5893, p4 == 6304, p4 == 6759, between(p4, 6761, 6763): // Maestro
		return n >= 13
	case p4 == 9792, between(p6, 979200, 979289): // Troy
		return n == 16
	}
	return false
}

func luhn(number []byte) bool {
	sum := 0
	for i := range len(number) {
		d := int(number[len(number)-1-i] - '0')
		if i%2 == 1 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return sum%10 == 0
}

// ibanSizes is the length of an IBAN for each country that has them.
var ibanSizes = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BI": 27, "BR": 29,
	"BY": 28, "CH": 21, "CR": 22, "CY": 28, "CZ": 24, "DE": 22, "DJ": 27, "DK": 18, "DO": 28, "EE": 20, "EG": 29,
	"ES": 24, "FI": 18, "FK": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22, "GI": 23, "GL": 18, "GR": 27, "GT": 28,
	"HN": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30, "KZ": 20,
	"LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19,
	"MN": 20, "MR": 27, "MT": 31, "MU": 30, "NI": 28, "NL": 18, "NO": 15, "OM": 23, "PK": 24, "PL": 28, "PS": 29,
	"PT": 25, "QA": 29, "RO": 24, "RS": 22, "RU": 33, "SA": 24, "SC": 31, "SD": 18, "SE": 24, "SI": 19, "SK": 24,
	"SM": 27, "SO": 23, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
	"YE": 30,
}

// iban weighs an account number whose check digits are at at, and returns its end, or 0.
func (s *scan) iban(at int) int {
	start := at - 2
	if !s.is(start, letter) || !s.is(start+1, letter) || !s.fresh(start, alnum) {
		return 0
	}
	size := ibanSizes[strings.ToUpper(s.text[start:at])]
	if size == 0 || s.inUUID(start) {
		return 0
	}
	var number [34]byte
	n, digits, i, gaps := 0, 0, start, false
	for n < size && i < len(s.text) {
		k := kindOf(s.text[i])
		if k.in(space|dash|dot) && n >= 4 && !s.is(i-1, space|dash|dot) {
			gaps = true
			i++
			continue
		}
		if !k.in(alnum) || gaps && k.in(lowerCase) && n > 4 && !s.is(start, lowerCase) {
			return 0
		}
		if k.in(digit) {
			digits++
		}
		number[n] = s.text[i]
		n++
		i++
	}
	// The digits exclude prose: words in groups would satisfy the check by chance, one time in 97.
	if n < size || digits < 8 || s.is(i, alnum) || !mod97(number[4:size], number[:4]) {
		return 0
	}
	s.add(ruleIBAN, Confidential, start, i)
	return i
}

// inUUID reports whether a part of a UUID begins at at.
func (s *scan) inUUID(at int) bool {
	const size = 36
	for _, before := range []int{0, 9, 14, 19, 24} {
		if from := at - before; from >= 0 && from+size <= len(s.text) && isUUID(s.text[from:from+size]) {
			return true
		}
	}
	return false
}

// mod97 is the check of ISO 7064 over the account and then country and check digits, with letters
// counting from 10.
func mod97(parts ...[]byte) bool {
	rest := 0
	for _, p := range parts {
		for _, c := range p {
			if kindOf(c).in(digit) {
				rest = (rest*10 + int(c-'0')) % 97
			} else {
				rest = (rest*100 + int(lower(c)-'a') + 10) % 97
			}
		}
	}
	return rest == 1
}

// lettered weighs the national numbers that begin or end in letters.
func (s *scan) lettered(groups []group) {
	start := groups[0].start
	// Spain: eight digits and a letter, or one of X, Y, Z and seven.
	for _, sizes := range [][]int{{8}, {2, 3, 3}, {7}, {1, 3, 3}} {
		if !fits(groups, sizes) {
			continue
		}
		number, from := s.digits(groups[:len(sizes)]), start
		if len(number) == 7 {
			if s.is(from-1, dash|space) && s.is(from-2, letter) {
				from--
			}
			x := strings.IndexByte("xyz", lower(s.at(from-1)))
			if x < 0 {
				continue
			}
			from--
			number = append([]byte{byte('0' + x)}, number...)
		}
		end := groups[len(sizes)-1].end
		if s.is(end, dash|space) {
			end++
		}
		if !s.is(end, letter) || s.is(end+1, word) || s.is(from-1, word) {
			continue
		}
		if validDNI(number, s.text[end]) && s.near(from, end+1, "dni", "nif", "nie", "documento nacional", "d.n.i") {
			s.add(ruleDNI, Confidential, from, end+1)
		}
	}
	// United Kingdom: two letters, six digits, a letter from A to D.
	for _, sizes := range [][]int{{6}, {2, 2, 2}} {
		if !fits(groups, sizes) {
			continue
		}
		from, end := start, groups[len(sizes)-1].end
		if s.is(from-1, space) {
			from--
		}
		if s.is(end, space) {
			end++
		}
		from -= 2
		if from < 0 || s.is(from-1, word) || s.is(end+1, word) || !validNINO(s.text[from:from+2], s.at(end)) {
			continue
		}
		if s.near(from, end+1, "nino", "national insurance", "ni number", "ni no", "n.i.") {
			s.add(ruleNINO, Confidential, from, end+1)
		}
	}
}

// fits reports whether groups begin with the given sizes.
func fits(groups []group, sizes []int) bool {
	if len(groups) < len(sizes) {
		return false
	}
	for i, n := range sizes {
		if groups[i].size() != n {
			return false
		}
	}
	return true
}

// at returns the byte at i, or 0 if there is none.
func (s *scan) at(i int) byte {
	if i < 0 || i >= len(s.text) {
		return 0
	}
	return s.text[i]
}

// near reports whether one of the words occurs, as a whole word, around start to end.
func (s *scan) near(start, end int, words ...string) bool {
	from, to := max(0, start-longestContext), min(end+longestContext/2, len(s.text))
	for i := from; i < to; i++ {
		if i == start {
			i = end
		}
		if i >= to {
			break
		}
		if s.text[i] < 0x80 && (!s.is(i, letter) || s.is(i-1, alnum)) { // all of them begin with a letter
			continue
		}
		for _, w := range words {
			if lower(s.text[i]) == w[0] && s.hasFold(i, w) && (!s.is(i+len(w), letter) || w[0] >= 0x80) && (i+len(w) <= start || i >= end) {
				return true
			}
		}
	}
	return false
}

// validSSN excludes the numbers that were never issued.
func validSSN(n []byte) bool {
	area := string(n[:3])
	return area != "000" && area != "666" && n[0] != '9' && string(n[3:5]) != "00" && string(n[5:]) != "0000"
}

// validSteuerID checks ISO 7064 MOD 11,10, and that one of the first ten digits occurs two or three
// times.
func validSteuerID(n []byte) bool {
	if n[0] == '0' {
		return false
	}
	var count [10]int
	product := 10
	for i := range 10 {
		d := int(n[i] - '0')
		count[d]++
		sum := (d + product) % 10
		if sum == 0 {
			sum = 10
		}
		product = sum * 2 % 11
	}
	repeated := 0
	for _, c := range count {
		if c > 3 {
			return false
		}
		if c > 1 {
			repeated++
		}
	}
	return repeated == 1 && (11-product)%10 == int(n[10]-'0')
}

// verhoeff is the check of the dihedral group of order ten.
func verhoeff(n []byte) bool {
	times := [10]string{
		"0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
		"5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
	}
	turn := [8]string{
		"0123456789", "1576283094", "5803796142", "8916043527", "9453126870", "4286573901", "2793806415", "7046913258",
	}
	c := byte('0')
	for i := range len(n) {
		d := n[len(n)-1-i] - '0'
		c = times[c-'0'][turn[i%8][d]-'0']
	}
	return c == '0'
}

// validINSEE checks the key, the sex and the month. It does not know the two departments of
// Corsica, which have letters.
func validINSEE(n []byte) bool {
	number, key := 0, int(n[13]-'0')*10+int(n[14]-'0')
	for i := range 13 {
		number = (number*10 + int(n[i]-'0')) % 97
	}
	month := int(n[3]-'0')*10 + int(n[4]-'0')
	return strings.IndexByte("123478", n[0]) >= 0 && (month >= 1 && month <= 12 || month >= 20) && key == 97-number
}

func validDNI(n []byte, check byte) bool {
	rest := 0
	for i := range len(n) {
		rest = (rest*10 + int(n[i]-'0')) % 23
	}
	return lower("TRWAGMYFPDXBNJZSQVHLCKE"[rest]) == lower(check)
}

// validNINO excludes the letters that are not used. It accepts QQ, which is not used either,
// because QQ occurs in every example, and so in imitations.
func validNINO(prefix string, suffix byte) bool {
	a, b := lower(prefix[0])-('a'-'A'), lower(prefix[1])-('a'-'A')
	if a < 'A' || a > 'Z' || b < 'A' || b > 'Z' || suffix < 'A' || lower(suffix) > 'd' || lower(suffix) < 'a' {
		return false
	}
	switch string([]byte{a, b}) {
	case "QQ":
		return true
	case "BG", "GB", "KN", "NK", "NT", "TN", "ZZ":
		return false
	}
	return strings.IndexByte("DFIQUV", a) < 0 && strings.IndexByte("DFIQUVO", b) < 0
}
