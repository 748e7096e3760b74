package audit

import (
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Member is a text of a record with its uses besides the record itself. It is
// made from the tags of its field in [Record], which are the one table of
// members:
//
//	filter  its name in a filter; records are found by it
//	flag    its name on the command line, if that is not the filter's
//	help    the flag's selection; a word in capitals stands for its value
//	export  its name for other systems: the attribute ocipd.NAME of OTLP and
//	        the field OCIPD_NAME of the journal, a point being an underscore
//	otlp    its attribute in OTLP, if a convention has another name for it
//	ocsf    the type of the OCSF resource that it names
//	syslog  "yes" if it is a parameter of the syslog message too
//	redact  the name by which an operator has it redacted; several members can
//	        share one
type Member struct {
	// Name is the member's path in a line, such as counterparty.kind.
	Name string

	Filter, Flag, Export, OTLP, OCSF, Redacted string
	Syslog                                     bool
	// Values are all possible values of the member, nil if any text is possible.
	Values []string

	help  string
	field []int
}

// Of returns the member's field in a record.
func (m *Member) Of(r *Record) *string {
	return reflect.ValueOf(r).Elem().FieldByIndex(m.field).Addr().Interface().(*string)
}

// Usage returns the help of the member's flag, with its value's name in the quotes that the flag
// package expects.
func (m *Member) Usage() string {
	words := strings.Fields(m.help)
	for i, w := range words {
		if name := strings.TrimRight(w, ",:"); len(name) > 1 && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
			words[i] = "`" + name + "`" + w[len(name):]
			break
		}
	}
	return strings.Join(words, " ")
}

// Key returns the filter's name as a configuration file spells it, such as action_type.
func (m *Member) Key() string { return spelled(m.Filter, '_') }

// Journal returns the member's field in the journal, empty for none.
func (m *Member) Journal() string {
	if m.Export == "" {
		return ""
	}
	return "OCIPD_" + strings.ToUpper(strings.ReplaceAll(m.Export, ".", "_"))
}

// Members returns the texts of a record in the order of the line. Callers must not change the list.
func Members() []Member { return members() }

// Filters returns the members that records are found by.
func Filters() []Member { return filters() }

var members = sync.OnceValue(func() []Member { return membersOf(reflect.TypeFor[Record](), Member{}) })

var filters = sync.OnceValue(func() []Member {
	return slices.DeleteFunc(slices.Clone(members()), func(m Member) bool { return m.Filter == "" })
})

// membersOf reads the tags of a structure at a member.
func membersOf(t reflect.Type, at Member) (list []Member) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		m := Member{
			Name: strings.TrimPrefix(at.Name+"."+name, "."), field: append(slices.Clip(at.field), i),
			Filter: f.Tag.Get("filter"), Flag: f.Tag.Get("flag"), help: f.Tag.Get("help"), Export: f.Tag.Get("export"),
			OTLP: f.Tag.Get("otlp"), OCSF: f.Tag.Get("ocsf"), Redacted: f.Tag.Get("redact"), Syslog: f.Tag.Get("syslog") == "yes",
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			list = append(list, membersOf(f.Type, m)...)
			continue
		case reflect.String:
		default:
			continue
		}
		if m.Flag == "" {
			m.Flag = spelled(m.Filter, '-')
		}
		if m.OTLP == "" && m.Export != "" {
			m.OTLP = "ocipd." + m.Export
		}
		switch m.Name {
		case "actionType":
			m.Values = ActionTypes()
		case "side":
			m.Values = []string{SideSender, SideReceiver}
		case "policyResult":
			m.Values = []string{ResultAllow, ResultDeny, ResultApproval}
		}
		list = append(list, m)
	}
	return list
}

// spelled writes a name such as actionType in small letters, with its words separated.
func spelled(name string, between byte) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte(between)
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}
