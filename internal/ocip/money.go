package ocip

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// OfMoney reports whether texts could name a sum of money. No list can have all ways to write one,
// so every number counts unless it certainly is something else: a time, a date, a duration, an
// ordinal, the number of a round, a version or a page, or a count of things that cost nothing. A
// person who approved a keyword has not approved the keyword beside a sum.
func OfMoney(texts []Passage) bool {
	for i := range texts {
		one := &texts[i]
		if one.Prose && speaksOfMoney(one.Text) || !one.Prose && amountOf(one) {
			return true
		}
	}
	return false
}

// amountOf reports whether a value that is no prose is a sum. Ids and dates are not, unless their
// member is called a sum or they have a currency.
func amountOf(p *Passage) bool {
	number := strings.ContainsFunc(p.Text, unicode.IsNumber)
	return number && (text.NamesAmount(p.Member) || valued(text.Fold(p.Text, text.CaseUnicode))) || strings.ContainsFunc(p.Text, isCurrency)
}

func isCurrency(r rune) bool { return unicode.Is(unicode.Sc, r) }

// currencies are words that indicate money without a digit. bigNumbers are endings of number words
// that are written together.
const (
	currencies = "hundred hundreds thousand thousands million millions billion lakh lakhs crore grand usd eur gbp chf jpy cad aud cny inr dollar dollars euro euros pound pounds bucks quid yen yuan" +
		" bitcoin bitcoins btc ether eth satoshi satoshis salary salaries wages" +
		" cents francs franken dólares dólar libras dollari sterline mille mil mila cien cientos ciento cento cem milliers milhares millón millones milliarde mio tsd reais"
	bigNumbers = "hundert tausend million milliard honderd duizend miljoen miljard hundred thousand cientos centos"
	ofCJK      = "百千万萬亿億元円圓圆块塊銭"
)

// valued reports whether a text, in lower case, has a word or a character of money.
func valued(s string) bool {
	if strings.ContainsAny(s, ofCJK) || strings.ContainsFunc(s, isCurrency) {
		return true
	}
	counts := false // the word before is a small number
	for word := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) }) {
		if words().money[word] || counts && (words().multipliers[word] || words().priced[word]) {
			return true
		}
		counts = words().small[word]
		if len(word) > len("cent") && endsBig(word) {
			return true
		}
	}
	return false
}

func endsBig(word string) bool {
	for one := range strings.FieldsSeq(bigNumbers) {
		if strings.Contains(word, one) {
			return true
		}
	}
	return false
}

// Words beside a number that tell what kind of number it is, in the languages in which commitments are
// detected.
const (
	// months come before or after the day, and before the year.
	months = "january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec" +
		" januar februar märz mai juni juli oktober dezember enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre" +
		" janvier février mars avril juin juillet août septembre octobre novembre décembre gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre" +
		" januari februari maart mei augustus janeiro fevereiro março maio junho julho setembro outubro novembro dezembro"
	// units of time come after the number.
	units = "second seconds sec secs minute minutes min mins hour hours hr hrs h day days week weeks month months year years fortnight oclock am pm" +
		" sekunde sekunden minuten stunde stunden std uhr tag tage tagen woche wochen monat monate monaten jahr jahre jahren werktag werktage werktagen arbeitstage arbeitstagen" +
		" segundo segundos minuto minutos hora horas día días dia dias semana semanas mes meses año años" +
		" seconde secondes heure heures jour jours semaine semaines mois an ans année années" +
		" secondo secondi minuti ora ore giorno giorni settimana settimane mese mesi anno anni" +
		" seconden minuut uur uren dag dagen weken maand maanden jaar jaren werkdag werkdagen mês ano anos"
	// counted are things that cost nothing, in any number.
	counted = "people persons guests attendees participants colleagues pages slides lines words characters paragraphs chapters files tests questions messages emails errors warnings failures rows columns functions methods iterations retries" +
		" issues bugs commits comments reviewers rounds steps times attempts options topics personas personen leute gäste seiten zeilen fragen" +
		" personnes invités pages lignes persone ospiti pagine righe mensen gasten pagina regels vragen pessoas convidados páginas linhas perguntas preguntas líneas"
	// numbered come before the number: "round 2".
	numbered = "round version step phase part chapter page section line item task issue ticket room gate table question option paragraph figure slide appendix draft revision sprint day code exitcode" +
		" runde schritt teil kapitel seite abschnitt zeile ronda versión paso fase parte capítulo página sección línea étape partie chapitre ligne" +
		" versione passo capitolo pagina sezione riga ronde versie stap deel hoofdstuk regel rodada versão etapa seção linha"
	// between may come between a number and its unit.
	between = "working business full more whole calendar consecutive"
	// pay makes a time a sum of money: "two months' rent".
	pay = "of worth rent pay salary wages fee fees interest at for per à a à per rent miete gehalt lohn alquiler sueldo loyer salaire affitto stipendio huur loon aluguel salário k"
	// small are numbers in words that are a sum only before a multiplier or a word of priced: "ten k", "ten each".
	small  = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety dozen"
	priced = "each apiece"
	// multipliers change the value of a number.
	multipliers = "k m mn mio mrd tsd bn b mil mille grand thousand million hundred lakh crore g"
)

