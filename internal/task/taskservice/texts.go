package taskservice

import (
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/base/ids"
	"github.com/openclawos/ocipd/internal/task"
)

// texts are all texts that somebody has written into a value: each string member of it,
// however deep, with the names and strings of JSON and of maps. Ids and digests say
// nothing, and words of a list have types of their own.
func texts(value any) []string {
	var found []string
	collect(reflect.ValueOf(value), &found)
	return found
}

func collect(v reflect.Value, found *[]string) {
	switch v.Kind() {
	case reflect.String:
		if s := v.String(); v.Type() == reflect.TypeFor[string]() && !saysNothing(s) {
			*found = append(*found, s)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			collect(v.Elem(), found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				collect(v.Field(i), found)
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			collect(key, found)
			collect(v.MapIndex(key), found)
		}
	case reflect.Slice, reflect.Array:
		if v.Type() == reflect.TypeFor[jsontext.Value]() {
			collectJSON(v.Bytes(), found)
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		for i := range v.Len() {
			collect(v.Index(i), found)
		}
	default:
	}
}

func collectJSON(text []byte, found *[]string) {
	if !strings.Contains(string(text), `"`) {
		return
	}
	d := jsontext.NewDecoder(strings.NewReader(string(text)), jsontext.AllowDuplicateNames(true))
	for {
		token, err := d.ReadToken()
		if err != nil {
			return
		}
		if token.Kind() == '"' && !saysNothing(token.String()) {
			*found = append(*found, token.String())
		}
	}
}

// saysNothing reports whether a text is an id or a digest, which detectors of secrets
// could take for one.
func saysNothing(s string) bool {
	if s == "" || task.Digests(s) || len(s) == 64 && task.Digests("sha256:"+s) {
		return true
	}
	for _, prefix := range []string{ids.Task, ids.Attempt, ids.Review, ids.Artifact, ids.Approval, ids.Effect, ids.Grant} {
		if ids.Is(prefix, s) {
			return true
		}
	}
	return false
}

// raised is the level that a value's texts come to, at least the one that is given.
func (t *Tasks) raised(level string, value any) string {
	if t.o.Raise == nil {
		return level
	}
	found := texts(value)
	if len(found) == 0 {
		return level
	}
	return t.o.Raise(level, found...)
}
