package commitment

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/openclawos/ocipd/internal/base/text"
)

// phrase is an opener of a cue, and the condition under which it is one.
type phrase struct {
	family string
	then   then
	// languages are the languages with the phrase, one bit each.
	languages uint16
}

// then is a condition on the text around an opener.
type then uint8

const (
	// always: the phrase is enough.
	always then = iota
	// aDeed: a promising verb follows, possibly after adverbs.
	aDeed
	// aHandout: one of the few verbs follows that promise after "let me".
	aHandout
	// anObject: "you'll have it", and not "you'll have to".
	anObject
	// aYes: an acceptance, unless it is asked or denied.
	aYes
	// aYesAlone: an acceptance that ends its sentence: "I'm in.", and not "I'm
	// in Houston".
	aYesAlone
	// aYesBare: an acceptance that is a whole sentence: "Deal."
	aYesBare
	// aYesTo: an acceptance that ends its clause, or names its object: "I accept your offer".
	aYesTo
	// anOffer: a verb of giving by the sender follows, and a time: "we can offer the seminar on
	// Monday".
	anOffer
	// aDeedNow: one of the deeds is under way, with an addressee, a time or a sum: "we're letting
	// the fees go".
	aDeedNow
	// aPresent: one of the deeds that people announce in the present tense: "I bring it to you
	// tonight".
	aPresent
	// anOrder: the sentence begins here, and names something of the sender's or a number: "Charge
	// my card", "Ship 200".
	anOrder
	// aYesOpens: an acceptance that begins its sentence.
	aYesOpens
	// aTimeBefore: a time comes directly before: "Saturday works".
	aTimeBefore
	// aTime: the clause has a time: "see you on Friday", "it will be ready at nine".
	aTime
	// aChoice: a time comes before, and the sentence ends: "Thursday it is."
	aChoice
	// aPart: a verb of taking part follows: "we'd love to join".
	aPart
	// aDeedUnsaid: the sentence begins here without "I", and one of the verbs follows with which
	// people omit it: "Will send".
	aDeedUnsaid
	// aDeedOfOurs: a verb of giving follows: "the company will pay".
	aDeedOfOurs
	// spoken: a cue of another language.
	spoken
	// aSealing: a proposal is sealed: "deal accepted", "the contract is signed".
	aSealing
	// aPermission: a verb follows for something that only the sender can allow: "you may publish
	// it".
	aPermission
	// aDoneAlone: a completed deed opens the text and ends its clause: "Cancelled."
	aDoneAlone
	// aDoneNow: aDone, for something that the reader has ordered: "your tickets are issued".
	aDoneNow
	// aDone: a verb follows for a completed deed that needed somebody's decision: "has been
	// cancelled".
	aDone
)

