package commitment

import (
	"strings"
	"sync"
)

// openWords are the words of a text that a model may be asked about, without their apostrophes: an
// allow list. It has no number, no word of money, and none that begins or names a time. So it lacks
// by, in, on, at, before, when and may, and has no contraction that spells a day, as "we'd" does.
const openWords = "i im id ill ive me my mine myself we us our ours weve were well you your yours youre youll youve youd he him his hes she her hers shes it its itll they them their theirs theyre theyll" +
	" this that these those thats theres heres who whom whose whos what whats which how hows why where a an the ones each every any some all both none no not nor and or but if so as than though although because unless whether" +
	" of to for from with without into onto out up down off over under about above below between among against like per via across along around through toward towards behind beside besides beyond inside outside back" +
	" am is are was be been being do does did done doing have has had having will would can could should shall might must let lets dont doesnt didnt wont wouldnt cant cannot couldnt shouldnt isnt arent wasnt werent hasnt havent hadnt" +
	" yes yeah yep ok okay sure please thank thanks sorry hi hello hey dear welcome oh ah kindly also just only even too very really quite rather almost already again still yet never ever always often maybe perhaps probably likely simply here there" +
	" more most less least much many such same other others another else own anyone anybody anything someone somebody something everyone everybody everything nobody nothing whoever whatever whichever wherever anyway anywhere somewhere" +
	" accept accepted act actual add agree allow answer appear apply approve argue arrange ask assume attach avoid beg begin believe bind bring build call care carry change check choose clean clear come commit compare complete confirm consider contain continue copy correct count cover create deal decide define deliver deny depend describe discuss disregard draft drop edit evaluate examine expect explain fail false feel fetch file fill find finish fix follow forget forgot give given gave get got go goes going gone went gather guarantee guess handle happen hear heard help hold hope ignore imagine improve include inform intend involve join keep kept kid know known knew learn leave left lend list listen look lose lost made make manage matter mean meant meet mention merge miss move name need note notice obey offer open order organise organize override own pass pick place plan point prefer prepare pretend promise propose prove provide publish push put raise reach read ready receive refer reject release remember remove rename repair repeat replace reply report request require reserve resolve respond return review rewrite run said saw say search see seem seen send sent serve set share show sign skip solve sort sound speak stand stay step stop store suggest suppose supply support take taken took talk tell test think thought told touch treat true trust try trying turn understand understood update use verify wait want warn watch wonder word work worry write written wrote" +
	" able absolute accurate available aware bad best better big binding broken bug build certain clear close common complete correct course current deal different difficult easy empty enough error exact extra fact fair fine fond form full fun general glad good great green happy hard harmless honest hypothetical idea important interesting issue job kind large legal lenient light line little main mistake model name neat new nice normal obvious odd old only person people plain possible prompt question real reason red right safe sample sentence serious simple small special sure team terms text thing true useful user usual warm way whole wise worth wrong" +
	" assistant author colleague commitment contract customer developer document email evaluator evaluation example human instruction judge language law letter line machine message operator output owner part policy problem project reader result reviewer rule sender security story system task tool verdict vendor writer" +
	" fully exactly clearly carefully currently easily gladly happily merely nearly obviously usually certainly definitely absolutely indeed instead together otherwise however therefore thus hence"

// pointsOut are the words after which "one" is a pronoun and no number.
const pointsOut = "that this the which each every any"

// guidesNoun are the words after which one other word may stand, as "the roof" or "hello Bob".
const guidesNoun = "the my your our their his her hi hello hey dear"

