package contacts

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/audit"
	"github.com/openclawos/ocipd/internal/kernel/exchangestate"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/directory"
	"github.com/openclawos/ocipd/internal/store"
	"go.uber.org/zap"
)

// operator is the peer that forgets a contact.
type operator struct{ api.Peer }

func (operator) Credentials() (uid, gid uint32, pid int32) { return 1000, 1000, 42 }

// book returns contacts over a store of its own, with an agent that was seen.
func book(t *testing.T, tenants ...string) (*Contacts, *store.Store, *directory.Directory) {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "ocipd.db"), Clock: time.Now, Log: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := &directory.Config{
		Entries: []directory.Entry{{
			Counterparty: ocip.Counterparty{Kind: ocip.KindPerson, Identity: ocip.Identity{UserID: "dave"}, Accepts: ocip.Internal}, Sessions: []string{"irc:dave"},
		}},
		Grants: map[string]directory.Grant{}, UIDs: []uint32{1000},
	}
	for i, tenant := range tenants {
		name := []string{"alice", "bob"}[i]
		cfg.Agents = append(cfg.Agents, directory.Agent{App: "@acme/" + name, Agent: ocip.Agent{
			ID: name, Identity: ocip.Identity{InstanceID: "agent-" + name + "-1", UserID: name, OrgUnit: "eng", TenantID: tenant}, MaxShared: ocip.Internal,
		}})
	}
	d, err := directory.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	c := New(Options{Store: s, State: exchangestate.New(s), Commit: s.Commit, NewID: func() string { n++; return fmt.Sprint("id", n) }})
	return c, s, d
}

func commit(t *testing.T, s *store.Store, parts ...store.Part) {
	t.Helper()
	if _, err := s.Commit(&store.Change{Records: []*audit.Record{{ID: "r", ActionType: audit.ActionExchange}}, Parts: parts}); err != nil {
		t.Fatal(err)
	}
}

func session(key, agent string, age int) store.Session {
	channel, _, _ := strings.Cut(key, ":")
	return store.Session{Key: key, SessionOwner: store.SessionOwner{AgentID: agent, Identified: "acme/agent-" + agent + "-1"}, ChannelID: channel, LastActiveAt: time.Unix(int64(10_000-age), 0), MessageCount: int64(age)}
}

var carol = ocip.Identity{InstanceID: "agent-carol-1", UserID: "carol", OrgUnit: "sales", TenantID: "acme"}

func TestList(t *testing.T) {
	c, s, d := book(t, "acme")
	commit(t, s, session("irc:dave", "alice", 1), session("irc:carol", "alice", 2), session("irc:nobody", "alice", 3), session("irc:gone", "former", 4), session("sms:x", "alice", 5))
	commit(t, s, store.Seen{SessionKey: "irc:carol", By: "acme", Identity: carol})
	list := func(p api.ContactListParams) (lines []string, total int) {
		t.Helper()
		found, err := c.List(t.Context(), &p, d)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found.Contacts {
			lines = append(lines, fmt.Sprintf("%s %s %s%s%s learned=%t %d", one.SessionKey, one.Agent, one.Kind, one.InstanceID, one.UserID, one.Learned, one.MessageCount))
		}
		return lines, found.Total
	}
	all := []string{
		"irc:dave alice persondave learned=false 1", "irc:carol alice agentagent-carol-1carol learned=true 2", "irc:nobody alice unknown learned=false 3",
		"irc:gone former unknown learned=false 4", "sms:x alice unknown learned=false 5",
	}
	two := 2
	for name, test := range map[string]struct {
		params api.ContactListParams
		want   []string
		total  int
	}{
		"all":          {api.ContactListParams{}, all, 5},
		"of an agent":  {api.ContactListParams{Agent: "former"}, all[3:4], 1},
		"of a channel": {api.ContactListParams{Channel: "sms"}, all[4:], 1},
		"a page":       {api.ContactListParams{Limit: &two, Offset: 1}, all[1:3], 5},
		"nobody":       {api.ContactListParams{Agent: "nobody"}, nil, 0},
	} {
		if got, total := list(test.params); !slices.Equal(got, test.want) || total != test.total {
			t.Errorf("%s: %q of %d, want %q of %d", name, got, total, test.want, test.total)
		}
	}
}