// openers are the phrases of the two families of words. The apostrophe is optional unless the
// result is another word.
var openers = [...]struct {
	family  string
	then    then
	phrases string // separated by commas
}{
	{FirstPersonFuture, aDeed, "i'll,we'll,i 'll,we 'll,i will,we will,i shall,we shall," +
		"i'm going to,i am going to,we're going to,we are going to,i'm gonna,we're gonna,i am gonna,we are gonna," +
		"i'm about to,we're about to,i am about to,we are about to,i intend to,we intend to," +
		"i'm happy to,i am happy to,i'd be happy to,i would be happy to,i'm glad to,i'd be glad to,i would be glad to," +
		"we're happy to,we are happy to,we'd be happy to,we would be happy to,we'd be glad to,we would be glad to," +
		"i'm willing to,i am willing to,we're willing to,we are willing to,i'm prepared to,we're prepared to," +
		"i am prepared to,we are prepared to,we've decided to,we have decided to,i've decided to,i have decided to,i decided to,we decided to,i mean to,we mean to," +
		"we'd be glad to,i'd gladly,we'd gladly,i would gladly,we would gladly,my team will,our team will"},
	{FirstPersonFuture, aDeedUnsaid, "will,ill,shall"},
	{FirstPersonFuture, aPresent, "i,we"},
	{FirstPersonFuture, aTime, "she'll have,he'll have,they'll have,will have it,will have them,will have the,will have your"},
	{FirstPersonFuture, aYesOpens, "count on,rely on,leave the,leave your,leave everything,trust me with"},
	{Acceptance, aYesOpens, "consider me,consider us,yes to,yes for,count our"},
	{FirstPersonFuture, aYes, "i'm coming,we're coming,i am coming,we are coming,i'm bringing,we're bringing,i can make it,we can make it,i can be there,we can be there," +
		"i've got this,we've got this,i've got it covered,we've got you covered,i've got you covered,i'm covering,we're covering,it's on me,it's on us,is on me,is on us,are on me,are on us,on the house,in charge of the,i'm yours,bear the cost,bear the costs,takes over the cost,takes over the costs,get your money back,stand behind the,stand behind our,you may keep,you can keep,you may have the,you can use our,you can use my,you may use our,you may use my,my treat," +
		"i won't tell,we won't tell,i won't share,we won't share,we won't charge,i won't charge,we won't raise,we won't increase,we will not raise,we will not charge,we will not increase," +
		"i won't let you down,we won't let you down,you won't be charged,you will not be charged,won't cost you,free of charge,no charge,no extra charge,at no cost,i take responsibility," +
		"we take responsibility,i'm responsible for,i own this,i'll own,until then it's yours,you have my,you have our,you've got my,you've got our"},
	{Money, anOrder, "charge,debit,bill,invoice,order,ship,buy,sell,cancel,renew,extend,deduct,transfer,wire"},
	{Acceptance, aTimeBefore, "works,suits,fits,is fine,is good,is perfect,is great,is ok,is okay,is settled,is set,is a go,is a yes,is a date,would work,would be fine,would be perfect"},
	{FirstPersonFuture, aYesBare, "i will,we will,i shall,we shall,i'll do it,we'll do it,i'll be there,we'll be there"},
	{FirstPersonFuture, aDeedNow, "i'm,i am,we're,we are"},
	{FirstPersonFuture, aTime, "they'll be there,they will be there,it'll be with you,it will be with you,they'll be with you,they'll be ready,will be in your,will be with you," +
		"will be at your,will be on your,will be ready,will arrive,will be delivered,will be shipped,will be refunded,will be back,you'll get a,you'll get an,you will get a," +
		"you will get an,you'll receive a,you will receive a,you'll find it,you'll find them,you will find it,expect it,expect them"},
	{FirstPersonFuture, aPart, "i'd love to,we'd love to,i would love to,we would love to,we'd be delighted to,i'd be delighted to,we would be delighted to,i would be delighted to"},
	{FirstPersonFuture, aDeedOfOurs, "the company will,our company will,my company will,our firm will,our side will,the company shall,our company shall," +
		"my boss will,our office will,my client will,my principal will,my user will"},
	{FirstPersonFuture, anOffer, "i can,we can,i could,we could"},
	{FirstPersonFuture, aHandout, "let me,allow me to"},
	{FirstPersonFuture, anObject, "you'll have,you will have,you'll get,you will get,you'll receive,you will receive"},
	{FirstPersonFuture, always, "it'll be ready,it will be ready,it'll be done,it'll be there,it'll be sent,it'll be delivered," +
		"it'll be finished,it'll be shipped,leave it to me,leave it with me,leave that to me,leave this to me," +
		"rest assured"},
	{FirstPersonFuture, aYes, "count me in,count us in,count on me,count on us,count on it,i'm on it,i am on it,we're on it,we are on it"},
	{Acceptance, aYes, "works for me,works for us,works great,works fine,works well for me,works fine for me,works great for me," +
		"work for me,work for us,fine by me,fine by us,fine with me,fine with us,okay with me,ok with me,good with me,good for me," +
		"sounds good,sounds great,sounds fine,sounds perfect,let's go with," +
		"consider it done,consider it handled,consider it sorted,you have my word,you've got my word,i give you my word,we have a deal," +
		"we've got a deal,you have a deal,is acceptable,are acceptable,good with that,good with this,good with it,fine with that,fine with this," +
		"okay with that,ok with that,okay with this,ok with this,cool with that,happy with that,happy with this,sounds like a plan,sounds wonderful," +
		"sounds excellent,sounds right,sounds fair,sounds reasonable,go for it,i can give you,we can give you,i could give you,i can let you," +
		"it's settled,that's settled,shake on it,shake on that,you can have all,you can have the,you can have both,you can have one," +
		"you can have two,you can have three,you can have my,you can keep all,you can keep the,you can take all," +
		"you've got a deal,you got a deal,it's a deal,it is a deal,that's a deal,got yourself a deal,got yourselves a deal," +
		"it's a date," +
		"i can do that,we can do that,i could do that,see you then,see you there,you can go ahead,please go ahead,feel free to go ahead," +
		"happy to do that,happy to do so,happy to do it,glad to do that,glad to do it,glad to do so"},
	{Acceptance, aYesAlone, "i'm in,i am in,we're in,we are in,count us in,you're on,let's do it,let's do that,let's do this,let's go ahead,you got it,no objection,no objections,i'll take it,we'll take it," +
		"that works,that'll work,that will work,that would work,that works well,that works great,that works perfectly,that's fine,that is fine," +
		"that would be great,that would be perfect,that'd be great,that would be fine"},
	{Acceptance, aYes, "put me down,put us down,put my name down,put our name down,put our names down,sign me up,sign us up,is yours,are yours,consider it paid,good for us,works too," +
		"ok with us,ok by me,ok by us,okay with us,okay by me,okay for me,okay for us,ok for me,ok for us,fine for me,fine for us,cool with me,good with us,great for me,great for us," +
		"fine with your,okay with your,ok with your,happy with your,good with your,works for our,let's do that one,let's go for,let's make it,charge it to,charge the visa," +
		"charge the card,charge my card,put it on my card,put it on my account,bill it to,bill me"},
	{Acceptance, aYes, "on board with,i'm on board,we're on board,i am on board,we are on board,i'm game,we're game,suits me,suits us,i can live with,we can live with,in favour of your,yes from me,yes from us," +
		"yes from our side,the answer is yes,my answer is yes,our answer is yes,green light,i consent,we consent,i give my consent,you have a yes,it's a yes,we'll go with,i'll go with,we go with," +
		"we've decided to go with,we have decided to go with,i've decided to go with,we choose,please proceed,please ship,please charge,please debit,you may charge,you may debit,you may publish,you may use my,you may use our," +
		"fine on our side,fine on my side,okay on our side,ok from our side,fine from our side,no objection from,no objections from,happy to accept,glad to accept,pleased to accept,delighted to accept," +
		"gladly accept,i'd like to proceed,i would like to proceed,i want to proceed,i'd like to go ahead,i would like to go ahead,deal then,it's yours,they're yours,all yours,i'm down for,we're down for,that's settled,you're in,you are in"},
	{Acceptance, aTime, "see you,see you on,see you at"},
	{Acceptance, aChoice, "it is,then,it is then"},
	{Acceptance, aSealing, "deal,offer,proposal,counteroffer,bid,quote,quotation,terms,conditions"},
	{Done, aSealing, "contract,agreement,lease,purchase,transaction,settlement,sale,treaty,papers"},
	{Acceptance, aPermission, "you may,they may,he may,she may"},
	{Done, aDoneAlone, "cancelled,canceled,refunded,reimbursed,paid,ordered,purchased,shipped,dispatched,rebooked,rescheduled,credited,waived,upgraded,renewed"},
	{Done, aDoneNow, "is,are,is all,are all"},
	{Acceptance, aYesOpens, "go ahead and,go ahead with,permission granted,request granted,you have permission,you're cleared,you are cleared,you have the green,you're good to go,that's a yes,it's a yes," +
		"consider it sold,consider it booked,consider it paid,consider it settled,consider it yours,consider it agreed,consider that done,consider that settled"},
	{FirstPersonFuture, aYesOpens, "be there at,be there by,will be there,on my way,be right there"},
	{FirstPersonFuture, aTime, "it goes out,they go out,it ships,they ship,you have it,you have them,you get it,you get them,offer stands,offer is valid,offer holds,price stands,price holds,prices hold"},
	{Acceptance, aYesBare, "you can,you may,i do,we do,that works"},
	{Acceptance, aYesTo, "i accept,we accept,i happily accept,we happily accept,i'd accept,we'd accept,i will accept,we will accept,i'll accept,we'll accept"},
	{Acceptance, aYesBare, "will do,on it,accepted,done deal,go ahead,you bet,sure thing,roger that,copy that,wilco,so be it,it's a go,ship it,do it,merge it,make it so,granted,proceed,please do,by all means,no objection,no objections"},
	{Pledge, aYes, "i vow,we vow,i pledge,we pledge,i swear,we swear,i hereby,we hereby,i solemnly,we solemnly,i undertake,we undertake," +
		"i bind myself,we bind ourselves,i give my word,we give our word,you have our word,my word on it,consider this our," +
		"consider this a binding,consider this a contract,consider this an order,consider this my,binding contract,binding offer,binding order," +
		"legally binding,we are bound,we're bound,i am bound,i'm bound,cross my heart,i assure you,we assure you,i can assure you,we can assure you,i stand by,we stand by,at our cost,at our expense,at my expense,i warrant,we warrant,i take full responsibility," +
		"we take full responsibility,you can count on,you can rely on,you may count on,you may rely on,i owe you,we owe you," +
		"this is our order,this is an order for,please accept this as our,i stake,take this as my,take this as our,accept this as my,treat this as my,treat this as our,regard this as my,regard this as our," +
		"this is my notice,this is our notice,this is my resignation,this is our acceptance,this is my consent,this is our consent,i give notice,we give notice,i'm giving notice,i hand in my notice"},

	{Done, aDone, "has been,have been,has now been,have now been,has just been,has already been,have already been,has also been,is now,are now," +
		"i've,i have,we've,we have,i just,we just,i already,i've just,i have just,i've already,i have already,i've now,i have now"},
	{Done, always, "on its way to you,on their way to you,is in the post,is in the mail,went out today,went out this,went out yesterday,has gone out,have gone out,i've put you down,we've put you down," +
		"i've added you,we've added you,i've set aside,we've set aside,i've kept,we've kept,you're registered,you are registered,you're enrolled,you are enrolled,you're signed up,you're on the list," +
		"it's done,it's paid,it is paid,is all set,you're down for,you are down for,is booked for you,are blocked for you,is blocked for you,you're all set,you are all set,you're booked,your cab is on,your ride is on"},
}

