package toolmap

import (
	"maps"
	"slices"
	"strings"
)

// of is the tool that a call with the arguments is of, nil for one that sends no message. The
// choosing argument gives the others their meaning, so only those of the chosen case are permitted.
func (t *Tool) of(tool string, arguments []Member) (*Tool, error) {
	if t.By == "" {
		return t, nil
	}
	value := t.chosen(t.By, arguments)
	if slices.Contains(t.Calls, value) {
		return nil, nil
	}
	one, ok := t.Cases[value]
	if !ok {
		return nil, Unclear("the argument %s of the tool %s is none of %s", t.By, tool, strings.Join(slices.Concat(slices.Sorted(maps.Keys(t.Cases)), t.Calls), ", "))
	}
	one.With, one.all = append(slices.Clone(one.With), t.By), append(slices.Clone(one.Arguments()), t.By)
	one.when, one.is = t.By, value
	return &one, nil
}

// chosen is the value of the argument that chooses, "" for none.
func (t *Tool) chosen(by string, arguments []Member) string {
	given, _ := Find(arguments, by)
	value, _ := Text(given.Value)
	return value
}

// unambiguous refuses arguments by which the tool is another case, or of which the server reads only one.
func (t *Tool) unambiguous(arguments []Member) error {
	if t.when != "" && t.chosen(t.when, arguments) != t.is {
		return Unclear("the argument %s is not %q, by which the call was read", t.when, t.is)
	}
	for _, to := range t.To {
		var given []string
		for _, part := range optional.FindAllString(to, -1) {
			for _, name := range argumentsOf([]string{part}) {
				if a, ok := Find(arguments, name); ok && a.Value.Kind() != 'n' {
					given = append(given, name)
					break
				}
			}
		}
		if len(given) > 1 {
			return Unclear("the arguments %s are one: give one of them", strings.Join(given, " and "))
		}
	}
	return nil
}
