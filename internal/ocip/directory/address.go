package directory

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/ocip"
)

var (
	// ErrSpelling refuses a key or an address that is not in the spelling for ids, so that it could
	// pass for another.
	ErrSpelling = errors.New("is not spelled as ids are")
	// ErrAddress refuses a message with an address that the channel's app cannot have, or cannot be
	// given.
	ErrAddress = errors.New("there is no address")
)

// Address is the destination of a message: a channel, the channel's own account that sends it, and
// the target there.
type Address struct {
	Channel, Account, Target string
}

// Recipient is the receiver of a message, as one agent sees it.
type Recipient struct {
	Address
	// Counterparty is the counterparty that the decision is about. If several read the message, it
	// is as strict as the strictest of them requires.
	Counterparty ocip.Counterparty
	// Group is set if several read the message. Members are the readers in the directory, and
	// Strangers is set if others may read it too.
	Group     bool
	Members   []ocip.Counterparty
	Strangers bool
	// LooksLike is the session of the directory that the key or the address imitates, or empty.
	LooksLike string
	// Rendering lists the changes that the receivers' clients make to a text.
	Rendering []text.Rendering

	network *network
	said    conversation
	brought map[string]string
}

const (
	// accountMember names the channel's own account of a message, and groupMember says that several
	// read the session.
	accountMember = "accountId"
	groupMember   = "isGroup"

	// maxNameBytes bounds a key and an address, and maxBroughtBytes everything that is kept about a
	// session.
	maxNameBytes    = 1024
	maxBroughtBytes = 4000
)

// spelled checks that a key or an address is in the spelling for ids. What is its name for the
// error.
func spelled(what, s string) error {
	if len(s) > maxNameBytes {
		return fmt.Errorf("%s %w: it has %d bytes, and at most %d are allowed", what, ErrSpelling, len(s), maxNameBytes)
	}
	if err := text.Canonical(s); err != nil {
		return fmt.Errorf("%s %+q %w: %w", what, s, ErrSpelling, err)
	}
	if text.IsPattern(s) {
		return fmt.Errorf("%s %q %w: a star at the end matches every ending", what, s, ErrSpelling)
	}
	return nil
}

// spelledKey checks that a session key is in the spelling for ids, and that its channel does not pass for
// that of agents.
func spelledKey(what, key string) error {
	if err := spelled(what, key); err != nil {
		return err
	}
	if channel, _ := Split(key); looksOfAgents(channel) {
		return fmt.Errorf("%s %q %w: channel %s looks like %s, with which the keys of agents begin", what, key, ErrSpelling, channel, AgentChannel)
	}
	return nil
}

// looksOfAgents reports whether a channel has another name than that of agents, and looks like it.
func looksOfAgents(channel string) bool {
	return channel != AgentChannel && len(channel) <= maxNameBytes && text.Skeleton(channel) == lookOfAgents()
}

// lookOfAgents is computed once, since it is compared for each message.
var lookOfAgents = sync.OnceValue(func() string { return text.Skeleton(AgentChannel) })

// Rendering returns the changes that a channel's clients make to a text.
func (d *Directory) Rendering(channel string) []text.Rendering { return d.network(channel).rendering }

// Brought returns the members of an incoming message's address to keep for its session: those that
// an answer uses, and those that an answer may repeat.
func (d *Directory) Brought(key string, metadata map[string]jsontext.Value) (map[string]string, error) {
	channel, _ := Split(key)
	if channel == AgentChannel {
		return nil, nil
	}
	n := d.network(channel)
	brought := make(map[string]string)
	size := 0
	for member, raw := range metadata {
		if member != accountMember && !n.reads(member) {
			continue
		}
		value, ok := plainText(raw)
		if !ok && !n.known() {
			// Here it is no address, although some other app uses this name for one.
			continue
		}
		if !ok {
			return nil, fmt.Errorf("metadata.%s %w: an address is a text or a whole number", member, ErrSpelling)
		}
		if value == "" || n.namesItself(channel, member, value) {
			continue
		}
		if err := spelled("metadata."+member, value); err != nil {
			return nil, err
		}
		brought[member] = value
		if size += len(member) + len(value); size > maxBroughtBytes {
			return nil, fmt.Errorf("metadata %w: its addresses have more than %d bytes", ErrSpelling, maxBroughtBytes)
		}
	}
	if sentToMany(metadata) {
		brought[groupMember] = "true"
	}
	return brought, nil
}

// namesItself reports whether a member contains the channel's own name. The stock SDK puts it into
// channelId if the app puts nothing else there.
func (n *network) namesItself(channel, member, value string) bool {
	return value == channel && (member == "channelId" || member == "channel" && !n.known())
}