type wordKinds struct {
	money, months, units, counted, numbered, between, pay, multipliers, small, priced map[string]bool
}

var words = sync.OnceValue(func() *wordKinds {
	of := func(list string) map[string]bool {
		set := map[string]bool{}
		for word := range strings.FieldsSeq(list) {
			set[word] = true
		}
		return set
	}
	return &wordKinds{of(currencies), of(months), of(units), of(counted), of(numbered), of(between), of(pay), of(multipliers), of(small), of(priced)}
})

// speaksOfMoney reports whether a text could name a sum of money.
func speaksOfMoney(s string) bool {
	folded := text.Fold(s, text.CaseUnicode)
	if valued(folded) {
		return true
	}
	list := items(0)
	for pos := 0; pos < len(folded); {
		r, width := utf8.DecodeRuneInString(folded[pos:])
		if !unicode.IsNumber(r) {
			pos += width
			continue
		}
		end := list.next(folded, pos)
		if end == 0 {
			end = harmless(folded, pos)
		}
		if end == 0 {
			return true
		}
		pos = end
	}
	return false
}

// maxHarmless bounds the digits of a number that is certainly no money.
const maxHarmless = 4

// harmless returns the end of the number that begins at pos, including its unit. It returns 0
// unless the number certainly is no money.
func harmless(s string, pos int) (end int) {
	n := number{s: s, start: pos, end: pos}
	for n.end < len(s) && s[n.end]-'0' < 10 {
		n.end++
	}
	if n.end == pos || n.end-pos > maxHarmless || n.joined() {
		return 0
	}
	n.value, _ = strconv.Atoi(s[pos:n.end])
	for _, one := range [...]func(*number) int{(*number).clock, (*number).date, (*number).ordinal, (*number).counts, (*number).named, (*number).zero} {
		if end := one(&n); end > 0 && n.ends(end) {
			return end
		}
	}
	return 0
}

// number is a number in a text in lower case.
type number struct {
	s          string
	start, end int
	value      int
}

// joined reports whether a number is written together with the text before it.
func (n *number) joined() bool {
	if n.start == 0 {
		return false
	}
	r, width := utf8.DecodeLastRuneInString(n.s[:n.start])
	switch {
	case r == '#' || r == '(' || r == ' ' || r == '\n' || r == '"' || r == '\u00a0':
	case r == 'v' || r == 'q':
		return !n.begins(n.start - width)
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana):
	default:
		return true
	}
	// "5 000" is one number.
	before := strings.TrimRight(n.s[:n.start], " \u00a0")
	return before != "" && before[len(before)-1]-'0' < 10 && n.end-n.start == 3
}

// begins reports whether a word begins at a position.
func (n *number) begins(at int) bool {
	r, _ := utf8.DecodeLastRuneInString(n.s[:at])
	return at == 0 || r == ' ' || r == '\n' || r == '(' || r == '"'
}

// ends reports whether nothing after a position could change the meaning of the number.
func (n *number) ends(at int) bool {
	if at == len(n.s) {
		return true
	}
	r, width := utf8.DecodeRuneInString(n.s[at:])
	switch {
	case r == ' ' || r == '\u00a0' || r == '\n':
		word, _ := n.word(at + width)
		rest := n.s[at+width:]
		return !words().multipliers[word] && (rest == "" || rest[0]-'0' >= 10 || len(rest) > 3 && rest[3]-'0' < 10 || len(rest) < 3 || rest[2]-'0' >= 10)
	case strings.ContainsRune(".,;:!?)\"", r):
		return at+1 == len(n.s) || n.s[at+1] == ' ' || n.s[at+1] == '\n' || strings.IndexByte(".,;:!?)\"", n.s[at+1]) >= 0
	case r-'0' < 10 && r >= '0': // weighed by itself
		last, _ := utf8.DecodeLastRuneInString(n.s[:at])
		return unicode.Is(unicode.Han, last)
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r == '。' || r == '、' || r == '，' || r == '！' || r == '？':
		return true
	}
	return false
}

