package directory

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Profile is how a channel's app is told where to send a message, and what its
// clients make of a text: access.channels.<id> in the configuration. What is left
// out is as the channel is known.
type Profile struct {
	// Address are the members of metadata that the app sends to.
	Address []string
	// Case is the network's rule for capital letters.
	Case text.Case
	// Rendering is what the clients undo of a text.
	Rendering []text.Rendering
}

// network is what is known of a channel: of the messages that its app sends and
// brings in, of the session keys that the app makes, and of the names that people
// have there.
type network struct {
	// direct and group are the members of metadata that the app sends to, where it
	// writes to one and where it writes to many. Without any, the app is unknown:
	// it may send to any of the names in knownMembers.
	direct, group []string
	forms         []form
	fold          text.Case
	rendering     []text.Rendering
	// spell brings a target into one of the spellings that the network takes for
	// one, nil where there is one only. It comes before fold.
	spell func(target string) string
	// many reports whether a target is a place of many, nil where its spelling
	// does not tell.
	many func(target string) bool
	// refuse says why the app cannot be given a target, nil where it can be given
	// any, as where nothing is known of the network. What is no id of a known one is
	// refused: the app or the network could read another's in it, or more than one.
	refuse func(target string) string
	// alias says why a target may be somebody whom the directory has by another
	// name, nil where there is one name only. It is asked about those whom the
	// directory does not have.
	alias func(target string) string
}

// form is one shape of the session keys of a channel, without the channel: parts
// between colons, of which {to} is where the app sends, {who} somebody the app
// does not send to by that name, and {} anything. The last takes all that is left.
type form struct {
	parts []string
	// many is set where keys of this form are those of a place of many, and name
	// where the key may be any name that the app chose.
	many, name bool
}

// conversation is what a session key says.
type conversation struct {
	to, who    string
	many, name bool
}

const (
	toPart  = "{to}"
	whoPart = "{who}"
	anyPart = "{}"
)

// one and many are forms of session keys with one person and with many, and free
// the one that takes every key.
func one(pattern string) form  { return form{parts: strings.Split(pattern, ":")} }
func many(pattern string) form { return form{parts: strings.Split(pattern, ":"), many: true} }

func free() form { return form{parts: []string{toPart}, name: true} }

// match reads what is behind the channel in a session key.
func (f *form) match(rest string) (c conversation, ok bool) {
	for i, part := range f.parts {
		value := rest
		if i < len(f.parts)-1 {
			if value, rest, ok = strings.Cut(rest, ":"); !ok {
				return c, false
			}
		}
		switch part {
		case toPart:
			c.to = value
		case whoPart:
			c.who = value
		case anyPart:
		default:
			if !strings.EqualFold(value, part) {
				return c, false
			}
		}
		if value == "" {
			return c, false
		}
	}
	c.many, c.name = f.many, f.name
	return c, true
}

// parse reads what is behind the channel in a session key.
func (n *network) parse(rest string) conversation {
	for i := range n.forms {
		if c, ok := n.forms[i].match(rest); ok {
			if c.to != "" && n.many != nil {
				c.many = n.many(c.to)
			}
			return c
		}
	}
	return conversation{name: true}
}

// folded is a target in the one spelling that it is compared by.
func (n *network) folded(target string) string {
	if n.spell != nil {
		target = n.spell(target)
	}
	return text.Fold(target, n.fold)
}

// foldedKey is a session key in the one spelling that it is compared by.
func (n *network) foldedKey(key, rest string) string {
	if folded := text.Fold(rest, n.fold); folded != rest {
		return key[:len(key)-len(rest)] + folded
	}
	return key
}

// known reports whether it is known which members the app sends to.
func (n *network) known() bool { return len(n.direct) > 0 }

// reads reports whether an app sends to a member of metadata, or may.
func (n *network) reads(member string) bool {
	if !n.known() {
		_, ok := knownMembers()[member]
		return ok
	}
	return slices.Contains(n.direct, member) || slices.Contains(n.group, member)
}

// imitates reports whether a member of metadata is named as one that the app sends to,
// but for capitals, _ and -: a reader takes the one for the other, and so may a program.
func (n *network) imitates(member string) bool {
	same := func(one string) bool { return one != member && sameName(one, member) }
	return slices.ContainsFunc(n.direct, same) || slices.ContainsFunc(n.group, same)
}

// sameName compares names of members without their capitals, _ and -.
func sameName(a, b string) bool {
	next := func(s string) (c byte, rest string) {
		s = strings.TrimLeft(s, "_-")
		if s == "" {
			return 0, ""
		}
		if c = s[0]; 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c, s[1:]
	}
	for {
		var x, y byte
		x, a = next(a)
		if y, b = next(b); x != y || x == 0 {
			return x == y
		}
	}
}

