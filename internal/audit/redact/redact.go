// Package redact keeps secrets out of records. It searches texts from outside (reasons, notes,
// errors, descriptions, all members that events add) for credentials, for account and identity
// numbers, and for the operator's patterns. It replaces a finding by the name of its kind. It
// replaces the members that the operator names as a whole, by a keyed digest, so that equal ones
// still match inside their tenant.
//
// Use: [New] once, then [Redactor.Record] for each record before it is encoded, from any goroutine.
//
// The caller must hand the record over before anything is hashed or signed, and not touch it
// afterwards. The Redactor recognizes texts of the daemon's own, so a record without others costs a
// look-up.
//
// Anything that a signature or a digest covers stays as it is, since it would prove nothing
// otherwise: records of checkpoints as a whole, and the members digest, salt, signature,
// fingerprint, signedText and peerLog anywhere in details. None of them holds text.
package redact

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/ocip/content"
)

// Limits of the operator's rules, so that the redaction of a record does not cost more than its
// decision.
const (
	MaxPatterns      = 64
	MaxPatternLength = 1024
)

// Options name the texts to replace besides the fixed ones.
type Options struct {
	// Members name members of records as they are in a line: one of [Members], or details.NAME,
	// where NAME may be a longer path (details.escalation.reason).
	Members []string
	// Patterns are regular expressions in RE2 syntax. Their matches are replaced in every text from
	// outside.
	Patterns []string
	// Digest makes the keyed digest of a text for a tenant, as keyring.Digests
	// does.
	Digest func(tenant, text string) (string, error)
}

// Members returns the members of a record, besides those of details, that can be redacted. Records
// are found by the others, or those are the daemon's own.
func Members() []string {
	list := members()
	names := make([]string, len(list))
	for i, m := range list {
		names[i] = m.name
	}
	return names
}

// member is one named member and how to redact it.
type member struct {
	name string
	do   func(*audit.Record, func(string) string)
}

// members returns those that [audit.Member] names, and the lists of data items.
func members() (list []member) {
	for _, m := range audit.Members() {
		known := func(of member) bool { return of.name == m.Redacted }
		if m.Redacted != "" && !slices.ContainsFunc(list, known) {
			list = append(list, member{m.Redacted, texts(m.Redacted)})
		}
	}
	return append(list, member{"dataShared", shared}, member{"dataWithheld", withheld})
}

// texts applies a function to all texts that are redacted under a name.
func texts(name string) func(*audit.Record, func(string) string) {
	return func(r *audit.Record, f func(string) string) {
		for _, m := range audit.Members() {
			if text := m.Of(r); m.Redacted == name && *text != "" {
				*text = f(*text)
			}
		}
	}
}

// shared and withheld apply a function to the texts of data items. The items' lists belong to the
// verdict too.
func shared(r *audit.Record, f func(string) string) {
	items := slices.Clone(r.DataShared)
	for i := range items {
		items[i].Source = f(items[i].Source)
		items[i].Fields = slices.Clone(items[i].Fields)
		for j, field := range items[i].Fields {
			items[i].Fields[j] = f(field)
		}
	}
	r.DataShared = items
}

func withheld(r *audit.Record, f func(string) string) {
	items := slices.Clone(r.DataWithheld)
	for i := range items {
		items[i].Reason, items[i].Description = f(items[i].Reason), f(items[i].Description)
	}
	r.DataWithheld = items
}

// Redactor holds the rules, prepared.
type Redactor struct {
	detector *content.Detector
	patterns []*regexp.Regexp
	members  []member
	// details are the named members of details, as paths.
	details [][]string
	digest  func(tenant, text string) (string, error)

	// clean remembers texts without findings: the daemon's own texts are few and come again and
	// again. cleanNames remembers names, in which fewer rules apply.
	clean, cleanNames remembered
	seed              maphash.Seed
}

// remembered are texts, each at the index of its hash.
type remembered [cleanSlots]atomic.Pointer[string]

// Bounds of the remembered texts: 256 texts of up to 256 bytes.
const (
	cleanSlots = 256
	cleanBytes = 256
)

