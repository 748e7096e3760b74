package directory

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/mutant"
	"github.com/openclawos/ocipd/internal/ocip"
)

// Origin is where a message came from, as one agent sees it: from the session, the
// address and the sender that its channel's app names, without any envelope.
type Origin struct {
	Address
	// Counterparty is who wrote it, as strict as the strictest where that is one of
	// several.
	Counterparty ocip.Counterparty
	// Listed is set where the directory has them.
	Listed bool
	// Group is set where many read the session.
	Group bool
	// LooksLike is the session of the directory that the sender looks like and is
	// not.
	LooksLike string
	// Brought is to be kept of the session, for answers.
	Brought map[string]string
	// Writers are those of the directory who may have written it, and Places names
	// where many read it, see [Recipient.Places].
	Writers []ocip.Counterparty
	Places  []string

	key string
	// entries are those of the directory that the message may be from.
	entries []*Entry
}

// Origin returns where a message came from. The metadata is what the channel's app
// says of it. Its errors wrap [ErrSpelling] or [ErrAddress].
func (d *Directory) Origin(key string, metadata map[string]jsontext.Value, self *Agent) (Origin, error) {
	if err := spelled("session key", key); err != nil {
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

// wrote finds out who wrote a message. Where many read the session and nothing
// says who, it may be any of them.
func (d *Directory) wrote(o *Origin, r *Recipient, at *found, metadata map[string]jsontext.Value, self *Agent) {
	add := func(e *Entry) {
		if e != nil && !e.Group {
			o.entries = append(o.entries, e)
		}
	}
	// A key says who wrote, unless it is that of the place.
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
			if e != nil {
				o.entries = append(o.entries, e.members...)
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

// Claim is what an envelope says of its sender, held against the directory.
type Claim struct {
	// Confirmed is set where the directory has the sender at the session.
	Confirmed bool
	// Elsewhere is set where the directory has the sender, and not at the session.
	Elsewhere bool
	// Foreign is set where the sender is of another tenant, or says so.
	Foreign bool
}

// Compare holds what an envelope says of its sender against the directory, by the
// instance, the session and the address. An error is a contradiction: somebody
// says to be who they are not. That nothing contradicts a claim proves nothing.
func (d *Directory) Compare(e *ocip.Envelope, o *Origin, self *Agent) (Claim, error) {
	source := e.SourceAgent
	c := Claim{Foreign: source.TenantID != self.TenantID}
	known := d.byInstance[source.InstanceID]
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

// contradicts reports how an identity differs from one that is known, as far as it
// is known.
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