// with is a network as the configuration has it.
func (n network) with(p *Profile) *network {
	if len(p.Address) > 0 {
		n.direct, n.group = p.Address, p.Address
	}
	if p.Case != "" {
		n.fold = p.Case
	}
	if p.Rendering != nil {
		n.rendering = p.Rendering
	}
	return &n
}

// knownMembers are the names by which some app takes an address.
var knownMembers = sync.OnceValue(func() map[string]struct{} {
	names := make(map[string]struct{})
	for _, n := range networks() {
		for _, member := range slices.Concat(n.direct, n.group) {
			names[member] = struct{}{}
		}
	}
	for _, member := range extraMembers {
		names[member] = struct{}{}
	}
	return names
})

// generalSenders say in any channel who wrote a message.
var generalSenders = [...]string{"from", "sender", "senderId", "senderNick", "user", "userId", "participant", "fromUsername"}

// extraMembers are names by which apps that are not in the list of networks take
// an address.
var extraMembers = [...]string{"to", "room"}

// Forms that most networks have: those whose direct conversations are named after
// whom the app sends to, and those where they are not.
func named(first ...form) []form {
	return append(first, one("direct:{to}"), one("dm:{to}"), many("group:{to}"), many("channel:{to}"), free())
}

func roomed(first ...form) []form {
	return append(first, one("direct:{who}"), one("dm:{who}"), many("group:{to}"), many("channel:{to}"), many("room:{to}"), free())
}

// anyNetwork is a channel of which nothing is known.
func anyNetwork() network {
	return network{forms: []form{one("direct:{to}"), one("dm:{to}"), many("group:{to}"), many("channel:{to}"), many("room:{to}"), free()}}
}