// New prepares a Redactor. The error names every unusable option.
func New(o Options) (*Redactor, error) {
	if len(o.Patterns) > MaxPatterns {
		return nil, fmt.Errorf("cannot use %d redaction patterns: at most %d are allowed", len(o.Patterns), MaxPatterns)
	}
	detector, err := content.New(content.Options{})
	if err != nil {
		return nil, fmt.Errorf("cannot search records for secrets: %w", err)
	}
	r := &Redactor{detector: detector, digest: o.Digest, seed: maphash.MakeSeed()}
	var faults []error
	for _, p := range o.Patterns {
		re, err := compile(p)
		if err != nil {
			faults = append(faults, fmt.Errorf("cannot use the redaction pattern %.80q: %w", p, err))
			continue
		}
		r.patterns = append(r.patterns, re)
	}
	known := members()
	for _, name := range o.Members {
		if err := CheckMember(name); err != nil {
			faults = append(faults, fmt.Errorf("cannot redact %.80q: %w", name, err))
			continue
		}
		if path, ok := strings.CutPrefix(name, detailsPrefix); ok {
			r.details = append(r.details, strings.Split(path, "."))
			continue
		}
		i := slices.IndexFunc(known, func(m member) bool { return m.name == name })
		r.members = append(r.members, known[i])
		// The details of a refusal repeat the member.
		r.details = append(r.details, []string{name})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return r, nil
}

// detailsPrefix begins the names of members that events add to records.
const detailsPrefix = "details."

// CheckMember says why a name is not that of a member that can be redacted.
func CheckMember(name string) error {
	if path, ok := strings.CutPrefix(name, detailsPrefix); ok {
		path := strings.Split(path, ".")
		switch {
		case slices.Contains(path, ""):
			return errors.New("want the name of a member of details behind the dot")
		case slices.ContainsFunc(path, kept):
			return errors.New("a decision is proved by it, so it stays")
		}
		return nil
	}
	if names := Members(); !slices.Contains(names, name) {
		return fmt.Errorf("want one of %s, or details.NAME", strings.Join(names, ", "))
	}
	return nil
}

// CheckPattern says why an expression cannot be used as a pattern.
func CheckPattern(pattern string) error {
	_, err := compile(pattern)
	return err
}

func compile(pattern string) (*regexp.Regexp, error) {
	if pattern == "" || len(pattern) > MaxPatternLength {
		return nil, fmt.Errorf("want an expression of 1 to %d bytes", MaxPatternLength)
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	if re.MatchString("") {
		return nil, errors.New("the expression matches the empty text, and so everything")
	}
	return re, nil
}

// kept reports members of details that prove something and contain no text.
func kept(name string) bool {
	switch name {
	case "configEdits", "directoryEdits":
		// internal/evidence/configlog redacts them line by line before.
		return true
	case "digest", "salt", "signature", "fingerprint", "signedText", "peerLog":
		return true
	}
	return false
}

// Record replaces the secrets in a record. It replaces data that the record shares with others,
// such as lists, without changing them.
func (r *Redactor) Record(rec *audit.Record) {
	if rec.ActionType == audit.ActionCheckpoint {
		return
	}
	for i := range r.members {
		r.members[i].do(rec, func(text string) string { return r.stand(rec.TenantID, text) })
	}
	for _, path := range r.details {
		r.replace(rec.TenantID, rec.Details, path)
	}
	rec.PolicyReason = r.Text(rec.PolicyReason)
	for _, name := range [...]*string{
		&rec.SessionKey, &rec.Address.Account, &rec.Address.Target, &rec.ExchangeID, &rec.ConversationID, &rec.ChainID, &rec.UserID, &rec.AppID,
		&rec.Counterparty.InstanceID, &rec.Counterparty.UserID, &rec.Counterparty.OrgUnit, &rec.Counterparty.TenantID,
		&rec.TaskID, &rec.AttemptID, &rec.Actor,
	} {
		*name = r.name(*name)
	}
	for name, value := range rec.Details {
		if kept(name) {
			continue
		}
		if better, changed := r.value(value); changed {
			rec.Details[name] = better
		}
	}
	if len(rec.DataShared) > 0 {
		shared(rec, r.Text)
	}
	if len(rec.DataWithheld) > 0 {
		withheld(rec, r.Text)
	}
}

// stand returns the replacement of a named member.
func (r *Redactor) stand(tenant, text string) string {
	digest, err := r.digest(tenant, text)
	if err != nil {
		// Without a digest the text stays secret, but matches nothing.
		return audit.RedactedText
	}
	return audit.StandIn(digest)
}

// replace puts the replacement in place of a member of details, if it is there.
func (r *Redactor) replace(tenant string, tree map[string]any, path []string) {
	value, ok := tree[path[0]]
	if !ok || value == nil {
		return
	}
	if len(path) > 1 {
		below, ok := open(value).(map[string]any)
		if ok {
			r.replace(tenant, below, path[1:])
			tree[path[0]] = below
		}
		return
	}
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value, json.Deterministic(true))
		if err != nil {
			tree[path[0]] = "redacted"
			return
		}
		text = string(encoded)
	}
	if text != "" {
		tree[path[0]] = r.stand(tenant, text)
	}
}

