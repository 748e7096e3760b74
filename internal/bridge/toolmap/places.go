package toolmap

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
)

// there ends the name of a member that names a file of the service, while the daemon decides. Without it,
// the daemon would look for the file on this machine.
const there = "-inService"

// placed are the places that are arguments.
func (t *Tool) placed() (names []string) {
	for _, place := range t.Places {
		if !strings.Contains(place, ".") {
			names = append(names, place)
		}
	}
	return names
}

// Mark renames the arguments and members that name files of the service, for the daemon.
func (t *Tool) Mark(arguments []Member) ([]Member, error) {
	return t.rename(arguments, func(name string) (from, to string) { return name, name + there })
}

// Unmark is the reverse of [Tool.Mark].
func (t *Tool) Unmark(arguments []Member) ([]Member, error) {
	return t.rename(arguments, func(name string) (from, to string) { return name + there, name })
}

func (t *Tool) rename(arguments []Member, names func(name string) (from, to string)) ([]Member, error) {
	if len(t.Places) == 0 {
		return arguments, nil
	}
	arguments = slices.Clone(arguments)
	for _, place := range t.Places {
		in, member, within := strings.Cut(place, ".")
		if !within {
			from, to := names(place)
			if err := renameOne(arguments, from, to); err != nil {
				return nil, err
			}
			continue
		}
		from, to := names(member)
		for i := range arguments {
			if arguments[i].Name != in {
				continue
			}
			var err error
			if arguments[i].Value, err = renameIn(arguments[i].Value, from, to); err != nil {
				return nil, err
			}
		}
	}
	return arguments, nil
}

// renameOne renames a member in a list.
func renameOne(list []Member, from, to string) error {
	if _, taken := Find(list, to); taken {
		return Unclear("the argument %s is none of those that the map says the tool has", to)
	}
	for i := range list {
		if list[i].Name == from {
			list[i].Name = to
		}
	}
	return nil
}

// renameIn renames a member in an object, or in each object of a list.
func renameIn(value jsontext.Value, from, to string) (jsontext.Value, error) {
	switch value.Kind() {
	case '[':
		var all []jsontext.Value
		if err := json.Unmarshal(value, &all, jsontext.AllowInvalidUTF8(true)); err != nil {
			return nil, Unclear("a list cannot be read")
		}
		for i := range all {
			var err error
			if all[i], err = renameIn(all[i], from, to); err != nil {
				return nil, err
			}
		}
		return json.Marshal(all, jsontext.AllowInvalidUTF8(true))
	case '{':
		list, err := Members(value, 0)
		if err != nil {
			return nil, err
		}
		if err := renameOne(list, from, to); err != nil {
			return nil, err
		}
		return Object(list), nil
	}
	return value, nil
}

// Object writes members in their order.
func Object(list []Member) jsontext.Value {
	b := jsontext.Value("{")
	for i, m := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, api.String(m.Name)...), ':'), m.Value...)
	}
	return append(b, '}')
}
