package directory

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory/entries"
)

// listed moves the entries of a configuration into its list.
func listed(cfg Config) Config {
	var all []entries.Entry
	var stay []Entry
	for i := range cfg.Entries {
		e := &cfg.Entries[i]
		if e.Host != "" {
			stay = append(stay, *e)
			continue
		}
		kind := string(e.Kind)
		if e.Group {
			kind = groupKind
		}
		all = append(all, entries.Entry{
			Kind: kind, InstanceID: e.InstanceID, UserID: e.UserID, OrgUnit: e.OrgUnit, TenantID: e.TenantID,
			Accepts: []string{e.Accepts.String()}, Sessions: e.Sessions, Members: e.Members,
		})
	}
	cfg.Entries, cfg.Listed = stay, Listed{List: entries.Of(all...)}
	for _, set := range cfg.Listed.Sets() {
		level, err := ocip.ParseLevel(set[0])
		if err != nil {
			panic(err)
		}
		cfg.Listed.Levels = append(cfg.Listed.Levels, level)
	}
	return cfg
}

// TestListedEntriesAnswerAlike asks two directories about the same keys: one has few entries, and the
// other has them in its list.
func TestListedEntriesAnswerAlike(t *testing.T) {
	cfg := world()
	cfg.Entries = append(cfg.Entries, peer("bots", "acme", "irc:direct:bot-*", "matrix:direct:@bots:h", "matrix:!bots:h"), peer("many", "acme", "matrix:direct:@many:h", "matrix:!one:h", "matrix:!two:h"),
		person("alice", "", "sms:*"), OfFleet("far", "zoe", ocip.Counterparty{Kind: ocip.KindAgent, Identity: ocip.Identity{InstanceID: "agent-zoe-1", UserID: "z", OrgUnit: "o", TenantID: "acme"}}))
	few, many := directoryOf(t, cfg), directoryOf(t, listed(cfg))
	if many.listed.Len() != len(cfg.Entries)-1 || len(many.own) != 1 {
		t.Fatalf("%d entries are listed", many.listed.Len())
	}
	keys := []string{"irc:direct:nobody", "irc:bot-7", "irc:direct:friemd", "irc:direct:frіend", "irc:#FRIENDS", "agent:rival:main", "agent:zoe:main", "agent:riva1:main", "sms:12", "chat:group:office", "", "irc:", "matrix:direct:@bots:h"}
	for i := range cfg.Entries {
		for _, key := range cfg.Entries[i].Sessions {
			key = strings.ReplaceAll(key, "*", "x")
			channel, rest := Split(key)
			keys = append(keys, key, strings.ToUpper(key), channel+":group:"+rest, channel+":dm:"+rest, key+"x", strings.ReplaceAll(key, "l", "1"))
		}
	}
	self := few.Agent("alice")
	known := 0
	for _, key := range keys {
		_, rest := Split(key)
		metadata := map[string]jsontext.Value{"senderId": jsontext.Value(`"` + rest + `"`), "chatId": jsontext.Value(`"1001"`)}
		a, errA := few.Recipient(key, "", nil, self)
		b, errB := many.Recipient(key, "", nil, self)
		a.network, b.network, a.said, b.said = nil, nil, conversation{}, conversation{}
		if !reflect.DeepEqual(a, b) || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("%s: reaches %+v, %v; listed %+v, %v", key, a, errA, b, errB)
		}
		from, errA := few.Origin(key, metadata, self)
		as, errB := many.Origin(key, metadata, self)
		if len(from.entries) != len(as.entries) {
			t.Errorf("%s: %d may have written, listed %d", key, len(from.entries), len(as.entries))
		}
		from.entries, as.entries = nil, nil
		if !reflect.DeepEqual(from, as) || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("%s: comes from %+v, %v; listed %+v, %v", key, from, errA, as, errB)
		}
		hostA, instanceA := few.HostOf(key)
		hostB, instanceB := many.HostOf(key)
		if few.Lists(key) != many.Lists(key) || hostA != hostB || instanceA != instanceB {
			t.Errorf("%s: listed %v and %v, at %s %s and %s %s", key, few.Lists(key), many.Lists(key), hostA, instanceA, hostB, instanceB)
		}
		if few.Lists(key) {
			known++
		}
	}
	if known < 40 {
		t.Errorf("%d of %d keys are listed", known, len(keys))
	}
	for i := range cfg.Entries {
		id := cfg.Entries[i].InstanceID
		if !reflect.DeepEqual(few.Known(id), many.Known(id)) {
			t.Errorf("%s is %+v, listed %+v", id, few.Known(id), many.Known(id))
		}
	}
	var names [2][]string
	for side, c := range []Config{cfg, listed(cfg)} {
		names[side] = channelsIn(&c, nil)
	}
	if !reflect.DeepEqual(names[0], names[1]) {
		t.Errorf("the channels are %q, listed %q", names[0], names[1])
	}
}

// TestListedEntriesConflict checks that two entries cannot share an address in a list either, and that
// the error names both.
func TestListedEntriesConflict(t *testing.T) {
	for _, more := range [][]Entry{
		{peer("a", "acme", "irc:direct:bob"), person("b", "", "irc:bob")},
		{person("a", "", "irc:direct:bob"), peer("b", "acme", "irc:dm:BOB")},
		{group(nil, "irc:#x"), group([]string{"irc:#x"}, "irc:#y")},
	} {
		few := onePerson()
		few.Entries = more
		many := listed(few)
		_, errA := New(&few)
		_, errB := New(&many)
		if errA == nil || errB == nil || errA.Error() != errB.Error() {
			t.Errorf("%v, and listed %v", errA, errB)
		}
	}
}
