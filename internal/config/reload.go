package config

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/text"
	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
)

// Bounds of shown differences: their number, and the bytes of one value's JSON.
const (
	maxChanges     = 64
	maxChangeBytes = 256
)

// The values of the tag reload.
const (
	reloadLive    = "live"
	reloadRestart = "restart"
)

// Delta is the difference between two configurations.
type Delta struct {
	// Count is the number of different values, and Changes are the first 64 of them in the
	// order of the default file.
	Count   int
	Changes []keypath.Change
	// Keys are the keys with differences below, without values: those in [Keys], and those
	// of whole lists and mappings.
	Keys []string
}

// Keep returns the configuration that can be in force in a daemon that was started with
// another one: c, with the started values of keys that need a restart. It also returns the
// differences in those keys. Neither configuration changes.
//
// The result mixes two valid configurations, so the caller validates it.
func (c *Config) Keep(started *Config) (now *Config, pending Delta) {
	kept := *c
	d := differ{}
	walk(reflect.ValueOf(started).Elem(), reflect.ValueOf(&kept).Elem(), nil, "", func(at keypath.Path, how string, was, is reflect.Value) {
		if how != reloadRestart || reflect.DeepEqual(was.Interface(), is.Interface()) {
			return
		}
		d.leaf(at, was, is)
		is.Set(was)
	})
	return &kept, d.Delta
}

// Restarts lists the keys of which a change needs a restart: whole sections, and keys in others.
func Restarts() (keys []string) {
	var list func(in reflect.Type, under string)
	list = func(in reflect.Type, under string) {
		for field := range in.Fields() {
			key := keyOf(field)
			switch {
			case key == "":
			case field.Tag.Get("reload") == reloadRestart:
				keys = append(keys, under+key)
			case field.Type.Kind() == reflect.Struct:
				list(field.Type, under+key+".")
			}
		}
	}
	list(reflect.TypeFor[Config](), "")
	return keys
}

// Sum identifies the content of the file as it was read.
func (c *Config) Sum() string { return string(c.sum[:]) }

// KeepPolicy returns c with the policy of another configuration: its policy section except
// for policy.watch.
func (c *Config) KeepPolicy(of *Config) *Config {
	kept := *c
	kept.Policy = of.Policy
	kept.Policy.Watch = c.Policy.Watch
	return &kept
}

// Since lists the differences from an earlier configuration. Entries of lists are
// identified by name (agents by id, the directory by instance_id or first session, routes
// by session). So a moved entry is no difference, and paths contain the name:
// agents.alice.max_rounds.
//
// Values are masked as in [Config.Redacted]; a masked value that changed is *** on both
// sides. Values longer than 256 bytes are cut.
func (c *Config) Since(earlier *Config) Delta {
	d := differ{}
	walk(reflect.ValueOf(earlier).Elem(), reflect.ValueOf(c).Elem(), nil, "", func(at keypath.Path, _ string, was, is reflect.Value) {
		d.leaf(at, was, is)
	})
	if !sameListing(earlier, c) {
		before := d.Count
		_, gone, come := ListedChange(earlier.Listed, c.Listed)
		d.value(keypath.Path{}.Key(listingKey), "", reflect.ValueOf(&gone).Elem(), reflect.ValueOf(&come).Elem())
		if d.Count > before && !slices.Contains(d.Keys, listingKey) {
			d.Keys = append(d.Keys, listingKey)
		}
	}
	if was, is := earlier.Fleet.Line(), c.Fleet.Line(); was != is {
		at := keypath.Path{}.Key(fleetKey).Key("roster")
		d.add(at, was, is)
		if !slices.Contains(d.Keys, at.String()) {
			d.Keys = append(d.Keys, at.String())
		}
	}
	return d.Delta
}

// sameListing reports whether two configurations have the same directory file, without
// comparing entries.
func sameListing(a, b *Config) bool {
	return a.listed == b.listed || a.listed != nil && b.listed != nil && a.listed.sum == b.listed.sum
}

