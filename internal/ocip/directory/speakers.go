package directory

import (
	"slices"

	"github.com/openclawos/ocipd/internal/ocip"
)

// Who spoke where many read is one who reads there. The configuration says who reads
// a group that it lists; elsewhere, those are known who were heard.

// Places are the names of where a message goes, for what is known of a place: one,
// and several where its channel's app may send to any of them.
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

// written is Places for a message that came from a target where many read. What names
// its writer alone is left out: who writes to that one writes to nobody else.
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

// OwnAccount is the channel's own account that the last message of the session came to,
// "" where nothing says which: an account that the sender names shows nothing.
func (r *Recipient) OwnAccount() string { return r.brought[accountMember] }

// Places are the names of the places that a session leads to.
func (d *Directory) Places(key string, brought map[string]string) []string {
	places := []string{d.folded(key)}
	if r, err := d.Recipient(key, "", brought, &Agent{}); err == nil {
		places = append(places, r.Places()...)
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// Among returns whom a message is decided about that goes to a recipient, as far as
// that is known, among those who spoke there: as strict as the strictest of them asks
// for. An instance that the directory has is who the directory says. Where the
// directory says who all reads there, that holds. Learned is set where somebody who
// spoke decides.
func (d *Directory) Among(r *Recipient, to ocip.Counterparty, spoke []ocip.Counterparty, self *Agent) (strict ocip.Counterparty, learned bool) {
	if !r.Strangers {
		return to, false
	}
	readers := []ocip.Counterparty{to}
	for _, c := range spoke {
		if known := d.byInstance[c.InstanceID]; known != nil && c.InstanceID != "" {
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
