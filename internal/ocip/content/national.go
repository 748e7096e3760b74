package content

import "strings"

// national describes a national identity number of digits alone. Too many other numbers pass a
// checksum, so each needs its name nearby too.
type national struct {
	// rule is a full rule id, or a name of personal data.
	rule string
	// layouts are the sizes of the groups in which it is written. In mixed layouts the separators
	// differ.
	layouts, mixed [][]int
	valid          func([]byte) bool
	words          []string
}

var nationals = []national{
	{ruleSSN, [][]int{{3, 2, 4}, {9}}, nil, validSSN, []string{"ssn", "ssns", "social security", "social sec", "soc sec"}},
	{ruleSteuerID, [][]int{{11}, {2, 3, 3, 3}}, nil, validSteuerID, []string{
		"steuer-id", "steuer id", "steuerid", "idnr", "steuer-idnr", "steuer-identifikationsnummer",
		"steuerliche identifikationsnummer", "steueridentifikationsnummer", "identifikationsnummer", "tin", "tax id",
	}},
	{ruleAadhaar, [][]int{{12}, {4, 4, 4}}, nil, func(n []byte) bool { return n[0] >= '2' && verhoeff(n) }, []string{"aadhaar", "aadhar", "adhaar", "uidai"}},
	{ruleINSEE, [][]int{{15}, {13, 2}, {1, 2, 2, 2, 3, 3, 2}}, nil, validINSEE, []string{"insee", "nir", "sociale", "secu", "s\u00e9cu", "s\u00e9curit\u00e9", "vitale"}},

	{"au-tfn", [][]int{{3, 3, 3}, {9}}, nil, func(n []byte) bool { return sum(n, 1, 4, 3, 7, 5, 8, 6, 9, 10)%11 == 0 }, []string{"tfn", "tax file"}},
	{"be-rrn", [][]int{{11}}, [][]int{{2, 2, 2, 3, 2}}, validBelgian, []string{"rijksregister", "rijksregisternummer", "national number", "num\u00e9ro national", "num\u00e9ro de registre national", "niss", "insz", "rrn"}},
	{"br-cpf", [][]int{{11}}, [][]int{{3, 3, 3, 2}}, validCPF, []string{"cpf"}},
	{"ca-sin", [][]int{{3, 3, 3}, {9}}, nil, func(n []byte) bool { return n[0] != '0' && n[0] != '8' && luhn(n) }, []string{"sin", "social insurance", "assurance sociale"}},
	{"ch-ahv", [][]int{{3, 4, 4, 2}, {13}}, nil, func(n []byte) bool {
		return string(n[:3]) == "756" && sum(n, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1)%10 == 0
	}, []string{"ahv", "avs", "ahv-nummer", "ahv-nr", "sozialversicherungsnummer", "oasi"}},
	{"cn-resident-id", [][]int{{18}}, nil, validChinese, chineseWords},
	{"dk-cpr", [][]int{{6, 4}, {10}}, nil, func(n []byte) bool { return calendar(n[2:4], n[:2]) }, []string{"cpr", "cpr-nummer", "cpr-nr", "personnummer"}},
	{"jp-my-number", [][]int{{12}, {4, 4, 4}}, nil, validJapanese, []string{"my number", "mynumber", "\u30de\u30a4\u30ca\u30f3\u30d0\u30fc", "\u500b\u4eba\u756a\u53f7"}},
	{"kr-rrn", [][]int{{6, 7}, {13}}, nil, func(n []byte) bool {
		return calendar(n[2:4], n[4:6]) && (11-sum(n[:12], 2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5)%11)%10 == int(n[12]-'0')
	}, []string{"rrn", "resident registration", "\uc8fc\ubbfc\ub4f1\ub85d\ubc88\ud638", "\uc8fc\ubbfc\ubc88\ud638"}},
	{"nl-bsn", [][]int{{9}, {3, 3, 3}, {4, 2, 3}}, nil, func(n []byte) bool { return sum(n, 9, 8, 7, 6, 5, 4, 3, 2, -1)%11 == 0 }, []string{"bsn", "burgerservicenummer", "sofinummer", "sofi-nummer"}},
	{"no-fodselsnummer", [][]int{{11}, {6, 5}}, nil, func(n []byte) bool {
		return sum(n, 3, 7, 6, 1, 8, 9, 4, 5, 2, 1, 0)%11 == 0 && sum(n, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1)%11 == 0
	}, []string{"f\u00f8dselsnummer", "fodselsnummer", "fnr", "personnummer", "d-nummer"}},
	{"pl-pesel", [][]int{{11}}, nil, func(n []byte) bool { return sum(n, 1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)%10 == 0 }, []string{"pesel"}},
	{"pt-nif", [][]int{{9}, {3, 3, 3}}, nil, func(n []byte) bool {
		check := 11 - sum(n[:8], 9, 8, 7, 6, 5, 4, 3, 2)%11
		return strings.IndexByte("1235689", n[0]) >= 0 && check%11%10 == int(n[8]-'0')
	}, []string{"nif", "contribuinte"}},
	{"se-personnummer", [][]int{{6, 4}, {10}, {8, 4}, {12}}, nil, func(n []byte) bool {
		n = n[len(n)-10:]
		return month(n[2:4]) && luhn(n)
	}, []string{"personnummer", "personnr", "personal number", "samordningsnummer"}},
	{"th-id", [][]int{{13}, {1, 4, 5, 2, 1}}, nil, func(n []byte) bool {
		return n[0] != '0' && (11-sum(n[:12], 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2)%11)%10 == int(n[12]-'0')
	}, []string{"thai id", "citizen id", "\u0e40\u0e25\u0e02\u0e1b\u0e23\u0e30\u0e08\u0e33\u0e15\u0e31\u0e27\u0e1b\u0e23\u0e30\u0e0a\u0e32\u0e0a\u0e19", "\u0e1a\u0e31\u0e15\u0e23\u0e1b\u0e23\u0e30\u0e0a\u0e32\u0e0a\u0e19"}},
	{"tr-kimlik", [][]int{{11}}, nil, validTurkish, []string{"kimlik", "tckn", "tc no", "t.c."}},
	{"uk-nhs", [][]int{{3, 3, 4}, {10}}, nil, func(n []byte) bool {
		check := 11 - sum(n[:9], 10, 9, 8, 7, 6, 5, 4, 3, 2)%11
		return check%11 == int(n[9]-'0')
	}, []string{"nhs"}},
	{"us-itin", [][]int{{3, 2, 4}, {9}}, nil, func(n []byte) bool {
		g := int(n[3]-'0')*10 + int(n[4]-'0')
		return n[0] == '9' && (g >= 50 && g <= 65 || g >= 70 && g <= 88 || g >= 90 && g <= 92 || g >= 94)
	}, []string{"itin", "taxpayer"}},
	{"za-id", [][]int{{13}}, nil, func(n []byte) bool { return calendar(n[2:4], n[4:6]) && n[10] <= '2' && luhn(n) }, []string{
		"id number", "identity number", "south african id", "sa id", "rsa id",
	}},
	{"phone", [][]int{{3, 3, 4}, {10}}, [][]int{{2, 4, 4}, {3, 4, 4}, {5, 6}, {4, 7}, {3, 8}}, func([]byte) bool { return true }, []string{
		"phone", "telephone", "mobile", "cell", "tel", "fax", "call", "whatsapp", "telefon", "handy", "t\u00e9l\u00e9phone", "portable", "tel\u00e9fono",
		"m\u00f3vil", "telefono", "cellulare", "telefoon", "mobiel", "telefone", "celular", "\u96fb\u8a71", "\u7535\u8bdd", "\u624b\u673a",
	}},
}