// closedWords are never that other word: numbers, money and times.
const closedWords = "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion" +
	" dozen half halves quarter third fourth fifth sixth ninth tenth couple pair few several score double twice triple grand first second last next" +
	" sum price cost fee bill invoice amount money cash pay paid payment budget fund deposit salary wage rent discount rate balance refund credit debt total tax charge expense fare toll bonus tip advance loan" +
	" dollar euro pound sterling quid buck penny pennies pence cent fiver tenner nickel dime franc yen yuan rupee peso krona krone kronor kroner zloty shekel dirham rand real lira won ruble rouble forint koruna dinar riyal bitcoin ether crypto coin token usd eur gbp chf jpy cny inr btc eth" +
	" minute hour day night morning afternoon evening noon midday midnight week weekend month year decade century fortnight season spring summer autumn fall winter sunrise sunset dawn dusk daybreak nightfall" +
	" monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thur thurs fri sat sun january february march april may june july august september october november december jan feb mar apr jun jul aug sep sept oct nov dec" +
	" today tomorrow tonight yesterday holiday holidays vacation christmas xmas easter ramadan eid diwali hanukkah passover thanksgiving birthday anniversary breakfast lunch brunch dinner supper lunchtime bedtime" +
	" deadline date time end start beginning close moment instant term period eod cob eow eom ides due expiry"

var setsOfWords = sync.OnceValues(func() (open, closed map[string]bool) {
	open, closed = map[string]bool{}, map[string]bool{}
	for word := range strings.FieldsSeq(openWords) {
		open[word] = true
	}
	for word := range strings.FieldsSeq(closedWords) {
		closed[word] = true
	}
	return open, closed
})

// openText reports whether a model may be asked about a text: each word is one of openWords, or the
// one after a word of guidesNoun, and is then neither closed nor common in another language. So a
// digit, a sign of a currency, a character outside ASCII, a word cut by a sign or spelled out, and
// any sentence in another language close it. A wrong result only means that a person is asked.
func openText(s string) bool {
	s = strings.NewReplacer("\u2019", "'", "\u2018", "'", "\u201c", "\"", "\u201d", "\"", "\u2026", ".", "\u2013", " - ", "\u2014", " - ").Replace(s)
	if !uncut(s) {
		return false
	}
	before := "" // the word before, if nothing parts the two
	for piece := range strings.FieldsSeq(strings.ToLower(s)) {
		joined := strings.Trim(piece, ".,:;!?\"'()[]{}<>*_~#|/\\=+&@^`-")
		if whole := strings.ReplaceAll(joined, "-", ""); whole != joined && closedWord(whole) {
			return false // "thou-sand"
		}
		for word := range strings.FieldsFuncSeq(joined, func(r rune) bool { return r == '-' }) {
			word = strings.ReplaceAll(word, "'", "")
			if !openWord(word) && !opened(before, word) {
				return false
			}
			before = word
		}
		if joined == "" || !strings.HasSuffix(piece, joined) {
			before = ""
		}
	}
	return true
}

// opened reports whether the word before opens a word that is in no list.
func opened(before, word string) bool {
	if word == "one" {
		return inList(before, pointsOut)
	}
	return inList(before, guidesNoun) && len(word) > 1 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == "" && !closedWord(word) && !foreignWords()[word]
}

// uncut reports whether a text has only words of ASCII letters that no sign cuts.
func uncut(s string) bool {
	letter := func(i int) bool { return i >= 0 && i < len(s) && s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z' }
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 0x7f || c < ' ' && c != '\n' && c != '\r' && c != '\t' || c-'0' < 10 || c == '$' || c == '%':
			return false
		case letter(i) || c <= ' ' || !letter(i-1):
		case c == '-' && !letter(i+1), c != '-' && c != '\'' && letter(i+1):
			return false // "fif- ty", "fif*ty"
		}
	}
	return true
}

// openWord reports whether a word, or what it is a form of, is in openWords.
func openWord(word string) bool {
	open, closed := setsOfWords()
	if open[word] {
		return true
	}
	if closed[word] {
		return false
	}
	for _, ending := range [...]string{"s", "ed", "ing", "d"} {
		if stem, cut := strings.CutSuffix(word, ending); cut && len(stem) > 2 && (open[stem] || ending == "ing" && open[stem+"e"]) {
			return true
		}
	}
	return false
}

// closedWord reports whether a word, or one that it is made of, is in closedWords.
func closedWord(word string) bool {
	_, closed := setsOfWords()
	if closed[word] || closed[strings.TrimSuffix(word, "s")] || strings.HasSuffix(word, "ies") && closed[word[:len(word)-3]+"y"] {
		return true
	}
	for one := range closed {
		if len(one) > 4 && strings.Contains(word, one) {
			return true
		}
	}
	return false
}