func TestForget(t *testing.T) {
	c, s, d := book(t, "acme", "globex")
	commit(t, s, session("irc:carol", "alice", 1), session("irc:dave", "alice", 2))
	commit(t, s, store.Seen{SessionKey: "irc:carol", By: "acme", Identity: carol}, store.Seen{SessionKey: "irc:carol", By: "globex", Identity: ocip.Identity{InstanceID: "agent-mallory-1", TenantID: "evil"}})
	found, err := c.List(t.Context(), &api.ContactListParams{}, d)
	if err != nil || !slices.Equal(found.Contacts[0].SeenBy, []string{"acme", "globex"}) || found.Contacts[0].InstanceID != "agent-carol-1" || len(found.Contacts[1].SeenBy) != 0 {
		t.Fatalf("before: %+v, %v", found.Contacts, err)
	}
	for _, key := range []string{"irc:dave", "irc:unheard-of"} {
		if r, err := c.Forget(t.Context(), operator{}, &api.ContactForgetParams{SessionKey: key}, d); err != nil || r != (api.ContactForgetResult{}) {
			t.Errorf("of %s nothing was learned: %+v, %v", key, r, err)
		}
	}
	r, err := c.Forget(t.Context(), operator{}, &api.ContactForgetParams{SessionKey: "irc:carol", Note: "left"}, d)
	if err != nil || !r.Changed || r.InstanceID != "agent-carol-1" || r.TenantID != "acme" || r.AuditSeq == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	lines, _, err := s.Query(t.Context(), audit.Filter{Like: audit.Record{Event: "contact_forgotten"}}, 0, 0, 10)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%q, %v", lines, err)
	}
	for _, want := range []string{`"sessionKey":"irc:carol"`, `"note":"left"`, `"by":"uid:1000"`, `"instanceId":"agent-mallory-1"`, `"by":"globex"`} {
		if !strings.Contains(string(lines[0]), want) {
			t.Errorf("no %s in %s", want, lines[0])
		}
	}
	found, err = c.List(t.Context(), &api.ContactListParams{}, d)
	if err != nil || len(found.Contacts[0].SeenBy) != 0 || found.Contacts[0].Kind != string(ocip.KindUnknown) || found.Contacts[1].UserID != "dave" {
		t.Errorf("after: %+v, %v", found.Contacts, err)
	}
	if r, err := c.Forget(t.Context(), operator{}, &api.ContactForgetParams{SessionKey: "irc:carol"}, d); err != nil || r.Changed {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// If the record fails, nothing is forgotten.
func TestForgetFails(t *testing.T) {
	c, s, d := book(t, "acme")
	commit(t, s, session("irc:carol", "alice", 1))
	commit(t, s, store.Seen{SessionKey: "irc:carol", By: "acme", Identity: carol}, store.Brought{SessionKey: "irc:carol", Members: map[string]string{"to": "carol"}, At: time.Unix(1, 0)})
	broken := errors.New("the disk is full")
	c.o.Commit = func(*store.Change) (store.Receipt, error) { return store.Receipt{}, broken }
	if _, err := c.Forget(t.Context(), operator{}, &api.ContactForgetParams{SessionKey: "irc:carol"}, d); !errors.Is(err, broken) {
		t.Errorf("it ends with %v", err)
	}
	found, err := c.List(t.Context(), &api.ContactListParams{}, d)
	if err != nil || found.Contacts[0].InstanceID != "agent-carol-1" {
		t.Errorf("%+v, %v", found.Contacts, err)
	}
}