// networks are the channels of the OpenClawOS repository: what their apps read
// when they send, what they bring in, and how they name sessions. The apps of
// Discord, Slack and WhatsApp write the channel twice.
func networks() map[string]network {
	both := func(members ...string) network { return network{direct: members, group: members} }
	plain := func(n network, forms []form, fold text.Case, rendering ...text.Rendering) network {
		n.forms, n.fold, n.rendering = forms, fold, rendering
		return n
	}
	never := func(string) bool { return false }
	always := func(string) bool { return true }

	irc := plain(both("target"), named(), text.CaseRFC1459, text.RenderIRC)
	irc.many, irc.refuse = ircChannel, refuseIRC

	telegram := plain(both("chatId"), named(
		many("group:{to}:topic:{}"), many("group:{to}:thread:{}"), one("direct:{to}:topic:{}"), one("direct:{to}:thread:{}"),
	), text.CaseASCII, text.RenderHTML)
	telegram.spell, telegram.many, telegram.alias = decimal, telegramGroup, aliasPublicName
	telegram.refuse = only("a number, @ and a public name, or a name", `[+-]?[0-9]+|@[A-Za-z0-9_]+|\pL[\pL\pM\pN_-]*`)

	signal := plain(network{direct: []string{"recipient", "sender"}, group: []string{"groupId"}}, named(), text.CaseASCII)
	signal.refuse = refuseSignal

	matrix := plain(both("roomId"), roomed(), text.CaseNone)
	matrix.refuse = only("! and a room's id: messages are sent to rooms", `![A-Za-z0-9_.=+~-]+(:([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?)?`)

	discord := plain(both("channelId"), roomed(
		one("discord:direct:{to}:{who}"), many("discord:guild:{}:{to}"), one("direct:{to}:{who}"), many("guild:{}:{to}"),
	), text.CaseNone, text.RenderMarkdown)
	discord.spell, discord.refuse = decimal, only("a number", `[0-9]+`)

	slack := plain(both("channel"), named(
		many("slack:thread:{to}:{}"), one("slack:direct:{to}:{who}"), many("slack:group:{to}:{who}"), many("slack:channel:{to}:{who}"),
		many("thread:{to}:{}"), one("direct:{to}:{who}"), many("group:{to}:{who}"), many("channel:{to}:{who}"),
	), text.CaseASCII, text.RenderMarkdown)
	slack.alias = aliasSlackName
	slack.refuse = only("letters and digits, or the name of a channel or a person", `[A-Za-z0-9]+|[#@][\pL\pM\pN_.-]+|[\p{Ll}\p{Lo}0-9_-][\pL\pM\pN_.-]*`)
	slack.many = func(to string) bool { return strings.HasPrefix(to, "C") || strings.HasPrefix(to, "G") }

	whatsapp := plain(both("remoteJid", "jid"), named(many("whatsapp:group:{to}"), one("whatsapp:direct:{to}")), text.CaseASCII, text.RenderMarkdown)
	whatsapp.spell, whatsapp.many = whatsappNumber, whatsappGroup
	whatsapp.refuse = only("a number, alone or before @ and its server", `(?i)\+?[0-9]+([_:][0-9]+)*(@(s\.whatsapp\.net|c\.us))?|[0-9]+([_:][0-9]+)*@lid|`+
		`[0-9]+(-[0-9]+)?@g\.us|[0-9]+@(newsletter|bot)|([0-9]+|status)@broadcast`)

	mattermost := plain(both("channelId"), roomed(), text.CaseNone, text.RenderMarkdown)
	mattermost.refuse = only(letters, `[A-Za-z0-9]+`)
	msteams := plain(both("conversationId"), named(), text.CaseNone, text.RenderHTML, text.RenderMarkdown)
	msteams.spell, msteams.many = conversationOfThread, func(to string) bool { return strings.Contains(to, "@thread") }
	msteams.refuse = only("such as 19:…@thread.v2 or a:…", `[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)*(@[a-z0-9.]+)?(;messageid=[0-9]+)?`)
	nextcloud := plain(both("conversationId"), roomed(), text.CaseNone, text.RenderMarkdown)
	nextcloud.refuse = only(letters, `[A-Za-z0-9]+`)
	googlechat := plain(both("spaceId"), named(), text.CaseNone, text.RenderMarkdown)
	googlechat.spell = func(to string) string { return strings.TrimPrefix(to, "spaces/") }
	googlechat.refuse = only("letters and digits, alone or behind spaces/", `(spaces/)?[A-Za-z0-9_-]+`)

	bluebubbles := plain(both("chatId"), named(), text.CaseASCII)
	bluebubbles.spell, bluebubbles.many = withoutService, func(to string) bool { return strings.Contains(to, ";+;") || chatOfMany.MatchString(to) }
	bluebubbles.refuse = only("such as iMessage;-;+15550001, "+handles, `(?i)((iMessage|SMS|RCS|any);-;)?(`+handle+`)|(iMessage|SMS|RCS|any);\+;[0-9A-Z-]+`)
	imessage := plain(both("handle"), named(), text.CaseASCII)
	imessage.many, imessage.refuse = never, only(handles, handle)

	twitch := plain(both("channel"), []form{one("direct:{who}"), one("dm:{who}"), many("channel:{to}"), many("group:{to}"), free()}, text.CaseASCII)
	twitch.refuse = only("a name, alone or behind #", `#?[A-Za-z0-9_]+`)
	twitch.spell, twitch.many = func(to string) string { return strings.TrimPrefix(to, "#") }, always
	tlon := plain(both("ship"), named(), text.CaseASCII)
	tlon.spell, tlon.many = func(to string) string { return strings.TrimPrefix(to, "~") }, never
	nostr := plain(both("pubkey"), named(), text.CaseASCII)
	tlon.refuse = only("a ship such as ~sampel-palnet", `(?i)~?([a-z]{3}|[a-z]{6}(-[a-z]{6}){0,3}|([a-z]{6}-){0,3}[a-z]{6}--([a-z]{6}-){3}[a-z]{6})`)
	nostr.many, nostr.alias = never, aliasNostr
	nostr.refuse = only("a key", `(?i)[0-9a-f]+|(npub1|nprofile1)[0-9a-z]+`)

	feishu, line := plain(both("openId"), named(), text.CaseNone), plain(both("userId"), named(), text.CaseNone)
	zalo, zalouser := plain(both("userId"), named(), text.CaseNone), plain(both("recipientId"), named(), text.CaseNone)
	for _, n := range []*network{&feishu, &line, &zalo, &zalouser} {
		n.many, n.refuse = never, only(letters, `[A-Za-z0-9_-]+`)
	}

	return map[string]network{
		"irc": irc, "telegram": telegram, "signal": signal, "matrix": matrix, "discord": discord, "slack": slack, "whatsapp": whatsapp,
		"mattermost": mattermost, "msteams": msteams, "nextcloud-talk": nextcloud, "googlechat": googlechat, "bluebubbles": bluebubbles,
		"imessage": imessage, "twitch": twitch, "tlon": tlon, "nostr": nostr, "feishu": feishu, "line": line, "zalo": zalo, "zalouser": zalouser,
	}
}

const (
	letters = "letters and digits"
	// handle is somebody's name for iMessage: a number that says its country, that of
	// a service, an address, or a name. A number without its country is somebody by
	// where the account is.
	handles = "a number with + and its country, an e-mail address or a name"
	handle  = `\+[1-9][0-9]*|[0-9]{2,6}|[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9.-]+|[A-Za-z][A-Za-z0-9._-]*|urn:biz:[0-9A-Fa-f-]+`
)

