package config

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/openclawos/ocipd/internal/config/keypath"
	"github.com/openclawos/ocipd/internal/config/mask"
	"go.yaml.in/yaml/v3"
)

// Redacted returns the configuration as YAML that [Parse] accepts, for people. It masks all
// values of channels and apps except true, false and empty ones; the arguments of the
// notification command; the headers of sinks; in policy.data, values that look like tokens
// or have a secret key; and everywhere private keys, bearer tokens, and in URLs user names,
// passwords and queries.
func (c *Config) Redacted() ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(shown(reflect.ValueOf(c), "").Interface()); err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return out.Bytes(), nil
}

// Whole returns the configuration as YAML with all its secrets. Use it only for a keyed digest.
func (c *Config) Whole() ([]byte, error) {
	out, err := yaml.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cannot write the configuration: %w", err)
	}
	return out, nil
}

// shown copies a value without its hidden parts.
func shown(v reflect.Value, rule string) reflect.Value {
	if (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil() {
		return v
	}
	out := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == treeType:
		return reflect.ValueOf(mask.Tree(v.Interface().(map[string]any), rule))
	case v.Kind() == reflect.String:
		out.SetString(mask.Text(v.String(), rule))
	case v.Kind() == reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(shown(v.Elem(), rule))
	case v.Kind() == reflect.Struct:
		out.Set(v)
		for i := range v.NumField() {
			if field := v.Type().Field(i); keyOf(field) != "" {
				out.Field(i).Set(shown(v.Field(i), cmp.Or(field.Tag.Get("show"), rule)))
			}
		}
	case v.Kind() == reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			if rule == mask.Program && i > 0 {
				out.Index(i).SetString(mask.Text(v.Index(i).String(), mask.Nothing))
				continue
			}
			out.Index(i).Set(shown(v.Index(i), rule))
		}
	case v.Kind() == reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		for key, item := range v.Seq2() {
			out.SetMapIndex(key, shown(item, rule))
		}
	default:
		return v
	}
	return out
}

// Shown is the entry in the form of [Config.Redacted].
func (c Contact) Shown() Contact {
	out := c
	for _, text := range []*string{&out.InstanceID, &out.UserID, &out.OrgUnit, &out.TenantID} {
		*text = mask.Scrub(*text)
	}
	for _, list := range []*[]string{&out.Sessions, &out.Members} {
		for i, text := range *list {
			if clean := mask.Scrub(text); clean != text {
				*list = slices.Clone(*list)
				(*list)[i] = clean
			}
		}
	}
	return out
}

// ruleAt is the tag show of a key, given in the form of the file or of [Config.Since].
func ruleAt(at keypath.Path) (rule string) {
	t := reflect.TypeFor[Config]()
	for _, s := range at {
		switch t.Kind() {
		case reflect.Struct:
			field, ok := fieldOf(t, s.Key)
			if !ok {
				return rule
			}
			rule, t = cmp.Or(field.Tag.Get("show"), rule), field.Type
			if keyOf(field) == rest {
				t = treeType.Elem()
			}
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		default:
			return rule
		}
	}
	return rule
}

// fieldOf returns the field of a struct for a key.
func fieldOf(t reflect.Type, key string) (taken reflect.StructField, ok bool) {
	for field := range t.Fields() {
		switch keyOf(field) {
		case "":
		case key:
			return field, true
		case rest:
			taken, ok = field, true
		}
	}
	return taken, ok
}

// masked is the path without secrets in the operator's own keys and the names of entries.
func masked(p keypath.Path) string {
	clean := p
	for i, s := range p {
		key := mask.Scrub(s.Key)
		if s.Index < 0 && ruleAt(p[:i]) != "" {
			key = mask.Key(s.Key)
		}
		if key == s.Key {
			continue
		}
		if &clean[0] == &p[0] {
			clean = slices.Clone(p)
		}
		clean[i].Key = key
	}
	return clean.String()
}