// word returns the word at a position, after one blank or a hyphen, and its end.
func (n *number) word(at int) (string, int) {
	if at < len(n.s) && (n.s[at] == ' ' || n.s[at] == '-') {
		at++
	} else if strings.HasPrefix(n.s[min(at, len(n.s)):], "\u00a0") {
		at += len("\u00a0")
	}
	end := at
	for end < len(n.s) {
		r, width := utf8.DecodeRuneInString(n.s[end:])
		if !unicode.IsLetter(r) {
			break
		}
		end += width
	}
	return n.s[min(at, len(n.s)):end], end
}

// before returns the word that ends before a position, apart from a blank or a full stop.
func (n *number) before(at int) string {
	head := strings.TrimRight(n.s[:at], " \u00a0")
	if head = strings.TrimSuffix(head, "."); len(n.s[:at])-len(head) > 3 {
		return ""
	}
	start := len(head)
	for start > 0 {
		r, width := utf8.DecodeLastRuneInString(head[:start])
		if !unicode.IsLetter(r) {
			break
		}
		start -= width
	}
	return head[start:]
}

// digits reads a number with that many digits at a position and returns its end.
func (n *number) digits(at, least, most, limit int) int {
	end := at
	for end < len(n.s) && end-at < most && n.s[end]-'0' < 10 {
		end++
	}
	if value, err := strconv.Atoi(n.s[at:end]); err != nil || end-at < least || value > limit || end < len(n.s) && n.s[end]-'0' < 10 {
		return 0
	}
	return end
}

// clock matches "3pm", "15:30", "15h30", "14.30 uhr" and "24/7".
func (n *number) clock() int {
	const midnight, minutes = 24, 59
	if n.value > midnight || n.end-n.start > 2 {
		return 0
	}
	if strings.HasPrefix(n.s[n.end:], "/7") && n.value == midnight {
		return n.end + 2
	}
	end := n.end
	if end < len(n.s) && strings.IndexByte(":h.", n.s[end]) >= 0 {
		past := n.digits(end+1, 2, 2, minutes)
		word, behind := n.word(past)
		switch {
		case past == 0:
		case n.s[end] == '.' && word != "uhr" && word != "uur" && word != "h" && word != "am" && word != "pm":
			return 0
		case n.s[end] == '.':
			return behind
		default:
			if past < len(n.s) && n.s[past] == ':' {
				if seconds := n.digits(past+1, 2, 2, minutes); seconds > 0 {
					past = seconds
				}
			}
			if word == "am" || word == "pm" || word == "uhr" {
				return behind
			}
			return past
		}
	}
	for _, half := range [...]string{"a.m.", "p.m.", "o'clock", "o’clock"} {
		if rest := strings.TrimPrefix(n.s[end:], " "); strings.HasPrefix(rest, half) {
			return len(n.s) - len(rest) + len(half)
		}
	}
	return 0
}

const (
	firstYear = 1900
	lastYear  = 2099
)

// date matches a day beside its month, each with an optional year, or a date in digits.
func (n *number) date() int {
	const days, monthsOfYear = 31, 12
	year := n.value >= firstYear && n.value <= lastYear && n.end-n.start == 4
	before := n.before(n.start)
	if year {
		if end := n.end; end < len(n.s) && (n.s[end] == '-' || n.s[end] == '/') {
			if month := n.digits(end+1, 2, 2, monthsOfYear); month > 0 && month < len(n.s) && n.s[month] == n.s[end] {
				return n.digits(month+1, 2, 2, days)
			}
			return 0
		}
		if words().months[before] || words().months[strings.TrimSuffix(before, "de")] {
			return n.end
		}
	}
	for _, one := range [...]string{"年", "月", "日", "号", "號"} {
		if strings.HasPrefix(n.s[n.end:], one) && (year || one != "年" && n.value <= days) {
			return n.end + len(one)
		}
	}
	if n.value == 0 || n.value > days {
		return 0
	}
	if end := n.end; end < len(n.s) && strings.IndexByte("./", n.s[end]) >= 0 {
		if month := n.digits(end+1, 1, 2, days); month > 0 && month < len(n.s) && n.s[month] == n.s[end] {
			if past := n.digits(month+1, 4, 4, lastYear); past > 0 {
				return past
			}
		}
	}
	end := n.end
	for _, suffix := range [...]string{"st", "nd", "rd", "th", "."} {
		if strings.HasPrefix(n.s[end:], suffix) {
			end += len(suffix)
			break
		}
	}
	word, behind := n.word(end)
	if word == "of" || word == "de" {
		word, behind = n.word(behind)
	}
	switch {
	case words().months[word]:
		// The year follows.
		at := behind
		if next, past := n.word(behind); next == "de" {
			at = past
		}
		if rest := strings.TrimLeft(n.s[at:], " ,"); len(rest) < len(n.s[at:]) {
			at = len(n.s) - len(rest)
			if past := n.digits(at, 4, 4, lastYear); past > 0 && n.s[at:past] >= strconv.Itoa(firstYear) {
				return past
			}
		}
		return behind
	case words().months[before]:
		if rest := strings.TrimLeft(n.s[n.end:], " ,"); len(rest) < len(n.s[n.end:]) {
			at := len(n.s) - len(rest)
			if past := n.digits(at, 4, 4, lastYear); past > 0 && n.s[at:past] >= strconv.Itoa(firstYear) {
				return past
			}
		}
		return n.end
	}
	return 0
}

