package attachments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/openclawos/ocipd/internal/api"
	"github.com/openclawos/ocipd/internal/ocip"
	"github.com/openclawos/ocipd/internal/ocip/media"
)

// waits returns once so many wait for a turn.
func waits(t *turns, many int) {
	for {
		t.mu.Lock()
		n := 0
		for _, one := range t.waiting {
			n += len(one.line)
		}
		t.mu.Unlock()
		if n == many {
			return
		}
		runtime.Gosched()
	}
}

// However many messages a tenant's agents have, another tenant gets every second turn.
func TestTurnsGoRoundTenants(t *testing.T) {
	all := turns{free: 1}
	enter := func(of, agent string) *place {
		p, err := all.enter(t.Context(), of, agent)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := enter("acme", "first")
	if err := first.Wait(); err != nil {
		t.Fatal(err)
	}
	var (
		order []string // under the turn
		done  sync.WaitGroup
	)
	for i, name := range []string{"acme a1", "acme a2", "acme a3", "acme a4", "globex g1", "globex g2", "home h1"} {
		of, agent, _ := strings.Cut(name, " ")
		p := enter(of, agent)
		done.Go(func() {
			defer p.leave()
			if err := p.Wait(); err != nil {
				t.Error(err)
			}
			order = append(order, agent)
		})
		waits(&all, i+1)
	}
	first.leave()
	done.Wait()
	if want := []string{"a1", "g1", "h1", "a2", "g2", "a3", "a4"}; !slices.Equal(order, want) {
		t.Errorf("turns go %v, want %v", order, want)
	}
	if all.free != 1 || len(all.under) != 0 || len(all.waiting) != 0 {
		t.Errorf("left are %+v", &all)
	}
}

// One message of an agent is under way at a time, and other agents' messages do not wait for it,
// even if it has no turn because its file does not come.
func TestOneMessageOfAnAgentAtATime(t *testing.T) {
	all := turns{free: 1}
	stuck, err := all.enter(t.Context(), "acme", "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.enter(ctx, "acme", "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one of the agent's: %v", err)
	}
	for _, other := range [][2]string{{"acme", "b"}, {"globex", "a"}} {
		p, err := all.enter(t.Context(), other[0], other[1])
		if err != nil || p.Wait() != nil {
			t.Fatalf("%s waits: %v", other, err)
		}
		p.leave()
	}
	next := make(chan *place)
	go func() {
		p, _ := all.enter(t.Context(), "acme", "a")
		next <- p
	}()
	stuck.leave()
	(<-next).leave()
	if all.free != 1 || len(all.under) != 0 {
		t.Errorf("left are %+v", &all)
	}
}

// Callers that leave while they wait take no turn of others with them.
func TestTurnsOfThoseWhoLeave(t *testing.T) {
	all := turns{free: 2}
	var done sync.WaitGroup
	for i := range 400 {
		ctx, cancel := context.WithCancel(t.Context())
		done.Go(func() {
			defer cancel()
			p, err := all.enter(ctx, fmt.Sprint(i%3), fmt.Sprint(i%7))
			if err != nil {
				return
			}
			defer p.leave()
			for range 20 {
				if p.Wait() != nil {
					return
				}
				runtime.Gosched()
				p.Rest()
			}
		})
		if i%2 == 0 {
			go cancel()
		}
	}
	done.Wait()
	if all.free != 2 || len(all.under) != 0 || len(all.waiting) != 0 {
		t.Errorf("left are %d turns, %v, %v", all.free, all.under, all.waiting)
	}
}

// sends is a message with a file.
func sends(t *testing.T, path string) *Message {
	t.Helper()
	q, err := jsontext.AppendQuote(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	folder, _, _ := strings.Cut(path, "/file")
	return &Message{Tenant: "acme", Agent: "a", Content: "hello", Metadata: api.Object{"mediaUrl": q}, Folders: []string{folder}, Known: func(string) bool { return false }}
}

func TestLookEndsWithItsCaller(t *testing.T) {
	path := t.TempDir() + "/file.txt"
	if err := os.WriteFile(path, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	l, all := NewLooker(1), rules(t)
	ctx, cancel := context.WithCancel(t.Context())
	held, err := l.turns.enter(t.Context(), "globex", "g")
	if err != nil || held.Wait() != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := l.Look(ctx, sends(t, path), all)
		done <- err
	}()
	waits(&l.turns, 1)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ends with %v", err)
	}
	held.leave()
	if f, err := l.Look(t.Context(), sends(t, path), all); err != nil || len(f.Items) != 1 || f.Items[0].SHA256 == "" {
		t.Errorf("the next one finds %+v, %v", f, err)
	}
}

// The same bytes are not searched again for the same tenant, and under the same rules.
func TestTheSameBytesAreWeighedOnce(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"/file.txt": secret, "/file2.txt": secret, "/file3.txt": "nothing of note\n"} {
		if err := os.WriteFile(dir+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l, all := NewLooker(1), rules(t)
	look := func(m *Message, rules *ocip.Rules) Found {
		t.Helper()
		f, err := l.Look(t.Context(), m, rules)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first := look(sends(t, dir+"/file.txt"), all)
	if len(first.Extracts) != 1 || len(l.cache.young) != 1 {
		t.Fatalf("found is %+v, kept are %d", first, len(l.cache.young))
	}
	// A cached result must equal a new one.
	blank := (*ocip.Rules)(nil).Weigher(nil, 0).Found()
	for of := range l.cache.young {
		l.cache.young[of] = blank
	}
	if again := look(sends(t, dir+"/file2.txt"), all); len(again.Extracts) != 0 || again.Items[0].SHA256 != first.Items[0].SHA256 || again.Items[0].Bytes != int64(len(secret)) {
		t.Errorf("the same bytes are weighed again: %+v", again)
	}
	other := sends(t, dir+"/file.txt")
	other.Tenant = "globex"
	for what, f := range map[string]Found{"other bytes": look(sends(t, dir+"/file3.txt"), all), "another tenant": look(other, all), "other rules": look(sends(t, dir+"/file.txt"), rules(t))} {
		if len(f.Extracts) != 1 {
			t.Errorf("%s: found is %+v", what, f)
		}
	}
}

func TestWhatIsKeptIsBounded(t *testing.T) {
	c, all := cache{half: 4096}, rules(t)
	found := (*ocip.Rules)(nil).Weigher(nil, 0).Found()
	for i := range 1000 {
		c.add(all, subject{sha256: fmt.Sprint(i)}, found)
		if kept := len(c.young) + len(c.old); kept*found.Size() > 2*c.half {
			t.Fatalf("%d are kept after %d", kept, i)
		}
	}
	if c.get(all, subject{sha256: "999"}) == nil || c.get(all, subject{sha256: "0"}) != nil {
		t.Error("it is not the last ones that are kept")
	}
}

func TestTooManyFiles(t *testing.T) {
	m := &Message{}
	for i := range media.MaxReferences + 1 {
		m.Content += fmt.Sprintf("see file:///x/%d.txt ", i)
	}
	if _, err := NewLooker(1).Look(t.Context(), m, rules(t)); err == nil || !strings.Contains(err.Error(), "names more than") {
		t.Errorf("it ends with %v", err)
	}
}