// plainText returns the text of a member that is an address: a string, or a number as it is
// written. Programs may read any other value differently. Null counts as none.
func plainText(raw jsontext.Value) (string, bool) {
	switch raw.Kind() {
	case 'n':
		return "", true
	case '"':
		s, err := jsontext.AppendUnquote(nil, raw)
		return string(s), err == nil
	case '0':
		s := string(raw)
		return s, strings.Trim(strings.TrimPrefix(s, "-"), "0123456789") == "" && len(s) <= maxNameBytes
	default:
		return "", false
	}
}

// sentToMany reports whether a channel's app says that several read a session.
func sentToMany(metadata map[string]jsontext.Value) bool {
	if raw := metadata[groupMember]; raw.Kind() == 't' {
		return true
	}
	if raw := metadata["isDirectMessage"]; raw.Kind() == 'f' {
		return true
	}
	kind, _ := plainText(metadata["chatType"])
	return slices.Contains([]string{"group", "supergroup", "channel", "guild", "mpim", "room"}, kind)
}

// Recipient returns the receiver of a message to a session. The address comes from the session's
// last message, since an answer goes there, or else from the key. Account is the channel's own
// account that the message names. Errors wrap [ErrSpelling] or [ErrAddress].
func (d *Directory) Recipient(key, account string, brought map[string]string, self *Agent) (Recipient, error) {
	if err := spelledKey("session key", key); err != nil {
		return Recipient{}, err
	}
	if err := spelled("account", account); err != nil {
		return Recipient{}, err
	}
	channel, rest := Split(key)
	if channel == "" || rest == "" {
		return Recipient{}, fmt.Errorf("session %s: %w: a key is channel:name or agent:name", key, ErrAddress)
	}
	r := Recipient{Address: Address{Channel: channel, Account: cmp.Or(brought[accountMember], account), Target: rest}}
	if channel == AgentChannel {
		d.agentRecipient(&r, key, self)
		return r, nil
	}
	if brought[earlierMember] != "" {
		brought = placeOf(brought)
	}
	n := d.network(channel)
	r.network, r.brought, r.Rendering = n, brought, n.rendering
	r.said = n.parse(rest)
	at := d.find(channel, key, &r.said)
	went, found := r.went()
	if !found {
		went = r.said.to
		if went == "" {
			went = d.elsewhere(&at, channel)
		}
		if went == "" {
			return Recipient{}, fmt.Errorf("session %s: %w: the app of channel %s sends to metadata.%s, which is neither in the key nor known from an earlier message; "+
				"use a key that ends with it, such as %s:…, or answer a message", key, ErrAddress, channel, n.direct[0], channel)
		}
	}
	d.decide(&r, &at, went, self)
	if n.known() {
		r.Target = went
	}
	return r, r.sendable(at)
}

// went returns the address from which the last message of the session came.
func (r *Recipient) went() (target string, ok bool) {
	for _, members := range [...][]string{r.network.group, r.network.direct} {
		for _, member := range members {
			if target = r.brought[member]; target != "" {
				return target, true
			}
		}
	}
	return "", false
}

// sendable checks that the app can be given the address.
func (r *Recipient) sendable(at found) error {
	if r.network.refuse != nil && r.network.known() {
		if why := r.network.refuse(r.Target); why != "" {
			return fmt.Errorf("%w %s on channel %s: %s", ErrAddress, r.Target, r.Channel, why)
		}
	}
	if r.network.alias != nil && !at.listed() {
		if why := r.network.alias(r.Target); why != "" {
			return fmt.Errorf("%w %s on channel %s: %s; list it in directory[].sessions to send to it", ErrAddress, r.Target, r.Channel, why)
		}
	}
	return nil
}

// agentRecipient sets the receiver to the agent of this daemon that a key names, or to the entry
// that the directory has there.
func (d *Directory) agentRecipient(r *Recipient, key string, self *Agent) {
	if local := d.LocalAgent(key); local != nil {
		r.Counterparty = *local.Counterparty()
		return
	}
	entry := d.reached(d.sessions.find(key))
	if entry == nil {
		r.Counterparty = stranger()
		r.LooksLike = d.imitated(r.Channel, r.Target)
		return
	}
	d.weigh(r, self, false, entry)
}

// found holds the entries of the directory for a session and its address.
type found struct {
	// key is the entry of the session. exact is set if the session's whole key found it, not its
	// beginning, the address or the name in it.
	key   *Entry
	exact bool
	// place is the entry of the address, if it was looked up. who is the entry of another person
	// that the key names.
	place, who *Entry
}