// only refuses what is no id of a network, all of which a pattern matches.
func only(ids, pattern string) func(target string) string {
	whole := regexp.MustCompile("^(?:" + pattern + ")$")
	return func(target string) string {
		if whole.MatchString(target) {
			return ""
		}
		return "an id there is " + ids
	}
}

// ircChannel reports whether a target of IRC is a channel.
func ircChannel(to string) bool { return to != "" && (to[0] == '#' || to[0] == '&') }

// refuseIRC keeps to what names one nick or one channel: a list with commas goes
// to all of it, masks and statuses go to many, a nick with a host or server behind
// it is that nick, and the app writes escapes out before it sends.
func refuseIRC(to string) string {
	name := strings.TrimLeft(to, "#&")
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c == ',' || c == ':' || c == 0x7f:
			return "it is more than one nick or channel"
		case c == '\\' && i+1 < len(name) && strings.IndexByte("rnt0xu", name[i+1]) >= 0:
			return "its app writes the escape in it out"
		}
	}
	if ircChannel(to) {
		return ""
	}
	for _, r := range to {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N) && !strings.ContainsRune("_-[]{}\\|^`/", r) {
			return "it is no nick and no channel"
		}
	}
	return ""
}

// decimal leaves out what a number can begin with and still be the same.
func decimal(to string) string {
	digits, minus := strings.CutPrefix(to, "-")
	if !minus {
		digits = strings.TrimPrefix(digits, "+")
	}
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return to
	}
	if digits = strings.TrimLeft(digits, "0"); digits == "" {
		return "0"
	}
	if minus {
		return "-" + digits
	}
	return digits
}

// telegramGroup reports whether a chat is one of many: their ids are negative, and
// only they have public names.
func telegramGroup(to string) bool { return strings.HasPrefix(to, "-") || strings.HasPrefix(to, "@") }

func aliasPublicName(to string) string {
	if strings.HasPrefix(to, "@") {
		return "the public name of a chat says nothing of the chat's id, by which the directory may have it"
	}
	return ""
}

// refuseSignal keeps to what Signal takes as it is: a number is read from texts
// with anything around it, and without its country it is somebody by where the
// account is.
func refuseSignal(to string) string {
	switch {
	case signalNumber.MatchString(to):
		return ""
	case strings.HasPrefix(to, "+") || strings.Trim(to, "0123456789 ()-./+") == "" || strings.ContainsAny(to, " :;"):
		return "a phone number is written as + and digits, the country first"
	case !signalID.MatchString(to):
		return "an id there is letters and digits, as a name or in base64"
	}
	return ""
}

var (
	signalNumber = regexp.MustCompile(`^\+[1-9][0-9]*$`)
	signalID     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+/=-]*$`)
	chatOfMany   = regexp.MustCompile(`^(?i)chat[0-9]+$`)
	service      = regexp.MustCompile(`^[A-Za-z]+;[+-];`)
	thread       = regexp.MustCompile(`;messageid=[0-9]+$`)
)

// withoutService leaves out by which service a chat is reached, and whether it is
// one of many: the chat is the same by any.
func withoutService(to string) string { return service.ReplaceAllString(to, "") }

// conversationOfThread leaves out which thread of a conversation a message belongs to.
func conversationOfThread(to string) string { return thread.ReplaceAllString(to, "") }

// aliasSlackName knows ids from names, by which Slack sends as well.
func aliasSlackName(to string) string {
	if strings.HasPrefix(to, "#") || strings.HasPrefix(to, "@") || to != strings.ToUpper(to) {
		return "the name of a channel or a person says nothing of the id, by which the directory may have it"
	}
	return ""
}

func aliasNostr(to string) string {
	if strings.HasPrefix(strings.ToLower(to), "npub1") || strings.HasPrefix(strings.ToLower(to), "nprofile1") {
		return "a key is written in hexadecimal digits, by which the directory may have it"
	}
	return ""
}

// whatsappNumber leaves of a person's address what tells people apart: WhatsApp
// knows numbers with and without their server, and with a device behind them.
func whatsappNumber(to string) string {
	user, server, _ := strings.Cut(to, "@")
	hidden := strings.EqualFold(server, "lid")
	if server != "" && !hidden && !strings.EqualFold(server, "s.whatsapp.net") && !strings.EqualFold(server, "c.us") {
		return to
	}
	user, _, _ = strings.Cut(user, ":")
	user, _, _ = strings.Cut(user, "_")
	if hidden {
		return user + "@lid"
	}
	return decimal(user)
}

func whatsappGroup(to string) bool {
	_, server, _ := strings.Cut(strings.ToLower(to), "@")
	return server == "g.us" || server == "broadcast" || server == "newsletter"
}
