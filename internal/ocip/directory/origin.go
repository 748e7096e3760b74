package directory

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Origin is the origin of a message, as one agent sees it, according to the session, the address
// and the sender that its channel's app names. It uses no envelope.
type Origin struct {
	Address
	// Counterparty is the author. If several may have written it, it is as strict as the strictest
	// of them.
	Counterparty ocip.Counterparty
	// Listed is set if the directory has the author.
	Listed bool
	// Group is set if several read the session.
	Group bool
	// LooksLike is the session of the directory that the sender imitates, or empty.
	LooksLike string
	// Brought is to be kept for the session, for answers.
	Brought map[string]string
	// Writers are the possible authors in the directory. Places are the names of the place if
	// several read it, see [Recipient.Places].
	Writers []ocip.Counterparty
	Places  []string

	key string
	// entries are the possible authors' entries in the directory.
	entries []*Entry
}

// Origin returns the origin of a message. The metadata comes from the channel's app. Errors wrap
// [ErrSpelling] or [ErrAddress].
func (d *Directory) Origin(key string, metadata map[string]jsontext.Value, self *Agent) (Origin, error) {
	if err := spelledKey("session key", key); err != nil {
		return Origin{}, err
	}
	channel, rest := Split(key)
	o := Origin{Address: Address{Channel: channel, Target: rest}, key: key, Counterparty: stranger()}
	if channel == "" || rest == "" {
		return o, fmt.Errorf("session %s: %w: a key is channel:name or agent:name", key, ErrAddress)
	}
	if channel == AgentChannel {
		return o, nil
	}
	var err error
	if o.Brought, err = d.Brought(key, metadata); err != nil {
		return o, err
	}
	o.Account = o.Brought[accountMember]
	n := d.network(channel)
	r := Recipient{Address: o.Address, network: n, brought: o.Brought, said: n.parse(rest)}
	at := d.find(channel, key, &r.said)
	if went, replied := r.went(); replied {
		r.Target = went
	} else if r.said.to != "" {
		r.Target = r.said.to
	}
	d.decide(&r, &at, r.Target, self)
	o.Target, o.Group, o.LooksLike = r.Target, r.Group, r.LooksLike
	if n.known() && r.said.to == "" && r.Target == rest {
		o.Target = ""
	}
	d.wrote(&o, &r, &at, metadata, self)
	if o.Group {
		o.Places = r.written(o.Target)
	}
	return o, nil
}

// wrote finds out who wrote a message. If several read the session and nothing names the author, it
// may be any of them.
func (d *Directory) wrote(o *Origin, r *Recipient, at *found, metadata map[string]jsontext.Value, self *Agent) {
	add := func(e *Entry) {
		if e != nil && !e.Group {
			o.entries = append(o.entries, e)
		}
	}
	// A key names the author, unless it is that of the place.
	add(at.key)
	add(at.who)
	if !o.Group {
		add(at.place)
	}
	told := r.said.who != "" || r.said.to != "" && !r.said.many && !r.said.name
	for _, member := range generalSenders {
		name, ok := plainText(metadata[member])
		if !ok || name == "" || name == o.key || name == o.Channel {
			continue
		}
		told = true
		e := d.person(o.Channel, name)
		if e == nil && o.LooksLike == "" {
			o.LooksLike = d.imitated(o.Channel, name)
		}
		add(e)
	}
	if len(o.entries) == 0 && o.Group && !told {
		for _, e := range []*Entry{at.key, at.place} {
			if e != nil && e.Group {
				o.entries = append(o.entries, d.groups[e.number].members...)
			}
		}
	}
	from := Recipient{}
	d.weigh(&from, self, false, o.entries...)
	o.Counterparty, o.Listed = from.Counterparty, len(o.entries) > 0
	if o.Writers = from.Members; o.Listed && len(o.Writers) == 0 {
		o.Writers = []ocip.Counterparty{from.Counterparty}
	}
}

// Claim is the result of comparing an envelope's sender with the directory.
type Claim struct {
	// Confirmed is set if the directory has the sender at the session.
	Confirmed bool
	// Elsewhere is set if the directory has the sender, but not at the session.
	Elsewhere bool
	// Foreign is set if the sender belongs to another tenant, or claims to.
	Foreign bool
}

// Compare compares an envelope's claims about its sender with the directory, by the instance, the
// session and the address. An error is a contradiction: the sender claims a false identity. A claim
// without a contradiction proves nothing.
func (d *Directory) Compare(e *ocip.Envelope, o *Origin, self *Agent) (Claim, error) {
	source := e.SourceAgent
	c := Claim{Foreign: source.TenantID != self.TenantID}
	known := d.Known(source.InstanceID)
	if known != nil {
		if err := contradicts("agent "+source.InstanceID, source, known.Identity); err != nil {
			return c, err
		}
	}
	others := false
	for _, entry := range o.entries {
		if entry.Kind != ocip.KindAgent {
			if err := contradicts("session "+o.key, source, entry.Identity); err != nil {
				return c, err
			}
			continue
		}
		if entry.InstanceID == source.InstanceID {
			c.Confirmed = true
			continue
		}
		others = true
	}
	if others && !c.Confirmed && !mutant.Off("source") {
		return c, fmt.Errorf("the envelope is of agent %s, and the directory has agent %s at session %s", source.InstanceID, o.Counterparty.InstanceID, o.key)
	}
	c.Elsewhere = known != nil && !c.Confirmed
	return c, nil
}

// contradicts reports how an identity differs from the known parts of another.
func contradicts(who string, claimed, known ocip.Identity) error {
	for _, part := range [...]struct{ name, claimed, known string }{
		{"user", claimed.UserID, known.UserID},
		{"org unit", claimed.OrgUnit, known.OrgUnit},
		{"tenant", claimed.TenantID, known.TenantID},
	} {
		if part.known != "" && part.claimed != part.known {
			return fmt.Errorf("the envelope says of %s that its %s is %q, and the directory has %q", who, part.name, part.claimed, part.known)
		}
	}
	return nil
}
