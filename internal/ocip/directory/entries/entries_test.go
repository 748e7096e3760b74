package entries

import (
	"fmt"
	"reflect"
	"testing"
)

func some() []Entry {
	public := []string{"public"}
	return []Entry{
		{Kind: "agent", InstanceID: "a-1", UserID: "a", OrgUnit: "o", TenantID: "acme", Accepts: []string{"public", "internal"}, Sessions: []string{"irc:a", "mail:a"}},
		{Kind: "agent", InstanceID: "b-1", UserID: "b", OrgUnit: "o", TenantID: "acme", Accepts: public},
		{Kind: "person", Accepts: public, Sessions: []string{"sms:1"}},
		{Kind: "person", Accepts: []string{}, Sessions: []string{}},
		{Kind: "group", Accepts: public, Sessions: []string{"irc:#x", "", "irc:#z"}, Members: []string{"a-1", "sms:1"}},
		{Kind: "group", Members: []string{}},
		{},
	}
}

func TestList(t *testing.T) {
	want := some()
	parts := make([]*Builder, 3)
	for i := range parts {
		parts[i] = new(Builder)
	}
	var all []Entry
	for i, part := range parts {
		for k := range want {
			if (k+i)%3 > 0 { // the parts begin with different words and sets
				part.Add(&want[k])
				all = append(all, want[k])
			}
		}
	}
	for name, l := range map[string]*List{"of": Of(all...), "joined": Join(parts)} {
		if l.Len() != len(all) {
			t.Fatalf("%s: %d entries", name, l.Len())
		}
		n := 0
		for i := range all {
			if got := l.At(i); !reflect.DeepEqual(got, all[i]) || l.Instance(i) != all[i].InstanceID || !reflect.DeepEqual(l.Sets()[l.Accepts(i)], all[i].Accepts) {
				t.Errorf("%s: entry %d is %#v, want %#v", name, i, got, all[i])
			}
			for _, session := range all[i].Sessions {
				if got, owner := l.Session(n); got != session || owner != i {
					t.Errorf("%s: session %d is %q of %d, want %q of %d", name, n, got, owner, session, i)
				}
				n++
			}
		}
		if l.Sessions() != n {
			t.Errorf("%s: %d sessions, want %d", name, l.Sessions(), n)
		}
	}
	if l := (*List)(nil); l.Len() != 0 || l.Sessions() != 0 || l.Sets() != nil {
		t.Error("no list is not empty")
	}
}

// TestSame changes one member at a time.
func TestSame(t *testing.T) {
	entry := some()[0]
	entry.Members = []string{"m"}
	l := Of(entry)
	if !l.Same(0, Of(Entry{Kind: "before", Sessions: []string{"x"}}, entry), 1) {
		t.Error("an entry is not the same as itself")
	}
	for i := range reflect.TypeFor[Entry]().NumField() {
		other := entry
		switch field := reflect.ValueOf(&other).Elem().Field(i); field.Kind() {
		case reflect.String:
			field.SetString("other")
		default:
			field.Set(reflect.ValueOf([]string{"other"}))
		}
		if l.Same(0, Of(other), 0) {
			t.Errorf("%+v is the same", other)
		}
	}
	// The texts are one after another.
	a, b := Entry{InstanceID: "ab", Sessions: []string{"cd", "e"}}, Entry{InstanceID: "ab", Sessions: []string{"c", "de"}}
	if Of(a).Same(0, Of(b), 0) {
		t.Error("entries with the same text are the same")
	}
}

// TestTable enters numbers of which half have one hash, so that only the comparison tells them apart.
func TestTable(t *testing.T) {
	var table Table
	if n, ok := table.Find("none", func(int) bool { return true }); ok {
		t.Errorf("an empty table has %d", n)
	}
	keys := make([]string, 1001)
	is := func(key string) func(int) bool { return func(n int) bool { return keys[n] == key } }
	hash := func(i int) uint32 {
		if i%2 == 0 {
			return 7
		}
		return table.hash(keys[i])
	}
	for i := range 1000 {
		keys[i] = fmt.Sprint("key ", i)
		table.Grow(i + 1)
		if _, had := table.set(hash(i), i, is(keys[i])); had {
			t.Fatalf("%s was there", keys[i])
		}
	}
	for i, key := range keys[:1000] {
		if at := table.find(hash(i), is(key)); at < 0 || int(table.slots[at].number-1) != i {
			t.Errorf("%s is at %d", key, at)
		}
		if n, ok := table.Find(key, is(key)); i%2 == 1 && (!ok || n != i) {
			t.Errorf("%s is %d, %v", key, n, ok)
		}
	}
	if at := table.find(7, is("none")); at >= 0 {
		t.Errorf("none is at %d", at)
	}
	// A second number of a key takes the place of the first.
	keys[1000] = keys[9]
	if before, had := table.Set(keys[9], 1000, is(keys[9])); !had || before != 9 || table.Len() != 1000 {
		t.Errorf("the key had %d, %v", before, had)
	}
	keys[9] = "gone"
	if n, ok := table.Find(keys[1000], is(keys[1000])); !ok || n != 1000 {
		t.Errorf("the key has %d, %v", n, ok)
	}
}