// verb is the meaning of a word after an opener.
type verb uint8

const (
	// work is the sender's own work, the default for unlisted verbs: "I'll search the logs". It
	// promises if its clause has an addressee, a time or a sum.
	work verb = iota
	// deed is for somebody: "I'll send it".
	deed
	// filler is skipped: "I'll gladly send".
	filler
	// state is no deed: "I'll need", "I will not".
	state
	// thing is a deed if the right words follow: "I'll do it", "I'll take care", "I'll make sure".
	thing
	// looking is no deed in "looking forward".
	looking
	// seeing is a deed with a person: "I'll see you at nine".
	seeing
	// helping is work with an object: "I'll help you solve it".
	helping
)

const fillers = " also then just first again soon still only all both now further either therefore thus next once later instead second third" +
	" gladly always simply"

// amidSealing are the words that may stand between a proposal and its outcome.
const amidSealing = "now hereby already just as and"

var verbLists = [...]struct {
	verb  verb
	words string
}{
	{filler, fillers},
	{state, "not never hardly need assume guess admit say know think miss like love bet hope want wish understand" +
		" regret remain wonder believe presume suppose remember recall forget hate lose learn hear" +
		" pass survive live die fail require lack spare wait" +
		" the a an my your our his her their this that no to it in on at for from with by home"},
	{looking, "look"},
	{seeing, "see"},
	{deed, "send resend deliver pay repay ship refund reimburse arrange order sign countersign cancel forward bring buy sell give lend return email mail text" +
		" phone ring join attend come accept cover waive replace repair notify inform hold honor honour support back vouch transfer wire credit discount donate" +
		" contribute sponsor host fund finance invest renew extend upgrade grant release deduct charge bill invoice issue quit resign vote endorse introduce" +
		" invite meet travel fly drive cook bake mentor represent reply respond finish spend offer compensate indemnify settle owe apologize apologise share" +
		" schedule book reserve confirm approve allocate assign guarantee promise commit agree reschedule participate testify serve supply lower match beat" +
		" postpone swap trade keep stay stand throw"},
	{thing, things("do", "it that this so my everything both them whatever what") + things("make", "sure it up good them") + things("take", "care it them all both this that one two three none my") +
		things("get", "it you them him her back done this that your someone somebody everything") + things("have", "it them everything this that your him her someone somebody my") +
		things("handle", "it this that everything them") + things("put", "you your my our together aside") + things("let", "him her them you everyone") +
		things("sort", "it this that out") + things("follow", "up") + things("check", "with back") + things("fix", "it this that") + things("call", "him her them back") +
		things("deal", "with") + things("set", "aside") + things("pick", "up it them him her") + things("report", "back") + things("step", "in") + things("speak", "to with") + things("talk", "to with") + things("go", "with for ahead up down"),
	},
	{helping, "help assist guide walk explain tell teach remind"},
}