var chineseWords = []string{"\u8eab\u4efd\u8bc1", "\u8eab\u4efd\u8b49", "\u516c\u6c11\u8eab\u4efd", "id card", "id number", "resident identity", "identity card"}

// form is one layout of a number.
type form struct {
	national
	sizes []int
	mixed bool
}

// forms lists the layouts by the size of their first group.
var forms = func() (by [longestNumber + 1][]form) {
	for _, n := range nationals {
		for _, sizes := range n.layouts {
			by[sizes[0]] = append(by[sizes[0]], form{n, sizes, false})
		}
		for _, sizes := range n.mixed {
			by[sizes[0]] = append(by[sizes[0]], form{n, sizes, true})
		}
	}
	return by
}()

// identity weighs the identity numbers of digits alone that begin with groups[0].
func (s *scan) identity(groups []group) {
	start := groups[0].start
	of := forms[min(groups[0].size(), longestNumber)]
	for i := range of {
		f := &of[i]
		if !fits(groups, f.sizes) || !f.mixed && !s.layout(groups, f.sizes...) {
			continue
		}
		end := groups[len(f.sizes)-1].end
		if n := s.digits(groups[:len(f.sizes)]); !s.is(end, word) && f.valid(n) && s.near(start, end, f.words...) {
			s.identified(f.rule, start, end)
		}
	}
}

// identified notes a person's identity number.
func (s *scan) identified(rule string, start, end int) {
	if strings.HasPrefix(rule, "identity.") {
		s.add(rule, Confidential, start, end)
		return
	}
	s.person(rule, start, end)
}

