package directory

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
)

// A person who spoke in a place with several readers also reads there. The configuration lists the
// readers of the groups in it; elsewhere, the known readers are those who spoke.

// Places returns the names of the message's destination, for the known readers of a place: one, or
// several if its channel's app may send to any of them.
func (r *Recipient) Places() []string {
	if r.network == nil {
		return nil
	}
	if r.network.known() {
		return []string{r.Place()}
	}
	var places []string
	for member, value := range r.brought {
		if member != accountMember && member != groupMember {
			places = append(places, r.placeOf(value))
		}
	}
	if r.said.to != "" {
		places = append(places, r.placeOf(r.said.to))
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// written is Places for a message that came from a target with several readers. It leaves out names
// of the author alone, since a message to such a name reaches nobody else.
func (r *Recipient) written(target string) []string {
	if r.network.known() {
		if target == "" {
			return nil
		}
		return []string{r.placeOf(target)}
	}
	room := *r
	room.brought = make(map[string]string, len(r.brought))
	for member, value := range r.brought {
		if !slices.Contains(generalSenders[:], member) {
			room.brought[member] = value
		}
	}
	if !r.said.many {
		room.said.to = ""
	}
	return room.Places()
}

func (r *Recipient) placeOf(target string) string {
	return r.Channel + ":" + r.network.folded(target)
}

// OwnAccount returns the channel's own account that the last message of the session came to, or ""
// if it is unknown. An account that the sender names proves nothing.
func (r *Recipient) OwnAccount() string { return r.brought[accountMember] }

// Places returns the names of the places to which a session leads.
func (d *Directory) Places(key string, brought map[string]string) []string {
	places := []string{d.folded(key)}
	if r, err := d.Recipient(key, "", brought, &Agent{}); err == nil {
		places = append(places, r.Places()...)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// Among returns the counterparty for the decision about a message, from the recipient and the
// people who spoke there. It is as strict as the strictest of them requires. For an instance in the
// directory, the directory's data applies. If the directory lists all readers, only they count.
// Learned is set if somebody who spoke decides.
func (d *Directory) Among(r *Recipient, to ocip.Counterparty, spoke []ocip.Counterparty, self *Agent) (strict ocip.Counterparty, learned bool) {
	if !r.Strangers {
		return to, false
	}
	readers := []ocip.Counterparty{to}
	for _, c := range spoke {
		if known := d.Known(c.InstanceID); known != nil && c.InstanceID != "" {
			c.Kind, c.Identity = known.Kind, known.Identity
		}
		if c.InstanceID == "" || c.InstanceID != self.InstanceID {
			readers = append(readers, c)
		}
	}
	if len(readers) == 1 {
		return to, false
	}
	if n := r.network; !n.known() || n.group[0] == n.direct[0] {
		r.Group = true
	}
	strict = strictest(self, readers, true)
	return strict, strict.Identity != to.Identity || strict.Kind != to.Kind
}