// open returns a value as a tree of its own.
func open(value any) any {
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return nil
	}
	var tree any
	if json.Unmarshal(encoded, &tree) != nil {
		return nil
	}
	return tree
}

// value replaces the secrets in a value of details, and reports whether there were any. It does not
// change the value itself.
func (r *Redactor) value(value any) (better any, changed bool) {
	switch v := value.(type) {
	case string:
		text := r.Text(v)
		return text, text != v
	case []string:
		var list []string
		for i, text := range v {
			if text := r.Text(text); text != v[i] {
				if list == nil {
					list = slices.Clone(v)
				}
				list[i] = text
			}
		}
		if list == nil {
			return value, false
		}
		return list, true
	case map[string]any:
		var tree map[string]any
		for name, member := range v {
			if kept(name) {
				continue
			}
			if better, changed := r.value(member); changed {
				if tree == nil {
					tree = maps.Clone(v)
				}
				tree[name] = better
			}
		}
		if tree == nil {
			return value, false
		}
		return tree, true
	case nil, bool, int, int32, int64, uint32, uint64, float64, time.Time:
		return value, false
	}
	if kind := reflect.TypeOf(value).Kind(); kind == reflect.String {
		text := reflect.ValueOf(value).String()
		better := r.Text(text)
		return better, better != text
	}
	tree := open(value)
	if r.walk(&tree) {
		return tree, true
	}
	return value, false
}

// walk replaces the secrets in a tree, in place.
func (r *Redactor) walk(node *any) (changed bool) {
	switch v := (*node).(type) {
	case string:
		text := r.Text(v)
		changed = text != v
		*node = text
	case []any:
		for i := range v {
			changed = r.walk(&v[i]) || changed
		}
	case map[string]any:
		for name, value := range v {
			if !kept(name) && r.walk(&value) {
				v[name], changed = value, true
			}
		}
	}
	return changed
}

// span is a place in a text that is replaced by a word.
type span struct {
	start, end int
	word       string
}

// Text returns a text without its secrets.
func (r *Redactor) Text(text string) string { return r.replaced(text, &r.clean, r.find) }

// replaced returns a text without the findings of find.
func (r *Redactor) replaced(text string, clean *remembered, find func(string) []span) string {
	if text == "" {
		return text
	}
	var slot *atomic.Pointer[string]
	if len(text) <= cleanBytes {
		slot = &clean[maphash.String(r.seed, text)%cleanSlots]
		if known := slot.Load(); known != nil && *known == text {
			return text
		}
	}
	spans := find(text)
	if len(spans) == 0 {
		if slot != nil {
			known := strings.Clone(text)
			slot.Store(&known)
		}
		return text
	}
	// The detectors report a limited number of findings, so it searches again; a text that never
	// ends up clean is not written at all.
	for range maxLooks {
		text = cover(text, spans)
		if spans = find(text); len(spans) == 0 {
			return text
		}
	}
	return "[redacted]"
}

// name returns a name from outside without the credentials in it. Records are found by names, so
// nothing else is replaced: a network's number may look like anybody's.
func (r *Redactor) name(text string) string {
	const shortest = 16
	if len(text) < shortest || uuid.Validate(text) == nil {
		return text
	}
	return r.replaced(text, &r.cleanNames, r.credentials)
}

// maxLooks bounds how often one text is searched.
const maxLooks = 16

func (r *Redactor) find(text string) (spans []span) {
	spans = r.detected(text, secret)
	for _, p := range r.patterns {
		for _, m := range p.FindAllStringIndex(text, -1) {
			if m[0] < m[1] {
				spans = append(spans, span{m[0], m[1], "[redacted]"})
			}
		}
	}
	return spans
}

func (r *Redactor) credentials(text string) []span {
	return r.detected(text, func(rule string) bool { return strings.HasPrefix(rule, "credential.") })
}

func (r *Redactor) detected(text string, counts func(rule string) bool) (spans []span) {
	for _, f := range r.detector.Detect(text) {
		if counts(f.Rule) && !f.Shadow {
			spans = append(spans, span{f.Start, f.End, "[redacted " + f.Rule + "]"})
		}
	}
	return spans
}

// secret reports whether a rule finds something that must not be written down. A marking only
// describes the rest of the text.
func secret(rule string) bool { return !strings.HasPrefix(rule, "marking.") }

// cover replaces spans by words; of overlapping ones, the first one's word counts.
func cover(text string, spans []span) string {
	slices.SortStableFunc(spans, func(a, b span) int { return a.start - b.start })
	var b strings.Builder
	at := 0
	for _, s := range spans {
		if s.start >= at {
			b.WriteString(text[at:s.start])
			b.WriteString(s.word)
		}
		at = max(at, s.end)
	}
	b.WriteString(text[at:])
	return b.String()
}
