package measure

import "slices"

// SecretsReport compares the content detector with the labels.
type SecretsReport struct {
	// Found is the share of texts with a secret in which the detector finds one. False is
	// the share of texts without secrets and personal data whose level it raises.
	Found Share `json:"found"`
	False Share `json:"false"`
	// Families are the labels, and Rules the rules with findings.
	Families []Family `json:"families"`
	Missed   []Quote  `json:"missed"`
	Useless  []Quote  `json:"useless"`
	// Personal are the kinds of personal data, with the number of texts with findings, by
	// rules that raise the level or only note.
	Personal []Family `json:"personal"`
}

// Family is one label of content.
type Family struct {
	Name  string `json:"name"`
	Found Share  `json:"found"`
}

// Secrets reports on texts with findings.
func Secrets(seen []Seen) SecretsReport {
	r := SecretsReport{Families: []Family{}, Missed: []Quote{}, Useless: []Quote{}, Personal: []Family{}}
	families, personal := map[string]*[2]int{}, map[string]*[2]int{}
	count := func(in map[string]*[2]int, names []string, found bool) {
		for _, name := range names {
			if in[name] == nil {
				in[name] = &[2]int{}
			}
			in[name][1]++
			if found {
				in[name][0]++
			}
		}
	}
	var found, secrets, raised, plain int
	for i := range seen {
		s := &seen[i]
		hit := len(s.Findings) > 0
		quote := Quote{ID: s.ID, Rules: s.Findings, Text: s.Text.Text}
		count(families, s.Secrets, hit)
		count(personal, s.Personal, hit || len(s.Noted) > 0)
		switch {
		case len(s.Secrets) > 0:
			secrets++
			if hit {
				found++
			} else {
				r.Missed = append(r.Missed, quote)
			}
		case len(s.Personal) > 0:
		default:
			plain++
			if hit {
				raised++
				r.Useless = append(r.Useless, quote)
			}
		}
	}
	r.Found, r.False = ShareOf(found, secrets), ShareOf(raised, plain)
	r.Families, r.Personal = listed(families), listed(personal)
	return r
}

func listed(in map[string]*[2]int) []Family {
	list := []Family{}
	for name, c := range in {
		list = append(list, Family{name, ShareOf(c[0], c[1])})
	}
	slices.SortFunc(list, func(a, b Family) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return list
}