func (f *found) listed() bool { return f.key != nil || f.place != nil }

// find returns the entries of the directory for a session.
func (d *Directory) find(channel, key string, c *conversation) (at found) {
	n := d.network(channel)
	_, rest := Split(key)
	folded := n.foldedKey(key, rest)
	session, exact := d.sessions.exactly(folded)
	if at.key, at.exact = d.reached(session, exact), exact; !exact {
		at.key = d.reached(d.sessions.find(folded))
	}
	if at.key == nil && c.to != "" {
		at.key = d.at(channel, c.to, c.many)
	}
	if c.who != "" {
		at.who = d.person(channel, c.who)
		if at.key == nil && !c.many {
			at.key = at.who
		}
	}
	return at
}

// at returns the entry of an address.
func (d *Directory) at(channel, target string, many bool) *Entry {
	n := d.network(channel)
	target = n.folded(target)
	e := d.reached(d.places.find(n.place(channel, target, many)))
	if e == nil && !n.known() {
		e = d.reached(d.places.find(n.place(channel, target, !many)))
	}
	if e == nil {
		// Some networks also deliver to a person's id.
		e = d.reached(d.people.find(channel + ":" + target))
	}
	return e
}

// person returns the entry of somebody by the name that a channel uses.
func (d *Directory) person(channel, name string) *Entry {
	if e := d.reached(d.people.find(channel + ":" + d.network(channel).folded(name))); e != nil {
		return e
	}
	return d.at(channel, name, false)
}

// place returns the key by which an address is found. A known app always sends to the target,
// whether the session's key says one reader or several.
func (n *network) place(channel, target string, many bool) string {
	if many && !n.known() {
		return channel + ":many:" + target
	}
	return channel + ":" + target
}

// decide finds out who reads a message to a session at a target.
func (d *Directory) decide(r *Recipient, at *found, went string, self *Agent) {
	n, said := r.network, &r.said
	if !n.known() {
		d.decideUnknown(r, at, self)
		return
	}
	r.Group = r.sentToGroup(went)
	same := said.to != "" && n.folded(said.to) == n.folded(went)
	if went != "" && (!same || r.Group) {
		at.place = d.at(r.Channel, went, r.Group)
	}
	strangers := false
	if r.Group {
		listed := same && at.exact && said.who == "" || at.place != nil && at.place.Group
		// The person in the key also reads it.
		strangers = !listed || said.who != "" && at.who == nil || !same && !said.name && at.key == nil
	} else if !same && !said.name {
		// A name that the app chose does not contradict the address. Any other key names somebody
		// who has written from there. If it could be an address itself, the message goes to
		// somebody else.
		strangers = at.key == nil || at.place == nil && said.to != ""
	}
	d.weigh(r, self, strangers, at.key, at.place, at.who)
	d.liken(r, at)
	if !same && at.place == nil {
		r.LooksLike = cmp.Or(r.LooksLike, d.imitated(r.Channel, went))
	}
}

// sentToGroup reports whether several read what a known channel's app sends to a target.
func (r *Recipient) sentToGroup(target string) bool {
	n := r.network
	_, replied := r.went()
	switch {
	case n.many != nil:
		return n.many(target)
	case replied && n.group[0] != n.direct[0]:
		return r.brought[n.group[0]] != ""
	}
	return replied && r.brought[groupMember] != "" || r.said.many
}

// decideUnknown is decide for a channel with an unknown app. That app may send to any of the
// members that a message of the session brought.
func (d *Directory) decideUnknown(r *Recipient, at *found, self *Agent) {
	entries := []*Entry{at.key, at.who}
	r.Group = r.said.many || r.brought[groupMember] != ""
	listed := at.exact && (r.said.many || at.key.Group)
	for _, member := range slices.Sorted(maps.Keys(r.brought)) {
		if member == accountMember || member == groupMember {
			continue
		}
		if e := d.at(r.Channel, r.brought[member], r.Group); e != nil {
			entries, at.place, listed = append(entries, e), e, listed || e.Group
		}
	}
	// If the session of a listed person has several readers, the others are strangers.
	d.weigh(r, self, r.Group && !listed, entries...)
	d.liken(r, at)
}

// liken looks for an entry that an unlisted session imitates.
func (d *Directory) liken(r *Recipient, at *found) {
	if at.key == nil {
		r.LooksLike = d.imitated(r.Channel, r.said.to)
	}
	if at.who == nil {
		r.LooksLike = cmp.Or(r.LooksLike, d.imitated(r.Channel, r.said.who))
	}
}