// ordinal matches "5th" and "第5".
func (n *number) ordinal() int {
	for _, suffix := range [...]string{"st", "nd", "rd", "th", "ème", "de", "ste", "º", "ª", "番目", "回目"} {
		if strings.HasPrefix(n.s[n.end:], suffix) && n.end-n.start <= 3 {
			return n.end + len(suffix)
		}
	}
	if strings.HasSuffix(n.s[:n.start], "第") {
		return n.end
	}
	return 0
}

// counts matches a number of hours, of days, of guests.
func (n *number) counts() int {
	for _, unit := range [...]string{"時間", "時", "分鐘", "分钟", "小时", "小時", "点", "點", "天", "日間", "週間", "周", "星期", "个月", "個月", "か月", "ヶ月", "秒"} {
		if strings.HasPrefix(n.s[n.end:], unit) {
			return n.end + len(unit)
		}
	}
	word, end := n.word(n.end)
	if words().between[word] {
		word, end = n.word(end)
	}
	if !words().units[word] && !words().counted[word] || end < len(n.s) && (n.s[end] == '\'' || strings.HasPrefix(n.s[end:], "’")) {
		return 0
	}
	if (word == "am" || word == "pm") && n.value > 12 {
		return 0
	}
	if next, _ := n.word(end); words().pay[next] && next != "for" && next != "at" {
		return 0
	}
	return end
}

// named matches the number of a round, a version, a page: "round 2", "v1.2.3", "#14", "q3".
func (n *number) named() int {
	end := n.end
	if n.start > 0 && n.s[n.start-1] == '#' {
		return end
	}
	if n.start > 0 && n.s[n.start-1] == 'q' {
		if n.value > 0 && n.value <= 4 {
			return end
		}
		return 0
	}
	version := n.start > 0 && n.s[n.start-1] == 'v'
	before := n.before(n.start)
	if words().numbered[strings.TrimSuffix(before, "s")] && n.value < 1000 && end < len(n.s) && (n.s[end] == '-' || strings.HasPrefix(n.s[end:], "–")) {
		// "lines 177-182"
		_, width := utf8.DecodeRuneInString(n.s[end:])
		return n.digits(end+width, 1, 3, 999)
	}
	if version || words().numbered[before] && n.value < 1000 {
		for end+1 < len(n.s) && n.s[end] == '.' && n.s[end+1]-'0' < 10 {
			part := n.digits(end+1, 1, 3, 999)
			if part == 0 {
				return 0
			}
			end = part
		}
		return end
	}
	return 0
}

// zero matches a zero, which is no sum: "exit code: 0", "0 errors".
func (n *number) zero() int {
	if n.value != 0 || n.end-n.start > 1 {
		return 0
	}
	return n.end
}

// items counts the items of a list read so far.
type items int

// next returns the end of the number that begins an item of a list at pos, or 0. The number must be
// at the beginning of its line, and be the first item's or one more than the last.
func (i *items) next(s string, pos int) (end int) {
	from := max(0, pos-maxLead-1)
	lead := s[from:pos]
	if line := strings.LastIndexByte(lead, '\n'); line >= 0 {
		lead = lead[line+1:]
	} else if from > 0 {
		return 0
	}
	if strings.Trim(lead, " \t#*-+>(") != "" {
		return 0
	}
	for _, number := range [...]items{*i + 1, 1} {
		if rest, found := strings.CutPrefix(s[pos:], strconv.Itoa(int(number))); found && len(rest) > 1 && (rest[0] == '.' || rest[0] == ')') && (rest[1] == ' ' || rest[1] == '\t') {
			*i = number
			return len(s) - len(rest)
		}
	}
	return 0
}

// maxLead bounds the signs and blanks before the number of an item.
const maxLead = 16
