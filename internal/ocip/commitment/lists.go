package commitment

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// list is a list of words for the conditions of cues.
type list uint8

const (
	handouts      list = iota // the deeds for others after "let me": most verbs there are none, as in "let me know", or the sender's own work, as in "let me fix"
	endedInLy                 // deeds that end like adverbs
	objects                   // things that "you'll have" promises
	beings                    // words that make a deed of "I'll be"
	unsaid                    // the deeds that people announce with "will" and without "I"
	offers                    // the deeds of "we can offer"
	housed                    // the deeds of the sender's organization
	errands                   // words after "I'll be" that are no deed
	presents                  // the deeds of aPresent
	delivered                 // deeds done to a promised thing: "will be delivered"
	awaited                   // the states of a promised thing that are promises with a time: "will be up shortly"
	informing                 // the things after "can I get" that nobody pays for
	quantities                // the quantities of an order
	comings                   // the deeds of others for whom the sender may speak
	parts                     // verbs of taking part
	fitting                   // words that continue a yes after a time
	accepted                  // things that a yes accepts by name
	speakers                  // those for whom the sender does not speak
	affirming                 // words of a sentence that is only a yes
	outrightly                // of these, the words that are a yes also before a question
	padding                   // other words that it may contain
	wanting                   // after one of these, any words may follow
	urging                    // after "let's", one of these also makes a yes
	favours                   // requests after "please" that are no yes
	noTrouble                 // no problem
	greetings                 // words before a question
	openQuestions             // words of questions that need more than a yes or a no
	yesQuestions              // words of questions that need a yes
	limits                    // limits of an open offer: "by tomorrow"
	openEnded                 // words that leave the object of a yes open
	unnamed                   // words that do so with a limit: "a reply by Friday"
	noChoice                  // words before "it is" that name no choice
	sealing                   // outcomes of a deal
	auxiliary                 // the verbs before it
	notYet                    // words that deny the outcome
	permitted                 // things that only the sender can allow
	ordered                   // words that continue an order
	englishWords              // words that distinguish English from the other languages
)

// lists are in lower case.
var lists = [...]string{
	handouts:  "send handle arrange forward deliver email mail schedule book",
	endedInLy: "reply apply supply comply rely fly multiply imply",
	objects:   "it them everything this these those my our the",
	beings:    "there happy glad sure",
	unsaid: "send keep get let call forward follow have share email mail revert reply respond ping arrange deliver handle pay ship sign" +
		" join attend meet bring take check update confirm call come see make provide return give help try refund process prepare",
	offers: "offer provide deliver ship send have pay do start give meet accommodate supply refund waive cover finish complete lend sell buy" +
		" throw include extend come be make manage bring pick drop take hold sign join attend host",
	housed: "pay refund deliver ship cover provide send reimburse sign honor honour compensate accept buy order supply transfer wire waive return" +
		" replace repair indemnify",
	errands:  "going seeing traveling travelling leaving having heading looking wondering",
	presents: "pay send deliver ship bring give lend refund reimburse cover guarantee grant offer order buy sell cancel waive transfer return extend keep renew sign owe drop collect pick",
	delivered: "sent delivered shipped paid refunded reimbursed credited returned replaced repaired ready there back done finished completed waived transferred issued" +
		" included covered provided installed picked collected handed",
	awaited:    "up out available at",
	informing:  "access answer answers answered back call chance confirmation context copy details diagram example examples feedback guidance help hold idea information info insight it link list look output overview quote rid report response results sense something started status summary that them there this update your",
	quantities: "two three four five six seven eight nine ten dozen couple pair another small medium large",

	comings:  "call contact arrive come join attend",
	parts:    "join attend come accept meet take help be have host sponsor",
	fitting:  "for with by me us well too fine great perfectly then good perfect better best",
	accepted: "your the this that it these those all both them",
	speakers: "you they he she who which what there i we this that if whether people users",
	affirming: "yes yep yup yeah yea aye sure surely ok okay k perfect great good fine right correct exactly absolutely definitely certainly alright" +
		" please do does sounds sound works work course indeed looks go proceed cool excellent wonderful awesome affirmative precisely true both winner" +
		" problem worries means done ja klar genau natürlich gerne oui volontiers sí claro vale perfecto certo prima natuurlijk sim はい 好 好的 可以 是的 行 \U0001f44d \u2705 \U0001f91d",
	outrightly: "yes yep yup yeah correct exactly",
	padding: "all very well it that thats that's this is for me us thanks thank you so much of look ahead with then and just either by one" +
		" was what looking thinking wanted the a an deal plan be will would thatd thatll it's to really quite about lets let's kind too sir maam" +
		" oh ah hi hello nice lovely splendid super amazing also of-course seems seem fair reasonable should got details",
	wanting:       "i i'd id we we'd i'm im",
	urging:        "proceed go book use reserve buy order do pay",
	favours:       "let note find see tell provide give share keep refer remember wait be make ensure check",
	noTrouble:     "problem worries",
	greetings:     "so and great then well thanks please kindly also hi hello sure",
	openQuestions: "what when where which who whom whose how why what's how's",
	yesQuestions: "shall should may would will can could want wanna like okay ok fine good deal right correct proceed ready accept agree" +
		" works work about acceptable confirm yes set willing happy able",
	limits:       "by before until till within after from",
	openEnded:    "any anything anytime anyone whatever whichever whenever wherever whoever everything",
	unnamed:      "a an some no either",
	noChoice:     "what whatever as how that who where which because if since though so and but than when whether is like think say know see sure believe it i you we they this there for not here yes no yeah yep sure ok okay well now still also only always then",
	sealing:      "accepted signed sealed executed concluded struck settled closed countersigned ratified finalised finalized agreed done approved",
	auxiliary:    "is are s has have been stands",
	notYet:       "once after before until till as when while unless was were be being gets got not",
	permitted:    "name publish record quote print reproduce mention copy reuse distribute resell sublicense enter proceed keep reprint translate broadcast display share sell",
	ordered:      "it them that this those these both all everything my our us me",
	englishWords: english,
}

// members are the words of each list, made once a process.
var members = sync.OnceValue(func() *[len(lists)]map[string]struct{} {
	all := new([len(lists)]map[string]struct{})
	for i, words := range lists {
		all[i] = map[string]struct{}{}
		for word := range strings.FieldsSeq(words) {
			all[i][word] = struct{}{}
		}
	}
	return all
})

// has reports whether a word that was read is in the list.
func (l list) has(w *word) bool {
	_, in := members()[l][string(w.letters[:w.n])]
	return in
}

// holds reports whether a word is in the list, in any case.
func (l list) holds(word string) bool {
	var lower [maxWord]byte
	if len(word) > len(lower) {
		return false
	}
	for i := range len(word) {
		c := word[i]
		if c >= utf8.RuneSelf {
			_, in := members()[l][strings.ToLower(word)]
			return in
		}
		if capital(c) {
			c |= 0x20
		}
		lower[i] = c
	}
	_, in := members()[l][string(lower[:len(word)])]
	return in
}