// imitated returns the session of the directory that a name in a channel looks like but differs
// from.
func (d *Directory) imitated(channel, name string) string {
	if name == "" || d.names.empty() {
		return ""
	}
	if like, found := d.names.find(likeness(channel, name)); found {
		session, _ := d.session(like / looksOfOne)
		return session
	}
	return ""
}

// likeness returns the key by which similar names in a channel are found.
func likeness(channel, name string) string {
	return text.Skeleton(channel) + ":" + text.Skeleton(name)
}

// Place returns the one name of the message's destination, whatever the spelling of its session's
// key. Counters use it.
func (r *Recipient) Place() string {
	if r.network == nil {
		return r.Channel + ":" + r.Target
	}
	return r.Channel + ":" + r.network.folded(r.Target)
}

// Elsewhere reports whether the message goes, or may go, to another place than the key says: an
// answer goes to the place from which the question came.
func (r *Recipient) Elsewhere() bool {
	if r.network == nil || r.said.to == "" {
		return false
	}
	said := r.network.folded(r.said.to)
	if r.network.known() {
		return said != r.network.folded(r.Target)
	}
	for member, value := range r.brought {
		if member != accountMember && member != groupMember && r.network.folded(value) != said {
			return true
		}
	}
	return false
}

// IsAddress reports whether a member of metadata is a part of the address. Then it belongs to the
// daemon and is no text of the caller's.
func (r *Recipient) IsAddress(member string) bool {
	if r.network == nil {
		return false
	}
	return member == accountMember || member == groupMember || r.network.reads(member)
}

// Bind returns the metadata with the address in it. If the sender or an interceptor gave a
// different address, Bind returns the name of that member instead: such a message would not go to
// the destination of the decision. Bind does not change its input. The bound metadata contains the
// whole address: [Directory.Brought] reads it again for a message that is decided anew.
func (r *Recipient) Bind(metadata map[string]jsontext.Value) (bound map[string]jsontext.Value, mismatch string) {
	if r.network == nil {
		return metadata, ""
	}
	bound = make(map[string]jsontext.Value, len(metadata)+2)
	given := make([]string, 0, 4)
	for member, raw := range metadata {
		if member == "__proto__" {
			// In JavaScript this member can stand for any other.
			return nil, member
		}
		if r.IsAddress(member) {
			given = append(given, member)
			continue
		}
		if value, ok := plainText(raw); r.network.imitates(member) && (!ok || value != "" && !r.agrees(member, value)) {
			return nil, member
		}
		bound[member] = raw
	}
	slices.Sort(given)
	for _, member := range given {
		if member == groupMember {
			continue // only the daemon sets it
		}
		if value, ok := plainText(metadata[member]); !ok || value != "" && !r.agrees(member, value) {
			return nil, member
		} else if value != "" && (!r.network.known() || member == accountMember) {
			bound[member] = metadata[member]
		}
	}
	write := func(member, value string) {
		if value != "" {
			bound[member] = quoted(value)
		}
	}
	write(accountMember, r.Account)
	if r.Group {
		bound[groupMember] = jsontext.Value("true")
	}
	switch {
	case !r.network.known():
		for member, value := range r.brought {
			if member != groupMember {
				write(member, value)
			}
		}
	case r.Group:
		for _, member := range r.network.group {
			write(member, r.Target)
		}
	default:
		for _, member := range r.network.direct {
			write(member, r.Target)
		}
	}
	return bound, ""
}

// Says returns the value for a member of the metadata that is part of the address, or "".
func (r *Recipient) Says(member string) string {
	switch {
	case !r.IsAddress(member) || member == groupMember:
		return ""
	case member == accountMember:
		return r.Account
	case r.network.known():
		return r.Target
	}
	return cmp.Or(r.brought[member], r.said.to)
}

// agrees reports whether the value of a member equals the address, or repeats the value that a
// message of the session brought.
func (r *Recipient) agrees(member, value string) bool {
	if member == accountMember {
		return r.Account == "" || value == r.Account
	}
	n := r.network
	fold := n.folded(value)
	before := r.brought[member]
	if n.known() {
		return fold == n.folded(r.Target) || before != "" && fold == n.folded(before)
	}
	if before != "" {
		return fold == n.folded(before)
	}
	return n.namesItself(r.Channel, member, value) || fold == n.folded(r.Target) || r.said.to != "" && fold == n.folded(r.said.to)
}

// quoted returns a text as JSON. It is canonical: only characters that JSON requires are escaped.
func quoted(s string) jsontext.Value {
	v, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		panic("directory: an address is valid UTF-8: " + err.Error())
	}
	return v
}