// things lists the words that make a deed of a verb.
func things(verb, words string) string {
	return " " + verb + " " + strings.ReplaceAll(verb+" "+words, " ", "+")
}

func (d *Detector) learnCues() {
	learn := func(spelled string, p phrase) {
		symbols := make([]glyph, len(spelled))
		for i := range symbols {
			switch c := spelled[i]; c {
			case ' ':
				symbols[i] = symGap
			case '\'':
				symbols[i] = symApostrophe
			default:
				symbols[i] = letterOf(c)
			}
		}
		d.cues.add(symbols, len(d.phrases))
		d.phrases = append(d.phrases, p)
	}
	for _, row := range openers {
		for spelled := range strings.SplitSeq(row.phrases, ",") {
			learn(spelled, phrase{family: row.family, then: row.then})
			first, _, _ := strings.Cut(spelled, " ")
			switch first {
			case "i'll", "we'll", "we're", "i'd", "we'd":
				// The results would be ill, well, were, id, wed.
			default:
				if bare := strings.ReplaceAll(spelled, "'", ""); bare != spelled {
					learn(bare, phrase{family: row.family, then: row.then})
				}
			}
		}
	}
	d.verbs, d.things = map[string]verb{}, map[string][]string{}
	for _, row := range verbLists {
		for word := range strings.FieldsSeq(row.words) {
			if with := strings.Split(word, "+"); len(with) > 1 {
				d.things[with[0]] = with[1:]
				continue
			}
			d.verbs[word] = row.verb
		}
	}
	d.money = !d.off(Money)
	d.learnTerms()
}

// maxGap bounds the white space and markup between two words of a cue.
const maxGap = 8

// cue tries the openers at pos and returns the family and the end of the
// longest one that holds, or 0.
func (d *Detector) cue(text string, pos int, answers bool) (family string, languages uint16, end int) {
	var (
		ends [4]struct {
			end    int
			phrase uint16
		}
		found int
		at    uint16
	)
	r := reader{a: d.atlas, text: text, pos: pos}
	for {
		before := r.pos
		sym := r.symbol()
		if n := d.cues.nodes[at].end; n != 0 && (sym == 0 || sym == symGap) {
			if found == len(ends) {
				copy(ends[:], ends[1:])
				found--
			}
			ends[found].end, ends[found].phrase = before, n-1
			found++
		}
		if sym == 0 {
			break
		}
		if at = d.cues.step(at, sym); at == 0 {
			break
		}
	}
	for found--; found >= 0; found-- {
		p := &d.phrases[ends[found].phrase]
		if end, own := d.holds(text, pos, ends[found].end, p.then); end > 0 {
			if own && !answers { // after a question, somebody relies on it
				return NextStep, 0, end
			}
			return p.family, p.languages, end
		}
	}
	return "", 0, 0
}

// reader reads text as the symbols of the cue trie.
type reader struct {
	a    *atlas
	text string
	pos  int
}

// symbol reads one symbol: a letter, an apostrophe inside a word, the gap between words, or 0 for
// anything else and the end.
func (r *reader) symbol() glyph {
	// Most text is plain letters, and single spaces.
	if r.pos+1 < len(r.text) {
		c := r.text[r.pos]
		if g := plainLetter[c]; g != 0 {
			r.pos++
			return g
		}
		if c == ' ' && plainLetter[r.text[r.pos+1]] != 0 {
			r.pos++
			return symGap
		}
	}
	var gap, blanks, lines int
	for r.pos < len(r.text) {
		g, c, width := r.a.at(r.text, r.pos)
		switch {
		case g == unseen, g == seam:
		case g == blank:
			if c == '\n' {
				// No cue continues in the next paragraph.
				if lines++; lines > 1 {
					return 0
				}
			}
			blanks++
			gap++
		case isMarkup(c), pictured(c):
			gap++
		case gap > 0:
			if blanks > 0 {
				return symGap
			}
			// Markup with no space beside it, as in "I'**ll**".
			gap = 0
			continue
		case g.isLetter():
			r.pos += width
			return g
		case strings.ContainsRune("'\u2019\u02bc\uff07`\u00b4\u2018\u201b\u2032", c):
			r.pos += width
			return symApostrophe
		default:
			return 0
		}
		if gap > maxGap {
			return 0
		}
		r.pos += width
	}
	return 0
}

// pictured reports an emoji, which is no word of a cue.
func pictured(c rune) bool { return c >= 0x2600 && c < 0x2800 || c >= 0x1f300 && c < 0x1fb00 }

func isMarkup(c rune) bool { return c == '*' || c == '_' || c == '~' || c == '"' }

// maxWord bounds the length of a word in a cue. Longer words are in no list.
const maxWord = 20

// word is a word of the text in plain lower case, without apostrophes.
type word struct {
	letters [maxWord]byte
	n       int
}

func (w *word) is(s string) bool { return string(w.letters[:w.n]) == s }

