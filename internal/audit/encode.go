package audit

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/openclawos/ocipd/internal/base/jsonline"
)

// written is one field of a record for the encoder.
type written struct {
	name   string
	index  int
	option string
	// within are the fields of a structure.
	within []written
}

// fields are the fields of a record. With a single look-up of them, encoding a record takes a third
// of the library's time; it runs for every message.
var fields = sync.OnceValue(func() []written { return writtenOf(reflect.TypeFor[Record]()) })

func writtenOf(t reflect.Type) (list []written) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		w := written{name: name, index: i, option: option}
		if f.Type.Kind() == reflect.Struct {
			w.within = writtenOf(f.Type)
		}
		list = append(list, w)
	}
	return list
}

var errNotText = errors.New("not UTF-8")

// appendFields encodes a structure as the JSON library does.
func appendFields(b []byte, v reflect.Value, fields []written) ([]byte, error) {
	b = append(b, '{')
	for i := range fields {
		f := &fields[i]
		field := v.Field(f.index)
		if f.option == "omitzero" && field.IsZero() || f.option == "omitempty" && field.Len() == 0 {
			continue
		}
		var err error
		switch field.Kind() {
		case reflect.String:
			if !utf8.ValidString(field.String()) {
				return b, fmt.Errorf("%s: %w", f.name, errNotText)
			}
			b = jsonline.Text(b, f.name, field.String())
		case reflect.Int:
			b = jsonline.Int(b, f.name, field.Int())
		case reflect.Struct:
			b, err = appendFields(jsonline.Key(b, f.name), field, f.within)
		case reflect.Slice:
			if field.Len() == 0 {
				b = append(jsonline.Key(b, f.name), '[', ']')
				break
			}
			fallthrough
		default:
			var encoded []byte
			encoded, err = json.Marshal(field.Interface(), json.Deterministic(true))
			b = append(jsonline.Key(b, f.name), encoded...)
		}
		if err != nil {
			return b, fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return append(b, '}'), nil
}