// walk visits the leaves of two configurations, as [leaves] does for one, with the tag
// reload of each, or "".
func walk(was, is reflect.Value, at keypath.Path, how string, visit func(at keypath.Path, how string, was, is reflect.Value)) {
	for i := range is.NumField() {
		field := is.Type().Field(i)
		key := keyOf(field)
		if key == "" {
			continue
		}
		how := cmp.Or(field.Tag.Get("reload"), how)
		if field.Type.Kind() == reflect.Struct {
			walk(was.Field(i), is.Field(i), at.Key(key), how, visit)
			continue
		}
		visit(at.Key(key), how, was.Field(i), is.Field(i))
	}
}

// differ collects differences.
type differ struct{ Delta }

// leaf compares the values of one key of [leaves].
func (d *differ) leaf(at keypath.Path, was, is reflect.Value) {
	before, rule := d.Count, ruleAt(at)
	if at[len(at)-1].Key == rest {
		// Further keys are beside the known ones.
		d.value(at[:len(at)-1], rule, was, is)
	} else {
		d.value(at, rule, was, is)
	}
	if d.Count > before {
		d.Keys = append(d.Keys, strings.TrimSuffix(at.String(), `["*"]`))
	}
}

// value compares two values; the rule determines their shown form.
func (d *differ) value(at keypath.Path, rule string, was, is reflect.Value) {
	t := is.Type()
	switch {
	case t == treeType:
		for _, c := range keypath.Diff(was.Interface().(map[string]any), is.Interface().(map[string]any)) {
			below, err := keypath.Compile(c.Path)
			if err != nil {
				continue // it was made by Path.String
			}
			d.add(append(slices.Clip(at), below...), showBelow(below, c.Old, rule), showBelow(below, c.New, rule))
		}
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			if key := keyOf(t.Field(i)); key != "" {
				d.value(at.Key(key), cmp.Or(t.Field(i).Tag.Get("show"), rule), was.Field(i), is.Field(i))
			}
		}
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		was, is = apart(was, is)
		d.entries(at, rule, named(was), named(is))
	case t.Kind() == reflect.Map:
		d.entries(at, rule, keyed(was), keyed(is))
	case !reflect.DeepEqual(was.Interface(), is.Interface()):
		d.add(at, d.plain(was, rule), d.plain(is, rule))
	}
}

// entry is an entry of a list or mapping with its name.
type entry struct {
	name  string
	value reflect.Value
}

// entries compares two lists of entries: those with the same name by value, the others as a whole.
func (d *differ) entries(at keypath.Path, rule string, was, is []entry) {
	before := make(map[string]reflect.Value, len(was))
	for _, e := range was {
		before[e.name] = e.value
	}
	for _, e := range is {
		old, stayed := before[e.name]
		switch {
		case !stayed:
			d.add(at.Key(e.name), nil, d.plain(e.value, rule))
		case !reflect.DeepEqual(old.Interface(), e.value.Interface()):
			d.value(at.Key(e.name), rule, old, e.value)
		}
		delete(before, e.name)
	}
	if len(before) == 0 {
		return
	}
	for _, e := range was {
		if _, gone := before[e.name]; gone {
			d.add(at.Key(e.name), d.plain(e.value, rule), nil)
		}
	}
}

// apart removes the common beginning and end of two lists, which is nearly all of a long
// directory after an edit.
func apart(was, is reflect.Value) (reflect.Value, reflect.Value) {
	n := min(was.Len(), is.Len())
	begin := 0
	for begin < n && sameItem(was.Index(begin), is.Index(begin)) {
		begin++
	}
	end := 0
	for end < n-begin && sameItem(was.Index(was.Len()-1-end), is.Index(is.Len()-1-end)) {
		end++
	}
	return was.Slice(begin, was.Len()-end), is.Slice(begin, is.Len()-end)
}