func (w *word) endsIn(s string) bool { return w.n > len(s) && string(w.letters[w.n-len(s):w.n]) == s }

// word reads the next word, across one gap. Its length is 0 if something other than a word comes
// next.
func (r *reader) word() (w word) {
	for {
		before := r.pos
		switch sym := r.symbol(); {
		case sym == symGap && w.n == 0:
		case sym == symApostrophe:
		case sym == 0 || sym == symGap:
			r.pos = before
			return w
		default:
			if w.n < maxWord {
				w.letters[w.n] = byte(sym) - 1 + 'a'
			}
			w.n = min(w.n+1, maxWord)
		}
	}
}

// holds checks the condition of an opener from start to end. It returns the end of the cue, or 0,
// and whether the cue is only the sender's own next step.
func (d *Detector) holds(text string, start, end int, condition then) (past int, own bool) {
	r := reader{a: d.atlas, text: text, pos: end}
	switch condition {
	case always:
		return end, false
	case spoken:
		if asked(text, end) {
			return 0, false
		}
		return end, false
	case aDeed:
		if d.doubted(text, start) {
			return 0, false
		}
		return d.deed(&r, start)
	case aHandout:
		return d.followed(&r, handouts), false
	case aPresent:
		past := d.followed(&r, presents)
		if past == 0 || d.said(text, past, past) == 0 || asked(text, past) || d.doubted(text, start) || d.denied(text, start) {
			return 0, false
		}
		return past, false
	case anOrder:
		if w := r.word(); !opensSentence(text, start) || !w.is("my") && !w.is("our") && !figureNext(text, end) || asked(text, end) {
			return 0, false
		}
		return end, false
	case aTimeBefore:
		if asked(text, end) || d.denied(text, start) || d.leftOpen(text, start) || !clock(text, start) && !back(text, start, 2, func(_ int, s string) bool { return d.termOf(s)&timed != 0 || ordinal(s) }) {
			return 0, false
		}
		if w := r.word(); w.n > 0 && !fitting.has(&w) {
			return 0, false
		}
		return end, false
	case aDeedUnsaid:
		if !opensSentence(text, start) && (text[start]|0x20) != 'i' {
			return d.promised(&r, start), false
		}
		// "ILL" and "ill" also mean sick.
		if !opensSentence(text, start) || strings.HasSuffix(strings.TrimRight(text[:start], " "), ",") || text[start] == 'i' || asked(text, end) {
			return 0, false
		}
		return d.followed(&r, unsaid), false
	case aDeedNow:
		w := r.word()
		if w.n < 6 || !w.endsIn("ing") || d.doubted(text, start) {
			return 0, false
		}
		base := string(w.letters[:min(w.n, maxWord)-3])
		if d.verbs[base] != deed && d.verbs[base+"e"] != deed && !w.is("letting") && !w.is("putting") || asked(text, r.pos) {
			return 0, false
		}
		return r.pos, d.said(text, start, r.pos) == 0 && !figureNext(text, r.pos)
	case aTime:
		if d.said(text, end, end)&timed == 0 || asked(text, end) || d.doubted(text, start) || d.denied(text, start) {
			return 0, false
		}
		return end, false
	case aSealing:
		return d.sealed(&r, start, end), false
	case aPermission:
		past := d.followed(&r, permitted)
		if past == 0 || asked(text, past) || d.doubted(text, start) || d.denied(text, start) {
			return 0, false
		}
		return past, false
	case aDoneAlone:
		if strings.Trim(text[:start], " \t\n*_") != "" || !closesSentence(text, end) || asked(text, end) || strings.HasPrefix(text[end:], ":") {
			return 0, false
		}
		return end, false
	case aDoneNow:
		if !back(text, start, 4, func(_ int, s string) bool { return oneOf(s, "your") }) ||
			!back(text, start, 4, func(_ int, s string) bool { return d.termOf(s)&bought != 0 }) {
			return 0, false
		}
		return d.done(&r, start), false
	case aChoice:
		if closesSentence(text, end) && !asked(text, end) && hasSuffixFold(text[:end], "it is") && chosen(text, start) {
			return end, false
		}
		if !closesSentence(text, end) || asked(text, end) || !back(text, start, 1, func(_ int, s string) bool { return d.termOf(s)&timed != 0 || ordinal(s) }) && !clock(text, start) {
			return 0, false
		}
		return end, false
	case aPart:
		return d.followed(&r, parts), false
	case aDeedOfOurs:
		return d.followed(&r, housed), false
	case anOffer:
		if past := d.followed(&r, offers); past > 0 && !asked(text, past) && !d.doubted(text, start) && (d.said(text, start, past)&timed != 0 ||
			figureNext(text, past) && hasSuffixFold(text[:past], "manage")) {
			return past, false
		}
		return 0, false
	case aDone:
		return d.done(&r, start), false
	case anObject:
		if w := r.word(); w.n > 0 && objects.has(&w) && !asked(text, r.pos) && !d.doubted(text, start) {
			return r.pos, false
		}
		return 0, false
	case aYesBare:
		if !opensSentence(text, start) || !closesSentence(text, end) {
			return 0, false
		}
	case aYesAlone:
		// A colon introduces something that happens now: "Let's do it:".
		if !closesSentence(text, end) || (text[start]|0x20) == 'l' && strings.HasPrefix(strings.TrimLeft(text[end:min(len(text), end+4)], "* "), ":") {
			return 0, false
		}
	case aYesTo:
		if w := r.word(); w.n > 0 && !accepted.has(&w) || w.n == 0 && !closesSentence(text, end) {
			return 0, false
		}
	case aYesOpens:
		if !opensSentence(text, start) {
			return 0, false
		}
	case aYes:
	}
	if asked(text, end) || d.denied(text, start) || d.leftOpen(text, start) {
		return 0, false
	}
	return end, false
}