// abroad weighs identity numbers that contain letters, around groups[0].
func (s *scan) abroad(groups []group) {
	start, size := groups[0].start, groups[0].size()
	end := groups[0].end
	switch size {
	case 6: // Finland: a date, a sign of the century, three digits and a check
		third := end + 4 // the check may be a digit too
		if strings.IndexByte("-+ABCDEFYXWVU", s.at(end)) < 0 || s.run(end+1, digit, third) != third || s.is(start-1, word) || !s.is(third, alnum) || s.is(third+1, word) {
			return
		}
		n := 0
		for _, c := range s.text[start:end] + s.text[end+1:third] {
			n = n*10 + int(c-'0')
		}
		if calendar([]byte(s.text[start+2:start+4]), []byte(s.text[start:start+2])) && "0123456789abcdefhjklmnprstuvwxy"[n%31] == lower(s.text[third]) &&
			s.near(start, third+1, "hetu", "henkil\u00f6tunnus", "personal identity code", "personbeteckning") {
			s.person("fi-hetu", start, third+1)
		}
	case 7: // Singapore: a letter, seven digits and a check
		if s.is(start-2, word) || s.is(end+1, word) {
			return
		}
		n := sum([]byte(s.text[start:end]), 2, 7, 6, 5, 4, 3, 2)
		letters := "JZIHGFEDCBA"
		switch s.at(start - 1) {
		case 'S':
		case 'T':
			n += 4
		case 'G':
			n += 4
			letters = "XWUTRQPNMLK"
		case 'F':
			letters = "XWUTRQPNMLK"
		default:
			return
		}
		if letters[n%11] == s.at(end) && s.near(start-1, end+1, "nric", "fin", "ic", "identity card") {
			s.person("sg-nric", start-1, end+1)
		}
	case 17: // China: seventeen digits and an X
		if (s.at(end) == 'X' || s.at(end) == 'x') && !s.is(end+1, word) && !s.is(start-1, word) && validChinese([]byte(s.text[start:end]+"X")) && s.near(start, end+1, chineseWords...) {
			s.person("cn-resident-id", start, end+1)
		}
	}
}

// codice weighs the Italian number whose first two digits are at at.
func (s *scan) codice(at int) {
	const size, before = 16, 6
	from := at - before
	if from < 0 || from+size > len(s.text) || s.is(from-1, word) || s.is(from+size, word) {
		return
	}
	odd := [26]int{1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23}
	total := 0
	for i, want := range "LLLLLLDDLDDLDDDL" {
		c := lower(s.text[from+i])
		k := kindOf(c)
		if want == 'L' && !k.in(lowerCase) || want == 'D' && !k.in(digit) {
			return
		}
		value := int(c - 'a')
		if k.in(digit) {
			value = int(c - '0')
		}
		switch {
		case i == size-1:
			if total%26 != value {
				return
			}
		case i%2 == 0:
			total += odd[value]
		default:
			total += value
		}
	}
	s.person("it-codice-fiscale", from, from+size)
}

// sum returns the weighted sum of digits.
func sum(n []byte, weights ...int) int {
	total := 0
	for i, w := range weights {
		total += int(n[i]-'0') * w
	}
	return total
}

func number(n []byte) int {
	v := 0
	for _, c := range n {
		v = v*10 + int(c-'0')
	}
	return v
}

func month(m []byte) bool { v := number(m); return v >= 1 && v <= 12 }

func calendar(m, day []byte) bool { v := number(day); return month(m) && v >= 1 && v <= 31 }

// validBelgian knows both calculations, for people born before 2000 and after.
func validBelgian(n []byte) bool {
	body, check := number(n[:9]), number(n[9:])
	return 97-body%97 == check || 97-(2_000_000_000+body)%97 == check
}

func validCPF(n []byte) bool {
	check := func(weight int) int {
		total := 0
		for i := range weight - 1 {
			total += int(n[i]-'0') * (weight - i)
		}
		return total * 10 % 11 % 10
	}
	m := weigh(string(n))
	return m.distinct > 1 && check(10) == int(n[9]-'0') && check(11) == int(n[10]-'0')
}

func validChinese(n []byte) bool {
	year := number(n[6:10])
	return year >= 1900 && year < 2100 && calendar(n[10:12], n[12:14]) &&
		"10X98765432"[sum(n[:17], 7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)%11] == n[17]
}

func validJapanese(n []byte) bool {
	rest := sum(n[:11], 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2) % 11
	check := 0
	if rest > 1 {
		check = 11 - rest
	}
	return check == int(n[11]-'0')
}

func validTurkish(n []byte) bool {
	odd := sum(n[:9], 1, 0, 1, 0, 1, 0, 1, 0, 1)
	even := sum(n[:9], 0, 1, 0, 1, 0, 1, 0, 1, 0)
	all := sum(n[:10], 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
	return n[0] != '0' && ((odd*7-even)%10+10)%10 == int(n[9]-'0') && all%10 == int(n[10]-'0')
}