// sameItem reports whether two items of lists are equal.
func sameItem(was, is reflect.Value) bool {
	a, b := was.Addr().Interface(), is.Addr().Interface()
	if contact, ok := a.(*Contact); ok {
		return contact.same(b.(*Contact))
	}
	return reflect.DeepEqual(a, b)
}

// same is a fast reflect.DeepEqual for entries of a long directory.
func (c *Contact) same(as *Contact) bool {
	return c.Kind == as.Kind && c.InstanceID == as.InstanceID && c.UserID == as.UserID && c.OrgUnit == as.OrgUnit && c.TenantID == as.TenantID &&
		slices.Equal(c.Accepts, as.Accepts) && slices.Equal(c.Sessions, as.Sessions) && slices.Equal(c.Members, as.Members)
}

// named returns the entries of a list.
func named(list reflect.Value) []entry {
	entries := make([]entry, list.Len())
	for i := range entries {
		item := list.Index(i)
		entries[i] = entry{nameOf(item), item}
	}
	return entries
}

// keyed returns the entries of a mapping, in the order of their keys.
func keyed(m reflect.Value) []entry {
	entries := make([]entry, 0, m.Len())
	for key, item := range m.Seq2() {
		entries = append(entries, entry{key.String(), item})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return entries
}

// nameOf is the name of an entry in its list.
func nameOf(item reflect.Value) string {
	switch e := item.Interface().(type) {
	case Agent:
		return e.ID
	case Route:
		return e.Session
	case Contact:
		if e.InstanceID == "" && len(e.Sessions) > 0 {
			return e.Sessions[0]
		}
		return e.InstanceID
	case Pattern:
		return e.Name
	case Sink:
		return e.Name
	case TaskActor:
		return e.Name
	}
	return ""
}

// plainValue is a value in JSON's types, with the keys of the file.
func plainValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plainValue(v.Elem())
	case reflect.Struct:
		tree := map[string]any{}
		for i := range v.NumField() {
			if key := keyOf(v.Type().Field(i)); key != "" && !v.Field(i).IsZero() {
				tree[key] = plainValue(v.Field(i))
			}
		}
		return tree
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainValue(v.Index(i))
		}
		return list
	case reflect.Map:
		tree := map[string]any{}
		for key, item := range v.Seq2() {
			tree[key.String()] = plainValue(item)
		}
		return tree
	case reflect.Interface:
		return v.Interface()
	}
	switch at := v.Interface().(type) {
	case time.Duration:
		return at.String()
	case Size:
		return at.plain()
	default:
		return at
	}
}

// plain is the shown form of a value, or nil if it will not be shown.
func (d *differ) plain(v reflect.Value, rule string) any {
	if d.Count >= maxChanges {
		return nil
	}
	return plainValue(shown(v, rule))
}

// add notes a difference of shown values, with bounds.
func (d *differ) add(at keypath.Path, was, is any) {
	if d.Count++; len(d.Changes) < maxChanges {
		d.Changes = append(d.Changes, keypath.Change{Path: text.Clip(masked(at), maxChangeBytes), Old: bounded(was), New: bounded(is)})
	}
}

// bounded cuts a value to the length of a line.
func bounded(value any) any {
	switch v := value.(type) {
	case string:
		return text.Clip(v, maxChangeBytes)
	case nil, bool, int:
		return v
	}
	encoded, err := json.Marshal(value, json.Deterministic(true))
	if err != nil || len(encoded) > maxChangeBytes {
		return text.Clip(string(encoded), maxChangeBytes)
	}
	return value
}

// showBelow is the shown form of a value at a path in a tree with the operator's own keys.
func showBelow(at keypath.Path, value any, rule string) any {
	if rule == mask.Data && slices.ContainsFunc(at, func(s keypath.Step) bool { return mask.SecretName(s.Key) }) {
		return mask.Whole(value)
	}
	return mask.Value(value, rule)
}