// leftOpen reports whether a yes leaves the choice to the other side: "any answer by tomorrow is
// fine", "a reply before Friday works for us".
func (d *Detector) leftOpen(text string, start int) bool {
	limited := false
	return back(text, start, 8, func(_ int, s string) bool {
		limited = limited || limits.holds(s)
		return openEnded.holds(s) || limited && unnamed.holds(s)
	})
}

// chosen reports whether a few words before "it is" begin their sentence and name something: "Lunch
// it is".
func chosen(text string, start int) bool {
	first, words := start, 0
	if back(text, start, 4, func(at int, s string) bool {
		first = at
		words++
		return noChoice.holds(s)
	}) {
		return false
	}
	return words > 0 && words < 4 && opensSentence(text, first)
}

// sealed looks for the outcome after a proposal. Without a verb, the proposal must open its
// sentence: "Offer accepted."
func (d *Detector) sealed(r *reader, start, end int) int {
	verb := false
	if hasSuffixFold(r.text[:end], "deal") && opensSentence(r.text, start) && closesSentence(r.text, end) && !asked(r.text, end) && !d.denied(r.text, start) {
		return end
	}
	for range 5 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case sealing.has(&w):
			if !verb && !opensSentence(r.text, start) || asked(r.text, r.pos) || d.denied(r.text, start) ||
				back(r.text, start, 6, func(_ int, s string) bool { return d.termOf(s)&(doubts|against) != 0 || notYet.holds(s) }) {
				return 0
			}
			return r.pos
		case auxiliary.has(&w):
			verb = true
		case w.is("now"), w.is("hereby"), w.is("already"), w.is("just"), w.is("as"), w.is("and"):
		default:
			return 0
		}
	}
	return 0
}

// promised weighs "will" after somebody other than the sender, for whom the sender may speak: "the
// invoice will be paid on Friday", "my colleague will call you".
func (d *Detector) promised(r *reader, start int) int {
	if back(r.text, start, 1, func(_ int, s string) bool {
		return speakers.holds(s)
	}) {
		return 0
	}
	for range 4 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case w.is("be"):
			next := r.word()
			if next.n == 0 || !delivered.has(&next) || d.said(r.text, r.pos, r.pos)&(addressed|timed) == 0 {
				return 0
			}
		case presents.has(&w) || comings.has(&w):
			if d.said(r.text, r.pos, r.pos) == 0 {
				return 0
			}
		case d.verbs[string(w.letters[:min(w.n, maxWord)])] == filler || w.endsIn("ly"):
			continue
		default:
			return 0
		}
		if asked(r.text, r.pos) || d.denied(r.text, start) {
			return 0
		}
		return r.pos
	}
	return 0
}

// followed returns the end of the next word, after adverbs, if it is in a list, or 0.
func (d *Detector) followed(r *reader, of list) int {
	for range 4 {
		w := r.word()
		switch {
		case w.n == 0:
			return 0
		case of.has(&w):
			return r.pos
		case d.verbs[string(w.letters[:w.n])] != filler && (!w.endsIn("ly") || endedInLy.has(&w)):
			return 0
		}
	}
	return 0
}

// deed looks past adverbs for the verb after an opener. It reports whether the verb is the sender's
// own work without anything in its clause that makes a promise of it.
func (d *Detector) deed(r *reader, start int) (end int, own bool) {
	for nth := range 5 {
		w := r.word()
		if w.n == 0 {
			// "Who does it?" - "I will."
			if rest := r.text[r.pos:]; nth == 0 && opensSentence(r.text, start) && rest != "" && (rest[0] == '.' || rest[0] == '!') {
				return r.pos, false
			}
			return 0, false
		}
		end := r.pos
		if w.is("be") {
			next := r.word()
			switch {
			case next.n == 0 || errands.has(&next):
				return 0, false
			case beings.has(&next), next.is("your"), next.is("yours"):
				return r.pos, false
			case next.is("able"):
				return r.pos, d.said(r.text, start, r.pos) == 0
			case next.endsIn("ing"):
				base := string(next.letters[:next.n-3])
				return r.pos, d.verbs[base] != deed && d.verbs[base+"e"] != deed && d.said(r.text, start, r.pos) == 0
			}
			return 0, false
		}
		switch d.verbs[string(w.letters[:min(w.n, maxWord)])] {
		case filler:
			continue
		case work:
			if w.endsIn("ly") && !endedInLy.has(&w) {
				continue
			}
		case deed:
			if w.is("keep") {
				// "I'll keep you posted", and not "I'll keep searching".
				if next := r.word(); next.endsIn("ing") {
					return end, d.said(r.text, start, end) == 0
				}
			}
			return end, false
		case state:
			return 0, false
		case looking:
			switch next := r.word(); {
			case next.is("forward"):
				return 0, false
			case next.is("into"), next.is("after"):
				return r.pos, false
			}
		case seeing:
			if next := r.word(); !next.is("you") && !next.is("to") {
				return 0, false
			}
			return r.pos, false
		case helping:
			return end, d.said(r.text, start, end)&^addressed == 0
		case thing:
			// "I'll take 2", "I'll take the 18th".
			after := end
			next := r.word()
			if next.is("the") {
				after = r.pos
			}
			switch {
			case next.is("to") && (w.is("have") || w.is("get")):
				return 0, false
			case figureNext(r.text, after), slices.Contains(d.things[string(w.letters[:min(w.n, maxWord)])], string(next.letters[:min(next.n, maxWord)])):
				return end, false
			case next.is("the"):
				// "I'll take the blue one".
				for range 3 {
					if next = r.word(); next.is("one") || next.is("offer") || next.is("rest") || next.is("deal") || next.is("room") {
						return end, false
					}
				}
			}
		}
		return end, d.said(r.text, start, end) == 0
	}
	return 0, false
}

