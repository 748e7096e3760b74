package directory

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/openclawos/ocipd/internal/base/text"
)

// Profile describes how a channel's app receives the address of a message, and how its clients
// change a text: access.channels.<id> in the configuration. For omitted fields, the built-in values
// of the channel apply.
type Profile struct {
	// Address are the members of metadata to which the app sends.
	Address []string
	// Case is the network's rule for capital letters.
	Case text.Case
	// Rendering lists the changes that the clients make to a text.
	Rendering []text.Rendering
}

// network describes a channel: the messages that its app sends and brings in, the session keys that
// the app makes, and the names that people have there.
type network struct {
	// direct and group are the members of metadata to which the app sends, for one reader and for
	// several. Without any, the app is unknown: it may send to any of the names in knownMembers.
	direct, group []string
	forms         []form
	fold          text.Case
	rendering     []text.Rendering
	// spell returns one spelling for all spellings of a target that the network treats as one. Nil
	// means that there is only one. It comes before fold.
	spell func(target string) string
	// many reports whether a target has several readers. Nil means that the spelling does not tell.
	many func(target string) bool
	// refuse returns the reason that the app cannot be given a target, or "". A nil refuse accepts
	// any target, as for an unknown network. A target that is no id of a known network is refused:
	// the app or the network could read another id in it, or several.
	refuse func(target string) string
	// alias returns the reason that a target may be a person whom the directory has under another
	// name. Nil means that there is only one name. It is asked about targets that are not in the
	// directory.
	alias func(target string) string
}

// form is one shape of the session keys of a channel, without the channel. It has parts between
// colons: {to} is the target of the app, {who} is somebody to whom the app does not send by that
// name, and {} is anything. The last part takes the whole rest.
type form struct {
	parts []string
	// many is set if keys of this form belong to several readers, and name if the app may have
	// chosen the key freely.
	many, name bool
}

// conversation is the content of a session key.
type conversation struct {
	to, who    string
	many, name bool
}

const (
	toPart  = "{to}"
	whoPart = "{who}"
	anyPart = "{}"
)

// one and many are forms of session keys with one person and with several, and free is the form
// that matches every key.
func one(pattern string) form  { return form{parts: strings.Split(pattern, ":")} }
func many(pattern string) form { return form{parts: strings.Split(pattern, ":"), many: true} }

func free() form { return form{parts: []string{toPart}, name: true} }

// match reads the rest of a session key after the channel.
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

// parse reads the rest of a session key after the channel.
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

// folded returns a target in the spelling for comparisons.
func (n *network) folded(target string) string {
	if n.spell != nil {
		target = n.spell(target)
	}
	return text.Fold(target, n.fold)
}

// foldedKey returns a session key in the spelling for comparisons.
func (n *network) foldedKey(key, rest string) string {
	if folded := text.Fold(rest, n.fold); folded != rest {
		return key[:len(key)-len(rest)] + folded
	}
	return key
}

// known reports whether the members to which the app sends are known.
func (n *network) known() bool { return len(n.direct) > 0 }

// reads reports whether an app sends, or may send, to a member of metadata.
func (n *network) reads(member string) bool {
	if !n.known() {
		_, ok := knownMembers()[member]
		return ok
	}
	return slices.Contains(n.direct, member) || slices.Contains(n.group, member)
}

// imitates reports whether the name of a member equals that of a member to which the app sends,
// except for capitals, _ and -. A reader takes one for the other, and so may a program.
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

// with returns a network with the configuration's profile.
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

// knownMembers are the names that some app uses for an address.
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

// generalSenders are members that name the author of a message in any channel.
var generalSenders = [...]string{"from", "sender", "senderId", "senderNick", "user", "userId", "participant", "fromUsername"}

// extraMembers are names that apps outside the list of networks use for an address.
var extraMembers = [...]string{"to", "room"}

// Forms of most networks. In named, direct conversations are named after the app's target; in
// roomed they are not.
func named(first ...form) []form {
	return append(first, one("direct:{to}"), one("dm:{to}"), many("group:{to}"), many("channel:{to}"), free())
}

func roomed(first ...form) []form {
	return append(first, one("direct:{who}"), one("dm:{who}"), many("group:{to}"), many("channel:{to}"), many("room:{to}"), free())
}

// anyNetwork is an unknown channel.
func anyNetwork() network {
	return network{forms: []form{one("direct:{to}"), one("dm:{to}"), many("group:{to}"), many("channel:{to}"), many("room:{to}"), free()}}
}

// networks are the channels of the OpenClawOS repository: the members that their apps use when they
// send and bring in messages, and the names of their sessions. The apps of Discord, Slack and
// WhatsApp write the channel twice.
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
	// handles are names for iMessage: a number with its country, the number of a service, an
	// address, or a name. A number without its country means different people in different
	// countries.
	handles = "a number with + and its country, an e-mail address or a name"
	handle  = `\+[1-9][0-9]*|[0-9]{2,6}|[A-Za-z0-9][A-Za-z0-9._+-]*@[A-Za-z0-9.-]+|[A-Za-z][A-Za-z0-9._-]*|urn:biz:[0-9A-Fa-f-]+`
)

// only refuses every target that does not match the pattern of a network's ids.
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

// refuseIRC accepts only names of one nick or one channel. A list with commas goes to all of it,
// and masks and statuses go to many. A nick with a host or server is that nick. The app writes
// escapes out before it sends.
func refuseIRC(to string) string {
	name := strings.TrimLeft(to, "#&")
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ' || c == ',' || c == ':' || c == 0x7f:
			return "it is more than one nick or channel"
		case c == '\\' && i+1 < len(name) && strings.IndexByte("rnt0xu", name[i+1]) >= 0:
			return "its app would interpret the escape in it"
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

// decimal removes characters at the start of a number that do not change it.
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

// telegramGroup reports whether a chat is a group: ids of groups are negative, and only groups have
// public names.
func telegramGroup(to string) bool { return strings.HasPrefix(to, "-") || strings.HasPrefix(to, "@") }

func aliasPublicName(to string) string {
	if strings.HasPrefix(to, "@") {
		return "the directory may list the chat by its id, which the public name does not reveal"
	}
	return ""
}

// refuseSignal accepts only targets that Signal takes unchanged. Signal finds a number in a text
// with anything around it. A number without its country means different people in different
// countries.
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

// withoutService removes the service of a chat, and whether it is a group: the chat is the same
// with any.
func withoutService(to string) string { return service.ReplaceAllString(to, "") }

// conversationOfThread removes the thread of a message from its conversation.
func conversationOfThread(to string) string { return thread.ReplaceAllString(to, "") }

// aliasSlackName distinguishes ids from names, since Slack also sends to names.
func aliasSlackName(to string) string {
	if strings.HasPrefix(to, "#") || strings.HasPrefix(to, "@") || to != strings.ToUpper(to) {
		return "the directory may list the channel or person by its id, which the name does not reveal"
	}
	return ""
}

func aliasNostr(to string) string {
	if strings.HasPrefix(strings.ToLower(to), "npub1") || strings.HasPrefix(strings.ToLower(to), "nprofile1") {
		return "the directory may list the key in hexadecimal digits; write it so"
	}
	return ""
}

// whatsappNumber reduces a person's address to the part that distinguishes people: WhatsApp accepts
// numbers with and without their server, and with a device behind them.
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