// ordinal reports whether a word is a day of a month, for example 18th.
func ordinal(word string) bool {
	return len(word) > 2 && len(word) < 5 && word[0]-'0' < 10 && (hasSuffixFold(word, "th") || hasSuffixFold(word, "st") || hasSuffixFold(word, "nd") || hasSuffixFold(word, "rd"))
}

// clock reports whether a time such as 20:30 comes directly before pos.
func clock(text string, pos int) bool {
	for pos > 0 && text[pos-1] == ' ' {
		pos--
	}
	return pos > 4 && text[pos-1]-'0' < 10 && text[pos-2]-'0' < 10 && text[pos-3] == ':' && text[pos-4]-'0' < 10
}

// figureNext reports whether a number comes next.
func figureNext(text string, pos int) bool {
	for pos < len(text) && text[pos] == ' ' {
		pos++
	}
	return pos < len(text) && text[pos]-'0' < 10
}

// done looks past adverbs for a completed deed, after "has been" and "I've".
func (d *Detector) done(r *reader, start int) int {
	for range 4 {
		w := r.word()
		if w.n == 0 {
			return 0
		}
		switch t := d.term(&w); {
		case t&settled != 0:
		case t&finished != 0:
			// The owner matters: "Your order has been changed", and not "the file".
			if d.said(r.text, start, r.pos)&(addressed|timed) == 0 && !back(r.text, start, 6, func(_ int, s string) bool {
				return d.termOf(s)&(fund|bought) != 0 || oneOf(s, "your", "you")
			}) {
				return 0
			}
		case d.verbs[string(w.letters[:w.n])] == filler || w.is("been") || w.is("already") || w.endsIn("ly"):
			continue
		default:
			return 0
		}
		if asked(r.text, r.pos) || d.denied(r.text, start) {
			return 0
		}
		return r.pos
	}
	return 0
}

// maxClause bounds the words of a clause that are searched for an addressee, a time or a sum.
const maxClause = 24

// said searches the clause around a cue for an addressee, a time and a sum.
func (d *Detector) said(text string, start, end int) (what term) {
	back(text, start, 6, func(_ int, s string) bool {
		what |= d.termOf(s) & timed
		return false
	})
	stop := min(len(text), end+maxSentence)
	for pos, words := end, 0; pos < stop && words < maxClause; {
		c := text[pos]
		switch {
		case c == '$', strings.HasPrefix(text[pos:], "€"), strings.HasPrefix(text[pos:], "£"):
			return what | summed
		case c == '!' || c == '?' || c == ';', (c == '.' || c == ':') && (pos+1 == len(text) || text[pos+1] <= ' '):
			return what
		case c == '\n' && pos+1 < len(text) && (text[pos+1] == '\n' || text[pos+1] == '-' || text[pos+1] == '`' || text[pos+1] == '#'):
			return what
		case !wordByte(c):
			pos++
			continue
		}
		from := pos
		for pos < stop && wordByte(text[pos]) {
			pos++
		}
		words++
		word := text[from:pos]
		t := d.termOf(word)
		if t&(fund|unit) != 0 {
			what |= summed
		}
		if ordinal(word) {
			what |= timed
		}
		if c >= '0' && c <= '9' && (hasSuffixFold(word, "am") || hasSuffixFold(word, "pm") || hasSuffixFold(word, "k") || pos+2 < len(text) && text[pos] == ':' && text[pos+1]-'0' < 10) {
			what |= timed
		}
		what |= t & (addressed | timed)
	}
	return what
}

// maxSentence bounds the text around a cue that is searched, in bytes, so that a text of one
// endless sentence costs no more than another.
const maxSentence = 160

// asked reports whether the sentence around pos ends in a question mark.
func asked(text string, pos int) bool {
	end := strings.IndexByte(text[pos:min(len(text), pos+maxSentence)], '?')
	for i := pos; i < pos+end; i++ {
		switch text[i] {
		case '!', ';':
			return false
		case '\n':
			if i+1 < len(text) && text[i+1] == '\n' {
				return false
			}
		case '.':
			if text[i+1] <= ' ' {
				return false
			}
		}
	}
	return end >= 0
}

// opensSentence reports whether a sentence or a line begins at pos.
func opensSentence(text string, pos int) bool {
	for pos > 0 {
		r, width := utf8.DecodeLastRuneInString(text[:pos])
		switch {
		case r == ' ' || r == '\t' || isMarkup(r) || r == '>' || r == '#' || r == '[' || r == '|' || passed(r):
			pos -= width
		case escapedBreak(text, pos):
			return true
		default:
			return strings.ContainsRune(".!?:;,\n\r-\u2013\u2014", r)
		}
	}
	return true
}

// closesSentence reports whether a sentence or a clause ends at pos.
func closesSentence(text string, pos int) bool {
	for pos < len(text) {
		r, width := utf8.DecodeRuneInString(text[pos:])
		switch {
		case r == ' ' || r == '\t' || isMarkup(r) || passed(r):
			pos += width
		default:
			return strings.ContainsRune(".!?:;,)]|\\\n\r-\u2013\u2014", r)
		}
	}
	return true
}

// back walks the words before pos, nearest first, to the beginning of the clause. It stops when yes
// returns true for the word at start.
func back(text string, pos, words int, yes func(start int, word string) bool) bool {
	stop := max(0, pos-maxSentence)
	for end := pos; end > stop && words > 0; {
		c := text[end-1]
		if c == ' ' || c == '\t' || c == '*' || c == '_' || c == '"' || c == '\'' || c == '(' || (c == '\n' || c == '\r') && wrapped(text, end-1) {
			end--
			continue
		}
		if !wordByte(c) {
			return false
		}
		if escapedBreak(text, end) {
			return false
		}
		start := end
		for start > stop && wordByte(text[start-1]) && !escapedBreak(text, start) {
			start--
		}
		if yes(start, text[start:end]) {
			return true
		}
		end = start
		words--
	}
	return false
}

// escapedBreak reports whether a JSON escape for a line end ends at pos.
func escapedBreak(text string, pos int) bool {
	return pos > 1 && text[pos-2] == '\\' && (text[pos-1] == 'n' || text[pos-1] == 'r' || text[pos-1] == 't')
}

// wrapped reports whether a line that ends at pos continues on the next one, as after a program's
// line break: in the middle of a sentence, and not before an item of a list.
func wrapped(text string, pos int) bool {
	if text[pos] == '\r' {
		return pos+1 < len(text) && text[pos+1] == '\n' && wrapped(text, pos+1)
	}
	before, after := text[:pos], text[pos+1:]
	before = strings.TrimSuffix(before[max(0, len(before)-2):], "\r")
	return before != "" && (wordByte(before[len(before)-1]) || before[len(before)-1] == ' ' || before[len(before)-1] == ',') &&
		after != "" && (after[0]-'a' < 26 || after[0] == '$' || after[0]-'0' < 10 || after[0] == ' ')
}

// wordByte treats every byte above ASCII as a letter: the only such character in the words is the
// curly apostrophe.
func wordByte(c byte) bool {
	return c >= 0x80 || c == '\'' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9'
}

// bareYes returns the start and the end of the first sentence of a text if it only says yes, or that
// the sender wants the thing; to is 0 if it says more, or asks.
func (d *Detector) bareYes(text string) (from, to int) {
	pos, stop, yes, outright := 0, min(len(text), maxSentence), false, false
	for pos < stop && (text[pos] <= ' ' || isMarkup(rune(text[pos]))) {
		pos++
	}
	from = pos
	for pos < stop {
		switch c := text[pos]; {
		case (c == '.' || c == '!' || c == '\n') && yes, c == ',' && outright && questions(text[pos+1:stop]):
			return from, pos
		case c == '?':
			return 0, 0
		case !wordByte(c):
			pos++
		default:
			start := pos
			for pos < stop && wordByte(text[pos]) {
				pos++
			}
			word := strings.ReplaceAll(text[start:pos], "\u2019", "'")
			switch {
			case strings.EqualFold(word, "no") && noTrouble.holds(text[min(len(text), pos+1):min(len(text), pos+8)]):
			case wanting.holds(word) && yes:
				if asked(text, pos) || strings.Contains(strings.ToLower(text[pos:stop]), "n't") {
					return 0, 0
				}
				return from, pos
			case yes && d.goesOnAsYes(text, pos, word):
				return from, pos
			case affirming.holds(word):
				yes, outright = true, outright || outrightly.holds(word)
			case !padding.holds(word) && word[0] < 0x80:
				return 0, 0
			}
		}
	}
	if !yes || stop < len(text) {
		return 0, 0
	}
	return from, pos
}

// goesOnAsYes reports whether the text after a yes, with the word that ends at pos, keeps it a yes:
// "please use the card", "let's go ahead", "for two people", "and what is the address?", "send
// them".
func (d *Detector) goesOnAsYes(text string, pos int, word string) bool {
	next := func() string {
		from := pos
		for from < len(text) && (text[from] == ' ' || text[from] == ',') {
			from++
		}
		end := from
		for end < len(text) && wordByte(text[end]) {
			end++
		}
		return text[from:end]
	}
	switch {
	case strings.EqualFold(word, "please"):
		return !favours.holds(next())
	case oneOf(word, "let's", "lets"):
		return urging.holds(next())
	case strings.EqualFold(word, "for"):
		count := next()
		return count != "" && (count[0]-'0' < 10 || oneOf(count, "one", "two", "three", "four", "five", "six"))
	case oneOf(word, "proceed", "and", "also"):
		return true
	}
	return d.verbs[strings.ToLower(word)] == deed && ordered.holds(next()) && !asked(text, pos)
}

// questions reports whether a clause begins like a question.
func questions(text string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(text, " "), " ")
	return openQuestions.holds(first) || oneOf(first, "can", "could", "may", "will", "would", "is", "are", "do", "does")
}

// denied reports whether the clause before pos turns a yes into a no.
func (d *Detector) denied(text string, pos int) bool {
	return back(text, pos, 8, func(_ int, word string) bool {
		return d.isTerm(word, denies) || hasSuffixFold(word, "n't") || hasSuffixFold(word, "n\u2019t")
	})
}

// doubted reports whether the text directly before pos makes a condition or a question of "I will".
func (d *Detector) doubted(text string, pos int) bool {
	return back(text, pos, 1, func(_ int, word string) bool { return d.isTerm(word, doubts) })
}

// passed reports whether a character is invisible and ends no line.
func passed(r rune) bool { return !text.Shows(r) && r != '\n' && r != '\r' }

func oneOf(word string, list ...string) bool {
	return slices.ContainsFunc(list, func(one string) bool { return strings.EqualFold(one, word) })
}

func hasSuffixFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}
